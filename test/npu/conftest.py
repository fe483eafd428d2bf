"""Tiny networks made on the spot: a quantized convolution that every provider takes whole, and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx makes the test networks: pip install 'sdnpu_policy[test]'")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MakeModel = Callable[..., Path]


def _quantize(nodes: list[Any], constants: list[Any], source: str, scale: float, result: str) -> None:
    """source -> QuantizeLinear -> DequantizeLinear -> result, unsigned 8 bits around 128."""
    constants += [
        numpy_helper.from_array(np.float32(scale), f"{result}_scale"),
        numpy_helper.from_array(np.uint8(128), f"{result}_zero"),
    ]
    nodes += [
        helper.make_node(
            "QuantizeLinear", [source, f"{result}_scale", f"{result}_zero"], [f"{result}_q"], name=f"{result}_Q"
        ),
        helper.make_node(
            "DequantizeLinear", [f"{result}_q", f"{result}_scale", f"{result}_zero"], [result], name=f"{result}_DQ"
        ),
    ]


def _save(path: Path, nodes: list[Any], constants: list[Any], batch: int | str = 1) -> Path:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4, 8, 8])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.fixture
def quantized_conv(tmp_path: Path) -> MakeModel:
    """Makes a QDQ convolution x [1,3,8,8] -> y [1,4,8,8]; ``then`` puts one more operator behind it."""
    return make_quantized_conv(tmp_path)


@pytest.fixture(scope="module")
def quantized_conv_of_module(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """The same, for sessions that a module shares."""
    return make_quantized_conv(tmp_path_factory.mktemp("models"))


def make_quantized_conv(directory: Path) -> MakeModel:
    def make(
        name: str = "conv.onnx", *, then: str | None = None, signed_weights: bool = False, batch: int | str = 1
    ) -> Path:
        rng = np.random.default_rng(7)
        nodes: list[Any] = []
        constants: list[Any] = []
        _quantize(nodes, constants, "x", 0.03, "xq")
        if signed_weights:
            # All large, so that sums of two products leave 16 bits.
            constants.append(numpy_helper.from_array(np.full((4, 3, 3, 3), 120, np.int8), "w"))
            constants.append(numpy_helper.from_array(np.int8(0), "w_zero"))
        else:
            constants.append(numpy_helper.from_array(rng.integers(0, 256, (4, 3, 3, 3)).astype(np.uint8), "w"))
            constants.append(numpy_helper.from_array(np.uint8(128), "w_zero"))
        constants.append(numpy_helper.from_array(np.float32(0.01), "w_scale"))
        nodes += [
            helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"], name="w_DQ"),
            helper.make_node("Conv", ["xq", "wd"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        ]
        _quantize(nodes, constants, "c", 1.0 if signed_weights else 0.2, "cq")
        if then is not None:
            nodes.append(helper.make_node(then, ["cq"], ["e"], name=f"the_{then.lower()}"))
            _quantize(nodes, constants, "e", 0.01, "eq")
        nodes[-1].output[0] = "y"
        return _save(directory / name, nodes, constants, batch)

    return make


@pytest.fixture
def float_conv(tmp_path: Path) -> MakeModel:
    """Makes a float convolution of the same shape; ``external`` puts its weights into a file beside it."""

    def make(name: str = "float.onnx", *, external: str | None = None) -> Path:
        weights = np.random.default_rng(7).standard_normal((4, 3, 3, 3)).astype(np.float32)
        constants = [numpy_helper.from_array(weights, "w")]
        nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])]
        path = _save(tmp_path / name, nodes, constants)
        if external is not None:
            onnx.save(onnx.load(path), path, save_as_external_data=True, location=external, size_threshold=0)
        return path

    return make


@pytest.fixture
def compiled_model(tmp_path: Path) -> MakeModel:
    """Makes a model that claims to be compiled, with an empty graph for the accelerator."""

    def make(
        name: str = "context.onnx",
        *,
        compatibility: str | None = None,
        sdk: str | None = None,
        location: str | None = None,
        source: str = "QNNExecutionProvider",
    ) -> Path:
        attributes: dict[str, Any] = {"main_context": 1, "source": source, "partition_name": "p"}
        attributes["embed_mode"] = 1 if location is None else 0
        attributes["ep_cache_context"] = b"\0" if location is None else location
        if sdk is not None:
            attributes["ep_sdk_version"] = sdk
        node = helper.make_node("EPContext", ["x"], ["y"], name="ctx", domain="com.microsoft", **attributes)
        path = _save(tmp_path / name, [node], [])
        if compatibility is not None:
            model = onnx.load(path)
            entry = model.metadata_props.add()
            entry.key = "ep_compatibility_info.QNNExecutionProvider"
            entry.value = compatibility
            onnx.save(model, path)
        return path

    return make
