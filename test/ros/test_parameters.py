"""The parameter table: every value outside its range is refused by name."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

rclpy = pytest.importorskip("rclpy")

from sdnpu_policy.errors import SdnpuError  # noqa: E402
from sdnpu_policy.ros.parameters import (  # noqa: E402
    PARAMETERS,
    conflict_in,
    parse_options,
    problem_with,
)

DEFAULTS = {name: spec.default for name, spec in PARAMETERS.items()}
CONFIG = Path(__file__).parents[2] / "config"


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_default_is_allowed(name: str) -> None:
    assert problem_with(name, PARAMETERS[name].default) is None


def test_the_defaults_do_not_contradict_each_other() -> None:
    assert conflict_in(DEFAULTS) is None


@pytest.mark.parametrize("name", [n for n, s in PARAMETERS.items() if s.low is not None])
def test_a_number_outside_its_range_is_refused_with_name_value_and_range(name: str) -> None:
    spec = PARAMETERS[name]
    assert spec.low is not None and spec.high is not None
    for value in (spec.low - 1.0, spec.high + 1.0):
        problem = problem_with(name, value)
        assert problem is not None
        assert name in problem and f"{spec.low:g}" in problem and f"{spec.high:g}" in problem


@pytest.mark.parametrize("name", [n for n, s in PARAMETERS.items() if isinstance(s.default, float)])
def test_not_a_number_is_refused(name: str) -> None:
    assert problem_with(name, math.nan) is not None


@pytest.mark.parametrize("name", [n for n, s in PARAMETERS.items() if s.choices])
def test_a_word_that_is_no_choice_is_refused_with_the_choices(name: str) -> None:
    problem = problem_with(name, "turbo")
    assert problem is not None and all(choice in problem for choice in PARAMETERS[name].choices)


def test_a_corner_of_the_workspace_needs_three_finite_numbers() -> None:
    assert "3 are needed" in str(problem_with("workspace_min_m", [0.0, 1.0]))
    assert "finite" in str(problem_with("workspace_min_m", [0.0, 1.0, math.inf]))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"step_deadline_ms": 5.0}, ("step_deadline_ms", "tick_ms", "5", "4")),
        ({"max_speed_m_s": 1.0}, ("max_speed_m_s", "arm_max_speed_m_s", "1", "0.3")),
        ({"workspace_min_m": [0.8, -0.4, 0.0]}, ("workspace_min_m", "workspace_max_m", "x")),
    ],
)
def test_a_contradiction_names_both_parameters_with_their_values(changed: dict, named: tuple[str, ...]) -> None:
    problem = conflict_in({**DEFAULTS, **changed})
    assert problem is not None and all(word in problem for word in named)


def test_every_name_has_its_unit_or_none() -> None:
    units = ("_ms", "_s", "_m", "_m_s", "_m_s2", "_m_s3", "_rad_s", "_rad_s2", "_rad_s3", "_hz")
    for name, spec in PARAMETERS.items():
        if isinstance(spec.default, float) and name not in ("servo_gain", "late_probability"):
            assert name.endswith(units), f"{name} has no unit in its name"


def test_options_are_read_as_name_and_value() -> None:
    assert parse_options("provider_options", ["", "soc_model=60", "a=b=c"]) == {"soc_model": "60", "a": "b=c"}


def test_an_option_without_a_value_is_refused() -> None:
    with pytest.raises(SdnpuError, match=r"provider_options.*NAME=VALUE"):
        parse_options("provider_options", ["burst"])


@pytest.mark.parametrize("path", sorted(CONFIG.glob("*.yaml")), ids=lambda p: p.name)
def test_the_shipped_parameter_files_hold_known_names_and_allowed_values(path: Path) -> None:
    values = yaml.safe_load(path.read_text())["/**"]["ros__parameters"]
    assert values
    for name, value in values.items():
        assert name in PARAMETERS, f"{path.name}: {name}"
        assert type(value) is type(PARAMETERS[name].default), f"{path.name}: {name} is {value!r}"
        assert problem_with(name, value) is None
    assert conflict_in({**DEFAULTS, **values}) is None
