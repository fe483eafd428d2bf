"""Open a network on one of the providers: everything is checked before a runtime sees the file.

cpu        onnxruntime's CPU provider
qnn        the Hexagon NPU (or its x86 simulator) through the onnxruntime-qnn plug-in
openvino   OpenVINO's own runtime on its CPU device

The runtimes are imported when they are first asked for, so a robot needs only the one it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sdnpu_policy.npu.golden import check_golden, snr_db
from sdnpu_policy.npu.model_file import check_external_data, check_static, read_model_file
from sdnpu_policy.npu.onnx_cpu import open_cpu
from sdnpu_policy.npu.openvino import open_openvino
from sdnpu_policy.npu.options import OPTIONS, OptionValue, check_options
from sdnpu_policy.npu.qnn import open_qnn
from sdnpu_policy.npu.session import (
    Placement,
    Session,
    StepFailed,
    check_signature,
    describe,
    input_shapes,
    warm_up,
)

__all__ = [
    "PROVIDERS",
    "Placement",
    "Session",
    "StepFailed",
    "check_golden",
    "check_options",
    "check_signature",
    "describe",
    "input_shapes",
    "open_session",
    "snr_db",
    "warm_up",
]

PROVIDERS: Final = tuple(OPTIONS)


def open_session(
    file: str | Path,
    provider: str,
    options: Mapping[str, OptionValue] | None = None,
    *,
    require_whole: bool = True,
) -> Session:
    """Load an ONNX file and bind its buffers.

    options: the provider's own option names and values, see ``npu.options``.
    require_whole: refuse a network of which a node is not on the provider.
    Raises SdnpuError: an unknown option or value, a missing package, a file that is not a whole ONNX model or
    lacks its companion, a dynamic shape, a graph or a context that the provider would not run as a whole.
    """
    checked = check_options(provider, options or {})
    model = read_model_file(Path(file))
    check_external_data(model)
    shapes = check_static(model)
    if provider == "qnn":
        return open_qnn(model, shapes, checked, require_whole=require_whole)
    if provider == "openvino":
        return open_openvino(model, shapes, checked)
    return open_cpu(model, shapes, checked)
