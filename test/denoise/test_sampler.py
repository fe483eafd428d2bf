"""The sampler can be left and resumed between any two model calls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sdnpu_policy.bundle.schema import Scheduler, Timestep
from sdnpu_policy.denoise.sampler import NonFiniteOutput, Sampler, steps_that_fit, timestep_rows
from sdnpu_policy.denoise.schedule import make_schedule

SETTINGS = Scheduler(
    class_name="DDIMScheduler",
    num_train_timesteps=100,
    beta_schedule="squaredcos_cap_v2",
    prediction_type="sample",
    timestep_spacing="trailing",
    num_inference_steps=4,
)
INDEX = Timestep(encoding="index")


def make(shape: tuple[int, ...] = (16, 9), seed: int = 0, class_name: str = "DDIMScheduler") -> Sampler:
    schedule = make_schedule(SETTINGS.model_copy(update={"class_name": class_name}), 4)
    return Sampler(schedule, shape, np.random.default_rng(seed), timestep_rows(INDEX, schedule.timesteps))


def model(sample: NDArray[np.float32], i: int) -> NDArray[np.float32]:
    return np.asarray(0.5 * sample + 0.1 * i, np.float32)


def denoise(sampler: Sampler) -> NDArray[np.float32]:
    while not sampler.advance(model(sampler.sample, sampler.index)):
        pass
    return sampler.actions.copy()


@pytest.mark.parametrize("class_name", ["DDIMScheduler", "DDPMScheduler"])
@pytest.mark.parametrize("shape", [(16, 9), (4, 64, 64)])
def test_the_same_seed_gives_the_same_actions(shape: tuple[int, ...], class_name: str) -> None:
    results = []
    for _ in range(2):
        sampler = make(shape, 7, class_name)
        sampler.begin()
        results.append(denoise(sampler))
    assert results[0].shape == shape
    np.testing.assert_array_equal(results[0], results[1])


def test_two_denoisings_begin_with_different_noise() -> None:
    sampler = make()
    sampler.begin()
    first = sampler.sample.copy()
    sampler.begin()
    assert not np.array_equal(first, sampler.sample)


def test_it_counts_what_remains_and_ends_inactive() -> None:
    sampler = make()
    assert (sampler.active, sampler.remaining) == (False, 0)
    sampler.begin()
    seen = []
    while sampler.active:
        seen.append((sampler.index, sampler.remaining))
        sampler.advance(model(sampler.sample, sampler.index))
    assert seen == [(0, 4), (1, 3), (2, 2), (3, 1)]


def test_a_warm_start_begins_late_near_its_first_guess() -> None:
    sampler = make()
    guess = np.full((16, 9), 0.25, np.float32)
    sampler.begin(start=3, initial=guess)
    assert sampler.remaining == 1
    bar = sampler.schedule.alpha_bars[3]
    assert sampler.sample.mean() == pytest.approx(bar**0.5 * 0.25, abs=0.1)


def test_a_first_guess_of_another_shape_or_not_finite_is_refused() -> None:
    sampler = make()
    for guess in (np.zeros((9, 16), np.float32), np.full((16, 9), np.nan, np.float32)):
        with pytest.raises(ValueError, match="first guess"):
            sampler.begin(start=2, initial=guess)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_output_that_is_not_finite_drops_the_denoising(bad: float) -> None:
    sampler = make()
    sampler.begin()
    output = np.zeros((1, 16, 9), np.float32)
    output[0, 3, 3] = bad
    with pytest.raises(NonFiniteOutput):
        sampler.advance(output)
    assert not sampler.active


def test_after_an_output_that_is_not_finite_the_next_denoising_is_as_good_as_any() -> None:
    sampler = make()
    sampler.begin()
    with pytest.raises(NonFiniteOutput):
        sampler.advance(np.full((1, 16, 9), np.nan, np.float32))
    sampler.begin()
    assert np.isfinite(denoise(sampler)).all()


@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 9), (1, 9, 16)])
def test_an_output_of_another_shape_is_refused_not_spread_out(shape: tuple[int, ...]) -> None:
    sampler = make()
    sampler.begin()
    with pytest.raises(ValueError, match=r"\(1, 16, 9\) is needed"):
        sampler.advance(np.zeros(shape, np.float32))


@pytest.mark.parametrize("start", [-1, 4])
def test_a_start_that_is_no_step_is_refused(start: int) -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        make().begin(start=start, initial=np.zeros((16, 9), np.float32))


@given(seed=st.integers(0, 50), cuts=st.lists(st.integers(0, 3), max_size=3))
def test_a_denoising_that_was_dropped_leaves_no_trace_in_the_next(seed: int, cuts: list[int]) -> None:
    dropped, fresh = make(seed=seed), make(seed=seed)
    for calls in cuts:
        dropped.begin()
        fresh.begin()  # draws the same noise and goes no further
        for _ in range(calls):
            dropped.advance(model(dropped.sample, dropped.index))
        dropped.drop()
        assert (dropped.active, dropped.remaining) == (False, 0)
    dropped.begin()
    fresh.begin()
    np.testing.assert_array_equal(denoise(dropped), denoise(fresh))


def test_the_sample_and_the_actions_stay_in_one_place() -> None:
    sampler = make()
    where = sampler.sample.ctypes.data
    for _ in range(3):
        sampler.begin()
        denoise(sampler)
        assert sampler.sample.ctypes.data == sampler.actions.ctypes.data == where


def test_nothing_can_be_advanced_after_a_drop() -> None:
    sampler = make()
    sampler.begin()
    sampler.drop()
    with pytest.raises(RuntimeError):
        sampler.advance(np.zeros((1, 16, 9), np.float32))


def test_the_index_encoding_gives_one_integer() -> None:
    sampler = make()
    assert [sampler.timestep_input(i).tolist() for i in range(4)] == [[99], [74], [49], [24]]
    assert sampler.timestep_input(0).dtype == np.int64


def test_the_sinusoidal_encoding_is_sines_then_cosines() -> None:
    rows = timestep_rows(Timestep(encoding="sinusoidal", dim=64), np.array([0, 99]))
    assert rows.shape == (2, 1, 64) and rows.dtype == np.float32
    np.testing.assert_allclose(rows[0, 0], [0.0] * 32 + [1.0] * 32)
    np.testing.assert_allclose(rows[1, 0, [0, 31, 32]], [np.sin(99), np.sin(99e-4), np.cos(99)], rtol=1e-5)


@given(
    left_ms=st.floats(-5, 50), p99_ms=st.floats(0, 20), remaining=st.integers(1, 100), at_least=st.integers(0, 1)
)
def test_no_more_steps_than_fit_or_remain_are_proposed(
    left_ms: float, p99_ms: float, remaining: int, at_least: int
) -> None:
    count = steps_that_fit(left_ms, p99_ms, remaining, at_least)
    assert at_least <= count <= remaining
    assert count <= 1 or count * p99_ms <= left_ms + 1e-9
