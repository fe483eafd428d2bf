"""Look into an ONNX file before a runtime does: a small reader of its protobuf, and checks that need no runtime.

Runtimes answer a bad file with anything from a helpful exception to the end of the process, and say nothing at all
about a graph that will not run where it is meant to. The reader keeps only what the checks need: names, types and
shapes, node kinds, where external data and compiled contexts lie. Weights are stepped over, so a large file is
cheap. Field numbers are those of onnx.proto3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sdnpu_policy.errors import SdnpuError

INT8: Final = 3
UINT8: Final = 2
FLOAT: Final = 1

_LFS_HEAD = b"version https://git-lfs"
_QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_INTEGER_OPS = frozenset({"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QGemm"})

Dimension = int | str
"""A number, or the name of a dynamic dimension ('?' where it has none)."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A graph input or output; ``shape`` is None where the file gives none."""

    name: str
    element_type: int
    shape: tuple[Dimension, ...] | None


@dataclass(frozen=True, slots=True)
class Initializer:
    """A constant of the graph, without its data."""

    name: str
    element_type: int
    rank: int
    location: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node; ``strings`` and ``integers`` hold the attributes of compiled contexts only."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    strings: dict[str, bytes] = field(default_factory=dict)
    integers: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ModelFile:
    """What the checks know of a model."""

    path: Path
    inputs: list[TensorInfo] = field(default_factory=list)
    outputs: list[TensorInfo] = field(default_factory=list)
    nodes: list[NodeInfo] = field(default_factory=list)
    initializers: dict[str, Initializer] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def contexts(self) -> list[NodeInfo]:
        """Nodes that hold a graph compiled for an accelerator."""
        return [node for node in self.nodes if node.op_type == "EPContext"]

    @property
    def quantized(self) -> bool:
        """The model has QDQ pairs or integer operators."""
        return any(node.op_type in _QUANTIZERS or node.op_type in _INTEGER_OPS for node in self.nodes)

    @property
    def floating(self) -> bool:
        """The model computes in float32."""
        types = [tensor.element_type for tensor in (*self.inputs, *self.outputs)]
        types += [initializer.element_type for initializer in self.initializers.values()]
        return FLOAT in types

    def signed_weights(self) -> int:
        """How many nodes multiply unsigned 8-bit activations with signed 8-bit weights.

        On x86 processors without VNNI the 16-bit sum of two such products saturates (vpmaddubsw), silently.
        """
        quantizers = (node for node in self.nodes if node.op_type == "QuantizeLinear")
        unsigned_activations = any(self._zero_point_type(node) == UINT8 for node in quantizers) or any(
            node.op_type in _INTEGER_OPS or node.op_type == "DynamicQuantizeLinear" for node in self.nodes
        )
        if not unsigned_activations:
            return 0
        return sum(self._has_signed_weight(node) for node in self.nodes)

    def _zero_point_type(self, node: NodeInfo) -> int:
        if len(node.inputs) < 3 or node.inputs[2] not in self.initializers:
            return UINT8  # the default of QuantizeLinear
        return self.initializers[node.inputs[2]].element_type

    def _has_signed_weight(self, node: NodeInfo) -> bool:
        if node.op_type == "DequantizeLinear":
            candidates = node.inputs[:1]
        elif node.op_type in _INTEGER_OPS:
            candidates = node.inputs
        else:
            return False
        weights = (self.initializers[name] for name in candidates if name in self.initializers)
        return any(weight.element_type == INT8 and weight.rank >= 2 for weight in weights)


def read_model_file(path: Path) -> ModelFile:
    """Read the outline of an ONNX file.

    Raises SdnpuError for a file that is missing, empty, a Git LFS pointer, cut short or not ONNX.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise SdnpuError(f"{path}: no such model file") from None
    except OSError as error:
        raise SdnpuError(f"{path}: the model file cannot be read: {error.strerror}") from None
    if not data:
        raise SdnpuError(f"{path}: the model file is empty (0 bytes); copy it again")
    if data.startswith(_LFS_HEAD):
        raise SdnpuError(f"{path}: is a Git LFS pointer, not the model; run 'git lfs pull'")
    model = ModelFile(path)
    try:
        _read_model(memoryview(data), model)
    except (ValueError, IndexError, RecursionError):
        raise SdnpuError(
            f"{path}: is not a whole ONNX model ({len(data)} bytes); copy it again and compare its sha256"
        ) from None
    if not model.nodes or not model.outputs:
        raise SdnpuError(f"{path}: holds no ONNX graph ({len(data)} bytes); is it another kind of file?")
    return model


def check_static(model: ModelFile) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs. Raises SdnpuError that names each dynamic dimension and how to fix it."""
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor in model.inputs:
        fixed = tuple(d for d in tensor.shape or () if isinstance(d, int))
        if tensor.shape is not None and len(fixed) == len(tensor.shape):
            shapes[tensor.name] = fixed
            continue
        dynamic = [d for d in tensor.shape or () if isinstance(d, str)]
        shown = "of unknown rank" if tensor.shape is None else f"[{', '.join(str(d) for d in tensor.shape)}]"
        if len(dynamic) == 1 and dynamic[0] != "?":
            how = f"--dim_param {dynamic[0]} --dim_value 1"
        else:
            how = f"--input_name {tensor.name} --input_shape {','.join(str(d) for d in tensor.shape or ('N',))}"
        raise SdnpuError(
            f"{model.path}: input '{tensor.name}' {shown} is dynamic; every dimension must be a number, "
            f"fix it with: python -m onnxruntime.tools.make_dynamic_shape_fixed {how} {model.path.name} fixed.onnx"
        )
    return shapes


def check_external_data(model: ModelFile) -> None:
    """The files of weights beside the model.

    Raises SdnpuError where one is missing, too short or outside the model's directory.
    """
    ends: dict[str, int] = {}
    for tensor in model.initializers.values():
        if tensor.location:
            ends[tensor.location] = max(ends.get(tensor.location, 0), tensor.offset + tensor.length)
    for location, end in ends.items():
        companion = companion_file(model.path, location, "external data")
        size = companion.stat().st_size
        if size < end:
            raise SdnpuError(f"{companion}: has {size} bytes, {model.path.name} needs {end}; copy it again")


def companion_file(path: Path, location: str, what: str) -> Path:
    """The file that ``path`` refers to. Raises SdnpuError when it is missing or not inside the same directory."""
    directory = path.parent.resolve()
    companion = (directory / location).resolve()
    if not companion.is_relative_to(directory):
        raise SdnpuError(f"{path}: its {what} '{location}' lies outside the model's directory")
    if not companion.is_file():
        raise SdnpuError(f"{path}: its {what} '{location}' is missing; put the file beside the model")
    return companion


def _read_model(data: memoryview, model: ModelFile) -> None:
    for number, value in _fields(data):
        if number == 7:
            _read_graph(_message(value), model, top=True)
        elif number == 14:
            entry = {n: _text(v) for n, v in _fields(_message(value))}
            model.metadata[entry.get(1, "")] = entry.get(2, "")


def _read_graph(data: memoryview, model: ModelFile, *, top: bool) -> None:
    inputs: list[TensorInfo] = []
    for number, value in _fields(data):
        if number == 1:
            model.nodes.append(_read_node(_message(value), model))
        elif number == 5:
            tensor = _read_initializer(_message(value))
            model.initializers[tensor.name] = tensor
        elif number == 11 and top:
            inputs.append(_read_value_info(_message(value)))
        elif number == 12 and top:
            model.outputs.append(_read_value_info(_message(value)))
    if top:  # old files list their initializers among the inputs too
        model.inputs = [tensor for tensor in inputs if tensor.name not in model.initializers]


def _read_node(data: memoryview, model: ModelFile) -> NodeInfo:
    inputs: list[str] = []
    outputs: list[str] = []
    attributes: list[memoryview] = []
    name = op_type = ""
    for number, value in _fields(data):
        if number == 1:
            inputs.append(_text(value))
        elif number == 2:
            outputs.append(_text(value))
        elif number == 3:
            name = _text(value)
        elif number == 4:
            op_type = _text(value)
        elif number == 5:
            attributes.append(_message(value))
    node = NodeInfo(name, op_type, tuple(inputs))
    for attribute in attributes:
        _read_attribute(attribute, node, outputs, model)
    return node


def _read_attribute(data: memoryview, node: NodeInfo, outputs: list[str], model: ModelFile) -> None:
    key = ""
    for number, value in _fields(data):
        if number == 1:
            key = _text(value)
        elif number == 3 and node.op_type == "EPContext" and isinstance(value, int):
            node.integers[key] = value
        elif number == 4 and node.op_type == "EPContext":
            node.strings[key] = bytes(_message(value))
        elif number == 5 and node.op_type == "Constant" and outputs:
            # A Constant is an initializer by another name.
            tensor = _read_initializer(_message(value))
            model.initializers[outputs[0]] = tensor
        elif number == 6:
            _read_graph(_message(value), model, top=False)


def _read_initializer(data: memoryview) -> Initializer:
    name = location = ""
    element_type = rank = offset = length = 0
    for number, value in _fields(data):
        if number == 1:
            rank += 1 if isinstance(value, int) else sum(1 for byte in value if byte < 0x80)
        elif number == 2 and isinstance(value, int):
            element_type = value
        elif number == 8:
            name = _text(value)
        elif number == 13:
            entry = {n: _text(v) for n, v in _fields(_message(value))}
            if entry.get(1) == "location":
                location = entry.get(2, "")
            elif entry.get(1) == "offset":
                offset = int(entry.get(2, "0"))
            elif entry.get(1) == "length":
                length = int(entry.get(2, "0"))
    return Initializer(name, element_type, rank, location, offset, length)


def _read_value_info(data: memoryview) -> TensorInfo:
    name = ""
    element_type = 0
    shape: tuple[Dimension, ...] | None = None
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            for type_number, type_value in _fields(_message(value)):
                if type_number == 1:
                    element_type, shape = _read_tensor_type(_message(type_value))
    return TensorInfo(name, element_type, shape)


def _read_tensor_type(data: memoryview) -> tuple[int, tuple[Dimension, ...] | None]:
    element_type = 0
    shape: tuple[Dimension, ...] | None = None
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            element_type = value
        elif number == 2:
            shape = tuple(_read_dimension(_message(d)) for n, d in _fields(_message(value)) if n == 1)
    return element_type, shape


def _read_dimension(data: memoryview) -> Dimension:
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            return value if value > 0 else "?"
        if number == 2:
            return _text(value) or "?"
    return "?"


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a protobuf message. Raises ValueError or IndexError where it is cut short or not protobuf."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("field number 0")
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == 1:
            size = 8
        elif wire == 2:
            size, position = _varint(data, position)
        elif wire == 5:
            size = 4
        else:
            raise ValueError(f"wire type {wire}")
        if position + size > end:
            raise ValueError("cut short")
        yield number, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message belongs")
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_message(value)).decode("utf-8")
