"""QNN through its plug-in: on x86 by the HTP simulator, with tiny networks."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu import qnn
from sdnpu_policy.npu.golden import snr_db
from sdnpu_policy.npu.model_file import read_model_file
from sdnpu_policy.npu.options import check_options
from sdnpu_policy.npu.providers import Session, open_session

MakeModel = Callable[..., Path]

SDK = "2.51.0"


@pytest.fixture(scope="module")
def plugin() -> None:
    if importlib.util.find_spec("onnxruntime_qnn") is None:
        pytest.skip("onnxruntime-qnn is not installed")


@pytest.fixture(scope="module")
def session(plugin: None, quantized_conv_of_module: MakeModel) -> Iterator[Session]:
    """One session for the tests that only look at it."""
    session = open_session(quantized_conv_of_module(), "qnn")
    yield session
    session.close()


@pytest.fixture
def runtime_sdk(plugin: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime of a known SDK, so that the tests of versions don't change with it."""
    package = importlib.import_module("onnxruntime_qnn")
    monkeypatch.setattr(package.build_and_package_info, "qnn_version", SDK)


def test_every_node_is_in_one_qnn_graph(session: Session) -> None:
    placement = session.placement
    assert placement.provider == "qnn"
    assert placement.elsewhere == ()
    assert placement.total_nodes > 0


def test_the_simulator_is_not_taken_for_an_npu(session: Session) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the wheel's simulator is for x86-64")
    assert session.placement.simulated
    assert session.placement.device == "HTP simulator (libQnnHtp, x86)"


def test_a_machine_with_the_dsp_device_is_an_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([self / "fastrpc-cdsp"]))
    assert not qnn.is_simulated()
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([]))
    assert qnn.is_simulated()


def test_the_numbers_are_the_cpu_providers_within_a_tolerance(session: Session) -> None:
    reference = open_session(session.file, "cpu")
    for seed in range(2):
        x = np.random.default_rng(seed).standard_normal((1, 3, 8, 8))
        for each in (session, reference):
            each.inputs["x"][...] = x
            each.run()
        assert snr_db(reference.outputs["y"], session.outputs["y"]) > 25.0


def test_a_second_session_in_the_process_opens(session: Session) -> None:
    again = open_session(session.file, "qnn", {"qnn.htp_perf_mode": "burst", "qnn.rpc_control_latency": 100})
    again.run()
    again.close()


def test_registering_the_plugin_again_is_no_error(session: Session) -> None:
    assert [device.ep_name for device in qnn.qnn_devices()] == ["QNNExecutionProvider"]


def test_another_soc_needs_another_process(session: Session) -> None:
    with pytest.raises(
        SdnpuError, match=r"already runs for soc_model=60.*soc_model=57, htp_arch=75 needs a process"
    ):
        open_session(session.file, "qnn", {"soc_model": 57})


def test_a_node_that_qnn_does_not_take_is_named(session: Session, quantized_conv: MakeModel) -> None:
    path = quantized_conv("erf.onnx", then="Erf")
    with pytest.raises(SdnpuError, match=r"QNN does not take 1 of its nodes: the_erf \(Erf\)"):
        open_session(path, "qnn")
    partly = open_session(path, "qnn", require_whole=False)
    assert "the_erf (Erf)" in partly.placement.elsewhere
    assert partly.placement.total_nodes > len(partly.placement.elsewhere)


def test_a_public_model_of_which_qnn_takes_a_part_is_refused(session: Session, shared_data: Path) -> None:
    with pytest.raises(SdnpuError, match=r"does not take 1 of its nodes: \(unnamed\) \(MatMulInteger\)"):
        open_session(shared_data / "onnx" / "qnn_ep_partial_support.onnx", "qnn")


def test_a_model_with_external_data_is_loaded_from_its_place(session: Session, shared_data: Path) -> None:
    whole = open_session(shared_data / "onnx" / "conv_qdq_external_ini.onnx", "qnn")
    whole.run()
    assert whole.placement.elsewhere == ()


def test_a_dynamic_shape_is_refused_instead_of_running_on_the_cpu(shared_data: Path) -> None:
    with pytest.raises(SdnpuError, match=r"\[batch_size, 3, 24, 24\] is dynamic"):
        open_session(shared_data / "onnx" / "conv_qdq_u8u8.onnx", "qnn")


def test_a_float_model_needs_the_16_bit_float_switch(float_conv: MakeModel, session: Session) -> None:
    path = float_conv()
    with pytest.raises(SdnpuError, match=r"float model without QuantizeLinear .* enable_htp_fp16_precision=1"):
        open_session(path, "qnn")
    assert open_session(path, "qnn", {"enable_htp_fp16_precision": 1}).placement.elsewhere == ()


def test_compiling_can_be_forbidden_in_production(session: Session) -> None:
    with pytest.raises(SdnpuError, match="is not compiled"):
        open_session(session.file, "qnn", {"session.disable_model_compile": 1})


def test_the_shared_memory_allocator_needs_an_npu(quantized_conv: MakeModel) -> None:
    if not qnn.is_simulated():
        pytest.skip("there is an NPU here")
    with pytest.raises(SdnpuError, match="needs a real NPU"):
        open_session(quantized_conv(), "qnn", {"enable_htp_shared_memory_allocator": 1})


def test_a_context_of_this_runtime_is_loaded(session: Session, tmp_path: Path) -> None:
    ort = importlib.import_module("onnxruntime")
    compiled = tmp_path / "compiled.onnx"
    options = qnn.qnn_session_options(check_options("qnn", {}), whole=True)
    compiler = ort.ModelCompiler(options, str(session.file), embed_compiled_data_into_model=False)
    compiler.compile_to_file(str(compiled))
    context = open_session(compiled, "qnn", {"session.disable_model_compile": 1})
    for each in (session, context):
        each.inputs["x"][...] = np.random.default_rng(3).standard_normal((1, 3, 8, 8))
        each.run()
    np.testing.assert_array_equal(session.outputs["y"], context.outputs["y"])
    next(tmp_path.glob("*.bin")).unlink()
    with pytest.raises(SdnpuError, match=r"compiled context '.*\.bin' is missing; put the file beside the model"):
        open_session(compiled, "qnn")


@pytest.mark.usefixtures("runtime_sdk")
class TestAContextFromElsewhere:
    """None of these reaches the runtime, which might end the process."""

    def test_of_another_sdk_is_refused_with_both_versions(self, compiled_model: MakeModel) -> None:
        path = compiled_model(compatibility="v2:6:2.60.0:5.60.0:73:60:0:0")
        with pytest.raises(SdnpuError, match=r"compiled with QNN SDK 2\.60\.0, onnxruntime-qnn .* has 2\.51\.0"):
            open_session(path, "qnn")

    def test_of_another_sdk_by_its_attribute_is_refused(self, shared_data: Path) -> None:
        with pytest.raises(SdnpuError, match=r"QNN SDK 2\.22\.0, .* has 2\.51\.0"):
            open_session(shared_data / "onnx" / "qnn_multi_ctx_embed.onnx", "qnn")

    def test_without_any_version_is_refused(self, compiled_model: MakeModel) -> None:
        with pytest.raises(SdnpuError, match="QNN SDK of unknown version"):
            open_session(compiled_model(), "qnn")

    def test_for_another_chip_is_refused_with_both_named(self, compiled_model: MakeModel) -> None:
        path = compiled_model(compatibility=f"v2:6:{SDK}:5.51.0:73:43:0:0")
        with pytest.raises(SdnpuError, match="compiled for soc_model 43, the session is for 60"):
            open_session(path, "qnn")
        path = compiled_model(compatibility=f"v2:6:{SDK}:5.51.0:79:69:0:0")
        with pytest.raises(SdnpuError, match="compiled for htp_arch 79, the session is for 73"):
            open_session(path, "qnn")

    def test_for_another_provider_is_refused(self, compiled_model: MakeModel) -> None:
        with pytest.raises(SdnpuError, match="compiled for OpenVINOExecutionProvider"):
            open_session(compiled_model(source="OpenVINOExecutionProvider"), "qnn")

    def test_with_its_binary_outside_the_directory_is_refused(self, compiled_model: MakeModel) -> None:
        with pytest.raises(SdnpuError, match="outside the model's directory"):
            open_session(compiled_model(location="../other.bin", sdk=f"v{SDK}.1"), "qnn")

    def test_with_an_empty_binary_is_refused(self, compiled_model: MakeModel) -> None:
        path = compiled_model(location="context.bin", sdk=f"v{SDK}.1")
        (path.parent / "context.bin").touch()
        with pytest.raises(SdnpuError, match=r"context.bin: the compiled context is empty"):
            open_session(path, "qnn")

    def test_says_its_target(self, compiled_model: MakeModel) -> None:
        model = read_model_file(compiled_model(sdk=f"v{SDK}.260929181845"))
        assert qnn.context_target(model) == (SDK, "", "")
        model = read_model_file(compiled_model(compatibility=f"v2:6:{SDK}:5.51.0:73:60:0:0"))
        assert qnn.context_target(model) == (SDK, "73", "60")


def test_without_the_plugin_the_extra_is_named(quantized_conv: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    path = quantized_conv()
    real_import = importlib.import_module

    def missing(name: str) -> object:
        if name == "onnxruntime_qnn":
            raise ModuleNotFoundError(f"No module named '{name}'")
        return real_import(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SdnpuError, match=r"pip install 'sdnpu_policy\[qnn\]'"):
        open_session(path, "qnn")


def test_a_process_that_used_qnn_ends_cleanly(plugin: None, quantized_conv: MakeModel) -> None:
    code = (
        "import sys; from sdnpu_policy.npu.providers import open_session; "
        "s = open_session(sys.argv[1], 'qnn'); s.run(); s.close()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(quantized_conv())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
