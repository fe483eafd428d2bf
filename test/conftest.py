"""Fixtures that keep tests apart: every test that talks has its own ROS domain and loopback address."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# No timing is asserted in a test, and hypothesis' own deadline would be one.
settings.register_profile("sdnpu", deadline=None)
settings.load_profile("sdnpu")

os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
os.environ.setdefault("ROS_PYTHON_CHECK_FIELDS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def slot() -> Iterator[int]:
    """A number from 1 to 100 that no other running test of this machine has (a file lock says so)."""
    directory = Path(tempfile.gettempdir()) / "sdnpu_policy_test_slots"
    directory.mkdir(exist_ok=True)
    start = os.getpid() % 100
    for offset in range(100):
        number = 1 + (start + offset) % 100
        handle = open(directory / str(number), "w")  # noqa: SIM115 - held until the test ends
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            continue
        try:
            yield number
        finally:
            handle.close()
        return
    raise RuntimeError("all 100 test slots are taken: is another test run stuck?")


@pytest.fixture
def loopback(slot: int) -> str:
    """A loopback address of this test's own."""
    return f"127.0.{slot}.1"


@pytest.fixture
def ros_domain_id(slot: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """A ROS domain of this test's own, also set in the environment."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(slot))
    return slot


@pytest.fixture
def shared_data() -> Path:
    """Public files used as test input; the test is skipped where they are absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"test data not found at {SHARED_DATA}")
    return SHARED_DATA
