"""A session of onnxruntime whose inputs and outputs are numpy buffers bound once.

Both the CPU provider and the QNN plug-in give this session. A step is ``run_with_iobinding`` on memory that never
moves: half the time of ``run`` for a trivial graph, a twentieth of ``run_with_ort_values``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.model_file import ModelFile
from sdnpu_policy.npu.session import Buffers, Placement, StepFailed, allocate, one_line


class BoundSession:
    """An onnxruntime session with its buffers. Keep one thread in ``run`` at a time."""

    def __init__(
        self,
        file: Path,
        session: Any,
        inputs: Buffers,
        outputs: Buffers,
        placement: Placement,
        run_options: Any | None = None,
    ) -> None:
        ort = runtime()
        self.file = file
        self.inputs = inputs
        self.outputs = outputs
        self.placement = placement
        self._session = session
        self._run_options = run_options
        self._binding = session.io_binding()
        # The values lie over the numpy buffers and must live as long as the binding.
        self._values = []
        for buffers, bind in (
            (inputs, self._binding.bind_ortvalue_input),
            (outputs, self._binding.bind_ortvalue_output),
        ):
            for name, buffer in buffers.items():
                value = ort.OrtValue.ortvalue_from_numpy(buffer)
                if value.data_ptr() != buffer.ctypes.data:
                    raise SdnpuError(
                        f"{file}: onnxruntime {ort.__version__} copies buffers instead of binding them"
                    )
                bind(name, value)
                self._values.append(value)

    def run(self) -> None:
        if self._session is None:
            raise StepFailed(f"{self.file}: the session is closed")
        try:
            self._session.run_with_iobinding(self._binding, self._run_options)
        except Exception as error:
            raise StepFailed(f"{self.file}: {one_line(error)}") from error

    def close(self) -> None:
        self._binding = self._session = None
        self._values.clear()


def runtime() -> ModuleType:
    """onnxruntime, imported when it is first needed. Raises SdnpuError where it is not installed."""
    return import_or_explain("onnxruntime", "")


def import_or_explain(package: str, extra: str) -> ModuleType:
    """Import an optional package. Raises SdnpuError that names what to install."""
    try:
        return importlib.import_module(package)
    except (ImportError, OSError) as error:
        wanted = f"sdnpu_policy[{extra}]" if extra else "sdnpu_policy"
        raise SdnpuError(
            f"package '{package}' cannot be used ({one_line(error, 120)}); install it with: pip install '{wanted}'"
        ) from error


def create_session(file: Path, session_options: Any, providers: list[str] | None) -> Any:
    """An InferenceSession from the file's path, so that external data is found beside it.

    Raises SdnpuError with the runtime's message in one line.
    """
    ort = runtime()
    try:
        session = ort.InferenceSession(str(file), session_options, providers=providers)
    except Exception as error:
        raise SdnpuError(f"{file}: onnxruntime {ort.__version__} cannot load it: {one_line(error)}") from error
    # After a failed step Python would build the session anew on the CPU, in the middle of control.
    session.disable_fallback()
    return session


def session_buffers(
    session: Any, model: ModelFile, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Buffers, Buffers]:
    """Buffers for a session's inputs (of ``shapes``) and outputs. Raises SdnpuError for a dynamic output."""
    output_shapes: dict[str, tuple[int, ...]] = {}
    for output in session.get_outputs():
        if not all(isinstance(d, int) and d > 0 for d in output.shape):
            raise SdnpuError(
                f"{model.path}: output '{output.name}' {output.shape} has no fixed shape; "
                "export the model with static shapes, without operators whose output size depends on the data"
            )
        output_shapes[output.name] = tuple(output.shape)
    input_types = {tensor.name: tensor.element_type for tensor in model.inputs}
    output_types = {tensor.name: tensor.element_type for tensor in model.outputs}
    return allocate(shapes, input_types, model.path), allocate(output_shapes, output_types, model.path)
