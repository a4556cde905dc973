"""``perfmodel compare``."""

from __future__ import annotations

import sys

from perfmodel.cli import DOES_NOT_FIT, OK, common


def compare(
    model: common.Model,
    on: common.Systems,
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
    """Answer the same question on several systems, side by side.

    --set SYSTEM:PATH=VALUE changes one of them, --set '#2:PATH=VALUE' the second.
    """
    from perfmodel.api import compare_options

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
    comparison = compare_options(model, on, given, changes or [])
    answers = comparison.answers
    if json:
        common.write_json(comparison.to_dict())
    elif csv:
        common.write_csv(answers)
    else:
        from perfmodel.outputs.tables import print_comparison

        print_comparison(answers, common.console())
    missing = [answer for answer in answers if answer.reason]
    if len(missing) < len(answers):
        return OK
    print(f"perfmodel: {missing[0].reason}", file=sys.stderr)
    return DOES_NOT_FIT
