"""Several traffics on one fleet, judged by a stream that is drawn, merged and told apart here."""

import json

import numpy as np
import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.planning.events import simulate
from perfmodel.planning.mix import parts_of
from perfmodel.planning.requests import Load, Stream, merged
from perfmodel.serving.lengths import lognormal
from perfmodel.serving.objectives import Objectives
from perfmodel.serving.traffic import lengths_of
from perfmodel.specs.types import Traffic

CHAT, RAG = {"ttft_p99": 0.3, "tpot_p99": 0.02}, {"ttft_p99": 3.0, "tpot_p99": 0.04}


def text(rates):
    """A mix of chat and RAG, as it is written."""
    own = [":" + ",".join(f"{key}={limit}s" for key, limit in limits.items()) for limits in (CHAT, RAG)]
    return f"chat@{rates[0]:g}{own[0]},rag@{rates[1]:g}{own[1]}"


def exponential(lengths, rate, count, generator):
    """Poisson arrivals by their exponential gaps, with lengths drawn point by point."""
    at = generator.choice(len(lengths.weight), count, p=lengths.weight)
    return np.cumsum(generator.exponential(1 / rate, count)), lengths.prompt[at], lengths.output[at]


@pytest.mark.parametrize("rates", [(40.0, 10.0)])
def test_every_traffic_meets_its_own_objectives(rates):
    answer = perfmodel.size("llama-3.1-8b", on="dgx-h100:tp=2", traffic=text(rates)).answers[0]
    load = answer.load
    share = min(load.replicas, 8) / load.replicas
    seen = {}
    for seed in (901, 902, 903):
        generator = np.random.default_rng(seed)
        drawn = []
        for name, rate in zip(("chat", "rag"), rates, strict=True):
            traffic: Traffic = perfmodel.traffic(name)
            drawn.append(exponential(lengths_of(traffic), rate * share, int(300 * rate), generator))
        owner = np.repeat([0, 1], [len(one[0]) for one in drawn])
        arrival, prompt, output = (np.concatenate([one[part] for one in drawn]) for part in range(3))
        order = np.argsort(arrival)
        ran = simulate(
            load.service.times,
            Load(arrival[order], prompt[order], output[order]),
            cached=0.0,
            seed=seed,
            replicas=min(load.replicas, 8),
            routing=load.service.routing,
        )
        kept = slice(len(order) // 10, -len(order) // 10)
        for at, limits in enumerate((CHAT, RAG)):
            mine = owner[order][kept] == at
            for name, limit in limits.items():
                value = np.nanpercentile(getattr(ran, name.split("_")[0])[kept][mine], 99)
                seen.setdefault((at, name), []).append(value / limit)
    worst = max(float(np.mean(values)) for values in seen.values())
    assert worst <= 1.03


def test_a_traffic_of_nearly_nothing_changes_nothing():
    alone = perfmodel.size("llama-3.1-8b", on="dgx-h100:tp=1", traffic="chat", rate=80, tpot_p99=0.02).answers[0]
    mixed = perfmodel.size("llama-3.1-8b", on="dgx-h100:tp=1", traffic="chat@80,code@0.0001", tpot_p99=0.02)
    assert mixed.answers[0].chips == alone.chips
    assert mixed.answers[0].usd_per_hour == pytest.approx(alone.usd_per_hour, rel=1e-3)


def test_streams_keep_their_rates_lengths_and_spread_of_gaps():
    limits = {("ttft", "p99"): 1.0}
    streams = [
        Stream("even", 30.0, 0.25, lognormal(100, 0.5, 50, 0.5), limits),
        Stream("rough", 10.0, 2.0, lognormal(2000, 0.5, 20, 0.5), limits),
    ]
    load, owner = merged(streams, 0.5, 40_000, 7)
    assert len(load) == 40_000
    assert np.all(np.diff(load.arrival) >= 0)
    for at, stream in enumerate(streams):
        gaps = np.diff(load.arrival[owner == at])
        assert 1 / gaps.mean() == pytest.approx(stream.rate / 2, rel=0.03)
        assert gaps.var() / gaps.mean() ** 2 == pytest.approx(stream.scv, rel=0.06)
        lengths = stream.lengths
        assert load.prompt[owner == at].mean() == pytest.approx(lengths.mean(lengths.prompt), rel=0.03)


def test_a_mix_is_read_as_it_is_written():
    parts = parts_of(
        "chat@40/s,rag@10:ttft_p99=5s,tpot_p99=0.1s", Objectives({("ttft", "p99"): 1, ("tpot", "p99"): 0.05})
    )
    assert [(one.name, one.rate) for one in parts] == [("chat", 40.0), ("rag", 10.0)]
    assert parts[0].objectives == {("ttft", "p99"): 1, ("tpot", "p99"): 0.05}
    assert parts[1].objectives == {("ttft", "p99"): 5, ("tpot", "p99"): 0.1}


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("chat@40,rag", "each traffic has its rate"),
        ("chat@40,rag@-1", "requests a second"),
        ("chat@40,chat@2", "given twice"),
        ("chat@40", "two traffics or more"),
        ("chat@40,rag@2:ttft_p98=1s", "is no objective"),
        ("chat@40,rag@2:itl_p99=1s", "no ITL"),
        ("chat@40:ttft_p99=1s,rag@2", "no ttft_p99"),
        ("chat@40,rag@2", "needs an objective"),
    ],
)
def test_a_wrong_mix_is_refused_in_a_line(written, word):
    with pytest.raises(UserError, match=word):
        parts_of(written, Objectives())


def test_a_fleet_each_is_what_each_asks_for_alone(capsys):
    asked = ["--on", "dgx-h100:tp=1", "--traffic", "chat@20", "--traffic", "code@5", "--tpot-p99", "30ms"]
    assert run(["size", "llama-3.1-8b", *asked, "--separate", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    alone = [
        perfmodel.size("llama-3.1-8b", on="dgx-h100:tp=1", traffic=name, rate=rate, tpot_p99="30ms").answers[0]
        for name, rate in (("chat", 20), ("code", 5))
    ]
    assert [one["answers"][0]["chips"] for one in told["separate"]] == [one.chips for one in alone]
    assert told["separate_total"] == pytest.approx(sum(one.usd_per_hour for one in alone))
    assert told["cheaper"] == "together"
    assert run(["size", "llama-3.1-8b", *asked, "--separate", "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_what_goes_with_one_traffic_is_refused():
    for name, value in {"rate": 5, "profile": "0.5,1", "save": "plan.yaml"}.items():
        with pytest.raises(UserError, match="one traffic"):
            perfmodel.size("llama-3.1-8b", on="dgx-h100", traffic="chat@40,rag@10", ttft_p99=3, **{name: value})
