"""Files of a bundle: that they lie inside it, are whole, and are the ones that the manifest was written for."""

from __future__ import annotations

import hashlib
import mmap
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from sdnpu_policy.bundle.explain import nearest
from sdnpu_policy.errors import SdnpuError

LFS_POINTER_START = b"version https://git-lfs"

COMPANION_SUFFIXES = (".data", ".bin", ".onnx.data", ".onnx_data", ".onnx.bin")
"""What stands behind the stem of an ONNX file in the names of files with its weights or its compiled context."""

# Two places where an ONNX file names another: StringStringEntryProto {key "location"} of external data, and the
# attribute ep_cache_context of a compiled context (small enough to be a file's name, not the context itself).
_EXTERNAL_DATA = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")
_CONTEXT_FILE = re.compile(rb"\x0a\x10ep_cache_context\x22([\x01-\x7f])")


def hash_files(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """The sha256 of each file, as ``policy.yaml`` has them: name -> 64 hex digits.

    Raises:
        SdnpuError: a file is missing, empty, a pointer to the real one, or outside the directory.
    """
    return {name: hash_file(directory, name, f"sha256[{name!r}]") for name in names}


def hash_file(directory: Path, name: str, key: str) -> str:
    """The sha256 of one file of a bundle; ``key`` is what names it, for the message.

    Raises:
        SdnpuError: the file is missing, empty, a pointer to the real one, or outside the directory.
    """
    path = find_file(directory, name, key)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SdnpuError(f"{path}: can't be read ({key} names it): {error.strerror}") from None


def find_file(directory: Path, name: str, key: str) -> Path:
    """The path of a regular file that is not empty and lies inside ``directory``, links followed.

    Raises:
        SdnpuError: there is none, it is empty, a Git LFS pointer or no regular file, or a link leads outside.
    """
    path = directory / name
    try:
        resolved = path.resolve(strict=True)
        status = resolved.stat()
    except FileNotFoundError:
        near = _similar_file(directory, name)
        hint = f"; there is {near!r}" if near else ": copy the whole bundle"
        raise SdnpuError(f"{path}: there is no such file, and {key} names it{hint}") from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SdnpuError(f"{path}: can't be opened ({key} names it): {reason}") from None
    if not resolved.is_relative_to(directory.resolve()):
        raise SdnpuError(
            f"{path}: leads to {resolved}, outside the bundle ({key} names it): copy the file into it"
        )
    if not stat.S_ISREG(status.st_mode):
        raise SdnpuError(f"{path}: is no regular file, and {key} names it as one")
    if status.st_size == 0:
        raise SdnpuError(f"{path}: is empty ({key} names it): copy it again")
    if _starts_with(path, LFS_POINTER_START):
        raise SdnpuError(f"{path}: is a Git LFS pointer, not the file ({key} names it): run `git lfs pull`")
    return path


def check_hashes(
    directory: Path, manifest_path: Path, files: Mapping[str, str], sha256: Mapping[str, str]
) -> None:
    """Check that every file that is named is listed with a sha256, and that every listed file has it.

    Args:
        files: dotted key -> file name, as the manifest names them.
        sha256: file name -> sha256, as the manifest lists them.

    Raises:
        SdnpuError: a file is not listed, missing, damaged, or another one.
    """
    keys = {name: key for key, name in files.items()}
    for name in dict.fromkeys([*files.values(), *sha256]):
        key = keys.get(name, f"sha256[{name!r}]")
        found = hash_file(directory, name, key)
        if name not in sha256:
            raise SdnpuError(f"{manifest_path}: sha256 has no entry for {name!r}, which {key} names: add {found}")
        if found != sha256[name]:
            size = (directory / name).stat().st_size
            raise SdnpuError(
                f"{directory / name}: its sha256 is {found} ({size} bytes), but {manifest_path.name} has"
                f" {sha256[name]}: the file is cut off, damaged or another one; copy it again"
            )
    for key, name in files.items():
        if name.endswith(".onnx"):
            _check_companions(directory, manifest_path, name, key, sha256)


def _check_companions(
    directory: Path, manifest_path: Path, name: str, key: str, sha256: Mapping[str, str]
) -> None:
    """An ONNX file may keep its weights or its compiled context in another file, which must be listed as well."""
    parent = PurePosixPath(name).parent
    for location in _named_inside(directory / name):
        companion = str(parent / location)
        if companion not in sha256:
            find_file(directory, companion, f"{name} ({key})")
            raise SdnpuError(
                f"{manifest_path}: sha256 has no entry for {companion!r}, where {name} ({key}) keeps data: add it"
            )
    stem = str(parent / PurePosixPath(name).stem)
    for suffix in COMPANION_SUFFIXES:
        companion = str(PurePosixPath(stem + suffix))
        if companion not in sha256 and (directory / companion).exists():
            raise SdnpuError(
                f"{manifest_path}: sha256 has no entry for {companion!r}, which lies beside {name} ({key}):"
                " add it, or remove the file"
            )


def _named_inside(path: Path) -> list[str]:
    found: list[str] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for pattern in (_EXTERNAL_DATA, _CONTEXT_FILE):
            for match in pattern.finditer(content):
                length = match.group(1)[0]
                name = content[match.end() : match.end() + length].decode("utf-8", "replace")
                if name.isprintable() and name not in found:
                    found.append(name)
    return found


def _starts_with(path: Path, start: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(start)) == start
    except OSError as error:
        raise SdnpuError(f"{path}: can't be read: {error.strerror}") from None


def _similar_file(directory: Path, name: str) -> str:
    try:
        names = [path.name for path in (directory / name).parent.iterdir()]
    except (OSError, ValueError):
        return ""
    return nearest(PurePosixPath(name).name, names)
