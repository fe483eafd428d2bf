"""Which processors saturate."""

from __future__ import annotations

import platform

import pytest

from sdnpu_policy.npu import processor


@pytest.mark.parametrize(
    ("machine", "flags", "saturates"),
    [
        ("x86_64", {"avx2"}, True),
        ("AMD64", {"avx2", "avx512bw"}, True),
        ("x86_64", {"avx2", "avx_vnni"}, False),
        ("x86_64", {"avx512_vnni"}, False),
        ("aarch64", set(), False),
    ],
)
def test_only_x86_without_vnni_saturates(
    monkeypatch: pytest.MonkeyPatch, machine: str, flags: set[str], saturates: bool
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(processor, "processor_flags", lambda: frozenset(flags))
    assert processor.u8s8_saturates() is saturates


def test_the_processor_has_a_name() -> None:
    assert processor.processor_name()
