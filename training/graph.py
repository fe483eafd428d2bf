"""Turns the exported networks into graphs that an NPU takes whole: static, no shape arithmetic, clear names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HORIZON, ACTION_DIM, CONDITION_DIM, TIMESTEP_DIM, FEATURES = 16, 9, 82, 64, 64


def prepare_encoder(exported: Path) -> onnx.ModelProto:
    """`image` [1,3,96,96] to `features` [1,64]."""
    model = onnx.load(exported)
    rename(model, {model.graph.output[0].name: "features"})
    return finish(model)


def prepare_unet(exported: Path) -> onnx.ModelProto:
    """`sample` [1,16,9], `timestep_embedding` [1,64], `global_cond` [1,82] to `denoised` [1,16,9].

    The exported network works on [1,9,1,16], channels first and a dimension of one, because one-dimensional
    convolutions written that way run on every backend. The turn to rows of actions goes into the graph.
    """
    model = onnx.load(exported)
    graph = model.graph
    channels_in, condition, timestep = (value.name for value in graph.input)
    channels_out = graph.output[0].name
    rename(model, {condition: "global_cond", timestep: "timestep_embedding"})

    def shape(name: str, *dims: int) -> str:
        graph.initializer.append(numpy_helper.from_array(np.array(dims, np.int64), name))
        return name

    turn_in = [
        helper.make_node("Transpose", ["sample"], ["sample_turned"], "sample/transpose", perm=[0, 2, 1]),
        helper.make_node(
            "Reshape",
            ["sample_turned", shape("sample_shape", 1, ACTION_DIM, 1, HORIZON)],
            [channels_in],
            "sample/reshape",
        ),
    ]
    turn_out = [
        helper.make_node(
            "Reshape",
            [channels_out, shape("denoised_shape", 1, ACTION_DIM, HORIZON)],
            ["denoised_turned"],
            "denoised/reshape",
        ),
        helper.make_node("Transpose", ["denoised_turned"], ["denoised"], "denoised/transpose", perm=[0, 2, 1]),
    ]
    nodes = [*turn_in, *graph.node, *turn_out]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    for name, width in (("timestep_embedding", TIMESTEP_DIM), ("global_cond", CONDITION_DIM)):
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width]))
    for values, name in ((graph.input, "sample"), (graph.output, "denoised")):
        values.insert(0, helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, HORIZON, ACTION_DIM]))
    return finish(model)


def rename(model: onnx.ModelProto, names: dict[str, str]) -> None:
    """Give inputs and outputs of the graph other names, wherever they are used."""
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def finish(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fold what is constant, drop what is unused, check the rest."""
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    fold_constants(model.graph)
    drop_unused(model.graph)
    del model.graph.value_info[:], model.metadata_props[:]
    model.producer_name, model.producer_version, model.graph.doc_string = "sdnpu_policy", "", ""
    onnx.checker.check_model(model, full_check=True)
    return model


def fold_constants(graph: onnx.GraphProto) -> None:
    """Replace each node whose output does not depend on the inputs, Shape of a static tensor included."""
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info)
    }
    kept = []
    for node in graph.node:
        if node.op_type == "Shape" and all(shapes.get(node.input[0], [0])):
            folded = np.array(shapes[node.input[0]], np.int64)
        elif node.op_type == "Constant":
            folded = numpy_helper.to_array(node.attribute[0].t)
        elif all(name in known for name in node.input) and len(node.output) == 1:
            folded = ReferenceEvaluator(node).run(None, {name: known[name] for name in node.input})[0]
        else:
            kept.append(node)
            continue
        known[node.output[0]] = folded
        graph.initializer.append(numpy_helper.from_array(np.asarray(folded), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)


def drop_unused(graph: onnx.GraphProto) -> None:
    """Drop initializers that no node reads."""
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
