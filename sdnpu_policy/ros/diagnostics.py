"""What the node knows of itself, as diagnostic_msgs: `~/state` on change and at 10 Hz, `/diagnostics` at 1 Hz."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from sdnpu_policy.control.watchdog import State

LEVELS = {
    State.NOMINAL: DiagnosticStatus.OK,
    State.COAST: DiagnosticStatus.WARN,
    State.BRAKE: DiagnosticStatus.WARN,
    State.HOLD: DiagnosticStatus.WARN,
    State.STOPPED: DiagnosticStatus.ERROR,
}


def status(
    name: str, level: bytes, message: str, values: Mapping[str, Any], hardware_id: str = ""
) -> DiagnosticStatus:
    """One status; numbers are written with the digits a person reads."""
    return DiagnosticStatus(
        level=level,
        name=name,
        message=message,
        hardware_id=hardware_id,
        values=[KeyValue(key=key, value=_text(value)) for key, value in values.items()],
    )


def array(stamp: Any, statuses: list[DiagnosticStatus]) -> DiagnosticArray:
    """The statuses as one message of /diagnostics."""
    message = DiagnosticArray(status=statuses)
    message.header.stamp = stamp
    return message


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)
