"""Reads a small YAML file that may come from anyone: plain values only, no aliases, no code, no duplicate keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from sdnpu_policy.errors import SdnpuError

LARGEST_FILE_BYTES = 256 * 1024
DEEPEST_NESTING = 32

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _KeyFault(yaml.MarkedYAMLError):  # type: ignore[misc]
    """A key that plain YAML would let pass."""


class _Loader(_SafeLoader):  # type: ignore[misc]
    """The safe loader, but a key may come only once and 1e-4 is a number (as in YAML 1.2)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, list | dict | set):
                raise _KeyFault(None, None, "a key must be plain text", key_node.start_mark)
            if key in seen:
                raise _KeyFault(None, None, f"the key {key!r} comes twice: keep one", key_node.start_mark)
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """The safe dumper, which puts in quotes what :class:`_Loader` would read as a number."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
    )


def read_yaml(path: Path) -> object:
    """The plain value that a YAML file holds.

    Raises:
        SdnpuError: the file can't be read, is not UTF-8, is too large, or is not plain, valid YAML; one line that
            names the file and, where there is one, the line.
    """
    text = _read_text(path)
    try:
        _check_events(path, text)
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise SdnpuError(f"{path}: {_describe(error)}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        detail = " ".join(str(error).split())
        raise SdnpuError(
            f"{path}: holds a value that can't be read ({detail}): write it as text in quotes"
        ) from None


def to_yaml(value: object) -> str:
    """Plain values as YAML text, keys in their given order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise SdnpuError(f"{path}: can't be read: {error.strerror}") from None
    if len(content) > LARGEST_FILE_BYTES:
        limit_kib = LARGEST_FILE_BYTES // 1024
        raise SdnpuError(
            f"{path}: is larger than {limit_kib} KiB: a manifest is a few kilobytes, data go in files"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SdnpuError(
            f"{path}: byte {error.start} (0x{content[error.start]:02x}) is not UTF-8: save the file as UTF-8"
        ) from None


def _check_events(path: Path, text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise SdnpuError(f"{path}: line {line}: the alias *{event.anchor} is not allowed: write the value out")
        if getattr(event, "tag", None) is not None:
            raise SdnpuError(f"{path}: line {line}: the tag {event.tag} is not allowed: plain values only")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST_NESTING:
                raise SdnpuError(
                    f"{path}: line {line}: nested deeper than {DEEPEST_NESTING}: a manifest is shallow"
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _describe(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    text = " ".join(str(problem).split())
    return f"{where}{text}" if isinstance(error, _KeyFault) else f"{where}not valid YAML: {text}"
