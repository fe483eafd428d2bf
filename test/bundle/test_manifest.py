"""A bundle is loaded whole and consistent, or refused in one line that says what to mend."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdnpu_policy.bundle.manifest import (
    Manifest,
    hash_files,
    load_bundle,
    read_manifest,
    write_manifest,
)
from sdnpu_policy.errors import SdnpuError

Data = dict[str, Any]
Change = Callable[[Callable[[Data], object]], Path]


def refusal(directory: Path | str) -> str:
    """The message with which a bundle is refused; it is one line."""
    with pytest.raises(SdnpuError) as caught:
        load_bundle(directory)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


def put(*path_and_value: Any) -> Callable[[Data], None]:
    """A change that puts a value at a path of keys."""
    *path, last, value = path_and_value

    def change(data: Data) -> None:
        for key in path:
            data = data[key]
        data[last] = value

    return change


def rename(*path_and_name: str) -> Callable[[Data], None]:
    """A change that gives the key at a path another name."""
    *path, old, new = path_and_name

    def change(data: Data) -> None:
        for key in path:
            data = data[key]
        data[new] = data.pop(old)

    return change


def remove(*path: str) -> Callable[[Data], None]:
    """A change that removes the key at a path."""

    def change(data: Data) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


def lerobot_like(data: Data) -> None:
    """As LeRobot's diffusion policy has it: two observations, two cameras, the encoder takes the state."""
    data["denoiser"].update(prediction_type="epsilon", timestep={"encoding": "index"})
    data["scheduler"] = {
        "class_name": "DDPMScheduler",
        "num_train_timesteps": 100,
        "beta_schedule": "squaredcos_cap_v2",
        "prediction_type": "epsilon",
        "variance_type": "fixed_small",
        "num_inference_steps": 100,
    }
    data["encoder"].update(
        inputs={"cameras": {"observation.images.a": "a", "observation.images.b": "b"}, "state": "state"},
        append_state=False,
    )
    camera = {
        "width": 84,
        "height": 84,
        "crop": {"width": 420, "height": 420},
        "resize": "cover",
        "color_order": "bgr",
    }
    data["observation"] = {
        "n_obs_steps": 2,
        "cameras": {"observation.images.a": camera, "observation.images.b": {"width": 96, "height": 64}},
        "state": {"layout": ["position", "rotvec"], "normalization": "MIN_MAX"},
    }
    data["action"].update(
        horizon=16,
        execute=9,
        first_offset_steps=-1,
        position="absolute",
        rotation="rotvec",
        normalization="MIN_MAX",
    )


def stable_diffusion_like(data: Data) -> None:
    """As Stable Diffusion 1.5 has it: a latent, a text-like condition, a decoder."""
    data["denoiser"].update(
        prediction_type="epsilon",
        timestep={"encoding": "index"},
        sample_shape=[4, 64, 64],
        inputs={"sample": "sample", "timestep": "timestep", "condition": "encoder_hidden_states"},
        output="out_sample",
    )
    data["scheduler"] = {
        "class_name": "DDIMScheduler",
        "num_train_timesteps": 1000,
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "clip_sample": False,
        "prediction_type": "epsilon",
        "set_alpha_to_one": False,
        "steps_offset": 1,
        "num_inference_steps": 20,
    }
    data["encoder"]["append_state"] = False
    data["observation"]["state"] = None
    data["decoder"] = {
        "file": "decoder.onnx",
        "precision": "fp16",
        "inputs": {"sample": "latent"},
        "output": "actions",
    }


def test_the_reference_bundle_loads(bundle_dir: Path) -> None:
    bundle = load_bundle(bundle_dir)
    assert bundle.manifest.sample_shape == (16, 9)
    assert bundle.manifest.observation.cameras["observation.images.front"].crop == "center_square"
    assert bundle.manifest.denoiser.timestep.max_period == 10000.0
    assert bundle.file("unet_a8w8.onnx").read_bytes().startswith(b"a network")
    assert bundle.normalizers["action"].scale_offset()[0].shape == (16, 9)
    assert bundle.normalizers["observation.images.front"].offset.shape == (3, 1, 1)


def test_a_lerobot_like_bundle_loads(write_bundle: Any, manifest_data: Data, stats_data: Data) -> None:
    lerobot_like(manifest_data)
    entry = stats_data["observation.images.front"]
    stats_data |= {f"observation.images.{name}": entry for name in "ab"}
    for feature in ("observation.state", "action"):
        stats_data[feature] = {"min": [0.0] * 6, "max": [1.0] * 6}
    manifest = load_bundle(write_bundle(manifest_data, stats_data)).manifest
    assert manifest.sample_shape == (16, 6)
    camera = manifest.observation.cameras["observation.images.a"]
    assert camera.crop.width == 420  # type: ignore[union-attr]
    assert manifest.observation.state is not None
    assert manifest.observation.state.width == 6


def test_a_stable_diffusion_like_bundle_loads(write_bundle: Any, manifest_data: Data, stats_data: Data) -> None:
    stable_diffusion_like(manifest_data)
    manifest = load_bundle(write_bundle(manifest_data, stats_data)).manifest
    assert manifest.sample_shape == (4, 64, 64)
    assert manifest.decoder is not None


@pytest.mark.parametrize("variant", [lambda data: None, lerobot_like, stable_diffusion_like])
def test_a_written_manifest_reads_back_equal(
    variant: Callable[[Data], None], manifest_data: Data, tmp_path: Path
) -> None:
    variant(manifest_data)
    manifest_data["sha256"] = {"a": "1" * 64, "b": f"12e{'3' * 61}", "c": "0" * 63 + "a"}
    manifest_data["scheduler"]["beta_start"] = 1e-5
    manifest = Manifest.model_validate(manifest_data)
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["policy.yaml"]


def test_a_number_without_a_dot_is_a_number(change_manifest: Change) -> None:
    directory = change_manifest(lambda data: None)
    path = directory / "policy.yaml"
    path.write_text(path.read_text().replace("beta_start: 0.0001", "beta_start: 1e-4"))
    assert load_bundle(directory).manifest.scheduler.beta_start == 1e-4


def test_a_manifest_can_not_be_changed(bundle_dir: Path) -> None:
    manifest = load_bundle(bundle_dir).manifest
    with pytest.raises(ValueError, match="frozen"):
        manifest.action.horizon = 3  # type: ignore[misc]


def test_a_file_the_manifest_does_not_list_is_not_handed_out(bundle_dir: Path) -> None:
    with pytest.raises(SdnpuError, match=r"no file 'policy\.yaml'; it has unet_a8w8\.onnx"):
        load_bundle(bundle_dir).file("policy.yaml")


# --- the directory and the text of policy.yaml ---


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    assert "nowhere: there is no such directory" in refusal(tmp_path / "nowhere")


def test_a_file_in_place_of_the_directory_is_named(bundle_dir: Path) -> None:
    assert "is a file: name the bundle's directory" in refusal(bundle_dir / "policy.yaml")


def test_a_name_no_file_can_have_is_refused() -> None:
    assert "there is no such directory" in refusal("a\0b")


def test_a_missing_manifest_is_named_with_what_looks_like_it(bundle_dir: Path) -> None:
    (bundle_dir / "policy.yaml").rename(bundle_dir / "policy.yml")
    message = refusal(bundle_dir)
    assert "policy.yaml: there is no such file" in message
    assert "there is 'policy.yml'" in message


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "policy.yaml: is empty"),
        (b"# nothing\n", "holds no values"),
        (b"- a\n- b\n", "found ['a', 'b'], should be a mapping"),
        (b"just text", "should be a mapping that begins with `format: sdnpu-policy/1`"),
        (b"format: sdnpu-policy/1\nname: [a\n", "line 3, column 1: not valid YAML"),
        (b"format: sdnpu-policy/1\nname: a\nname: b\n", "line 3, column 1: the key 'name' comes twice"),
        (b"format: sdnpu-policy/1\n? [a]\n: b\n", "a key must be plain text"),
        (b"name: !!python/object/apply:os.system ['false']\n", "line 1: the tag tag:yaml.org,2002:python"),
        (b"name: !secret x\n", "the tag !secret is not allowed"),
        (b"a: &a [1]\nb: *a\n", "line 2: the alias *a is not allowed"),
        (b"a: " + b"[" * 40 + b"]" * 40, "nested deeper than 32"),
        (b"a: " + b"x" * 300_000, "is larger than 256 KiB"),
        (b"name: caf\xe9\n", "byte 9 (0xe9) is not UTF-8"),
        (b"\xff\xfea\x00", "is not UTF-8"),
        (b"name: a\x00b\n", "not valid YAML"),
        (b"a: 2024-13-45\n", "can't be read"),
        (b"a: " + b"9" * 5000, "can't be read"),
        (b"a: 1\n---\nb: 2\n", "not valid YAML"),
        (b"name: x\n", "the key format is missing"),
        (b"fromat: sdnpu-policy/1\n", "the key format is missing (there is 'fromat')"),
        (
            b"format: sdnpu-policy/2\n",
            "format is 'sdnpu-policy/2': this version of sdnpu_policy reads 'sdnpu-policy/1'",
        ),
        (b"format: 1\n", "format is 1"),
        (b"format: sdnpu-policy/1\n1: 2\n", "the key 1 is not text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
    ],
)
def test_a_damaged_manifest_is_refused_with_its_place(bundle_dir: Path, content: bytes, told: str) -> None:
    path = bundle_dir / "policy.yaml"
    path.write_bytes(content)
    message = refusal(bundle_dir)
    assert message.startswith(str(path))
    assert told in message


def test_a_manifest_that_is_a_fifo_is_not_waited_for(bundle_dir: Path) -> None:
    (bundle_dir / "policy.yaml").unlink()
    os.mkfifo(bundle_dir / "policy.yaml")
    assert "is no regular file" in refusal(bundle_dir)


# --- keys and values ---


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            rename("scheduler", "num_train_timesteps", "num_train_timestep"),
            "scheduler.num_train_timestep: there is no",
        ),
        (rename("scheduler", "num_train_timesteps", "num_train_timestep"), "did you mean 'num_train_timesteps'?"),
        (rename("observation", "observations"), "did you mean 'observation'?"),
        (
            put("denoiser", "zzz", 3),
            "denoiser.zzz: there is no such key (its value is 3); known here: file, precision",
        ),
        (remove("action", "rate_hz"), "action.rate_hz is missing: a number"),
        (remove("action", "rotation"), "action.rotation is missing: one of rotation_6d, rotvec, quaternion"),
        (remove("scheduler"), "scheduler is missing: it needs class_name"),
        (remove("sha256"), "sha256 is missing: a mapping"),
        (put("scheduler", "beta_schedule", "squared_cos_cap_v2"), "did you mean 'squaredcos_cap_v2'?"),
        (put("scheduler", "beta_schedule", "cosine"), "found 'cosine', should be 'linear', 'scaled_linear' or"),
        (put("scheduler", "class_name", "PNDMScheduler"), "found 'PNDMScheduler', should be 'DDIMScheduler' or"),
        (put("action", "horizon", "16"), "action.horizon: found '16', should be a whole number"),
        (put("action", "horizon", 16.5), "action.horizon: found 16.5, should be a whole number"),
        (put("action", "horizon", True), "action.horizon: found True, should be a whole number"),
        (put("action", "horizon", 0), "action.horizon: found 0, should be greater than or equal to 1"),
        (put("action", "rate_hz", float("nan")), "action.rate_hz: found nan, should be a finite number"),
        (put("action", "rate_hz", float("inf")), "action.rate_hz: found inf, should be"),
        (put("action", "rate_hz", -1), "action.rate_hz: found -1, should be greater than 0"),
        (put("golden", "min_snr_db", float("nan")), "golden.min_snr_db: found nan"),
        (put("name", 5), "name: found 5, should be text (put it in quotes)"),
        (put("name", ""), "name: found '', should be a name"),
        (put("denoiser", 3), "denoiser: found 3, should be a mapping: it needs file, precision"),
        (put("denoiser", None), "denoiser: found None, should be a mapping"),
        (put("denoiser", "timestep", "dim", 7), "denoiser.timestep: dim is 7, and encoding sinusoidal needs"),
        (put("denoiser", "timestep", {"encoding": "sinusoidal"}), "denoiser.timestep: dim is None"),
        (
            put("denoiser", "timestep", {"encoding": "index", "dim": 64}),
            "dim is 64, but encoding index has no width",
        ),
        (put("denoiser", "inputs", "timestep", "sample"), "three different names"),
        (put("sha256", "stats.json", "abc"), "sha256['stats.json']: found 'abc', should be a sha256"),
        (put("sha256", "stats.json", 7), "sha256['stats.json']: found 7, should be text (put it in quotes)"),
        (
            put("observation", "cameras", "observation.images.front", "crop", "centre_square"),
            "observation.cameras['observation.images.front'].crop: found 'centre_square', should be 'none' or"
            " 'center_square': did you mean 'center_square'?",
        ),
        (
            put("observation", "cameras", "observation.images.front", "crop", {"width": 3, "heigth": 4}),
            "crop.heigth: there is no such key (its value is 4); did you mean 'height'?",
        ),
        (put("observation", "cameras", ["front"]), "observation.cameras: found ['front'], should be a mapping"),
        (
            put("observation", "state", "layout", ["position", "joints"]),
            "observation.state.layout[1]: found 'joints'",
        ),
        (
            put("observation", "state", "layout", "position"),
            "observation.state.layout: found 'position', should be a",
        ),
        (put("observation", "state", "delta_s", None), "observation.state: delta_s is missing"),
        (put("observation", "state", "layout", ["position"]), "delta_s is 0.064, but no part of layout ends in"),
        (put("quality", [1]), "quality: found [1], should be a mapping"),
    ],
)
def test_a_wrong_key_or_value_is_named(change_manifest: Change, change: Callable[[Data], None], told: str) -> None:
    message = refusal(change_manifest(change))
    assert "policy.yaml: " in message
    assert told in message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            put("scheduler", "prediction_type", "epsilon"),
            ["denoiser.prediction_type is sample", "scheduler.prediction_type is epsilon"],
        ),
        (put("action", "execute", 17), ["action: execute is 17", "horizon, which is 16"]),
        (put("action", "first_offset_steps", -16), ["execute is 16", "first_offset_steps -16"]),
        (
            put("scheduler", "num_inference_steps", 101),
            ["num_inference_steps is 101", "num_train_timesteps, which is 100"],
        ),
        (put("scheduler", "steps_offset", 100), ["steps_offset is 100", "below num_train_timesteps (100)"]),
        (put("scheduler", "beta_start", 0.5), ["beta_start is 0.5", "beta_end, which is 0.02"]),
        (
            put("scheduler", "trained_betas", [0.1, 0.2]),
            ["trained_betas has 2 values", "num_train_timesteps is 100"],
        ),
        (put("scheduler", "thresholding", True), ["thresholding is true", "only false is supported"]),
        (
            put("denoiser", "sample_shape", [16, 10]),
            ["denoiser.sample_shape is [16, 10]", "horizon 16 and width 9"],
        ),
        (put("action", "rotation", "quaternion"), ["'action'", "[16, 9]", "[7] or [16, 7]", "quaternion"]),
        (put("action", "gripper", "last"), ["'action'", "[16, 9]", "[10] or [16, 10]", "gripper last"]),
        (put("observation", "state", None), ["encoder.append_state wants the state", "observation.state is null"]),
        (put("encoder", "append_state", False), ["observation.state is given, but nothing takes it"]),
        (
            rename("encoder", "inputs", "cameras", "observation.images.front", "observation.images.top"),
            ["encoder.inputs.cameras names ['observation.images.top']", "names ['observation.images.front']"],
        ),
    ],
)
def test_values_that_contradict_each_other_are_both_named(
    change_manifest: Change, change: Callable[[Data], None], told: list[str]
) -> None:
    message = refusal(change_manifest(change))
    for part in told:
        assert part in message


def test_one_step_with_leading_spacing_is_refused(change_manifest: Change) -> None:
    message = refusal(
        change_manifest(lambda data: data["scheduler"].update(num_inference_steps=1, timestep_spacing="leading"))
    )
    assert "use timestep_spacing trailing" in message


def test_zero_terminal_snr_needs_another_prediction_than_epsilon(change_manifest: Change) -> None:
    def change(data: Data) -> None:
        data["denoiser"]["prediction_type"] = data["scheduler"]["prediction_type"] = "epsilon"
        data["scheduler"]["rescale_betas_zero_snr"] = True

    assert "the prediction must be sample or v_prediction" in refusal(change_manifest(change))


# --- files ---


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x.onnx", "a/../../x.onnx", "", ".", "C:\\x.onnx", "a\nb", "a\0b"]
)
def test_a_path_that_leaves_the_bundle_is_refused(change_manifest: Change, name: str) -> None:
    message = refusal(change_manifest(put("denoiser", "file", name)))
    assert "denoiser.file: found " in message
    assert "bundle" in message


def test_a_link_that_leaves_the_bundle_is_refused(bundle_dir: Path) -> None:
    outside = bundle_dir.parent / "outside.onnx"
    (bundle_dir / "unet_a8w8.onnx").rename(outside)
    (bundle_dir / "unet_a8w8.onnx").symlink_to(outside)
    message = refusal(bundle_dir)
    assert f"unet_a8w8.onnx: leads to {outside}, outside the bundle (denoiser.file names it)" in message


def test_a_link_inside_the_bundle_is_followed(bundle_dir: Path) -> None:
    (bundle_dir / "unet_a8w8.onnx").rename(bundle_dir / "blob")
    (bundle_dir / "unet_a8w8.onnx").symlink_to("blob")
    load_bundle(bundle_dir)


def test_a_bundle_behind_a_link_loads(bundle_dir: Path) -> None:
    link = bundle_dir.parent / "latest"
    link.symlink_to(bundle_dir)
    load_bundle(link)


def test_a_link_to_itself_is_refused(bundle_dir: Path) -> None:
    (bundle_dir / "stats.json").unlink()
    (bundle_dir / "stats.json").symlink_to("stats.json")
    assert "stats.json: can't be opened (statistics names it)" in refusal(bundle_dir)


def test_a_missing_file_is_named_with_its_key_and_a_similar_file(bundle_dir: Path) -> None:
    (bundle_dir / "unet_a8w8.onnx").rename(bundle_dir / "unet_a8w8 (1).onnx")
    message = refusal(bundle_dir)
    assert (
        "unet_a8w8.onnx: there is no such file, and denoiser.file names it; there is 'unet_a8w8 (1).onnx'"
        in message
    )


def test_an_empty_file_is_refused(bundle_dir: Path) -> None:
    (bundle_dir / "encoder_a16w8.onnx").write_bytes(b"")
    assert "encoder_a16w8.onnx: is empty (encoder.file names it)" in refusal(bundle_dir)


def test_a_directory_in_place_of_a_file_is_refused(bundle_dir: Path) -> None:
    (bundle_dir / "golden.npz").unlink()
    (bundle_dir / "golden.npz").mkdir()
    assert "golden.npz: is no regular file, and golden.file names it" in refusal(bundle_dir)


def test_a_git_lfs_pointer_is_told_from_a_damaged_file(bundle_dir: Path) -> None:
    (bundle_dir / "unet_a8w8.onnx").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    )
    assert "is a Git LFS pointer, not the file (denoiser.file names it): run `git lfs pull`" in refusal(bundle_dir)


@pytest.mark.parametrize("damage", [lambda data: data[:5], lambda data: data + b"x", lambda data: b"z" + data[1:]])
def test_a_damaged_file_is_told_by_its_sha256(bundle_dir: Path, damage: Callable[[bytes], bytes]) -> None:
    path = bundle_dir / "unet_a8w8.onnx"
    path.write_bytes(damage(path.read_bytes()))
    found = hash_files(bundle_dir, ["unet_a8w8.onnx"])["unet_a8w8.onnx"]
    message = refusal(bundle_dir)
    assert message.startswith(f"{path}: its sha256 is {found} ({path.stat().st_size} bytes)")
    assert "copy it again" in message


def test_a_file_without_a_sha256_is_refused(change_manifest: Change) -> None:
    message = refusal(change_manifest(remove("sha256", "encoder_a16w8.onnx")))
    assert "policy.yaml: sha256 has no entry for 'encoder_a16w8.onnx', which encoder.file names: add " in message


def test_a_listed_file_that_is_missing_is_named(change_manifest: Change) -> None:
    assert "sha256['weights.bin'] names it" in refusal(change_manifest(put("sha256", "weights.bin", "0" * 64)))


@pytest.mark.parametrize("name", ["unet_a8w8.bin", "unet_a8w8.data", "unet_a8w8.onnx.data", "unet_a8w8.onnx_data"])
def test_data_beside_a_network_must_be_listed(bundle_dir: Path, name: str) -> None:
    (bundle_dir / name).write_bytes(b"weights")
    message = refusal(bundle_dir)
    assert f"sha256 has no entry for '{name}', which lies beside unet_a8w8.onnx (denoiser.file)" in message


def test_listed_data_beside_a_network_is_right(bundle_dir: Path, change_manifest: Change) -> None:
    (bundle_dir / "unet_a8w8.onnx.data").write_bytes(b"weights")
    digest = hash_files(bundle_dir, ["unet_a8w8.onnx.data"])
    load_bundle(change_manifest(lambda data: data["sha256"].update(digest)))


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        (b"\x0a\x08location\x12\x07w.blob1", "unet_a8w8.onnx (denoiser.file) names it: copy the whole bundle"),
        (b"\x0a\x08location\x12\x07../blob", "there is no such file"),
        (b"\x0a\x10ep_cache_context\x22\x07w.blob1", "w.blob1: there is no such file"),
    ],
)
def test_a_file_named_inside_a_network_must_be_there(
    bundle_dir: Path, change_manifest: Change, inside: bytes, told: str
) -> None:
    (bundle_dir / "unet_a8w8.onnx").write_bytes(b"\x08\x08" + inside + b"\x12\x00")
    digest = hash_files(bundle_dir, ["unet_a8w8.onnx"])
    assert told in refusal(change_manifest(lambda data: data["sha256"].update(digest)))


def test_a_file_named_inside_a_network_must_be_listed(bundle_dir: Path, change_manifest: Change) -> None:
    (bundle_dir / "unet_a8w8.onnx").write_bytes(b"\x0a\x08location\x12\x07w.blob1\x12\x00")
    (bundle_dir / "w.blob1").write_bytes(b"weights")
    digest = hash_files(bundle_dir, ["unet_a8w8.onnx"])
    message = refusal(change_manifest(lambda data: data["sha256"].update(digest)))
    assert "sha256 has no entry for 'w.blob1', where unet_a8w8.onnx (denoiser.file) keeps data" in message


def test_real_external_data_is_found(bundle_dir: Path, change_manifest: Change, shared_data: Path) -> None:
    source = shared_data / "onnx" / "conv_qdq_external_ini.onnx"
    if not source.exists():
        pytest.skip(f"no {source}")
    (bundle_dir / "unet_a8w8.onnx").write_bytes(source.read_bytes())
    digest = hash_files(bundle_dir, ["unet_a8w8.onnx"])
    assert "conv_qdq_external_ini.bin: there is no such file" in refusal(
        change_manifest(lambda data: data["sha256"].update(digest))
    )


# --- statistics as part of a bundle ---


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            rename("action", "so100.buffer.action"),
            ["no statistics of 'action'", "'so100.buffer.action' is similar"],
        ),
        (rename("observation.state", "observation.stat"), ["'observation.stat' is similar"]),
        (put("observation.state", "mean", [0.5] * 7), ["mean and std have the shapes [7] and [18]"]),
        (
            put("observation.state", {"mean": [0.0] * 7, "std": [1.0] * 7}),
            ["'observation.state' has statistics of the shape [7]", "has [18]"],
        ),
        (put("action", "std", None), ["'action': std is None: should be a list of numbers"]),
        (
            remove("action", "mean"),
            ["'action': mean is missing, and MEAN_STD needs it; found min, max, std, count"],
        ),
        (put("observation.images.front", "mean", [[[0.5]]] * 4), ["[4, 1, 1] and [3, 1, 1]"]),
        (put("action", 3), ["'action': found 3, should be a mapping"]),
    ],
)
def test_statistics_that_do_not_fit_are_refused(
    change_statistics: Change, change: Callable[[Data], None], told: list[str]
) -> None:
    message = refusal(change_statistics(change))
    assert "stats.json: " in message
    for part in told:
        assert part in message


def test_a_feature_that_is_not_normalised_needs_no_statistics(
    change_manifest: Change, change_statistics: Change
) -> None:
    change_statistics(remove("observation.images.front"))
    camera = ("observation", "cameras", "observation.images.front", "normalization", "IDENTITY")
    bundle = load_bundle(change_manifest(put(*camera)))
    picture = np.random.default_rng(0).random((3, 4, 4), dtype=np.float32)
    assert np.array_equal(bundle.normalizers["observation.images.front"].normalize(picture), picture)


# --- anything at all ---

JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def only_mendable(directory: Path, content: bytes) -> None:
    (directory / "policy.yaml").write_bytes(content)
    try:
        load_bundle(directory)
    except SdnpuError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 2000


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_give_one_line(bundle_dir: Path, content: bytes) -> None:
    only_mendable(bundle_dir, content)
    only_mendable(bundle_dir, b"format: sdnpu-policy/1\n" + content)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_LIKE, data=st.data())
def test_any_value_in_any_place_gives_one_line(
    bundle_dir: Path, manifest_data: Data, value: object, data: Any
) -> None:
    place: Data = json.loads(json.dumps(manifest_data))
    changed = place
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = value
    only_mendable(bundle_dir, yaml.safe_dump(changed, sort_keys=False).encode())
