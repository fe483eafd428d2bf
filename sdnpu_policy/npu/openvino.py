"""OpenVINO's own runtime on its CPU device: one thread, latency hint, tensors bound once.

OpenVINO's low-precision transforms multiply unsigned with signed bytes too, and saturate on x86 without VNNI
(measured: 16.8 dB against the exact encoder with signed weights, 41.5 with the transforms off, which made the
U-Net no slower). They are turned off by themselves where they would saturate.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.bound import import_or_explain
from sdnpu_policy.npu.model_file import ModelFile
from sdnpu_policy.npu.processor import processor_name, saturates
from sdnpu_policy.npu.session import Buffers, Placement, StepFailed, allocate, one_line


class OpenVinoSession:
    """An infer request with its tensors. Keep one thread in ``run`` at a time."""

    def __init__(
        self, file: Path, request: Any, inputs: Buffers, outputs: Buffers, placement: Placement, tensors: list[Any]
    ) -> None:
        self.file = file
        self.inputs = inputs
        self.outputs = outputs
        self.placement = placement
        self._request = request
        self._tensors = tensors

    def run(self) -> None:
        if self._request is None:
            raise StepFailed(f"{self.file}: the session is closed")
        try:
            # Sharing spares a copy of the results into a dictionary that nobody reads.
            self._request.infer(share_inputs=True, share_outputs=True)
        except Exception as error:
            raise StepFailed(f"{self.file}: {one_line(error)}") from error

    def close(self) -> None:
        self._request = None
        self._tensors.clear()


def open_openvino(
    model: ModelFile, shapes: Mapping[str, tuple[int, ...]], options: Mapping[str, str]
) -> OpenVinoSession:
    """A session on OpenVINO's CPU device. ``options`` are checked ones. Raises SdnpuError."""
    openvino = import_or_explain("openvino", "openvino")
    if model.contexts:
        raise SdnpuError(
            f"{model.path}: is compiled for another runtime; OpenVINO needs the ONNX it was made from"
        )
    settings = dict(options)
    if settings["LP_TRANSFORMS_MODE"] == "auto":
        settings["LP_TRANSFORMS_MODE"] = "NO" if saturates(model) else "YES"
    try:
        compiled = openvino.Core().compile_model(str(model.path), "CPU", settings)
        request = compiled.create_infer_request()
        devices = list(compiled.get_property("EXECUTION_DEVICES"))
        output_shapes = {
            port.get_any_name(): tuple(port.get_shape())
            for port in compiled.outputs
            if port.partial_shape.is_static
        }
        dynamic = [port.get_any_name() for port in compiled.outputs if port.partial_shape.is_dynamic]
    except Exception as error:
        raise SdnpuError(f"{model.path}: OpenVINO cannot load it: {one_line(error)}") from error
    if dynamic:
        raise SdnpuError(f"{model.path}: output '{dynamic[0]}' has no fixed shape; export with static shapes")
    if devices != ["CPU"]:
        raise SdnpuError(f"{model.path}: OpenVINO placed it on {', '.join(devices)} instead of CPU")
    inputs = allocate(shapes, {t.name: t.element_type for t in model.inputs}, model.path)
    outputs = allocate(output_shapes, {t.name: t.element_type for t in model.outputs}, model.path)
    tensors = []
    for name, buffer in {**inputs, **outputs}.items():
        tensor = openvino.Tensor(buffer, shared_memory=True)
        request.set_tensor(name, tensor)
        tensors.append(tensor)
    device = f"{processor_name()}, {options['INFERENCE_NUM_THREADS']} thread(s)"
    placement = Placement("openvino", device, simulated=False, total_nodes=len(model.nodes), elsewhere=())
    return OpenVinoSession(model.path, request, inputs, outputs, placement, tensors)
