"""The schemas of the files, made from the dataclasses that they fill, and the check against them.

A field annotated with a unit takes a quantity with its provenance, every other field what its type says.
"""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model, model_validator

from perfmodel.errors import UserError
from perfmodel.specs.files import RESERVED, hints, line_of, place
from perfmodel.specs.ranges import Range, choices_of, range_of, read_number, read_switch, read_word

_SCHEMAS: dict[Any, type[BaseModel]] = {}


class Quantity(BaseModel):
    """A number with its provenance, as a file writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float | int | str | None
    source: str | None = None
    kind: Literal["datasheet", "paper", "measured", "derived", "estimate"] | None = None
    low: float | int | str | None = None
    high: float | int | str | None = None
    note: str = ""
    date: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Quantity:
        if self.value is None:
            if not self.note:
                raise ValueError("a null needs a note that says why it is not published")
        elif self.kind == "estimate" and (self.low is None or self.high is None):
            raise ValueError("an estimate needs low and high")
        return self


def _read(reader: Callable[..., Any], raw: Any, *more: Any) -> Any:
    try:
        return reader(raw, *more)
    except UserError as error:
        raise ValueError(str(error)) from None


def _quantity_of(rule: Range) -> Any:
    def read(raw: Any) -> Any:
        written = raw if isinstance(raw, dict) else {"value": raw}
        if raw is None:
            raise ValueError("a null is written {value: null, note: why}")
        if "unit" in written:
            raise ValueError(f"a unit is written with its value, as value: {written.get('value')} {written['unit']}")
        # A number of a file is text too: it needs its unit as at every other door.
        texts = {
            key: repr(number) if type(number) in (int, float) else number
            for key, number in written.items()
            if key in ("value", "low", "high") and number is not None
        }
        values = {key: _read(read_number, text, rule) for key, text in texts.items()}
        if not values.get("low", -math.inf) <= values.get("value", 0.0) <= values.get("high", math.inf):
            raise ValueError("low <= value <= high does not hold")
        return written

    return Annotated[Quantity, BeforeValidator(read)]


def _file_type(annotation: Any) -> Any:
    if rule := range_of(annotation):
        return _quantity_of(rule)
    if choices := choices_of(annotation):
        return Annotated[Literal[choices], BeforeValidator(lambda raw: _read(read_word, raw, choices))]
    if annotation is bool:
        return Annotated[bool, BeforeValidator(lambda raw: _read(read_switch, raw))]
    if is_dataclass(annotation):
        return file_schema(typing.cast(type[Any], annotation))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Mapping or getattr(origin, "__name__", "") == "Mapping":
        return dict[str, _file_type(arguments[1])]  # type: ignore[misc]
    if origin is tuple:
        return list[_file_type(arguments[0])]  # type: ignore[misc]
    if origin in (Union, types.UnionType):
        kept = tuple(_file_type(arg) for arg in arguments)
        return Union[kept]  # noqa: UP007
    return annotation


def file_schema(kind: Any) -> type[BaseModel]:
    """Return the pydantic model of the files that fill a dataclass.

    Parameters
    ----------
    kind : type
        The dataclass.

    Returns
    -------
    type of BaseModel
    """
    if kind in _SCHEMAS:
        return _SCHEMAS[kind]
    entries: dict[str, Any] = {}
    for entry in fields(kind):
        if entry.name in RESERVED:
            continue
        file_type = _file_type(hints(kind)[entry.name])
        required = entry.default is MISSING and entry.default_factory is MISSING
        entries[entry.name] = (file_type, Field(...) if required else Field(default=None))
    _SCHEMAS[kind] = create_model(kind.__name__, __config__=ConfigDict(extra="forbid", strict=False), **entries)
    return _SCHEMAS[kind]


def check(raw: Any, kind: type[Any], path: Path, below: tuple[str, ...] = ()) -> list[str]:
    """Return every error of a file's content, one line each.

    Parameters
    ----------
    raw : Any
        What the file holds.
    kind : type
        The dataclass that it fills.
    path : Path
    below : tuple of str
        Where in the file the content stands.

    Returns
    -------
    list of str
    """
    if not isinstance(raw, dict):
        return [f"{place(path, '.'.join(below)) if below else path}: expected a mapping of fields"]
    try:
        file_schema(kind).model_validate(raw)
    except ValidationError as errors:
        lines = []
        for error in errors.errors():
            keys = tuple(part for part in error["loc"] if part in ("value",) or not _is_type_tag(part))
            where = ".".join(str(key) for key in (*below, *keys))
            line = line_of(path, (*below, *keys))
            message = error["msg"].removeprefix("Value error, ")
            if error["type"] == "missing":
                message = "required field is missing"
            elif error["type"] == "extra_forbidden":
                message = _unknown(file_schema(kind), keys)
            elif error["type"] in ("model_type", "model_attributes_type", "dataclass_type"):
                message = "expected a mapping of fields"
            lines.append(f"{path}{f':{line}' if line else ''}: {where}: {message}")
        return list(dict.fromkeys(lines))
    return []


def _unknown(schema: type[BaseModel], keys: Sequence[Any]) -> str:
    """Return what is wrong with a field that its place does not have."""
    places = [schema]
    for key in keys[:-1]:
        # A key that is no field is a name in a mapping, or a place in a list, of what is there already.
        inner = [place.model_fields[key].annotation for place in places if key in place.model_fields]
        places = [found for annotation in inner for found in _models(annotation)] or places
    known = sorted({name for place in places for name in place.model_fields})
    close = difflib.get_close_matches(str(keys[-1]), known, n=1)
    return f"unknown field: did you mean {close[0]}?" if close else f"unknown field: expected one of {', '.join(known)}"


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _is_type_tag(part: Any) -> bool:
    return isinstance(part, str) and (part[:1].isupper() or part.startswith("function-"))
