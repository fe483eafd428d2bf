"""The ring of ticks keeps the newest rows in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.control.tick_log import TickLog


@given(capacity=st.integers(1, 20), count=st.integers(0, 60))
def test_the_newest_rows_come_back_oldest_first(capacity: int, count: int) -> None:
    log = TickLog(capacity)
    for number in range(count):
        log.next_row()["start_ns"] = number
        log.add_step(float(number))
    newest = list(range(max(0, count - capacity), count))
    assert log.rows()["start_ns"].tolist() == newest
    assert log.step_times_ms().tolist() == newest


def test_a_saved_log_reads_back(tmp_path: Path) -> None:
    log = TickLog(4)
    log.next_row()["late"] = True
    log.add_step(1.5)
    log.save(tmp_path / "deep" / "ticks.npz")
    with np.load(tmp_path / "deep" / "ticks.npz") as file:
        assert file["ticks"]["late"].tolist() == [True]
        assert file["step_ms"].tolist() == [1.5]
