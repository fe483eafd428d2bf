"""Late steps on purpose."""

from __future__ import annotations

import time

import pytest

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.latency import late_steps, parse_late


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    durations: list[float] = []
    monkeypatch.setattr(time, "sleep", durations.append)
    return durations


def test_the_given_share_of_steps_is_late_by_the_given_time(slept: list[float]) -> None:
    ran: list[int] = []
    step = late_steps(lambda: ran.append(1), 0.2, 25.0, seed=3)
    for _ in range(5000):
        step()
    assert len(ran) == 5000
    assert set(slept) == {0.025}
    assert 0.18 < len(slept) / 5000 < 0.22


def test_a_seed_gives_the_same_late_steps_each_time(slept: list[float]) -> None:
    patterns = []
    for _ in range(2):
        step = late_steps(lambda: None, 0.5, 1.0, seed=9)
        pattern = []
        for _ in range(100):
            before = len(slept)
            step()
            pattern.append(len(slept) - before)
        patterns.append(pattern)
    assert patterns[0] == patterns[1]


@pytest.mark.parametrize(("probability", "late"), [(0.0, 0), (1.0, 50)])
def test_never_and_always(slept: list[float], probability: float, late: int) -> None:
    step = late_steps(lambda: None, probability, 4.0, seed=0)
    for _ in range(50):
        step()
    assert len(slept) == late


def test_an_exception_of_the_step_passes_through(slept: list[float]) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        late_steps(fail, 1.0, 25.0, seed=0)()


def test_the_option_is_read() -> None:
    assert parse_late("0.2:25") == (0.2, 25.0)
    assert parse_late("1:0") == (1.0, 0.0)


@pytest.mark.parametrize(
    "text",
    ["", "0.2", "0.2:", ":25", "0.2:25:1", "a:b", "1.1:25", "-0.1:25", "0.2:-1", "nan:25", "0.2:nan", "0.2:inf"],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(SdnpuError, match="give PROBABILITY:MILLISECONDS") as caught:
        parse_late(text)
    assert "\n" not in str(caught.value)
