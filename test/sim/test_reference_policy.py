"""The shipped policy: its files fit each other, and it does its task in the cell it was made for."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from sdnpu_policy.bundle.golden import load_golden
from sdnpu_policy.bundle.manifest import Bundle, load_bundle
from sdnpu_policy.denoise.sampler import Sampler, timestep_rows
from sdnpu_policy.denoise.schedule import make_schedule
from sdnpu_policy.motion.actions import ActionSpec, decode_actions
from sdnpu_policy.motion.pose import interpolate_pose, quat_to_rotation_6d
from sdnpu_policy.npu.golden import check_golden
from sdnpu_policy.npu.providers import open_session
from sdnpu_policy.sim.cell import Judge, Outcome, Scene, Verdict, make_scene, render

DIRECTORY = Path(__file__).resolve().parents[2] / "models" / "reference"
CAMERA = "observation.images.front"
LARGEST_BYTES = 6_000_000


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(DIRECTORY)


def action_spec(bundle: Bundle) -> ActionSpec:
    action = bundle.manifest.action
    scale, offset = bundle.normalizers["action"].scale_offset()
    return ActionSpec(
        horizon=action.horizon,
        dim=action.width,
        rate_hz=action.rate_hz,
        first_offset_steps=action.first_offset_steps,
        position=action.position,
        rotation=action.rotation,
        rotation_6d_layout=action.rotation_6d_layout,
        relative_axes=action.relative_axes,
        scale=scale,
        offset=offset,
    )


def test_the_bundle_is_small_and_has_no_file_that_the_manifest_does_not_list(bundle: Bundle) -> None:
    files = {file.name: file.stat().st_size for file in DIRECTORY.iterdir()}
    assert set(files) == {*bundle.manifest.sha256, "policy.yaml"}
    assert sum(files.values()) < LARGEST_BYTES


@pytest.mark.parametrize("role", ["encoder", "denoiser"])
def test_the_networks_give_the_golden_outputs_on_this_processor(bundle: Bundle, role: str) -> None:
    golden = load_golden(bundle, role)
    assert golden is not None
    network = bundle.manifest.encoder if role == "encoder" else bundle.manifest.denoiser
    session = open_session(bundle.file(network.file), "cpu")
    assert check_golden(session, golden.inputs, golden.outputs, golden.min_snr_db) > 25
    session.close()


def test_doing_nothing_is_an_action_of_zeros(bundle: Bundle) -> None:
    pose = make_scene(0, 0).start_pose
    chunk = decode_actions(np.zeros((16, 9), np.float32), action_spec(bundle), pose, 0)
    assert np.allclose(np.abs(chunk.poses), np.abs(pose))
    assert chunk.times_ns[0] == 64_000_000


def test_a_full_action_reaches_as_far_as_the_tool_can_go(bundle: Bundle) -> None:
    actions = np.zeros((16, 9), np.float32)
    actions[:, 1] = 1.0
    pose = make_scene(0, 0).start_pose
    chunk = decode_actions(actions, action_spec(bundle), pose, 0)
    assert chunk.poses[:, 1] - pose[1] == pytest.approx(0.0165 * np.arange(1, 17))


def run_episode(bundle: Bundle, scene: Scene) -> Verdict:
    """A tool that is exactly on its plan, with a new plan every 64 ms out of the picture then."""
    manifest = bundle.manifest
    encoder = open_session(bundle.file(manifest.encoder.file), "cpu")
    denoiser = open_session(bundle.file(manifest.denoiser.file), "cpu")
    schedule = make_schedule(manifest.scheduler, manifest.scheduler.num_inference_steps)
    rng = np.random.default_rng(scene.index)
    sampler = Sampler(schedule, (16, 9), rng, timestep_rows(manifest.denoiser.timestep, schedule.timesteps))
    spec, judge, pose = action_spec(bundle), Judge(scene), scene.start_pose

    def features_of(pose: np.ndarray) -> np.ndarray:
        position = (pose[:3] - [0.5, 0, 0.12]) / [0.2, 0.32, 0.12]
        return np.concatenate([position, quat_to_rotation_6d(pose[3:])])

    before, tick = pose, 0
    while judge.verdict is None or judge.verdict.outcome is Outcome.RUNNING:
        square = cv2.resize(render(scene, pose, rng)[:, 80:560], (96, 96), interpolation=cv2.INTER_AREA)
        encoder.inputs["image"][:] = square.transpose(2, 0, 1) / np.float32(255) - np.float32(0.5)
        encoder.run()
        change = 8 * (features_of(pose) - features_of(before))
        denoiser.inputs["global_cond"][0] = np.concatenate(
            [encoder.outputs["features"][0], features_of(pose), change]
        )
        sampler.begin()
        while sampler.active:
            denoiser.inputs["sample"][:] = sampler.sample
            denoiser.inputs["timestep_embedding"][:] = sampler.timestep_input(sampler.index)
            denoiser.run()
            sampler.advance(denoiser.outputs["denoised"])
        target = decode_actions(sampler.actions, spec, pose, 0).poses[0]
        before = pose
        for part in np.linspace(0.125, 1, 8):
            judge.feed(tick * 0.008, interpolate_pose(before, target, part))
            tick += 1
        pose = target
    encoder.close()
    denoiser.close()
    assert judge.verdict is not None
    return judge.verdict


def test_the_policy_places_the_tool_over_the_spot(bundle: Bundle) -> None:
    verdicts = [run_episode(bundle, make_scene(5, index)) for index in range(4)]
    assert all(verdict.placed_within(10.0) for verdict in verdicts), verdicts
    assert sum(verdict.success for verdict in verdicts) >= 3, verdicts
