"""The Hexagon NPU through onnxruntime's QNN plug-in, with proof that the whole graph is on it.

Three things look like success and are not: ``providers=["QNNExecutionProvider"]`` runs on the CPU with a plug-in,
``get_providers()`` lists QNN when every node is elsewhere, and a failed step makes Python build the session anew
on the CPU. So the provider is added by its device, fallback is off, and the assignment of the nodes is read back.

On x86 the wheel's libQnnHtp is a functional simulator: right numbers, meaningless timings.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.bound import BoundSession, create_session, import_or_explain, runtime, session_buffers
from sdnpu_policy.npu.model_file import ModelFile, companion_file
from sdnpu_policy.npu.options import QNN_PROVIDER_OPTIONS, QNN_RUN_OPTIONS
from sdnpu_policy.npu.session import Placement, one_line

PROVIDER = "QNNExecutionProvider"
COMPATIBILITY_KEY = f"ep_compatibility_info.{PROVIDER}"

_lock = threading.Lock()
_target_of_process: list[tuple[str, str]] = []


def open_qnn(
    model: ModelFile, shapes: Mapping[str, tuple[int, ...]], options: Mapping[str, str], *, require_whole: bool
) -> BoundSession:
    """A session on the NPU or its simulator. ``options`` are checked ones.

    require_whole: every node in one QNN graph, else refuse. Without it the rest runs on the CPU, and
    ``placement.elsewhere`` names it.
    Raises SdnpuError.
    """
    simulated = is_simulated()
    if simulated and options.get("enable_htp_shared_memory_allocator") == "1":
        raise SdnpuError(
            "provider 'qnn': enable_htp_shared_memory_allocator=1 needs a real NPU; leave it out here"
        )
    check_model_for_qnn(model, options)
    _claim_target(options["soc_model"], options["htp_arch"])
    try:
        session = create_session(model.path, qnn_session_options(options, whole=require_whole), None)
    except SdnpuError as error:
        elsewhere = _nodes_elsewhere(model.path, options) if require_whole else ()
        if elsewhere:
            raise SdnpuError(_not_whole(model.path, elsewhere)) from error
        raise SdnpuError(f"{error} (log_severity_level=1 shows what QNN says)") from error
    subgraphs, taken, elsewhere = _assignment(session)
    if require_whole and (elsewhere or subgraphs != 1):
        raise SdnpuError(_not_whole(model.path, elsewhere, subgraphs))
    if not taken:
        raise SdnpuError(f"{model.path}: QNN takes none of its nodes: {_some(elsewhere)}; use the cpu provider")
    inputs, outputs = session_buffers(session, model, shapes)
    device = f"HTP simulator (libQnnHtp, {_machine()})" if simulated else "Hexagon NPU"
    placement = Placement("qnn", device, simulated, taken + len(elsewhere), elsewhere)
    return BoundSession(model.path, session, inputs, outputs, placement, _run_options(options))


def qnn_session_options(options: Mapping[str, str], *, whole: bool) -> Any:
    """SessionOptions of onnxruntime with the QNN devices added. ``options`` are checked ones.

    whole: nodes that QNN does not take are an error instead of running on the CPU.
    Raises SdnpuError where the plug-in is missing or finds no device.
    """
    ort = runtime()
    devices = qnn_devices()
    session_options = ort.SessionOptions()
    session_options.intra_op_num_threads = 1
    session_options.inter_op_num_threads = 1
    session_options.log_severity_level = int(options["log_severity_level"])
    session_options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session_options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if whole:
        session_options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if options.get("session.disable_model_compile") == "1":
        session_options.add_session_config_entry("session.disable_model_compile", "1")
    handed = {name: options[name] for name in QNN_PROVIDER_OPTIONS if name in options}
    session_options.add_provider_for_devices(devices, handed)
    return session_options


def _run_options(options: Mapping[str, str]) -> Any | None:
    """RunOptions with the checked run options, None when none is given: passing them costs 40 us a step."""
    given = {name: options[name] for name in QNN_RUN_OPTIONS if name in options}
    if not given:
        return None
    run_options = runtime().RunOptions()
    for name, value in given.items():
        run_options.add_run_config_entry(name, value)
    return run_options


def qnn_devices() -> list[Any]:
    """The plug-in's devices; registers it when this process has not yet. Raises SdnpuError."""
    ort = runtime()
    plugin = import_or_explain("onnxruntime_qnn", "qnn")
    if not hasattr(ort, "get_ep_devices") or not hasattr(
        ort.InferenceSession, "get_provider_graph_assignment_info"
    ):
        raise SdnpuError(
            f"onnxruntime {ort.__version__} cannot load plug-ins or tell where nodes run; "
            "install a newer one with: pip install -U 'sdnpu_policy[qnn]'"
        )
    with _lock:
        devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
        if not devices:
            try:
                ort.register_execution_provider_library(PROVIDER, plugin.get_library_path())
            except Exception as error:
                if "already registered" not in str(error):
                    raise SdnpuError(
                        f"{plugin.get_library_path()}: the QNN plug-in cannot be loaded: {one_line(error)}"
                    ) from error
            devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    if not devices:
        raise SdnpuError(
            "the QNN plug-in finds no device: is this a Snapdragon with /dev/fastrpc-cdsp, or x86-64?"
        )
    return devices[:1]


def is_simulated() -> bool:
    """Whether QNN's HTP here is the simulator: an x86 machine, or one without the DSP's device file."""
    return _machine() == "x86" or not any(Path("/dev").glob("fastrpc-cdsp*"))


def check_model_for_qnn(model: ModelFile, options: Mapping[str, str]) -> None:
    """Raises SdnpuError for a model that QNN would run wrongly, crash on, or not run at all."""
    if model.contexts:
        check_context(model, options)
    elif options.get("session.disable_model_compile") == "1":
        raise SdnpuError(
            f"{model.path}: is not compiled, and session.disable_model_compile=1 forbids to compile it"
        )
    elif model.floating and not model.quantized and options["enable_htp_fp16_precision"] != "1":
        raise SdnpuError(
            f"{model.path}: is a float model without QuantizeLinear nodes; quantize it, "
            "or set enable_htp_fp16_precision=1 to run it in 16-bit floats"
        )


def check_context(model: ModelFile, options: Mapping[str, str]) -> None:
    """Check a compiled model: its companion file, the SDK it was compiled with, the SoC it was compiled for.

    A context of another SDK or chip may load with wrong results or end the process, so nothing but the same
    versions is let through. Raises SdnpuError that names both.
    """
    for node in model.contexts:
        source = node.strings.get("source", b"").decode("utf-8", "replace")
        if source and not source.upper().startswith("QNN"):
            raise SdnpuError(f"{model.path}: is compiled for {source}, not for {PROVIDER}")
        if node.integers.get("embed_mode", 1) == 0 and node.integers.get("main_context", 1) == 1:
            location = node.strings.get("ep_cache_context", b"").decode("utf-8", "replace")
            companion = companion_file(model.path, location, "compiled context")
            if companion.stat().st_size == 0:
                raise SdnpuError(f"{companion}: the compiled context is empty (0 bytes); copy it again")
    plugin = import_or_explain("onnxruntime_qnn", "qnn")
    here = str(getattr(plugin.build_and_package_info, "qnn_version", "unknown"))
    sdk, arch, soc = context_target(model)
    if sdk != here:
        raise SdnpuError(
            f"{model.path}: was compiled with QNN SDK {sdk or 'of unknown version'}, onnxruntime-qnn "
            f"{plugin.__version__} has {here}; compile it again with this runtime"
        )
    for name, compiled_for in (("htp_arch", arch), ("soc_model", soc)):
        if compiled_for not in ("", "0", options[name]):
            raise SdnpuError(
                f"{model.path}: was compiled for {name} {compiled_for}, the session is for {options[name]}; "
                f"compile it again or set {name}={compiled_for}"
            )


def context_target(model: ModelFile) -> tuple[str, str, str]:
    """(SDK version like 2.51.0, htp_arch, soc_model) of a compiled model, '' where it does not say.

    The metadata reads v2:6:<SDK>:<API>:<arch>:<SoC>:<VTCM>:<flags>; older models have only the node attribute
    ep_sdk_version, v<SDK>.<build>.
    """
    parts = model.metadata.get(COMPATIBILITY_KEY, "").split(":")
    if len(parts) >= 6 and parts[0] == "v2":
        return parts[2], parts[4], parts[5]
    text = next(
        (node.strings["ep_sdk_version"] for node in model.contexts if "ep_sdk_version" in node.strings), b""
    )
    return ".".join(text.decode("utf-8", "replace").removeprefix("v").split(".")[:3]), "", ""


def _claim_target(soc_model: str, htp_arch: str) -> None:
    """One SoC per process: the precision of floats depends on it and leaks from one session into the next."""
    with _lock:
        if not _target_of_process:
            _target_of_process.append((soc_model, htp_arch))
        soc, arch = _target_of_process[0]
    if (soc, arch) != (soc_model, htp_arch):
        raise SdnpuError(
            f"provider 'qnn': this process already runs for soc_model={soc}, htp_arch={arch}; "
            f"soc_model={soc_model}, htp_arch={htp_arch} needs a process of its own"
        )


def _assignment(session: Any) -> tuple[int, int, tuple[str, ...]]:
    """(QNN subgraphs, nodes in them, the nodes that are elsewhere)."""
    subgraphs = taken = 0
    elsewhere: list[str] = []
    for subgraph in session.get_provider_graph_assignment_info():
        nodes = subgraph.get_nodes()
        if subgraph.ep_name == PROVIDER:
            subgraphs += 1
            taken += len(nodes)
        else:
            elsewhere += [f"{node.name or '(unnamed)'} ({node.op_type})" for node in nodes]
    return subgraphs, taken, tuple(elsewhere)


def _nodes_elsewhere(path: Path, options: Mapping[str, str]) -> tuple[str, ...]:
    """Compile once more with the rest on the CPU, to learn which nodes QNN refuses."""
    lenient = {**options, "offload_graph_io_quantization": "0"}
    try:
        session = create_session(path, qnn_session_options(lenient, whole=False), None)
    except SdnpuError:
        return ()
    return _assignment(session)[2]


def _not_whole(path: Path, elsewhere: Iterable[str], subgraphs: int = 1) -> str:
    nodes = tuple(elsewhere)
    if not nodes:
        return f"{path}: QNN splits it into {subgraphs} graphs; one is needed inside a deadline (require_whole)"
    # The quantizers around a refused node are refused with it.
    causes = (
        tuple(node for node in nodes if not node.endswith(("(QuantizeLinear)", "(DequantizeLinear)"))) or nodes
    )
    return (
        f"{path}: QNN does not take {len(causes)} of its nodes: {_some(causes)}; replace them, or check that "
        "every tensor around them is quantized"
    )


def _some(nodes: tuple[str, ...], shown: int = 8) -> str:
    rest = f" and {len(nodes) - shown} more" if len(nodes) > shown else ""
    return ", ".join(nodes[:shown]) + rest


def _machine() -> str:
    machine = platform.machine().lower()
    return "x86" if machine in ("x86_64", "amd64", "i686") else machine
