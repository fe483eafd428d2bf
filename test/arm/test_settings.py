"""Settings of the arm process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sdnpu_policy.arm.settings import settings_from_json
from sdnpu_policy.errors import SdnpuError

LIMITS = {
    "max_speed_m_s": 0.3,
    "max_acceleration_m_s2": 4.0,
    "max_jerk_m_s3": 200.0,
    "max_angular_speed_rad_s": 1.8,
    "max_angular_acceleration_rad_s2": 25.0,
    "max_angular_jerk_rad_s3": 1000.0,
}


def as_json(**changes: Any) -> str:
    return json.dumps({"robot_ip": "192.168.56.101", "limits": LIMITS, **changes})


def test_settings_have_sensible_defaults() -> None:
    settings = settings_from_json(as_json())
    assert (settings.frequency_hz, settings.period_s, settings.watchdog_hz) == (500.0, 0.002, 10.0)
    assert settings.limits.max_jerk_m_s3 == 200.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        (as_json(gains=3), "unknown gains; it has connect_timeout_s"),
        (json.dumps({"robot_ip": "1.2.3.4"}), "missing limits"),
        (as_json(limits={**LIMITS, "max_speed_m_s": 0}), "max_speed_m_s 0 must be a number above 0"),
        (as_json(limits={**LIMITS, "max_speed_m_s": "fast"}), "'limits'"),
        (as_json(limits={"max_speed_m_s": 1}), "missing max_acceleration_m_s2"),
        (as_json(robot_ip=""), "'robot_ip' '' must be the robot's address"),
        (as_json(lookahead_s=0.01), "'lookahead_s' 0.01 must be a number from 0.03 to 0.2"),
        (as_json(gain=3000), "'gain' 3000 must be a number from 100 to 2000"),
        (as_json(gain=True), "'gain' True must be a number"),
        (as_json(connect_timeout_s=float("nan")), "'connect_timeout_s' nan must be a number"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_with_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(SdnpuError) as refusal:
        settings_from_json(text)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
