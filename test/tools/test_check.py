"""``sdnpu check`` on tiny real networks: what fits is shown, what does not is told in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper

from sdnpu_policy.bundle.manifest import hash_files
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.tools import cli
from sdnpu_policy.tools.check import parse_options

MANIFEST = """
format: sdnpu-policy/1
name: tiny
description: Halves what it is given
denoiser:
  file: unet.onnx
  precision: fp32
  prediction_type: sample
  inputs: {sample: sample, timestep: timestep, condition: cond}
  output: denoised
  timestep: {encoding: sinusoidal, dim: 4}
scheduler:
  class_name: DDIMScheduler
  num_train_timesteps: 10
  beta_schedule: squaredcos_cap_v2
  prediction_type: sample
  timestep_spacing: trailing
  num_inference_steps: 2
encoder:
  file: encoder.onnx
  precision: fp32
  inputs: {cameras: {observation.images.front: image}}
  output: features
observation:
  cameras: {observation.images.front: {width: 4, height: 2, normalization: IDENTITY}}
action: {horizon: 2, execute: 2, rate_hz: 10.0, position: absolute, rotation: rotvec, normalization: MIN_MAX}
statistics: stats.json
golden: {file: golden.npz, min_snr_db: 40.0}
sha256: {}
quality: {method: none}
"""

Edit = Callable[[dict[str, Any]], None]


def network(path: Path, inputs: dict[str, list[Any]], output: tuple[str, list[int]], nodes: list[Any]) -> None:
    def infos(shapes: dict[str, list[Any]]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    half = helper.make_tensor("half", TensorProto.FLOAT, [1], [0.5])
    axes = helper.make_tensor("shape", TensorProto.INT64, [len(output[1])], output[1])
    graph = helper.make_graph(nodes, "g", infos(inputs), infos({output[0]: output[1]}), initializer=[half, axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def write_networks(directory: Path, rows: Any = 1) -> None:
    """An encoder that reshapes the picture, a denoiser that halves the sample and sums up the rest."""
    network(
        directory / "encoder.onnx",
        {"image": [rows, 3, 2, 4]},
        ("features", [1, 24]),
        [helper.make_node("Reshape", ["image", "shape"], ["features"], name="reshape")],
    )
    network(
        directory / "unet.onnx",
        {"sample": [1, 2, 6], "timestep": [1, 4], "cond": [1, 24]},
        ("denoised", [1, 2, 6]),
        [
            helper.make_node("Mul", ["sample", "half"], ["halved"], name="halve"),
            helper.make_node("ReduceMean", ["timestep"], ["t"], name="mean_t", keepdims=0),
            helper.make_node("ReduceMean", ["cond"], ["c"], name="mean_c", keepdims=0),
            helper.make_node("Add", ["halved", "t"], ["halved_t"], name="add_t"),
            helper.make_node("Add", ["halved_t", "c"], ["denoised"], name="add_c"),
        ],
    )


def golden_arrays() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = {"encoder/image": (1, 3, 2, 4), "denoiser/sample": (1, 2, 6)}
    shapes |= {"denoiser/timestep": (1, 4), "denoiser/cond": (1, 24)}
    arrays = {name: rng.random(shape, dtype=np.float32) for name, shape in shapes.items()}
    rest = arrays["denoiser/timestep"].mean() + arrays["denoiser/cond"].mean()
    arrays["denoiser/denoised"] = arrays["denoiser/sample"] / 2 + rest
    arrays["encoder/features"] = arrays["encoder/image"].reshape(1, 24)
    return arrays


def write_manifest(directory: Path, edit: Edit = lambda data: None) -> None:
    data = yaml.safe_load(MANIFEST)
    names = ["unet.onnx", "encoder.onnx", "stats.json", "golden.npz"]
    data["sha256"] = hash_files(directory, names)
    edit(data)
    (directory / "policy.yaml").write_text(yaml.safe_dump(data))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_networks(tmp_path)
    (tmp_path / "stats.json").write_text(json.dumps({"action": {"min": [0.0] * 6, "max": [1.0] * 6}}))
    np.savez(tmp_path / "golden.npz", **golden_arrays())
    write_manifest(tmp_path)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Run ``sdnpu check``: exit status, stdout and stderr."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", *map(str, arguments)])
    code = caught.value.code or 0
    assert isinstance(code, int)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    code, out, err = check(capsys, *arguments)
    assert code == 2, out
    assert out == ""
    assert err.startswith("sdnpu: error: ")
    assert len(err.splitlines()) == 1
    return err


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_a_bundle_that_can_be_used_is_shown(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(capsys, bundle)
    assert code == 0, err
    assert "policy 'tiny'" in out
    assert "DDIMScheduler, 2 of 10 steps" in out
    assert "sample 1x2x6" in out
    assert "(at least 40 dB)" in out
    assert "This bundle can be used on cpu." in out


def test_words_in_a_bundle_are_shown_as_they_are(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_manifest(bundle, lambda data: data.update(description="a [/b] c [red]d \x1b[2Je", quality={"x": "[/y]"}))
    code, out, _ = check(capsys, bundle, "--no-run")
    assert code == 0
    assert "a [/b] c [red]d ?[2Je" in out
    assert "x: [/y]" in out


def test_golden_vectors_are_not_run_when_asked_not_to(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = golden_arrays()
    np.savez(bundle / "golden.npz", **(arrays | {"denoiser/denoised": arrays["denoiser/denoised"] + 1}))
    write_manifest(bundle)
    code, out, _ = check(capsys, bundle, "--no-run")
    assert code == 0
    assert "not run" in out
    assert "golden" in refusal(capsys, bundle)


def test_a_bundle_without_golden_vectors_can_be_used(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_manifest(bundle, lambda data: data.update(golden=None))
    code, out, _ = check(capsys, bundle)
    assert code == 0
    assert "no golden file" in out


def test_a_wrong_input_name_is_told_with_both_lists(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_manifest(bundle, lambda data: data["denoiser"]["inputs"].update(condition="global_cond"))
    message = refusal(capsys, bundle)
    assert "unet.onnx: the denoiser's inputs are sample [1, 2, 6], timestep [1, 4], cond [1, 24]" in message
    assert "global_cond [any]" in message


def test_a_wrong_picture_size_is_told(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_manifest(bundle, lambda data: data["observation"]["cameras"]["observation.images.front"].update(width=8))
    assert "input 'image' has the shape [1, 3, 2, 4], but policy.yaml says [1, 3, 2, 8]" in refusal(capsys, bundle)


def test_a_dynamic_size_is_told(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_networks(bundle, rows="batch")
    write_manifest(bundle)
    message = refusal(capsys, bundle)
    assert "encoder.onnx" in message
    assert "batch" in message


def test_a_condition_of_another_size_is_told(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def with_state(data: dict[str, Any]) -> None:
        data["encoder"]["append_state"] = True
        data["observation"]["state"] = {"layout": ["position"], "normalization": "IDENTITY"}

    write_manifest(bundle, with_state)
    assert "'cond' has 24 values [1, 24], but the condition has 27" in refusal(capsys, bundle)


def test_a_file_that_is_no_network_is_told(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bundle / "unet.onnx").write_bytes((bundle / "unet.onnx").read_bytes()[:60])
    write_manifest(bundle)
    assert "unet.onnx: " in refusal(capsys, bundle)


def test_a_damaged_bundle_is_told_before_anything_is_opened(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (bundle / "unet.onnx").open("ab") as file:
        file.write(b"x")
    assert "unet.onnx: its sha256 is" in refusal(capsys, bundle)


def test_an_unknown_provider_is_told(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = check(capsys, bundle, "--provider", "tpu")
    assert code == 2
    assert "'tpu'" in err


def test_an_unknown_option_of_the_provider_is_told(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "htp_perf_mode" in refusal(capsys, bundle, "--provider", "qnn", "-o", "htp_perf_mode=burst")


def test_options_are_names_with_values() -> None:
    assert parse_options(["a=1", "b=0.5", "c=x=y"]) == {"a": 1, "b": 0.5, "c": "x=y"}
    with pytest.raises(SdnpuError, match=r"--option 'burst': should be NAME=VALUE"):
        parse_options(["burst"])
