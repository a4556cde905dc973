"""What answers look like as JSON: one shape for one thing, whatever verb prints it.

``to_dict()`` of a result returns a shape, the command line prints it with its question, and ``perfmodel specs schema``
prints the JSON Schema that is made from it.  Times are in s, sizes in B, power in W, rates in 1/s; what does not exist
is null; a whole number is written whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import TypedDict

#: Raised where a shape loses a key or a key changes its meaning; a new key does not raise it.
VERSION = 1

#: A number, or null where there is none.
Number = float | None


def number(value: Any) -> Any:
    """Return a number as JSON has it: whole where it is whole, None where it is not finite.

    Parameters
    ----------
    value : float, array or any
        Arrays become lists; what is no number stays.

    Returns
    -------
    int, float, list, None or as given
    """
    if isinstance(value, np.ndarray):
        return [number(item) for item in value.tolist()]
    if isinstance(value, bool) or not isinstance(value, float | int | np.generic):
        return value
    exact = float(value)
    if not np.isfinite(exact):
        return None
    # Above 2^53 not every whole number is a float, so an integer would claim digits that nobody has worked out.
    return int(exact) if exact.is_integer() and abs(exact) <= 2**53 else exact


def numbers(values: Mapping[str, Any]) -> Any:
    """Return numbers by name as JSON has them.

    Parameters
    ----------
    values : mapping
        With mappings inside, if wanted.

    Returns
    -------
    dict
    """
    return {key: numbers(value) if isinstance(value, Mapping) else number(value) for key, value in values.items()}


class Plan(TypedDict):
    """How a model is laid over a system."""

    name: str
    """Of the plans that the system lists, or ``given``."""
    tp: int
    """Tensor-parallel degree."""
    pp: int
    """Pipeline stages."""
    ep: int
    """Expert-parallel degree."""
    dp: int
    """Replicas that share nothing."""
    attention_dp: int
    """Groups of ranks of a replica that hold attention whole and share experts."""
    engine: str
    precision: str
    """Storage of the weights."""
    kv_precision: str
    """Storage of the KV cache."""


class Traffic(TypedDict):
    """What a request looks like, and how many are in flight."""

    name: str
    """Of a traffic, or ``given``."""
    prompt: float
    """Prompt tokens."""
    output: float
    """Output tokens."""
    concurrency: Number
    """Clients of a closed loop, all replicas together; null under a rate."""


class Placed(TypedDict):
    """A model on a system."""

    model: str
    system: str
    plan: Plan


class Asked(Placed):
    """What was asked, as it was understood."""

    traffic: Traffic


class Told(TypedDict):
    """What a reader must know beside the numbers."""

    assumed: list[str]
    """What the question left open, and as what it was taken."""
    warnings: list[str]


class Spread(TypedDict):
    """A number that is not known exactly; the ends are null where nothing says how sure it is."""

    p10: Number
    p50: Number
    """The central value."""
    p90: Number


def spread(middle: Any, low: Any = None, high: Any = None) -> Spread | None:
    """Return a number with its ends; None where there is no number.

    Parameters
    ----------
    middle, low, high : float or None

    Returns
    -------
    Spread or None
    """
    central = number(middle)
    return None if central is None else {"p10": number(low), "p50": central, "p90": number(high)}


class PerMtok(TypedDict):
    """USD a million tokens; null where there is no price, or none of this kind was worked out."""

    input: Spread | None
    output: Spread | None
    blended: Spread | None


class Ends(TypedDict):
    """Ends of an 80 % band."""

    low: Number
    high: Number


class Statistics(TypedDict):
    """A time over requests [s]."""

    p50: Number
    p90: Number
    p99: Number
    mean: Number


class Times(TypedDict):
    """Times of requests; null where one is none of what was worked out."""

    wait_s: Statistics | None
    ttft_s: Statistics | None
    tpot_s: Statistics | None
    itl_s: Statistics | None
    request_latency_s: Statistics | None


def times(known: Mapping[str, Mapping[str, float | None]]) -> Times:
    """Return what is known of each time.

    Parameters
    ----------
    known : mapping
        Statistics [s] by the name of a time.

    Returns
    -------
    Times
    """

    def statistics(name: str) -> Statistics | None:
        found = known.get(name)
        if found is None:
            return None
        p50, p90, p99, mean = (number(found.get(what)) for what in ("p50", "p90", "p99", "mean"))
        return {"p50": p50, "p90": p90, "p99": p99, "mean": mean}

    return {
        "wait_s": statistics("wait_s"),
        "ttft_s": statistics("ttft_s"),
        "tpot_s": statistics("tpot_s"),
        "itl_s": statistics("itl_s"),
        "request_latency_s": statistics("request_latency_s"),
    }


class Causes(TypedDict):
    """Seconds by cause, which add up."""

    compute: Number
    memory: Number
    collective: Number
    overhead: Number
    host: Number
    wait: Number


class Breakdown(TypedDict):
    """Where TTFT and TPOT go."""

    prefill: Causes
    decode: Causes


class LimitedBy(TypedDict):
    """What limits: a cause of the breakdown, and for the concurrency ``requested`` or ``memory``."""

    prefill: str
    decode: str | None
    """Null of a model that does not decode."""
    concurrency: str | None
    """Null where requests of the mean length do not fit, and shorter ones do."""


class Memory(TypedDict):
    """Bytes of one chip of the fullest stage by use."""

    capacity: Number
    weights: Number
    kv_cache: Number
    reserved: Number
    kv_room: Number


class Speculation(TypedDict):
    """A draft, and what it brings; null what the answer does not work out."""

    draft: str
    k: int
    """Tokens drafted a step."""
    alpha: Number
    ar: Number
    accept: list[Number] | None
    """Chance position by position."""
    host_time_s: Number
    tokens_per_step: Number
    draft_s: Number
    verify_s: Number
    speedup: Number


class Period(TypedDict):
    """What a share of the rate needs."""

    share: float
    replicas: int


class Spares(TypedDict):
    """Replicas that fail now and then."""

    target: float
    """Share of time that enough must work."""
    unit: str
    """What is spared: ``replicas`` or ``nodes``."""
    working: Number
    spares: int | None
    """On top of what is needed; null where the target is out of reach."""
    extra: Number
    reached: Number
    recovery_s: Number
    mtbf_s: Number
    hit: Number
    """Share of requests during which their replica fails."""
    latency_p99_s: Number


class Load(TypedDict):
    """What replicas do under requests that arrive at random."""

    replicas: int
    times: Times
    goodput_per_s: Number
    """Requests a second that meet every objective."""
    running: Number
    """Requests in flight in a replica, mean."""
    utilisation: Number
    """Rate over what the replicas can do."""
    headroom: Number
    """By how much the rate may grow until an objective is missed, as a share of it."""
    first_limit: str
    batch_cap: int
    """Requests that a replica runs at most."""
    token_budget: int
    """Tokens of a step at most."""
    periods: list[Period]
    availability: Spares | None


class Arriving(Load):
    """The load of a prediction."""

    rate_per_s: float
    objectives: dict[str, float]
    saturated: bool


class Prediction(Asked, Told):
    """``predict``: means of the steady state; with a rate those under the load, which stands in ``load``."""

    ttft_s: Number
    ttft_median_s: Number
    tpot_s: Number
    request_latency_s: Number
    output_tokens_per_s: Number
    input_tokens_per_s: Number
    output_tokens_per_s_per_user: Number
    input_tokens_per_s_per_user: Number
    tokens_per_s_per_chip: Number
    """Input and output tokens."""
    requests_per_s: Number
    """Of a model that makes one pass over its input, else null."""
    tokens_per_s: Number
    """Of a model that makes one pass over its input, else null."""
    mfu: Number
    mbu: Number
    power_w: Number
    joules_per_output_token: Number
    usd_per_mtok: PerMtok
    """The ends are those of the 80 % band."""
    fits: bool
    max_concurrency: int | None
    """Requests that the memory holds, all replicas together."""
    limited_by: LimitedBy | None
    breakdown: Breakdown
    memory: Memory
    band: dict[str, Ends] | None
    """By metric, what holds 80 % of measurements like those of the calibration."""
    speculation: Speculation | None
    chips: int
    load: Arriving | None
    reason: str | None
    """Why there are no numbers."""


class Comparison(Told):
    """``compare``: an answer a system; what all of them assume and warn of stands once more beside them."""

    answers: list[Prediction]


class Checked(TypedDict):
    """A time in a simulation [s]."""

    value: Number
    standard_error_s: Number


class PriceOfObjective(TypedDict):
    """What the plan takes at another limit of one objective, the others as they are; null where none will do."""

    objective: str
    limit_s: Number
    replicas: int | None
    chips: Number
    usd_per_hour: Number


class Unserved(TypedDict):
    """A system that was asked for and that no plan serves on."""

    system: str
    reason: str


class Sized(Asked, Load):
    """The best plan of a system."""

    chips: int
    usd_per_hour: Number
    usd_per_mtok: PerMtok
    """At the rate, for the share of the day that the economics name."""
    power_w: Number
    speculation: Speculation | None
    checked: dict[str, Checked] | None
    """What a simulation makes of each objective, by its name."""
    chips_band: Ends | None
    """Chips that the objectives take at the ends of the 80 % band of the speed."""
    probability: Number
    """That the answer meets its objectives."""
    floors: dict[str, Number]
    """What each objective comes to on a machine with nothing else to do."""
    prices: list[PriceOfObjective]
    """Of the first answer: what other limits take."""


class Rejected(TypedDict):
    """A plan that is no answer."""

    system: str
    plan: Plan
    """Of one replica."""
    k: int | None
    """Tokens drafted a step."""
    reason: str
    candidates: int


class Sizing(Told):
    """``size``: the best plan of each system, the best system first."""

    answers: list[Sized]
    rejected: list[Rejected]
    objectives: dict[str, float]
    rate_per_s: float
    least: str
    candidates: int
    reason: str | None
    verdict: str
    """What to take, how many of it, and under which condition."""
    unserved: list[Unserved]


class StepOfCourse(Sizing):
    """The answer at one rate."""

    year: int | None
    """From now, where the rate grows."""


class PathOfCourse(TypedDict):
    """A system that serves every step."""

    system: str
    plans: list[str]
    chips: list[Number]
    bought: list[Number]
    """Chips that those of the steps before do not cover."""
    usd_per_hour: Number
    """Mean over the steps, of the chips that are there by then."""


class Course(TypedDict):
    """``size`` at several rates, or year by year."""

    verdict: str
    steps: list[StepOfCourse]
    paths: list[PathOfCourse]
    flips: list[str]
    reason: str | None


class TrafficOfMix(TypedDict):
    """A traffic among those that share a fleet, judged by its own requests."""

    traffic: str
    rate_per_s: Number
    objectives: dict[str, float]
    checked: dict[str, dict[str, Checked] | None]
    """By system: what its simulation gives this traffic."""


class Mixed(TypedDict):
    """``size`` of several traffics: one fleet for all of them, and a fleet each where it is asked for."""

    verdict: str
    traffics: list[TrafficOfMix]
    together: Sizing
    """Times of its answers are those of all requests; ``checked`` is that of the traffic that stands worst."""
    separate: list[Sizing]
    least: str
    separate_total: Number
    """What a fleet each takes of what is made least."""
    cheaper: str | None
    """together, separate or tie."""
    reason: str | None


class Most(Sized):
    """The plan of a system that serves most, at the most that it serves."""

    most_rate_per_s: float
    rate_headroom: Number
    """Growth of the rate that was asked for; negative where less than it is served."""


class Capacity(Told):
    """``capacity``: what machines that one has serve, those that serve most first."""

    verdict: list[str]
    nodes: Number
    rate_per_s: Number
    objectives: dict[str, float]
    answers: list[Most]
    unserved: list[Unserved]
    rejected: list[Rejected]
    reason: str | None


class Moved(TypedDict):
    """A number that is no longer what it was; null where there is none."""

    name: str
    """Path of an input, or name of a number of the answer."""
    before: Number
    now: Number


class PlanChecked(TypedDict):
    """``plans check``: a saved plan beside what its question is answered with today."""

    holds: bool
    """Whether the same replicas of the same plan are still the answer."""
    written: str
    version: str
    """Of perfmodel, which wrote it."""
    verdict_then: str
    verdict_now: str
    layout: str | None
    why: str
    answer: list[Moved]
    inputs: list[Moved]


class Pool(Placed):
    """A pool for prefill or for decode."""

    replicas: int | None
    times: Times
    utilisation: Number
    headroom: Number
    first_limit: str | None
    chips: Number
    usd_per_hour: Number
    power_w: Number
    tokens_per_s_per_chip: Number
    """Tokens that it prefills, or that it brings."""
    checked: dict[str, Checked] | None
    chips_band: Ends | None
    probability: Number


class Pools(Told):
    """``size --prefill-on``: two pools."""

    rate_per_s: float
    objectives: dict[str, float]
    prefill: Pool
    decode: Pool
    chips: int | None
    usd_per_hour: Number
    power_w: Number
    prefill_replicas_per_decode_replica: Number
    kv_transfer_s: Number
    tpot_with_transfer_s: Number
    reason: str | None


class Parts(TypedDict):
    """Bytes of one chip by use; they add up to what the engine sees and what is missing."""

    visible: Number
    weights: Number
    activation_peak: Number
    non_torch: Number
    cuda_graphs: Number
    kv_pool: Number
    outside_budget: Number
    missing: Number


class Fit(Placed, Told):
    """``fit``: how many tokens and requests the memory holds."""

    chips: int
    fits: bool
    context: float
    """Tokens of a request."""
    kv_tokens: Number
    max_concurrency: int | None
    """Requests of that context, all replicas together."""
    max_concurrency_unrounded: Number
    memory_utilisation: Number
    """Share of the visible memory that the engine may take."""
    parts: Parts
    per_token_bytes: Number
    fixed_bytes: Number
    per_request_bytes: Number
    block_tokens: int
    reason: str | None


class Swing(TypedDict):
    """The blended price with one unknown at its ends."""

    path: str
    low: Number
    high: Number


class Costs(TypedDict):
    """Where cost, power and emissions go."""

    hourly_usd: dict[str, Number]
    capex_usd: dict[str, Number]
    power_w: dict[str, Number]
    carbon_g_per_output_token: dict[str, Number]
    water_l_per_mtok_output: Number
    materials_usd: dict[str, Number]
    margin_over_materials: Number


class PriceSaid(TypedDict):
    """What a system costs to buy and to rent."""

    system_usd: Number
    basis: str | None
    """volume, listing or retail; quote where it was given."""
    date: str | None
    rent_usd_per_chip_hour: Number
    market: str | None
    """contract, neocloud or hyperscaler; quote where it was given."""
    rent_date: str | None


class SpeedPoint(TypedDict):
    """A setting of a system that no faster one undercuts."""

    tpot_s: float
    usd_per_mtok: float
    concurrency: float
    plan: str


class WayToServe(TypedDict):
    """Owned, rented or an API: what it costs at each load, and where it costs least."""

    name: str
    said: str
    usd_per_mtok: list[float]
    mtok_per_day: list[float]
    wins_from_mtok_per_day: Number
    wins_to_mtok_per_day: Number


class WinnerOfYear(TypedDict):
    """The way to serve that costs least in one year, as the load grows."""

    year: int
    mtok_per_day: Number
    deployments: int
    way: str
    usd_per_mtok: Number
    machines: str
    """Among owned, colocated and rented machines only; empty where none has a price."""
    machines_usd_per_mtok: Number


class SoldAt(TypedDict):
    """Blended prices at which providers sell the model's tokens, USD a million."""

    low: Number
    high: Number
    date: str
    providers: int


class Owned(Asked):
    """One system of ``tco``."""

    name: str
    """The system, told apart where it stands twice."""
    chips: int
    usd_per_mtok: PerMtok
    usd_per_chip_hour: Number
    usd_per_system_month: Number
    capex_usd: Number
    power_w: Number
    joules_per_output_token: Number
    joules_per_output_token_spread: Spread | None
    tpot_s: Number
    output_tokens_per_s_per_user: Number
    tokens_per_s_per_kw: Number
    tokens_per_joule: Number
    costs: Costs
    tie_price_usd: Number
    break_even_utilisation: Number
    sobol: dict[str, float]
    """By path, the share of the variance of the blended price, ten at most."""
    tornado: list[Swing]
    implied_capex_usd: dict[str, Number]
    limit: str | None
    """What keeps it from the bound on TPOT."""
    price: PriceSaid
    curve: list[SpeedPoint]
    ways: list[WayToServe]
    winner_by_year: list[WinnerOfYear]
    buy_in_year: int | None
    """From which year on machines of one's own cost less than rented ones to the end; null where they do not."""
    usd_per_task: Number
    """One request, at the present value of all years."""
    npv_usd: Number
    cash_flow: list[dict[str, str | float | None]]
    """One row a year: what is paid, written off and served."""
    labels: list[str]
    reason: str | None


class Owning(Told):
    """``tco``: costs side by side over the same draws."""

    tpot_bound_s: Number
    sold_usd_per_mtok: SoldAt | None

    answers: list[Owned]
    probability_cheaper: dict[str, dict[str, Number]]
    """That the first is cheaper than the second."""


class Equation(TypedDict):
    """An equation that a solution went through."""

    name: str
    unit: str
    source: str


class Solution(Asked, Told):
    """``solve``: the value of an input at which a metric meets a target."""

    metric: str
    metric_unit: str
    path: str
    unit: str
    target: float
    current: Number
    now: Number
    value: Number
    reached: Number
    beyond: Number
    method: str | None
    form: str | None
    holds_from: Number
    holds_to: Number
    limit: Number
    equations: list[Equation]
    reason: str | None


class Input(TypedDict):
    """A leaf of an explanation: a number of a spec or of the question."""

    name: str
    value: Number
    unit: str
    source: str
    kind: str
    file: str | None
    note: str | None
    low: Number
    high: Number


class Line(TypedDict):
    """A node of an explanation: an equation with its numbers."""

    name: str
    value: Number
    unit: str
    symbol: str | None
    formula: str
    numbers: str | None
    source: str
    repeated: bool
    omitted: int
    """Equations below that the depth leaves out."""
    inputs: list[Line | Input]


class Elasticity(TypedDict):
    """By how many per cent one per cent more of an input moves the result."""

    path: str
    value: Number
    unit: str
    elasticity: Number
    switches: bool
    source: str
    kind: str


class Operator(TypedDict):
    """What an operator does in a step of all running sequences, over all chips of a replica."""

    operator: str
    flops: Number
    bytes: Number
    flops_per_byte: Number
    limit: str
    time_s: Number
    share: Number


class Operators(TypedDict):
    """Operators by phase: the first adds up to TTFT, the second to TPOT."""

    prefill: list[Operator]
    decode: list[Operator]


class Explanation(Asked, Told):
    """``explain``: how a number came about."""

    metric: str
    value: Number
    unit: str
    tree: Line | Input
    elasticities: list[Elasticity]
    operators: Operators


class Simulation(Asked, Told):
    """``simulate``: token by token, beside the closed form."""

    routing: str
    requests: int
    seeds: int
    replicas: int
    refused: int
    preempted: int
    rate_per_s: Number
    closed_form_rate_per_s: Number
    utilisation: Number
    simulated: Times
    standard_error: Times
    """As shares of what was simulated."""
    closed_form: Times | None
    difference: Times | None
    """Closed form over simulation, less 1."""
    reason: str | None


class Written(TypedDict):
    """``export``, ``whatif`` and ``report``, and a sweep with ``--out``: the files that were written."""

    written: list[str]


class Points(TypedDict):
    """``sweep``: each point as a row, its columns and their units."""

    units: dict[str, str]
    rows: list[dict[str, float | str | bool | None]]
    assumed: list[str]
    warnings: list[str]


class UserPoints(TypedDict):
    """``sweep`` over users with sessions: each point as a row."""

    rows: list[dict[str, float | str | bool | None]]


class Algorithm(TypedDict):
    """One way to do a collective."""

    algorithm: str
    time_s: Number
    algorithm_bandwidth: Number
    """Message over time [B/s]."""
    bus_bandwidth: Number
    """As NCCL's tests print it [B/s]."""


class Collective(TypedDict):
    """``collective``: how long one takes, by algorithm."""

    system: str
    engine: str
    operation: str
    ranks: int
    message_bytes: float
    algorithms: list[Algorithm]
    warnings: list[str]


class Proof(TypedDict):
    """One thing that was proven on this machine."""

    check: str
    holds: bool | None
    """Null where the machine has not what it needs."""
    detail: str


class SelfCheck(TypedDict):
    """``selfcheck``: what holds on this machine."""

    holds: bool
    seconds: float
    checks: list[Proof]


class CacheTier(TypedDict):
    """A tier of the prefix cache under sessions, the memory of the chips first."""

    name: str
    hit_rate: Number
    """Share of all prompt tokens found in it."""
    capacity_bytes: Number
    loads_bytes_per_s: Number
    """Of one replica."""
    bandwidth_bytes_per_s: Number
    """Its limit, of one replica."""
    busy: Number
    """The former over the latter."""
    crossover_tokens: Number
    """Tokens from which on a load is faster than computing them."""


class ColdStart(TypedDict):
    """Where a start with an empty cache leads, where that is not where a warm one stays."""

    hit_rate: Number
    ttft_s: Number
    task_s: Number
    tasks_per_hour: Number


class Worth(TypedDict):
    """The same question with one thing changed."""

    change: str
    hit_rate: Number
    ttft_s: Number
    task_s: Number
    cliff_users: Number
    usd_per_task: Number


class Agents(TypedDict):
    """``predict --sessions``: users with sessions on a deployment, in means."""

    model: str
    system: str
    plan: Plan
    session: str
    users: Number
    routing: str
    reason: str | None
    """Why there are no numbers."""
    hit_rate: Number
    """Share of the prompt tokens found in any tier."""
    hit_ceiling: Number
    """The same of a cache without limit."""
    ttft_s: Number
    ttft_p50_s: Number
    ttft_p95_s: Number
    ttft_p99_s: Number
    ttft_hit_s: Number
    """Of calls whose context lies in the memory of the chips."""
    ttft_miss_s: Number
    """Of calls whose context is lost."""
    tpot_s: Number
    call_s: Number
    task_s: Number
    """From a person's message to the end of the last call that it causes."""
    calls_per_task: Number
    calls_per_s: Number
    tasks_per_hour: Number
    running: Number
    """Calls of one replica."""
    waiting: Number
    prefill_share: Number
    """Of the engine's time."""
    sessions_per_chip: Number
    usd_per_hour: Number
    usd_per_task: Number
    """Over the hours in which the deployment is used."""
    cliff_share: Number
    """Of the ceiling, below which the hit rate has fallen."""
    cliff_users: Number
    """Users up to which it has not; null where it never falls."""
    cliff_users_cold: Number
    cliff_pool_bytes: Number
    """Cache of a replica with which it has not, for the users asked for."""
    pool_bytes: Number
    """Cache of a replica."""
    past_cliff: bool | None
    tiers: list[CacheTier]
    cold: ColdStart | None
    worth: list[Worth]
    assumed: list[str]
    warnings: list[str]


class LostPlan(TypedDict):
    """A plan that does not serve users with sessions."""

    plan: str
    why: str


class AgentsSizing(TypedDict):
    """``size --sessions``: deployments that serve the users, the cheapest first."""

    answers: list[Agents]
    objectives: dict[str, float]
    """Times not to exceed, by name [s]."""
    rejected: list[LostPlan]
    reason: str | None


class OwnedAgents(TypedDict):
    """What a task costs on a system."""

    answer: Agents
    usd_per_task_by_cause: dict[str, Number]
    """Adding up to the cost of a task."""
    tie_price_usd: Number
    """Of the whole system, at which its task costs what that of the cheapest other one does."""


class OwningAgents(TypedDict):
    """``tco --sessions``: the least deployment of each system that serves the users, the cheapest task first."""

    tpot_bound_s: Number
    """On the mean."""
    systems: list[OwnedAgents]
    rejected: list[LostPlan]
    reason: str | None


class SimulatedTier(TypedDict):
    """A tier of the prefix cache, simulated and by the closed form."""

    name: str
    simulated: Number
    """Share of all prompt tokens found in it."""
    standard_error: Number
    closed_form: Number
    difference: Number
    """The closed form less the simulation."""


class AgentsSimulation(TypedDict):
    """``simulate --sessions``: the prefix cache call by call, beside the closed form."""

    model: str
    system: str
    plan: Plan
    session: str
    users: Number
    calls: int
    """Of a seed."""
    seeds: int
    call_s: Number
    """Time of a call, by the closed form."""
    tiers: list[SimulatedTier]
    reason: str | None
    assumed: list[str]
    warnings: list[str]


class AgentsBeside(TypedDict):
    """``compare --sessions``."""

    answers: list[Agents]


class TrafficImport(TypedDict):
    """``traffic import`` and ``traffic show``: what calls of sessions say without any machine."""

    name: str
    form: str
    """Who writes such traces; ``session`` for a spec."""
    sessions: int
    calls: int
    tasks: int
    """Between two messages of a person each; sessions, where nobody knows who sent what."""
    hit_ceiling: float
    """Share of prompt tokens that a cache without limit holds."""
    read_per_written: float
    """Tokens that such a cache gives for one that is prefilled."""
    input_per_output: float
    mean_context: float
    """Prompt tokens of a call."""
    mean_new: float
    """Of them those that no cache holds."""
    mean_output: float
    path: str | None
    """The session file that was written."""
    assumed: list[str]


class Started(TypedDict):
    """Engines of a role."""

    role: str | None
    """``prefill`` or ``decode`` of two pools."""
    workers: int
    chips: int
    """Of one worker."""
    command: list[str]
    files: dict[str, str]
    """Configuration that the command reads, by name."""


class Launch(TypedDict):
    """``launch``: what starts the engines of a plan."""

    engine: str
    release: str
    format: str
    roles: list[Started]
    text: str
    """As it is printed in the format."""
    not_said: list[str]
    """What the plan has and the engine cannot be told."""
    notes: list[str]


class Stated(TypedDict):
    """A field of a run's set-up."""

    value: str
    origin: str
    """Where in the file, or how it was given."""


class RunValue(TypedDict):
    """A measured value of a run."""

    metric: str
    """As the column has it: the bare name is a mean."""
    stat: str
    value: Number
    unit: str
    origin: str


class Run(TypedDict):
    """What a file says of one run."""

    source: str
    kind: str
    fields: dict[str, Stated]
    """By column of the measurement file."""
    values: list[RunValue]


class Suspect(TypedDict):
    """A run that does not go with those beside it."""

    run: int
    """By its place, from 1."""
    why: str


class Runs(TypedDict):
    """``runs import``: runs of benchmark tools and servers."""

    runs: list[Run]
    suspects: list[Suspect]


class Row(TypedDict):
    """A measured value and its prediction."""

    data: str
    """Its file."""
    given: dict[str, str]
    """The columns of the file as they stand there."""
    value: Number
    predicted: Number
    """In the row's own unit, and so are the ends of the band."""
    low: Number
    high: Number
    error: Number
    """Signed, relative to the measured value."""
    reason: str | None
    """Why there is no prediction."""
    part: str
    """``predicted``, ``calibrated`` or ``anomalous``."""
    anomaly: str | None
    metric_family: str
    model_class: str | None
    """What its errors are pooled with: dense, experts, latent, sparse or recurrent."""
    matched_model: str
    matched_system: str
    matched_engine: str
    assumed: list[str]
    unit_kind: str | None


class Score(TypedDict):
    """How far predictions of a group lie from what was measured."""

    data: str
    part: str
    by: str
    group: str
    rows: int
    answered: int
    coverage: float
    mape: Number
    median: Number
    bias: Number
    p90: Number
    within: Number
    in_band: Number
    worst: Number
    worst_row: str | None


class Calibration(TypedDict):
    """What was fitted of a chip and an engine."""

    calibration: str
    parameters: int
    on: list[str]


class LeftOutScore(TypedDict):
    """Errors of rows that the fit did not see."""

    n: int
    mape: Number
    median: Number
    bias: Number


class LeftOut(TypedDict):
    """Scores of a fit without some rows."""

    left_out: str
    what: str
    tpot: LeftOutScore | None
    ttft: LeftOutScore | None


class Validation(TypedDict):
    """``validate``: predicted against measured."""

    rows: list[Row]
    scores: list[Score]
    fitted: list[Calibration]
    left_out: list[LeftOut]


class Expected(TypedDict):
    """A time that is expected, with the ends of its 80 % band."""

    value: Number
    low: Number
    high: Number


class PlannedRun(TypedDict):
    """A run worth measuring; bands are the factors that hold 80 % over the questions after it and those before it."""

    prompt: Number
    output: Number
    concurrency: Number
    tpot_s: Expected
    ttft_s: Expected
    seconds: Number
    gpu_hours: Number
    """Without loading the model."""
    command: str
    tpot_band: Number
    ttft_band: Number


class BenchPlan(TypedDict):
    """``bench-plan``: the runs that say most, first things first; bands before any of them."""

    model: str
    system: str
    assumed: list[str]
    warnings: list[str]
    tpot_band: Number
    ttft_band: Number
    runs: list[PlannedRun]


class MovedNumber(TypedDict):
    """A number of a machine before and after one's own runs, in ``unit``."""

    path: str
    unit: str
    prior: Number
    prior_spread: Number
    """Standard deviation of the logarithm, and so below."""
    posterior: Number
    posterior_spread: Number


class ClusterErrors(TypedDict):
    """Median absolute errors of a metric, relative."""

    metric: str
    values: int
    before: Number
    fitted: Number
    left_out: Number
    """Of runs that the fit did not see, one after the other."""
    left_out_in_band: Number


class ClusterBand(TypedDict):
    """Factors within which 80 % of the times of a model lie."""

    model: str
    tpot_before: Number
    tpot_after: Number
    ttft_before: Number
    ttft_after: Number


class NextRun(TypedDict):
    """A run worth measuring, and the factors within which 80 % lie once it is, with those before it."""

    model: str
    tp: Number
    prompt: Number
    output: Number
    concurrency: Number
    tpot_band: Number
    ttft_band: Number


class Cluster(TypedDict):
    """What the runs of a chip and engine say of its numbers."""

    calibration: str
    file: str
    system: str
    base: str
    """The shipped calibration that it stands on."""
    release: str | None
    newest_release: str | None
    dates: list[str]
    runs: int
    numbers: list[MovedNumber]
    errors: list[ClusterErrors]
    bands: list[ClusterBand]
    next: list[NextRun]
    apart: list[Row]


class Clusters(TypedDict):
    """``calibrate --data``: calibrations on one's own runs."""

    clusters: list[Cluster]
    silent: list[Row]
    """Rows that say nothing of a machine's numbers, and why."""


class Quantity(TypedDict):
    """A number of a spec."""

    path: str
    value: Number
    unit: str
    shown: str
    kind: str
    source: str
    file: str
    note: str
    low: Number
    high: Number


class Named(TypedDict):
    """A spec."""

    name: str
    kind: str
    aliases: list[str]


class Listed(TypedDict):
    """``specs list``."""

    specs: list[Named]


class Spec(TypedDict):
    """``specs show``."""

    numbers: list[Quantity]


class Found(Named):
    """A spec in which a word stands."""

    numbers: list[Quantity]


class Matches(TypedDict):
    """``specs search``."""

    specs: list[Found]


class Difference(TypedDict):
    """A number in which two specs differ; null where one of them does not have it."""

    path: str
    unit: str
    value_1: Number
    shown_1: str | None
    source_1: str | None
    value_2: Number
    shown_2: str | None
    source_2: str | None


class Differences(TypedDict):
    """``specs diff``."""

    differences: list[Difference]


class Parameters(TypedDict):
    """Parameters of a model."""

    text: int
    towers: int
    """Of encoders of images and sound."""
    total: int


class Held(TypedDict):
    """Parameters of a part."""

    held: int
    active: int
    """Met by one token."""


class Sequence(TypedDict):
    """Cache of a sequence."""

    bytes: float
    next_token: float


class Cache(TypedDict):
    """What a sequence leaves in memory."""

    precision: str
    declared: bool
    bytes_per_token: float
    of_which_indexers: float
    per_sequence: dict[str, Sequence]
    """By tokens of the sequence."""


class Counts(TypedDict):
    """``specs show --counts``: what a model weighs."""

    model: str
    task: str
    parameters: Parameters
    active_parameters: int
    by_part: dict[str, Held]
    bytes: dict[str, float]
    """By precision, and in all."""
    cache: Cache
    read: dict[str, Any]
    """What was read from which field."""
    not_read: list[str]
    notes: list[str]


class Trouble(TypedDict):
    """What went wrong."""

    kind: str
    """``refused``, ``interrupted`` or ``internal``."""
    message: str


class Error(TypedDict):
    """What stands in place of an answer; what does not fit is an answer, with its ``reason``."""

    error: Trouble
