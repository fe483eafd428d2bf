"""Golden vectors catch a network that is compiled or copied wrongly."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.providers import Session, check_golden, open_session, snr_db

MakeModel = Callable[..., Path]


@given(st.floats(-60.0, 120.0), st.floats(1e-3, 1e3))
def test_snr_is_the_power_ratio_whatever_the_scale(db: float, scale: float) -> None:
    reference = np.array([3.0, -4.0, 0.0]) * scale
    noise = np.array([0.0, 0.0, 5.0]) * scale * 10 ** (-db / 20)
    assert snr_db(reference, reference + noise) == pytest.approx(db, abs=1e-3)


def test_snr_of_special_cases() -> None:
    ones = np.ones(3, np.float32)
    assert snr_db(ones, ones) == math.inf
    assert snr_db(np.zeros(3), np.zeros(3)) == math.inf
    assert snr_db(np.zeros(3), ones) == -math.inf
    assert snr_db(ones, np.array([1.0, np.nan, 1.0])) == -math.inf
    assert snr_db(np.array([1.0, np.inf, 1.0]), ones) == -math.inf
    with pytest.raises(ValueError, match="shapes differ"):
        snr_db(ones, np.ones(4))


@pytest.fixture
def session(quantized_conv: MakeModel) -> Session:
    return open_session(quantized_conv(), "cpu")


def run(session: Session, x: NDArray[np.float32]) -> NDArray[np.float32]:
    session.inputs["x"][...] = x
    session.run()
    return session.outputs["y"].copy()


def test_the_right_answer_passes_and_gives_its_snr(session: Session) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    y = run(session, x)
    assert check_golden(session, {"x": x}, {"y": y}, 20.0) == math.inf
    near = check_golden(session, {"x": x}, {"y": y * np.float32(1.01)}, 20.0)
    assert near == pytest.approx(40.1, abs=0.1)


def test_several_cases_are_judged_together(session: Session) -> None:
    xs = np.random.default_rng(0).standard_normal((4, 1, 3, 8, 8)).astype(np.float32)
    ys = np.stack([run(session, x) for x in xs])
    assert check_golden(session, {"x": xs}, {"y": ys}, 20.0) == math.inf
    with pytest.raises(SdnpuError, match="dB from the golden vector"):
        check_golden(session, {"x": xs[::-1]}, {"y": ys}, 20.0)


def test_a_wrong_answer_names_the_output_the_device_and_both_figures(session: Session) -> None:
    x = np.zeros((1, 3, 8, 8), np.float32)
    with pytest.raises(SdnpuError, match=r"output 'y' on .* is -?\d+\.\d dB from .*, at least 20 is needed"):
        check_golden(session, {"x": x}, {"y": run(session, x) + 10.0}, 20.0)


def test_an_answer_that_is_not_finite_fails_whatever_the_limit(session: Session) -> None:
    x = np.zeros((1, 3, 8, 8), np.float32)
    y = run(session, x)
    y[0, 0, 0, 0] = np.nan
    with pytest.raises(SdnpuError, match="-inf dB"):
        check_golden(session, {"x": x}, {"y": y}, -1000.0)


def test_names_shapes_and_counts_must_fit(session: Session) -> None:
    x = np.zeros((1, 3, 8, 8), np.float32)
    y = np.zeros((1, 4, 8, 8), np.float32)
    with pytest.raises(SdnpuError, match=r"are for \['image'\] -> \['y'\], the model has \['x'\] -> \['y'\]"):
        check_golden(session, {"image": x}, {"y": y}, 20.0)
    with pytest.raises(SdnpuError, match=r"'x' has shape \[1, 8, 8, 3\], the model \[1, 3, 8, 8\]"):
        check_golden(session, {"x": np.zeros((1, 8, 8, 3), np.float32)}, {"y": y}, 20.0)
    with pytest.raises(SdnpuError, match=r"different numbers of cases: \[1, 2\]"):
        check_golden(session, {"x": np.stack([x, x])}, {"y": y}, 20.0)
