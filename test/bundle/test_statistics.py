"""Normalisation as LeRobot does it, without its traps: nothing missing, nothing infinite, no noise blown up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sdnpu_policy.bundle.statistics import Statistics, load_statistics, make_normalizer
from sdnpu_policy.errors import SdnpuError

FINITE = st.floats(-1e3, 1e3)
SPREAD = st.floats(1e-2, 1e3)


def stats(**entries: Any) -> Statistics:
    return Statistics(Path("stats.json"), {"action": entries})


def lerobot_mean_std(x: Any, entries: dict[str, Any]) -> Any:
    return (x - np.array(entries["mean"])) / (np.array(entries["std"]) + 1e-8)


def lerobot_min_max(x: Any, entries: dict[str, Any]) -> Any:
    low, high = np.array(entries["min"]), np.array(entries["max"])
    return 2 * (x - low) / np.where(high == low, 1e-8, high - low) - 1


@given(x=arrays(np.float64, 4, elements=FINITE), mean=arrays(np.float64, 4, elements=FINITE), spread=SPREAD)
def test_mean_std_goes_back_and_forth(x: Any, mean: Any, spread: float) -> None:
    normalizer = make_normalizer(stats(mean=mean, std=np.full(4, spread)), "action", "MEAN_STD", [(4,)])
    normalised = normalizer.normalize(x)
    assert normalised.dtype == np.float32
    np.testing.assert_allclose(normalizer.unnormalize(normalised), x, atol=1e-6 * (4e3 + spread))
    np.testing.assert_allclose(normalised, (x - mean) / spread, rtol=1e-6, atol=1e-6)


@given(x=arrays(np.float64, 4, elements=FINITE), low=arrays(np.float64, 4, elements=FINITE), spread=SPREAD)
def test_min_max_goes_back_and_forth(x: Any, low: Any, spread: float) -> None:
    normalizer = make_normalizer(stats(min=low, max=low + spread), "action", "MIN_MAX", [(4,)])
    np.testing.assert_allclose(normalizer.unnormalize(normalizer.normalize(x)), x, atol=1e-6 * (4e3 + spread))
    np.testing.assert_allclose(normalizer.normalize(low), -1, atol=1e-3)
    np.testing.assert_allclose(normalizer.normalize(low + spread), 1, atol=1e-3)


@given(x=arrays(np.float32, 4, elements=st.floats(-1e3, 1e3, width=32)))
def test_identity_changes_nothing(x: Any) -> None:
    normalizer = make_normalizer(stats(), "action", "IDENTITY", [(4,)])
    assert np.array_equal(normalizer.normalize(x), x)
    assert np.array_equal(normalizer.unnormalize(x), x)


@given(
    x=arrays(np.float64, 3, elements=st.floats(-10, 10)),
    mean=arrays(np.float64, 3, elements=st.floats(-10, 10)),
    std=arrays(np.float64, 3, elements=st.floats(0, 1e-6, exclude_max=True)),
)
def test_a_dimension_that_did_not_vary_is_not_blown_up(x: Any, mean: Any, std: Any) -> None:
    entries = {"mean": mean, "std": std, "min": mean, "max": mean}
    normalizer = make_normalizer(stats(**entries), "action", "MEAN_STD", [(3,)])
    assert normalizer.constant.all()
    assert np.abs(normalizer.normalize(x)).max() <= 10
    assert np.array_equal(normalizer.normalize(x), normalizer.normalize(x + 0.01))
    # ... and whatever the network says, the robot is sent to where it was in training.
    assert np.array_equal(normalizer.unnormalize(np.full(3, 5.0)), mean)


@pytest.mark.parametrize(
    ("mode", "entries"), [("MEAN_STD", {"mean": [1.5], "std": [0.0]}), ("MIN_MAX", {"min": [1.5], "max": [1.5]})]
)
def test_the_scale_of_a_dimension_that_did_not_vary_is_zero(mode: Any, entries: dict[str, Any]) -> None:
    scale, offset = make_normalizer(stats(**entries), "action", mode, [(1,)]).scale_offset()
    assert scale.tolist() == [0.0]
    assert offset.tolist() == [1.5]


def test_a_range_of_zero_is_lerobots_minus_one() -> None:
    entries = {"min": [0.3, 0.0], "max": [0.3, 1.0]}
    normalizer = make_normalizer(stats(**entries), "action", "MIN_MAX", [(2,)])
    for x in ([0.3, 0.25], [0.3 + 1e-6, 0.25], [4.0, 0.25]):
        assert normalizer.normalize(x).tolist() == [-1.0, -0.5]
    np.testing.assert_allclose(normalizer.normalize([0.3, 0.25]), lerobot_min_max([0.3, 0.25], entries))
    np.testing.assert_allclose(normalizer.unnormalize([-1.0, -1.0]), [0.3, 0.0], atol=1e-12)


def test_a_value_that_is_not_finite_stays_so_even_where_nothing_varied() -> None:
    normalizer = make_normalizer(stats(mean=[0.0, 0.0], std=[0.0, 1.0]), "action", "MEAN_STD", [(2,)])
    assert np.isnan(normalizer.normalize([np.nan, np.nan])).all()
    assert not np.isfinite(normalizer.normalize([np.inf, -np.inf])).any()


def test_actions_may_have_statistics_for_each_time() -> None:
    mean = np.arange(6.0).reshape(2, 3)
    normalizer = make_normalizer(stats(mean=mean, std=np.ones((2, 3))), "action", "MEAN_STD", [(3,), (2, 3)])
    assert normalizer.normalize(mean).tolist() == np.zeros((2, 3)).tolist()
    scale, offset = normalizer.scale_offset()
    assert np.array_equal(offset, mean)
    offset[:] = 9
    assert np.array_equal(normalizer.scale_offset()[1], mean)
    assert scale.dtype == np.float64


@pytest.mark.parametrize("shape", [(3, 1, 1), (3,)])
def test_a_pictures_statistics_work_on_its_channels(shape: tuple[int, ...]) -> None:
    mean = np.reshape([0.1, 0.2, 0.3], shape).tolist()
    normalizer = make_normalizer(
        stats(mean=mean, std=np.ones(shape).tolist()), "action", "MEAN_STD", [(3, 1, 1), (3,)]
    )
    picture = np.zeros((3, 2, 4), np.float32)
    np.testing.assert_allclose(normalizer.normalize(picture)[:, 1, 3], [-0.1, -0.2, -0.3], rtol=1e-6)


@pytest.mark.parametrize(
    ("mode", "entries", "told"),
    [
        ("MEAN_STD", {"mean": [0.0, 0.0]}, "std is missing, and MEAN_STD needs it; found mean"),
        (
            "MIN_MAX",
            {"mean": [0.0, 0.0], "std": [1.0, 1.0]},
            "min is missing, and MIN_MAX needs it; found mean, std",
        ),
        (
            "MEAN_STD",
            {"mean": [0.0, float("nan")], "std": [1.0, 1.0]},
            "mean[1] is nan: should be a finite number",
        ),
        ("MEAN_STD", {"mean": [0.0, 0.0], "std": [float("inf"), 1.0]}, "std[0] is inf"),
        ("MEAN_STD", {"mean": [0.0, 0.0], "std": [1.0, -0.1]}, "std[1] is -0.1: a deviation can't be negative"),
        ("MEAN_STD", {"mean": [0.0, 1e300], "std": [1.0, 1.0]}, "mean[1] is 1e+300"),
        ("MIN_MAX", {"min": [0.0, 2.0], "max": [1.0, 1.0]}, "min[1] is 2.0, above max[1], which is 1.0"),
        ("MIN_MAX", {"min": [0.0, None], "max": [1.0, 1.0]}, "min is [0.0, None]: should be a list of numbers"),
        ("MIN_MAX", {"min": ["0", "0"], "max": [1.0, 1.0]}, "should be a list of numbers"),
        ("MIN_MAX", {"min": [[0.0], [0.0, 1.0]], "max": [1.0, 1.0]}, "rows of unequal length"),
        ("MIN_MAX", {"min": [], "max": []}, "should be a list of numbers"),
        ("MIN_MAX", {"min": {"a": 1}, "max": [1.0]}, "should be a list of numbers"),
        ("MIN_MAX", {"min": [10**400, 1], "max": [1.0, 1.0]}, "should be a list of numbers"),
        ("MIN_MAX", {"min": [0.0], "max": [1.0, 1.0]}, "min and max have the shapes [1] and [2]"),
        ("MIN_MAX", {"min": [0.0] * 3, "max": [1.0] * 3}, "of the shape [3], but the policy has [2] or [4, 2]"),
    ],
)
def test_unusable_statistics_are_refused(mode: Any, entries: dict[str, Any], told: str) -> None:
    with pytest.raises(SdnpuError) as caught:
        make_normalizer(stats(**entries), "action", mode, [(2,), (4, 2)])
    message = str(caught.value)
    assert message.startswith("stats.json: 'action'")
    assert told in message
    assert "\n" not in message


def test_a_data_sets_name_before_the_feature_is_not_overlooked() -> None:
    statistics = Statistics(
        Path("stats.json"), {"so100.buffer.action": {"min": [0.0], "max": [1.0]}, "actions": {}}
    )
    with pytest.raises(
        SdnpuError, match=r"no statistics of 'action' .* 'so100\.buffer\.action' is similar.*exactly"
    ):
        make_normalizer(statistics, "action", "MIN_MAX", [(1,)])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "line 1, column 1: not valid JSON"),
        (b'{"action": {"min": [0.0, 1.', "not valid JSON"),
        (b"[1]", "found [1], should be a mapping of features"),
        (b"{}", "should be a mapping of features"),
        (b'{"action": 3}', "'action': found 3, should be a mapping"),
        (b'{"a": {}, "a": {}}', "the key 'a' comes twice"),
        (b"\xff\xfe\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"action": {"min": [' + b"9" * 5000 + b"]}}", "not valid JSON"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "stats.json"
    path.write_bytes(content)
    with pytest.raises(SdnpuError) as caught:
        load_statistics(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SdnpuError, match=r"stats\.json: can't be read: No such file"):
        load_statistics(tmp_path / "stats.json")


def test_infinity_in_a_feature_that_is_not_used_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    path.write_text('{"index": {"max": [Infinity]}, "action": {"min": [0], "max": [2]}}')
    normalizer = make_normalizer(load_statistics(path), "action", "MIN_MAX", [(1,)])
    assert normalizer.normalize([1.0]).tolist() == [0.0]


@pytest.mark.parametrize("feature", ["action", "observation.state"])
def test_a_real_data_set_gives_what_lerobot_gives_in_training(shared_data: Path, feature: str) -> None:
    path = shared_data / "lerobot_so101" / "stats.json"
    if not path.exists():
        pytest.skip(f"no {path}")
    entries = json.loads(path.read_text())[feature]
    statistics = load_statistics(path)
    trained = np.array(entries["min"])  # equal to max: the robot stood still
    by_range = make_normalizer(statistics, feature, "MIN_MAX", [(6,)])
    np.testing.assert_allclose(by_range.normalize(trained), lerobot_min_max(trained, entries))
    by_deviation = make_normalizer(statistics, feature, "MEAN_STD", [(6,)])
    np.testing.assert_allclose(by_deviation.normalize(trained), lerobot_mean_std(trained, entries), rtol=1e-3)
    # A milliradian away LeRobot gives up to 100000; here a dimension that stood still stays bounded.
    away = by_deviation.normalize(trained + 1e-3)
    assert np.abs(lerobot_mean_std(trained + 1e-3, entries)).max() > 1000
    assert np.abs(away[by_deviation.constant]).max() <= 10
    assert by_deviation.constant.any()
