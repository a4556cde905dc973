"""``perfmodel fit``."""

from __future__ import annotations

import sys
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, common
from perfmodel.options import FitQuestion


@common.asks(FitQuestion)
def fit(
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """Whether a model fits, and how many tokens and requests.

    The KV cache as the engine sizes it, part by part.

    Example: perfmodel fit deepseek-v3 --on dgx-h200 --precision fp8 --context 32768
    """
    from perfmodel import api
    from perfmodel.outputs.fit import print_fit

    common.one_of(json=json, csv=csv)
    answer = api.fit(model, on=on, set=changes or (), **given)
    if json:
        common.write_json(answer.to_dict())
    elif csv:
        common.write_csv([answer])
    else:
        print_fit(answer, common.console())
    if answer.fits:
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT
