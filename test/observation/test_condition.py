"""The condition is put together in the order of the training, or there is none and it is said why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.bundle.manifest import Bundle
from sdnpu_policy.bundle.schema import Manifest
from sdnpu_policy.bundle.statistics import Normalizer, Statistics
from sdnpu_policy.clock import MS
from sdnpu_policy.observation.condition import TOGETHER_NS, ConditionMaker
from sdnpu_policy.observation.history import PoseHistory
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

FRONT, WRIST = "observation.images.front", "observation.images.wrist"
PERIOD = 64 * MS
NOW = 1000 * MS


class MeanEncoder:
    """Features: the mean of each input, oldest step first, cameras in their order, then the state's."""

    def __init__(self, inputs: dict[str, tuple[int, ...]], rows: int) -> None:
        self.inputs: dict[str, Any] = {name: np.zeros(shape, np.float32) for name, shape in inputs.items()}
        self.outputs: dict[str, Any] = {"features": np.zeros((1, rows * len(inputs)), np.float32)}
        self.rows = rows
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        means = [buffer.reshape(self.rows, -1).mean(axis=1) for buffer in self.inputs.values()]
        self.outputs["features"][0] = np.concatenate(means)


def manifest(
    *,
    steps: int = 1,
    cameras: tuple[str, ...] = (FRONT,),
    layout: tuple[str, ...] | None = ("position",),
    append_state: bool = True,
    state_input: str | None = None,
    rate_hz: float = 15.625,
) -> Manifest:
    plain = {"file": "x.onnx", "precision": "fp32"}
    deltas = any(part.endswith("_delta") for part in layout or ())
    return Manifest.model_validate(
        {
            "format": "sdnpu-policy/1",
            "name": "test",
            "denoiser": {
                **plain,
                "prediction_type": "sample",
                "inputs": {"sample": "s", "timestep": "t", "condition": "c"},
                "output": "o",
                "timestep": {"encoding": "index"},
            },
            "scheduler": {
                "class_name": "DDIMScheduler",
                "num_train_timesteps": 100,
                "beta_schedule": "squaredcos_cap_v2",
                "prediction_type": "sample",
                "num_inference_steps": 4,
            },
            "encoder": {
                **plain,
                "inputs": {"cameras": {name: name[-5:] for name in cameras}, "state": state_input},
                "output": "features",
                "append_state": append_state and layout is not None,
            },
            "observation": {
                "n_obs_steps": steps,
                "cameras": {name: {"width": 4, "height": 4} for name in cameras},
                "state": layout and {"layout": layout, "delta_s": 0.064 if deltas else None},
            },
            "action": {
                "horizon": 16,
                "execute": 16,
                "rate_hz": rate_hz,
                "position": "absolute",
                "rotation": "quaternion",
            },
            "statistics": "stats.json",
            "sha256": {},
        }
    )


def make(buffer_prefix: tuple[int, ...] = (), **settings: Any) -> tuple[ConditionMaker, MeanEncoder]:
    found = manifest(**settings)
    rows, state = found.observation.n_obs_steps, found.observation.state
    inputs = dict.fromkeys(found.encoder.inputs.cameras.values(), (*buffer_prefix, rows, 3, 4, 4))
    normalizers = {
        name: Normalizer(name, "IDENTITY", np.ones((3, 1, 1)), np.zeros((3, 1, 1)), np.zeros((3, 1, 1)))
        for name in found.observation.cameras
    }
    if state:
        # twice as wide as it varied in training, about 1
        width = (state.width,)
        normalizers[state.feature] = Normalizer(
            "s", "MEAN_STD", np.full(width, 2.0), np.ones(width), np.zeros(width)
        )
        if found.encoder.inputs.state:
            inputs[found.encoder.inputs.state] = (rows, state.width)
    encoder = MeanEncoder(inputs, rows)
    bundle = Bundle(Path("nowhere"), found, Statistics(Path("stats.json"), {}), normalizers)
    return ConditionMaker(bundle, encoder), encoder


def picture(value: int) -> np.ndarray:
    return np.full((8, 8, 3), value, np.uint8)


def moving(end_ns: int = NOW, start_ns: int = 0) -> PoseHistory:
    """x is the time in seconds, a pose every 10 ms."""
    poses = PoseHistory(1024)
    for t_ns in range(start_ns, end_ns + 1, 10 * MS):
        poses.push(t_ns, np.array([t_ns / 1e9, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]))
    return poses


def test_the_encoders_output_comes_first_and_then_the_normalised_state() -> None:
    maker, encoder = make()
    maker.see(FRONT, picture(51), NOW)
    made = maker.make(moving())
    assert made is not None and made.condition.dtype == np.float32
    np.testing.assert_allclose(made.condition, [0.2, (1.0 - 1.0) / 2, -0.5, -0.5], atol=1e-6)
    assert encoder.runs == 1


def test_the_pose_is_that_of_the_pictures_time_not_the_newest() -> None:
    maker, _ = make()
    maker.see(FRONT, picture(0), NOW - 125 * MS)
    made = maker.make(moving())
    assert made is not None
    assert made.observed_ns == NOW - 125 * MS
    assert made.observed_pose[0] == pytest.approx(0.875)
    assert made.condition[1] == pytest.approx((0.875 - 1.0) / 2)


def test_a_change_is_over_the_time_before_the_picture() -> None:
    maker, _ = make(layout=("position_delta",))
    maker.see(FRONT, picture(0), NOW)
    made = maker.make(moving())
    assert made is not None and made.condition[1] == pytest.approx((0.064 - 1.0) / 2)


def test_two_observation_steps_are_a_period_apart_oldest_first() -> None:
    maker, _ = make(steps=2, layout=("position",))
    for value, t_ns in ((10, NOW - PERIOD), (20, NOW - PERIOD // 2), (30, NOW)):
        maker.see(FRONT, picture(value), t_ns)
    made = maker.make(moving())
    assert made is not None
    np.testing.assert_allclose(made.condition[:2] * 255, [10, 30], atol=1e-4)
    np.testing.assert_allclose(made.condition[[2, 5]], [-0.032, 0.0], atol=1e-6)


def test_at_the_start_the_first_picture_stands_for_those_before_it() -> None:
    maker, _ = make(steps=3, layout=None)
    maker.see(FRONT, picture(40), NOW)
    made = maker.make(moving())
    assert made is not None
    np.testing.assert_allclose(made.condition * 255, [40, 40, 40], atol=1e-4)


@given(rate_hz=st.sampled_from([5, 15, 30, 60, 120, 500]), steps=st.integers(2, 4), action_hz=st.integers(2, 20))
def test_however_fast_the_camera_each_step_has_the_picture_of_its_time(
    rate_hz: int, steps: int, action_hz: int
) -> None:
    maker, _ = make(steps=steps, layout=None, rate_hz=float(action_hz))
    period_ns, frame_ns = round(1e9 / action_hz), round(1e9 / rate_hz)
    span_ns = steps * period_ns + 2 * frame_ns
    start_ns = NOW - span_ns
    stamps = list(range(start_ns, NOW + 1, frame_ns))
    for stamp_ns in stamps:
        maker.see(FRONT, picture(round(250 * (stamp_ns - start_ns) / span_ns)), stamp_ns)
    made = maker.make(moving(start_ns=start_ns - 20 * MS, end_ns=NOW + 10 * MS))
    assert made is not None
    taken = start_ns + np.rint(made.condition * 255) / 250 * span_ns
    wanted = stamps[-1] - period_ns * np.arange(steps - 1, -1, -1)
    grain = span_ns / 250
    assert np.abs(taken - wanted).max() <= max(frame_ns, period_ns / 8) / 2 + grain


@pytest.mark.parametrize("prefix", [(), (1,)])
def test_an_encoders_input_may_have_a_batch_of_one(prefix: tuple[int, ...]) -> None:
    maker, encoder = make(buffer_prefix=prefix, steps=2, layout=None)
    maker.see(FRONT, picture(255), NOW)
    assert maker.make(moving()) is not None
    assert (encoder.inputs["front"] == 1.0).all()


def test_a_state_that_the_encoder_takes_itself_is_given_to_it() -> None:
    maker, encoder = make(steps=2, layout=("position",), append_state=False, state_input="state")
    maker.see(FRONT, picture(0), NOW)
    made = maker.make(moving())
    assert made is not None and made.condition.shape == (4,)
    np.testing.assert_allclose(encoder.inputs["state"][:, 0], [-0.032, 0.0], atol=1e-6)


def test_several_cameras_are_one_moment_the_older_of_the_two() -> None:
    maker, _ = make(cameras=(FRONT, WRIST), layout=None)
    maker.see(FRONT, picture(51), NOW - 20 * MS)
    assert maker.make(moving()) is None
    assert WRIST in maker.missing
    maker.see(WRIST, picture(102), NOW)
    made = maker.make(moving())
    assert made is not None and made.observed_ns == NOW - 20 * MS
    np.testing.assert_allclose(made.condition, [0.2, 0.4], atol=1e-6)


def test_cameras_too_far_apart_are_refused() -> None:
    """CAM-01"""
    maker, encoder = make(cameras=(FRONT, WRIST), layout=None)
    maker.see(FRONT, picture(1), NOW - TOGETHER_NS - 1)
    maker.see(WRIST, picture(1), NOW)
    with pytest.raises(ImageRejected, match="apart") as caught:
        maker.make(moving())
    assert caught.value.reason is RejectReason.NOT_TOGETHER
    assert encoder.runs == 0


@pytest.mark.parametrize(
    ("poses", "why"),
    [
        (PoseHistory(4), "no pose of the robot"),
        (moving(end_ns=NOW - 200 * MS), "no pose of the robot"),
        (moving(start_ns=NOW - 20 * MS), "do not reach back"),
    ],
)
def test_without_the_robots_poses_there_is_no_condition_and_it_is_said_why(poses: PoseHistory, why: str) -> None:
    """STAMP-05"""
    maker, encoder = make(layout=("position_delta",))
    assert maker.make(poses) is None and FRONT in maker.missing
    maker.see(FRONT, picture(0), NOW)
    assert maker.make(poses) is None
    assert why in maker.missing
    assert encoder.runs == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_condition_that_is_not_finite_is_refused(bad: float) -> None:
    maker, encoder = make(layout=None)
    maker.see(FRONT, picture(0), NOW)
    run: Callable[[], None] = encoder.run
    encoder.run = lambda: (run(), encoder.outputs["features"].fill(bad))  # type: ignore[method-assign,assignment]
    with pytest.raises(ImageRejected, match="not finite") as caught:
        maker.make(moving())
    assert caught.value.reason is RejectReason.NON_FINITE


def test_a_picture_that_is_refused_leaves_the_one_before_it() -> None:
    found = manifest(layout=None)
    data = json.loads(found.model_dump_json())
    data["observation"]["cameras"][FRONT]["crop"] = {"width": 6, "height": 6}
    maker, _ = make(layout=None)
    cropping = Manifest.model_validate(data)
    normalize = Normalizer(FRONT, "IDENTITY", np.ones((3, 1, 1)), np.zeros((3, 1, 1)), np.zeros((3, 1, 1)))
    bundle = Bundle(Path("nowhere"), cropping, Statistics(Path("stats.json"), {}), {FRONT: normalize})
    maker = ConditionMaker(bundle, MeanEncoder({"front": (1, 3, 4, 4)}, 1))
    maker.see(FRONT, picture(51), NOW - 30 * MS)
    with pytest.raises(ImageRejected, match="crops 6x6"):
        maker.see(FRONT, np.zeros((5, 5, 3), np.uint8), NOW)
    made = maker.make(moving())
    assert made is not None and made.observed_ns == NOW - 30 * MS
    assert made.condition[0] == pytest.approx(0.2)


def test_two_cameras_and_two_steps_are_in_the_order_of_the_training() -> None:
    maker, encoder = make(cameras=(FRONT, WRIST), steps=2, layout=("position", "rotation_6d"))
    # the wrist camera is 10 ms later and sends twice as often
    for value, t_ns in ((10, NOW - PERIOD), (20, NOW)):
        maker.see(FRONT, picture(value), t_ns)
    for value, t_ns in ((110, NOW - PERIOD + 10 * MS), (120, NOW - PERIOD // 2 + 10 * MS), (130, NOW + 10 * MS)):
        maker.see(WRIST, picture(value), t_ns)
    made = maker.make(moving(end_ns=NOW + 10 * MS))
    assert made is not None and made.observed_ns == NOW
    np.testing.assert_allclose(made.condition[:4] * 255, [10, 20, 110, 130], atol=1e-4)
    np.testing.assert_allclose(encoder.inputs["front"][:, 0, 0, 0] * 255, [10, 20], atol=1e-4)
    np.testing.assert_allclose(encoder.inputs["wrist"][:, 0, 0, 0] * 255, [110, 130], atol=1e-4)
    states = made.condition[4:].reshape(2, 9)
    np.testing.assert_allclose(states[:, 0], [(1.0 - 0.064 - 1.0) / 2, 0.0], atol=1e-6)
    np.testing.assert_allclose(2 * states[:, 3:] + 1, [[1, 0, 0, 0, 1, 0]] * 2, atol=1e-6)


def test_an_image_older_than_the_robots_poses_is_skipped_and_the_next_is_used() -> None:
    """STAMP-05"""
    maker, encoder = make()
    poses = moving(start_ns=NOW - 50 * MS)
    maker.see(FRONT, picture(1), NOW - 100 * MS)
    assert maker.make(poses) is None and encoder.runs == 0
    maker.see(FRONT, picture(2), NOW)
    assert maker.make(poses) is not None


def test_after_a_camera_was_away_the_picture_before_is_not_taken_for_a_step() -> None:
    """CAM-01, T-CAM"""
    maker, _ = make(steps=2, layout=None)
    maker.see(FRONT, picture(10), NOW - 3000 * MS)
    maker.see(FRONT, picture(20), NOW)
    made = maker.make(moving())
    assert made is not None
    np.testing.assert_allclose(made.condition * 255, [20, 20], atol=1e-4)


@pytest.mark.parametrize("append_state", [True, False])
def test_a_state_that_is_not_finite_never_reaches_the_encoder(append_state: bool) -> None:
    maker, encoder = make(append_state=append_state, state_input="state")
    poses = PoseHistory(4)
    poses.push(NOW, np.array([1e300, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]))  # finite, but not as a float32
    maker.see(FRONT, picture(0), NOW)
    with pytest.raises(ImageRejected, match="not finite") as caught:
        maker.make(poses)
    assert caught.value.reason is RejectReason.NON_FINITE
    assert encoder.runs == 0
