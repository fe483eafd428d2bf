"""A tiny valid bundle; the loader never opens the networks, so they may be any bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sdnpu_policy.bundle.manifest import hash_files

Data = dict[str, Any]
Change = Callable[[Data], object]

REFERENCE = yaml.safe_load("""
format: sdnpu-policy/1
name: reference
description: Align the tool over a weld spot
denoiser:
  file: unet_a8w8.onnx
  precision: a8w8
  prediction_type: sample
  inputs: {sample: sample, timestep: timestep_embedding, condition: global_cond}
  output: denoised
  timestep: {encoding: sinusoidal, dim: 64, max_period: 10000}
scheduler:
  class_name: DDIMScheduler
  num_train_timesteps: 100
  beta_start: 0.0001
  beta_end: 0.02
  beta_schedule: squaredcos_cap_v2
  clip_sample: true
  clip_sample_range: 1.3
  prediction_type: sample
  set_alpha_to_one: true
  steps_offset: 0
  timestep_spacing: trailing
  num_inference_steps: 4
encoder:
  file: encoder_a16w8.onnx
  precision: a16w8
  inputs: {cameras: {observation.images.front: image}, state: null}
  output: features
  append_state: true
decoder: null
observation:
  n_obs_steps: 1
  cameras:
    observation.images.front:
      {width: 96, height: 96, color_order: rgb, crop: center_square, interpolation: area, normalization: MEAN_STD}
  state:
    feature: observation.state
    layout: [position, rotation_6d, position_delta, rotation_6d_delta]
    delta_s: 0.064
    rotation_6d_layout: columns
    normalization: MEAN_STD
action:
  feature: action
  horizon: 16
  execute: 16
  rate_hz: 15.625
  first_offset_steps: 1
  position: relative
  rotation: rotation_6d
  rotation_6d_layout: columns
  relative_axes: base
  gripper: none
  frame: base
  normalization: MEAN_STD
statistics: stats.json
golden: {file: golden.npz, min_snr_db: 20.0}
sha256: {}
quality: {method: minmax, success: 0.87, target: null}
""")


def statistics(widths: dict[str, tuple[int, ...]]) -> Data:
    """Statistics in LeRobot's layout that vary from 0 to 1 in every dimension."""
    return {
        feature: {
            "min": np.zeros(shape).tolist(),
            "max": np.ones(shape).tolist(),
            "mean": np.full(shape, 0.5).tolist(),
            "std": np.full(shape, 0.25).tolist(),
            "count": [100],
        }
        for feature, shape in widths.items()
    }


@pytest.fixture
def manifest_data() -> Data:
    """The reference bundle's policy.yaml as plain values, without hashes."""
    return copy.deepcopy(REFERENCE)


@pytest.fixture
def stats_data() -> Data:
    """Statistics that fit the reference bundle."""
    return statistics({"observation.images.front": (3, 1, 1), "observation.state": (18,), "action": (16, 9)})


@pytest.fixture
def write_bundle(tmp_path: Path) -> Callable[[Data, Data], Path]:
    """Write a bundle's directory with the files a manifest names and their hashes; returns the directory."""

    def write(manifest: Data, stats: Data) -> Path:
        directory = tmp_path / "bundle"
        directory.mkdir(exist_ok=True)
        networks = [manifest[role]["file"] for role in ("denoiser", "encoder", "decoder") if manifest.get(role)]
        for name in networks:
            (directory / name).write_bytes(b"a network: " + name.encode())
        (directory / "stats.json").write_text(json.dumps(stats))
        np.savez(directory / "golden.npz", a=np.zeros(1))
        manifest["sha256"] = hash_files(directory, [*networks, "stats.json", "golden.npz"])
        (directory / "policy.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
        return directory

    return write


@pytest.fixture
def bundle_dir(write_bundle: Callable[[Data, Data], Path], manifest_data: Data, stats_data: Data) -> Path:
    """The directory of a valid bundle."""
    return write_bundle(manifest_data, stats_data)


@pytest.fixture
def change_manifest(bundle_dir: Path) -> Callable[[Change], Path]:
    """Change the plain values of the valid bundle's policy.yaml; returns the directory."""

    def change(how: Change) -> Path:
        path = bundle_dir / "policy.yaml"
        data = yaml.safe_load(path.read_text())
        how(data)
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        return bundle_dir

    return change


@pytest.fixture
def change_statistics(bundle_dir: Path) -> Callable[[Change], Path]:
    """Change the valid bundle's statistics, with the hash put right; returns the directory."""

    def change(how: Change) -> Path:
        path = bundle_dir / "stats.json"
        data = json.loads(path.read_text())
        how(data)
        path.write_text(json.dumps(data))
        manifest = yaml.safe_load((bundle_dir / "policy.yaml").read_text())
        manifest["sha256"].update(hash_files(bundle_dir, ["stats.json"]))
        (bundle_dir / "policy.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
        return bundle_dir

    return change
