"""What is wrong with a manifest, said in one line: the dotted key, the value found, what would be right."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from sdnpu_policy.bundle.fields import Part

_LONGEST_VALUE = 80
_TYPE_NAMES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
}


def explain(error: ValidationError, model: type[Part], data: object) -> str:
    """The most telling of ``error``'s faults as one line, without the file's name.

    A key that is misspelt is told before the one that is missing for it.
    """
    faults = error.errors(include_url=False)
    first = next((fault for fault in faults if fault["type"] in ("extra_forbidden", "invalid_key")), faults[0])
    line = _explain_one(first["type"], _clean(first["loc"]), first, model, data)
    others = len(faults) - 1
    return f"{line} (and {others} more)" if others else line


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that ``name`` most looks like, empty where none does."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else ""


def shown(value: object) -> str:
    """A value as one short line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # integers of thousands of digits have no repr
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def dotted(location: Sequence[int | str]) -> str:
    """``observation.cameras['observation.images.front'].width``: names with dots in them in brackets."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def _clean(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Without pydantic's own marks (union tags, dict keys)."""
    return tuple(part for part in location if part not in ("<size>", "<name>", "[key]"))


def _explain_one(kind: str, location: tuple[int | str, ...], fault: Any, model: type[Part], data: object) -> str:
    key, value = dotted(location), fault["input"]
    prefix = f"{key}: " if key else ""
    if kind == "extra_forbidden":
        return _unknown_key(location, model, data)
    if kind == "missing":
        return f"{key} is missing: {_wanted(location, model)}"
    if kind == "invalid_key":
        return f"{prefix}the key {shown(value)} is not text: put it in quotes or remove it"
    if kind == "sdnpu":
        found = "" if isinstance(value, dict | BaseModel) else f"found {shown(value)}, "
        return f"{prefix}{found}{fault['msg']}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"{prefix}found {shown(value)}, should be a mapping: {_wanted(location, model)}"
    if kind == "string_pattern_mismatch":
        return f"{prefix}found {shown(value)}, should be a sha256: 64 digits 0-9 a-f"
    if kind in _TYPE_NAMES:
        hint = " (put it in quotes)" if kind == "string_type" and isinstance(value, int | float) else ""
        return f"{prefix}found {shown(value)}, should be {_TYPE_NAMES[kind]}{hint}"
    if kind == "literal_error":
        expected = str(fault["ctx"]["expected"])
        words = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
        near = nearest(value, words) if isinstance(value, str) else ""
        return f"{prefix}found {shown(value)}, should be {expected}" + (
            f": did you mean {near!r}?" if near else ""
        )
    message = str(fault["msg"]).removeprefix("Input ").replace("\n", " ")
    return f"{prefix}found {shown(value)}, {message[:1].lower()}{message[1:]}"


def _unknown_key(location: tuple[int | str, ...], model: type[Part], data: object) -> str:
    owner = _model_at(location[:-1], model)
    known = list(owner.model_fields) if owner else []
    name = str(location[-1])
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(known)}"
    return f"{dotted(location)}: there is no such key (its value is {shown(_value_at(location, data))}); {hint}"


def _wanted(location: tuple[int | str, ...], model: type[Part]) -> str:
    """What belongs at a place: the keys of a mapping, or the words to choose from."""
    inner = _model_at(location, model)
    if inner:
        required = [name for name, field in inner.model_fields.items() if field.is_required()]
        return f"it needs {', '.join(required)}"
    owner = _model_at(location[:-1], model)
    field = owner.model_fields.get(str(location[-1])) if owner and location else None
    if field is None:
        return "it is needed here"
    if typing.get_origin(field.annotation) is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(field.annotation)))}"
    name = getattr(field.annotation, "__name__", "value")
    return {"str": "text", "int": "a whole number", "float": "a number", "dict": "a mapping"}.get(
        name, "needed here"
    )


def _model_at(location: Sequence[int | str], model: type[Part]) -> type[Part] | None:
    """The model that describes the mapping at ``location``, None where it is no mapping of known keys."""
    annotation: Any = model
    for part in location:
        inner = _find_model(annotation)
        if inner is not None:
            field = inner.model_fields.get(str(part))
            if field is None:
                return None
            annotation = field.annotation
        elif typing.get_origin(annotation) is dict:
            annotation = typing.get_args(annotation)[1]
        else:
            return None
    return _find_model(annotation)


def _find_model(annotation: Any) -> type[Part] | None:
    """The model inside an annotation such as ``Decoder | None``; a dict of models is none."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    if typing.get_origin(annotation) in (dict, tuple, typing.Literal):
        return None
    return next(filter(None, map(_find_model, typing.get_args(annotation))), None)


def _value_at(location: Sequence[int | str], data: object) -> object:
    for part in location:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data
