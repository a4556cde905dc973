"""Waiting in line: classical queues, and the step cycle of an engine that batches continuously."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import (
    Number,
    erlang_b,
    exp,
    geometric_sum,
    log,
    maximum,
    minimum,
    only_if,
)

_ERLANG = "Erlang 1917; Cooper 1981, Introduction to Queueing Theory"
_PK = "Pollaczek 1930, Khinchine 1932"


@equation(symbol=r"B", unit="1", source=_ERLANG)
def blocking_probability(*, servers: Number, load: Number) -> Any:
    r"""Erlang B: share of arrivals that find all servers busy where nobody waits (M/G/c/c).

    Parameters
    ----------
    servers : Number
        Servers [1].
    load : Number
        Offered load, in erlang [1].

    Returns
    -------
    Number
        Probability [1].
    """
    return erlang_b(servers, load)


@equation(symbol=r"C", unit="1", source=_ERLANG)
def waiting_probability(*, servers: Number, load: Number) -> Any:
    r"""Erlang C: share of arrivals that wait in M/M/c; 1 where the load is not served.

    Parameters
    ----------
    servers : Number
        Servers [1].
    load : Number
        Offered load, in erlang [1].

    Returns
    -------
    Number
        Probability [1].
    """
    blocked = erlang_b(servers, load)
    return blocked / (1 - minimum(1.0, load / servers) * (1 - blocked))


@equation(symbol=r"W_{M/M/c}", unit="s", source=_ERLANG)
def exponential_wait(*, servers: Number, load: Number, service: Number) -> Any:
    r"""Mean wait of M/M/c.

    Parameters
    ----------
    servers : Number
        Servers [1].
    load : Number
        Offered load, in erlang; less than the servers [1].
    service : Number
        Mean service time [s].

    Returns
    -------
    Number
        Time; NaN where the load is not served [s].
    """
    spare = servers - load
    blocked = erlang_b(servers, load)
    # C / (c - a) with the common factor cancelled, so that nothing is divided by 0 at saturation.
    return only_if(
        spare - 1e-12 * servers, service * blocked * servers / (spare + load * blocked) / maximum(1e-300, spare)
    )


@equation(symbol=r"W_{M/G/1}", unit="s", source=_PK)
def single_server_wait(*, utilisation: Number, service: Number, service_scv: Number) -> Any:
    r"""Mean wait of M/G/1.

    Parameters
    ----------
    utilisation : Number
        Rate times mean service time [1].
    service : Number
        Mean service time [s].
    service_scv : Number
        Squared coefficient of variation of service times [1].

    Returns
    -------
    Number
        Time; NaN from a utilisation of 1 on [s].
    """
    spare = 1 - utilisation
    return only_if(spare - 1e-12, utilisation * service * (1 + service_scv) / 2 / maximum(1e-300, spare))


@equation(
    symbol=r"W_{G/G/c}", unit="s", source="Allen 1978 and Cunneen, in Probability, Statistics and Queueing Theory"
)
def allen_cunneen_wait(*, wait: Number, arrival_scv: Number, service_scv: Number) -> Any:
    r"""Mean wait of G/G/c from that of M/M/c; exact for M/M/c and M/G/1.

    Parameters
    ----------
    wait : Number
        Mean wait of M/M/c at the same load [s].
    arrival_scv, service_scv : Number
        Squared coefficients of variation of times between arrivals, and of service times [1].

    Returns
    -------
    Number
        Time [s].
    """
    return wait * (arrival_scv + service_scv) / 2


@equation(symbol=r"g", unit="1", source="Kraemer and Langenbach-Belz 1976, 8th International Teletraffic Congress")
def arrival_correction(*, utilisation: Number, arrival_scv: Number, service_scv: Number) -> Any:
    r"""Factor on the mean wait of G/G/1 in :func:`allen_cunneen_wait`; 1 for Poisson arrivals.

    Parameters
    ----------
    utilisation : Number
        Rate times mean service time, above 0 [1].
    arrival_scv, service_scv : Number
        Squared coefficients of variation of times between arrivals, and of service times; not both 0 [1].

    Returns
    -------
    Number
        Factor [1].
    """
    idle = maximum(0.0, 1 - utilisation)
    regular, batchy = maximum(0.0, 1 - arrival_scv), maximum(0.0, arrival_scv - 1)
    return exp(
        -2 * idle * regular * regular / (3 * utilisation * (arrival_scv + service_scv))
        - idle * batchy / (arrival_scv + 4 * service_scv)
    )


@equation(symbol=r"W_{M/D/c}", unit="s", source="Cosmetatos 1975, doi:10.1057/jors.1975.148")
def deterministic_wait(*, wait: Number, servers: Number, load: Number) -> Any:
    r"""Mean wait of M/D/c from that of M/M/c; exact for one server and in heavy traffic.

    Parameters
    ----------
    wait : Number
        Mean wait of M/M/c at the same load [s].
    servers : Number
        Servers [1].
    load : Number
        Offered load, in erlang; above 0 [1].

    Returns
    -------
    Number
        Time [s].
    """
    idle = servers - load
    return wait / 2 * (1 + idle * (servers - 1) * ((4 + 5 * servers) ** 0.5 - 2) / (16 * load * servers))


@equation(symbol=r"W_{M/G/c}", unit="s", source="Kimura 1986, doi:10.1287/opre.34.3.366")
def kimura_wait(*, wait: Number, deterministic: Number, service_scv: Number) -> Any:
    r"""Mean wait of M/G/c, interpolated between M/M/c and M/D/c; exact for both and for M/G/1.

    Parameters
    ----------
    wait : Number
        Mean wait of M/M/c at the same load, above 0 [s].
    deterministic : Number
        Mean wait of M/D/c at the same load, above 0 [s].
    service_scv : Number
        Squared coefficient of variation of service times [1].

    Returns
    -------
    Number
        Time [s].
    """
    # A spread beyond that of the exponential is scaled, because the harmonic form has a pole there.
    within = minimum(1.0, service_scv)
    mixed = (1 + within) / (2 * within / wait + (1 - within) / deterministic)
    return mixed * (1 + maximum(1.0, service_scv)) / 2


@equation(symbol=r"t_p", unit="s", source="exponential tail of the wait of those who wait")
def wait_quantile(*, wait: Number, waiting: Number, quantile: Number) -> Any:
    r"""Quantile of the wait of all arrivals; exact for M/M/c.

    Parameters
    ----------
    wait : Number
        Mean wait of all arrivals [s].
    waiting : Number
        Share of arrivals that wait, above 0 [1].
    quantile : Number
        Share of arrivals that wait no longer, below 1 [1].

    Returns
    -------
    Number
        Time [s].
    """
    return wait / waiting * maximum(0.0, log(waiting / (1 - quantile)))


@equation(symbol=r"P_K", unit="1", source="M/M/c/K; Gross and Harris, Fundamentals of Queueing Theory")
def full_probability(*, servers: Number, load: Number, places: Number) -> Any:
    r"""Share of arrivals that M/M/c with a finite waiting room turns away.

    Parameters
    ----------
    servers : Number
        Servers [1].
    load : Number
        Offered load, in erlang [1].
    places : Number
        Places in the waiting room [1].

    Returns
    -------
    Number
        Probability; Erlang B without a waiting room [1].
    """
    blocked = erlang_b(servers, load)
    ratio = load / servers
    return blocked * ratio**places / (1 + blocked * ratio * geometric_sum(ratio, places))


@equation(symbol=r"W_0", unit="s", source=_PK)
def residual_work(*, rate: Number, service: Number, service_scv: Number) -> Any:
    r"""Mean remaining service that an arrival of M/G/1 finds in progress; sums over classes.

    Parameters
    ----------
    rate : Number
        Arrivals of the class [1/s].
    service : Number
        Mean service time of the class [s].
    service_scv : Number
        Squared coefficient of variation of its service times [1].

    Returns
    -------
    Number
        Time [s].
    """
    return rate * service * service * (1 + service_scv) / 2


@equation(symbol=r"W_k", unit="s", source="Cobham 1954, doi:10.1287/opre.2.1.70")
def priority_wait(*, residual: Number, above: Number, through: Number) -> Any:
    r"""Mean wait of a class of M/G/1 with priorities that do not interrupt.

    Parameters
    ----------
    residual : Number
        Mean remaining service found in progress, all classes together [s].
    above : Number
        Utilisation by the classes served before this one [1].
    through : Number
        The same with this class [1].

    Returns
    -------
    Number
        Time; NaN where the class is not served [s].
    """
    spare = 1 - through
    return only_if(spare - 1e-12, residual / (maximum(1e-300, 1 - above) * maximum(1e-300, spare)))


@equation(symbol=r"c_a^2", unit="1", source="random splitting of a renewal process")
def split_scv(*, scv: Number, ways: Number) -> Any:
    r"""Squared coefficient of variation of arrivals that are dealt at random to so many replicas.

    Parameters
    ----------
    scv : Number
        Of all arrivals together [1].
    ways : Number
        Replicas [1].

    Returns
    -------
    Number
        Squared coefficient of variation [1].
    """
    return 1 + (scv - 1) / ways


@equation(symbol=r"c_a^2", unit="1", source="every so many-th arrival of a renewal process")
def dealt_scv(*, scv: Number, ways: Number) -> Any:
    r"""Squared coefficient of variation of arrivals that are dealt in turn to so many replicas.

    Parameters
    ----------
    scv : Number
        Of all arrivals together [1].
    ways : Number
        Replicas [1].

    Returns
    -------
    Number
        Squared coefficient of variation [1].
    """
    return scv / ways


@equation(symbol=r"z", unit="1", source="Whitt 1984, Heavy-traffic approximations for service systems with blocking")
def peakedness(*, arrival_scv: Number, overlap: Number) -> Any:
    r"""Variance over mean of the requests in progress, where each is served at once.

    Parameters
    ----------
    arrival_scv : Number
        Squared coefficient of variation of times between arrivals [1].
    overlap : Number
        Integral of the squared survival function of service times over their mean: 1 for equal times, 1/2 for
        exponential ones [1].

    Returns
    -------
    Number
        Ratio; 1 for Poisson arrivals [1].
    """
    return 1 + (arrival_scv - 1) * overlap


# --- continuous batching -----------------------------------------------------------------------------------------
