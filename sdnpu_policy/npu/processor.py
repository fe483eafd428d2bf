"""This machine's processor: its name, and whether its fast integer product saturates."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Final

from sdnpu_policy.npu.model_file import ModelFile

_VNNI_FLAGS: Final = frozenset({"avx512_vnni", "avx_vnni"})


def saturates(model: ModelFile) -> bool:
    """Whether the model's integer products would saturate here at a runtime's defaults.

    x86 processors without VNNI add pairs of unsigned times signed byte products in 16 bits (vpmaddubsw). Networks
    with QInt8 weights lose most of their precision that way, with no message from any runtime.
    """
    return u8s8_saturates() and model.signed_weights() > 0


def u8s8_saturates() -> bool:
    """Whether this processor multiplies unsigned with signed bytes in 16 bits."""
    return platform.machine().lower() in ("x86_64", "amd64") and not _VNNI_FLAGS & processor_flags()


@cache
def processor_flags() -> frozenset[str]:
    """The flags of the first processor in /proc/cpuinfo, none where there is no such file."""
    return frozenset(_cpuinfo("flags").split())


def processor_name() -> str:
    """The processor's name for people."""
    return _cpuinfo("model name") or platform.machine()


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
