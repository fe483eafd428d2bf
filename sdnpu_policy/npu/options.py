"""The options of each provider, with the values they may have, checked before a runtime sees them.

The runtimes can't be trusted with this: the QNN plug-in ignores a misspelt name without a word, takes a wrong
performance mode with one warning, and ends the process on some wrong run options. So nothing that is not in these
tables is ever handed over. Names and values are the runtimes' own.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sdnpu_policy.errors import SdnpuError

OptionValue = str | int | float


@dataclass(frozen=True, slots=True)
class Option:
    """What one option may be: one of ``choices``, an integer from ``low`` to ``high``, or a path.

    default: used when the option is not given; None leaves it to the runtime.
    """

    choices: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    path: bool = False
    default: str | None = None

    @property
    def allowed(self) -> str:
        """The values that would be right, in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.path:
            return "a path in an existing directory"
        return (
            f"an integer from {self.low} to {self.high}" if self.high is not None else f"an integer >= {self.low}"
        )

    def accepts(self, value: str) -> bool:
        """Whether ``value`` may be handed over."""
        if self.choices:
            return value in self.choices
        if self.path:
            return (
                value.isprintable() and value.strip() != "" and Path(value).expanduser().absolute().parent.is_dir()
            )
        if not (value.isascii() and value.isdigit()):
            return False
        return self.low <= int(value) and (self.high is None or int(value) <= self.high)


_SWITCH: Final = ("0", "1")
_LOG = Option(("0", "1", "2", "3", "4"))

PERFORMANCE_MODES: Final = (
    "burst",
    "balanced",
    "default",
    "high_performance",
    "high_power_saver",
    "low_balanced",
    "extreme_power_saver",
    "low_power_saver",
    "power_saver",
    "sustained_high_performance",
)

CPU_OPTIONS: Final[dict[str, Option]] = {
    # One thread, no spinning: on few cores shared with a 500 Hz stream, spinning costs more than it wins.
    "intra_op_num_threads": Option(low=1, high=256, default="1"),
    "inter_op_num_threads": Option(low=1, high=256, default="1"),
    "session.intra_op.allow_spinning": Option(_SWITCH, default="0"),
    "session.inter_op.allow_spinning": Option(_SWITCH, default="0"),
    "session.set_denormal_as_zero": Option(_SWITCH),
    "graph_optimization_level": Option(("disable_all", "basic", "extended", "all"), default="all"),
    "session.x64quantprecision": Option(("auto", *_SWITCH), default="auto"),
    "log_severity_level": Option(_LOG.choices, default="3"),
}

QNN_RUN_OPTIONS: Final[dict[str, Option]] = {
    # A wrong value of these ends the process.
    "qnn.htp_perf_mode": Option(PERFORMANCE_MODES),
    "qnn.htp_perf_mode_post_run": Option(PERFORMANCE_MODES),
    "qnn.rpc_control_latency": Option(low=0, high=1_000_000),
}

QNN_PROVIDER_OPTIONS: Final[dict[str, Option]] = {
    "backend_type": Option(("htp",), default="htp"),
    "device_id": Option(("0",)),
    # Always set: without it graphs fail with MEM_ALLOC, and the precision of floats depends on it. 60 is the
    # Snapdragon X Elite, whose HTP is v73.
    "soc_model": Option(low=1, high=999, default="60"),
    "htp_arch": Option(("68", "69", "73", "75", "79", "81")),
    # Mode 1: the others miscompile 16-bit activations (5-7 dB instead of 69).
    "htp_graph_finalization_optimization_mode": Option(("0", "1", "2", "3"), default="1"),
    "htp_performance_mode": Option(PERFORMANCE_MODES, default="burst"),
    "vtcm_mb": Option(low=0, high=64),
    "rpc_control_latency": Option(low=0, high=1_000_000),
    "qnn_context_priority": Option(("low", "normal", "normal_high", "high")),
    "enable_htp_fp16_precision": Option(_SWITCH, default="0"),
    "enable_htp_weight_sharing": Option(_SWITCH),
    "enable_htp_spill_fill_buffer": Option(_SWITCH),
    "enable_htp_shared_memory_allocator": Option(_SWITCH),
    "offload_graph_io_quantization": Option(_SWITCH),
    "num_graph_prepare_threads": Option(low=1, high=256),
    "profiling_level": Option(("off", "basic", "detailed", "optrace")),
    "profiling_file_path": Option(path=True),
    "dump_json_qnn_graph": Option(_SWITCH),
    "json_qnn_graph_dir": Option(path=True),
}

QNN_OPTIONS: Final[dict[str, Option]] = {
    **QNN_PROVIDER_OPTIONS,
    **QNN_RUN_OPTIONS,
    "session.disable_model_compile": Option(_SWITCH),
    "log_severity_level": Option(_LOG.choices, default="4"),
}

OPENVINO_OPTIONS: Final[dict[str, Option]] = {
    "INFERENCE_NUM_THREADS": Option(low=1, high=256, default="1"),
    "PERFORMANCE_HINT": Option(("LATENCY", "THROUGHPUT"), default="LATENCY"),
    "NUM_STREAMS": Option(("1",), default="1"),
    "INFERENCE_PRECISION_HINT": Option(("f32", "bf16", "f16"), default="f32"),
    "ENABLE_CPU_PINNING": Option(("YES", "NO"), default="NO"),
    "ENABLE_HYPER_THREADING": Option(("YES", "NO")),
    "LP_TRANSFORMS_MODE": Option(("auto", "YES", "NO"), default="auto"),
}

OPTIONS: Final[dict[str, dict[str, Option]]] = {
    "cpu": CPU_OPTIONS,
    "qnn": QNN_OPTIONS,
    "openvino": OPENVINO_OPTIONS,
}

HTP_ARCH_OF_SOC: Final[dict[str, str]] = {"43": "73", "57": "75", "60": "73", "69": "79"}
"""SM8550, SM8650, Snapdragon X Elite, SM8750."""


def check_options(provider: str, options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Check every name and value, and fill in the defaults.

    Returns what may be handed to the runtime, all values as text.
    Raises SdnpuError that names the provider and the option, the value, and the right name or the allowed values.
    """
    table = OPTIONS.get(provider)
    if table is None:
        raise SdnpuError(f"provider {provider!r} is not known; use one of {', '.join(OPTIONS)}")
    checked = {name: option.default for name, option in table.items() if option.default is not None}
    for name, value in options.items():
        option = table.get(name)
        if option is None:
            raise SdnpuError(f"provider '{provider}' has no option {name!r}; {_nearest(str(name), table)}")
        text = _text(value)
        if not option.accepts(text):
            raise SdnpuError(f"provider '{provider}': option {name}={text!r} is not allowed; use {option.allowed}")
        checked[name] = text
    if provider == "qnn":
        _complete_qnn(checked)
    return checked


def _complete_qnn(checked: dict[str, str]) -> None:
    """The rules between QNN's options, and the architecture that belongs to a SoC."""
    soc = checked["soc_model"]
    known = HTP_ARCH_OF_SOC.get(soc)
    arch = checked.setdefault("htp_arch", known or "")
    if not arch:
        raise SdnpuError(
            f"provider 'qnn': htp_arch is needed with soc_model={soc!r}; it is known only for soc_model "
            f"{', '.join(HTP_ARCH_OF_SOC)}"
        )
    if known is not None and arch != known:
        raise SdnpuError(f"provider 'qnn': soc_model={soc!r} has htp_arch {known}, not {arch!r}")
    for switch, path, off in (
        ("profiling_level", "profiling_file_path", "off"),
        ("dump_json_qnn_graph", "json_qnn_graph_dir", "0"),
    ):
        if checked.get(switch, off) != off and path not in checked:
            raise SdnpuError(f"provider 'qnn': {switch}={checked[switch]!r} needs {path} as well")


def _text(value: OptionValue) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _nearest(name: str, table: Mapping[str, Option]) -> str:
    """A hint at the right name: the most alike by its letters or by a shared part."""
    folded = {known.lower(): known for known in table}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{folded[near[0]]}'?"
    return f"it has {', '.join(table)}"
