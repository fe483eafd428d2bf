"""OpenVINO's own runtime on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.golden import snr_db
from sdnpu_policy.npu.providers import open_session

MakeModel = Callable[..., Path]


def test_it_agrees_with_the_cpu_provider_through_bound_buffers(quantized_conv: MakeModel) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    path = quantized_conv()
    ours, reference = open_session(path, "openvino"), open_session(path, "cpu")
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((1, 3, 8, 8))
        for session in (ours, reference):
            session.inputs["x"][...] = x
            session.run()
        assert snr_db(reference.outputs["y"], ours.outputs["y"]) > 30.0
    assert (ours.placement.provider, ours.placement.simulated, ours.placement.elsewhere) == ("openvino", False, ())


def test_signed_weights_do_not_saturate(quantized_conv: MakeModel) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    path = quantized_conv(signed_weights=True)
    ours = open_session(path, "openvino")
    exact = open_session(path, "cpu", {"graph_optimization_level": "disable_all"})
    for session in (ours, exact):
        session.inputs["x"][...] = 3.8
        session.run()
    assert snr_db(exact.outputs["y"], ours.outputs["y"]) > 30.0


def test_a_compiled_model_is_refused(compiled_model: MakeModel) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    with pytest.raises(SdnpuError, match="OpenVINO needs the ONNX it was made from"):
        open_session(compiled_model(), "openvino")


def test_without_the_package_the_extra_is_named(
    quantized_conv: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = quantized_conv()

    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SdnpuError, match=r"pip install 'sdnpu_policy\[openvino\]'"):
        open_session(path, "openvino")
