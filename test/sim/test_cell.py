"""The work cell: scenes, the picture, the expert, the judge."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.sim import cell, cell_scene
from sdnpu_policy.sim.cell import Judge, Outcome, expert_chunk, make_scene, render, tool_down_pose, tool_yaw

scene_numbers = st.integers(0, 2**31)
angles = st.floats(-3.1, 3.1)


def reduced(image: np.ndarray) -> np.ndarray:
    """What the policy sees of it: the centre square at 96x96."""
    return cv2.resize(image[:, 80:560], (96, 96), interpolation=cv2.INTER_AREA).astype(float)


@given(seed=scene_numbers, index=scene_numbers)
def test_the_same_numbers_give_the_same_scene(seed: int, index: int) -> None:
    assert make_scene(seed, index) == make_scene(seed, index)


def test_other_numbers_give_another_scene() -> None:
    assert len({make_scene(seed, index) for seed in range(3) for index in range(3)}) == 9


@given(index=scene_numbers)
def test_the_post_leaves_room_at_start_spot_and_plate(index: int) -> None:
    scene = make_scene(5, index)

    def from_post(point_m: tuple[float, ...]) -> float:
        return float(np.hypot(*np.subtract(point_m[:2], scene.post_m)))

    assert from_post(scene.spot_m) > 0.12
    assert from_post(scene.start_m) > 0.10
    assert from_post(scene.plate_m) > 0.10


@given(yaw_rad=angles)
def test_a_tool_down_pose_has_the_yaw_it_was_made_with(yaw_rad: float) -> None:
    pose = tool_down_pose(np.array([0.5, 0.0, 0.2]), yaw_rad)
    assert np.linalg.norm(pose[3:]) == pytest.approx(1.0)
    assert tool_yaw(pose) == pytest.approx(yaw_rad, abs=1e-9)
    assert tool_yaw(-pose) == pytest.approx(yaw_rad, abs=1e-9), "q and -q are the same rotation"


@given(angle_rad=st.floats(-50, 50))
def test_a_wrapped_angle_points_the_same_way(angle_rad: float) -> None:
    wrapped = cell_scene.wrap_angle(angle_rad)
    assert -np.pi <= wrapped < np.pi
    assert np.cos(wrapped) == pytest.approx(np.cos(angle_rad), abs=1e-9)
    assert np.sin(wrapped) == pytest.approx(np.sin(angle_rad), abs=1e-9)


def test_the_picture_is_rgb_of_the_camera_size() -> None:
    scene = make_scene(0, 0)
    image = render(scene, scene.start_pose, np.random.default_rng(0))
    assert image.shape == (480, 640, 3)
    assert image.dtype == np.uint8
    x, y = np.rint(cell.project(np.array([[*scene.post_m, 0.10]]))[0]).astype(int)
    red, _, blue = image[y, x].astype(int)
    assert blue > red + 50, "the post is blue"


def test_the_same_noise_source_gives_the_same_picture() -> None:
    scene = make_scene(3, 1)
    first = render(scene, scene.start_pose, np.random.default_rng(7))
    assert np.array_equal(first, render(scene, scene.start_pose, np.random.default_rng(7)))
    assert not np.array_equal(first, render(scene, scene.start_pose, np.random.default_rng(8)))


def test_a_picture_is_not_overwritten_by_the_next() -> None:
    scene, rng = make_scene(3, 1), np.random.default_rng(0)
    first = render(scene, scene.start_pose, rng)
    kept = first.copy()
    render(scene, scene.goal_pose, rng)
    assert np.array_equal(first, kept)


def test_noise_has_its_strength_in_the_reduced_view() -> None:
    scene, rng = make_scene(1, 2), np.random.default_rng(0)
    frames = [reduced(render(scene, scene.start_pose, rng)) for _ in range(16)]
    assert np.median(np.std(frames, axis=0)) == pytest.approx(scene.appearance.noise_sigma, rel=0.1)


def test_the_weld_spot_is_drawn_where_the_camera_projects_it() -> None:
    rng = np.random.default_rng(0)
    for index in range(5):
        scene = make_scene(2, index)
        mean = np.mean([reduced(render(scene, scene.start_pose, rng)) for _ in range(8)], axis=0).mean(axis=2)
        x, y = (cell.project(np.array([[*scene.spot_m, 0.010]]))[0] - [82, 2]) / 5
        window = mean[int(y) - 4 : int(y) + 6, int(x) - 4 : int(x) + 6]
        darkest = np.unravel_index(np.argmin(window), window.shape)
        assert np.hypot(darkest[0] - 4 - y % 1, darkest[1] - 4 - x % 1) < 3


@given(
    position_m=st.tuples(st.floats(-2, 2), st.floats(-2, 2), st.floats(-1, 3)),
    yaw_rad=angles,
)
def test_a_tool_anywhere_can_be_drawn(position_m: tuple[float, float, float], yaw_rad: float) -> None:
    image = render(make_scene(0, 0), tool_down_pose(np.array(position_m), yaw_rad), np.random.default_rng(0))
    assert image.shape == (480, 640, 3)


def follow_expert(index: int) -> cell.Verdict:
    """An arm that is exactly where the expert wants it, judged at 125 Hz."""
    scene = make_scene(11, index)
    side = cell.choose_side(scene, np.array(scene.start_m), np.random.default_rng(index))
    judge, pose, tick = Judge(scene), scene.start_pose, 0
    while judge.feed(tick * 0.008, pose).outcome is Outcome.RUNNING:
        goal = expert_chunk(scene, pose, side)[0]
        position = pose[:3] + (goal[:3] - pose[:3]) / 8
        turn = cell_scene.wrap_angle(tool_yaw(goal) - tool_yaw(pose))
        pose = tool_down_pose(position, tool_yaw(pose) + turn / 8)
        tick += 1
    assert judge.verdict is not None
    return judge.verdict


def test_the_expert_succeeds() -> None:
    verdicts = [follow_expert(index) for index in range(4)]
    assert all(verdict.success for verdict in verdicts), verdicts
    assert max(verdict.xy_mm for verdict in verdicts) < 3


def test_the_expert_keeps_its_speed() -> None:
    scene = make_scene(11, 0)
    chunk = expert_chunk(scene, scene.start_pose, 1)
    steps = np.diff(np.vstack([scene.start_pose[:3], chunk[:, :3]]), axis=0)
    assert np.linalg.norm(steps, axis=1).max() <= 0.25 * 0.064 + 1e-9


def at(scene: cell.Scene, *, dx_m: float = 0.0, z_m: float = 0.030, dyaw_deg: float = 0.0) -> np.ndarray:
    x, y = scene.spot_m
    return tool_down_pose(np.array([x + dx_m, y, z_m]), scene.plate_yaw_rad + np.radians(dyaw_deg))


def judged(scene: cell.Scene, pose: np.ndarray) -> cell.Verdict:
    """The verdict on a tool that stands still, fed at 500 Hz."""
    judge = Judge(scene)
    for tick in range(5000):
        verdict = judge.feed(tick * 0.002, pose)
        if verdict.outcome is not Outcome.RUNNING:
            break
    return verdict


def test_a_tool_over_the_spot_is_placed_a_quarter_of_a_second_after_touch() -> None:
    scene = make_scene(0, 0)
    verdict = judged(scene, at(scene))
    assert verdict.success
    assert verdict.duration_s == pytest.approx(0.256)
    assert (verdict.xy_mm, verdict.z_mm, verdict.yaw_deg, verdict.tilt_deg) == pytest.approx(
        (0, 0, 0, 0), abs=1e-3
    )


@pytest.mark.parametrize(
    "fault", [{"dx_m": 0.006}, {"dyaw_deg": 6.0}, {"dyaw_deg": -6.0}, {"z_m": 0.0245}], ids=lambda f: next(iter(f))
)
def test_a_tool_beyond_a_tolerance_is_placed_without_success(fault: dict[str, float]) -> None:
    scene = make_scene(0, 0)
    verdict = judged(scene, at(scene, **fault))
    assert verdict.outcome is Outcome.PLACED
    assert not verdict.success


def test_a_wider_tolerance_accepts_a_wider_error() -> None:
    scene = make_scene(0, 0)
    verdict = judged(scene, at(scene, dx_m=0.009))
    assert not verdict.success
    assert verdict.placed_within(10.0)


def test_touching_the_post_is_a_collision_and_passing_over_it_is_none() -> None:
    scene = make_scene(0, 0)
    beside = np.array([scene.post_m[0] + 0.04, scene.post_m[1], 0.10])
    assert Judge(scene).feed(0.0, tool_down_pose(beside, 0.0)).outcome is Outcome.COLLISION
    above = beside + np.array([0, 0, 0.15])
    assert Judge(scene).feed(0.0, tool_down_pose(above, 0.0)).outcome is Outcome.RUNNING


def test_pushing_into_the_plate_is_a_crash() -> None:
    scene = make_scene(0, 0)
    assert judged(scene, at(scene, z_m=0.021)).outcome is Outcome.CRASH


def test_eight_seconds_without_touch_are_a_timeout() -> None:
    scene = make_scene(0, 0)
    verdict = judged(scene, scene.start_pose)
    assert verdict.outcome is Outcome.TIMEOUT
    assert verdict.duration_s == pytest.approx(8.0)


def test_the_episode_begins_with_the_first_sample_whatever_its_time() -> None:
    judge = Judge(make_scene(0, 0))
    assert judge.verdict is None
    assert judge.feed(1234.5, judge.scene.start_pose).duration_s == 0


def test_a_decided_outcome_stays() -> None:
    scene = make_scene(0, 0)
    judge = Judge(scene)
    first = judge.feed(0.0, at(scene, z_m=0.010))
    assert judge.feed(0.002, at(scene)) is first


def test_what_is_no_pose_or_no_time_is_refused() -> None:
    scene = make_scene(0, 0)
    judge = Judge(scene)
    with pytest.raises(ValueError, match="not finite"):
        judge.feed(0.0, np.full(7, np.nan))
    judge.feed(1.0, scene.start_pose)
    with pytest.raises(ValueError, match="older"):
        judge.feed(0.5, scene.start_pose)
