"""The CPU provider: buffers bound once, exact integer products."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu import processor
from sdnpu_policy.npu.golden import snr_db
from sdnpu_policy.npu.providers import open_session

MakeModel = Callable[..., Path]


def test_writing_into_an_input_buffer_feeds_the_next_run(float_conv: MakeModel) -> None:
    session = open_session(float_conv(), "cpu")
    output = session.outputs["y"]
    session.inputs["x"][...] = 1.0
    session.run()
    once = output.copy()
    session.inputs["x"][...] = 2.0
    session.run()
    assert once.any()
    np.testing.assert_allclose(output, 2.0 * once, rtol=1e-5)
    assert session.outputs["y"] is output


def test_placement_is_the_cpu_with_nothing_elsewhere(quantized_conv: MakeModel) -> None:
    placement = open_session(quantized_conv(), "cpu", {"intra_op_num_threads": 2}).placement
    assert (placement.provider, placement.simulated, placement.elsewhere) == ("cpu", False, ())
    assert placement.device.endswith(", 2 thread(s)")


def test_an_index_timestep_is_an_integer_buffer(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["timestep"], ["t"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["sample", "t"], ["out"]),
    ]
    inputs = [
        helper.make_tensor_value_info("sample", TensorProto.FLOAT, [1, 4, 2]),
        helper.make_tensor_value_info("timestep", TensorProto.INT64, [1]),
    ]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 4, 2])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    session = open_session(tmp_path / "m.onnx", "cpu")
    assert session.inputs["timestep"].dtype == np.int64
    session.inputs["sample"][...] = 3.0
    session.inputs["timestep"][0] = 5
    session.run()
    assert (session.outputs["out"] == 15.0).all()


def test_an_output_whose_size_depends_on_the_data_is_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2, "n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(SdnpuError, match=r"output 'y' \[2, 'n'\] has no fixed shape"):
        open_session(tmp_path / "m.onnx", "cpu")


def test_a_graph_that_the_runtime_refuses_is_one_line(quantized_conv: MakeModel) -> None:
    path = quantized_conv()
    model = onnx.load(path)
    model.graph.node[3].op_type = "Convolute"
    onnx.save(model, path)
    with pytest.raises(SdnpuError, match=r"cannot load it: .*Convolute") as caught:
        open_session(path, "cpu")
    assert "\n" not in str(caught.value)


def test_signed_weights_give_the_exact_product_on_every_processor(quantized_conv: MakeModel) -> None:
    path = quantized_conv(signed_weights=True)
    exact = open_session(path, "cpu", {"graph_optimization_level": "disable_all"})
    session = open_session(path, "cpu")
    for each in (exact, session):
        each.inputs["x"][...] = np.random.default_rng(1).uniform(2.0, 3.8, (1, 3, 8, 8))
        each.run()
    np.testing.assert_array_equal(session.outputs["y"], exact.outputs["y"])


def test_the_saturation_is_real_where_it_is_said_to_be(quantized_conv: MakeModel) -> None:
    if not processor.u8s8_saturates():
        pytest.skip("this processor has VNNI or is not x86: its products don't saturate")
    path = quantized_conv(signed_weights=True)
    exact = open_session(path, "cpu")
    saturated = open_session(path, "cpu", {"session.x64quantprecision": "0"})
    for each in (exact, saturated):
        each.inputs["x"][...] = 3.8
        each.run()
    assert snr_db(exact.outputs["y"], saturated.outputs["y"]) < 20.0


def test_the_handed_over_networks_do_not_saturate(shared_data: Path) -> None:
    path = shared_data / "reference_policy" / "enc_f1_a8w8d.onnx"
    exact = open_session(path, "cpu", {"graph_optimization_level": "disable_all"})
    session = open_session(path, "cpu")
    image = np.random.default_rng(0).uniform(-0.5, 0.5, (1, 3, 96, 96))
    for each in (exact, session):
        each.inputs["image"][...] = image
        each.run()
    assert snr_db(exact.outputs["feat"], session.outputs["feat"]) > 30.0


def test_nan_in_is_not_seen_at_the_output(quantized_conv: MakeModel) -> None:
    # The reason why callers check inputs too.
    session = open_session(quantized_conv(), "cpu")
    session.inputs["x"][...] = np.nan
    session.run()
    assert np.isfinite(session.outputs["y"]).all()


def test_a_compiled_model_is_refused(compiled_model: MakeModel) -> None:
    with pytest.raises(SdnpuError, match="is compiled for QNNExecutionProvider; the CPU provider needs the ONNX"):
        open_session(compiled_model(), "cpu")


def test_a_missing_runtime_is_answered_with_what_to_install(
    quantized_conv: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = quantized_conv()

    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SdnpuError, match=r"package 'onnxruntime' cannot be used .*pip install 'sdnpu_policy'"):
        open_session(path, "cpu")
