"""From names and options to a scenario: what is not given is assumed, and said."""

from perfmodel.question.drafts import speculation_of
from perfmodel.question.options import Options, check_options, distinct, split_changes, split_system, taken
from perfmodel.question.plans import check_plan, kv_rule
from perfmodel.question.reading import FIELDS, number, read_changes, read_options, word
from perfmodel.question.scenario import ask, asked, check_layout, named_precision, resolve
from perfmodel.question.traffic import started

__all__ = [
    "FIELDS",
    "Options",
    "ask",
    "asked",
    "check_layout",
    "check_options",
    "check_plan",
    "distinct",
    "kv_rule",
    "named_precision",
    "number",
    "read_changes",
    "read_options",
    "resolve",
    "speculation_of",
    "split_changes",
    "split_system",
    "started",
    "taken",
    "word",
]
