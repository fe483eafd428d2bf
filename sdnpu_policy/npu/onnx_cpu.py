"""onnxruntime's CPU provider: one thread, no spinning, and exact integer products.

On x86 processors without VNNI the product of unsigned activations and signed weights saturates at onnxruntime's
defaults: the encoder handed over with the first policy falls from 29 dB to 13 dB, its U-Net from 10.7 to 9.2 on
random input. ``session.x64quantprecision=1`` turns the weights into unsigned ones while loading: bit for bit the
result without graph optimisation, at the same speed, for Conv, ConvTranspose, Gemm and MatMul, per tensor and per
channel. It is set by itself where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.bound import BoundSession, create_session, runtime, session_buffers
from sdnpu_policy.npu.model_file import ModelFile
from sdnpu_policy.npu.processor import processor_name, saturates
from sdnpu_policy.npu.session import Placement


def open_cpu(model: ModelFile, shapes: Mapping[str, tuple[int, ...]], options: Mapping[str, str]) -> BoundSession:
    """A session on the CPU provider. ``options`` are checked ones. Raises SdnpuError."""
    if model.contexts:
        source = model.contexts[0].strings.get("source", b"an accelerator").decode("utf-8", "replace")
        raise SdnpuError(
            f"{model.path}: is compiled for {source}; the CPU provider needs the ONNX it was made from"
        )
    setting = options["session.x64quantprecision"]
    precise = setting == "1" or (setting == "auto" and saturates(model))
    session_options = cpu_session_options(options)
    session_options.add_session_config_entry("session.x64quantprecision", "1" if precise else "0")
    try:
        session = create_session(model.path, session_options, ["CPUExecutionProvider"])
    except SdnpuError as error:
        if not precise:
            raise
        raise SdnpuError(
            f"{error} (session.x64quantprecision=1 was set: {model.signed_weights()} int8 weights saturate on "
            "this processor; quantize with QUInt8 weights if that is the cause)"
        ) from error
    inputs, outputs = session_buffers(session, model, shapes)
    device = f"{processor_name()}, {options['intra_op_num_threads']} thread(s)"
    placement = Placement("cpu", device, simulated=False, total_nodes=len(model.nodes), elsewhere=())
    return BoundSession(model.path, session, inputs, outputs, placement)


def cpu_session_options(options: Mapping[str, str]) -> Any:
    """SessionOptions of onnxruntime from checked CPU options."""
    ort = runtime()
    levels = {
        "disable_all": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    }
    session_options = ort.SessionOptions()
    session_options.intra_op_num_threads = int(options["intra_op_num_threads"])
    session_options.inter_op_num_threads = int(options["inter_op_num_threads"])
    session_options.graph_optimization_level = levels[options["graph_optimization_level"]]
    session_options.log_severity_level = int(options["log_severity_level"])
    for name in (
        "session.intra_op.allow_spinning",
        "session.inter_op.allow_spinning",
        "session.set_denormal_as_zero",
    ):
        if name in options:
            session_options.add_session_config_entry(name, options[name])
    return session_options
