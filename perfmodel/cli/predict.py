"""``perfmodel predict``."""

from __future__ import annotations

import sys

from perfmodel.cli import DOES_NOT_FIT, OK, common


def predict(
    model: common.Model,
    on: common.OneSystem,
    tp: common.Tp = None,
    pp: common.Pp = None,
    ep: common.Ep = None,
    dp: common.Dp = None,
    engine: common.Engine = None,
    precision: common.Precision = None,
    kv_precision: common.KvPrecision = None,
    traffic: common.Traffic = None,
    prompt: common.Prompt = None,
    output: common.Output = None,
    concurrency: common.Concurrency = None,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """TTFT, TPOT, throughput, MFU, MBU and the breakdown of a model on a system under a traffic."""
    from perfmodel.prediction import run
    from perfmodel.question import resolve

    given = common.options(
        tp=tp,
        pp=pp,
        ep=ep,
        dp=dp,
        engine=engine,
        precision=precision,
        kv_precision=kv_precision,
        traffic=traffic,
        prompt=prompt,
        output=output,
        concurrency=concurrency,
    )
    answer = run(resolve(model, on, given, changes or []))
    if json:
        common.write_json(answer.to_dict())
    elif csv:
        common.write_csv([answer])
    else:
        from perfmodel.outputs.tables import print_comparison

        print_comparison([answer], common.console())
    if not answer.reason:
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT
