"""Names and shapes of a network against the manifest; both are told where they differ."""

from __future__ import annotations

from typing import Any

import pytest

from sdnpu_policy.bundle.interface import check_condition, check_interface, roles
from sdnpu_policy.bundle.manifest import Manifest
from sdnpu_policy.errors import SdnpuError

DENOISER = {"sample": (1, 16, 9), "timestep_embedding": (1, 64), "global_cond": (1, 82)}
DENOISED = {"denoised": (1, 16, 9)}
ENCODER = {"image": (1, 3, 96, 96)}
FEATURES = {"features": (1, 64)}


@pytest.fixture
def manifest(manifest_data: dict[str, Any]) -> Manifest:
    return Manifest.model_validate(manifest_data)


def refusal(manifest: Manifest, role: Any, inputs: Any, outputs: Any) -> str:
    with pytest.raises(SdnpuError) as caught:
        check_interface(manifest, role, inputs, outputs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_networks_that_fit_are_accepted(manifest: Manifest) -> None:
    check_interface(manifest, "denoiser", DENOISER, DENOISED | {"more": (1,)})
    check_interface(manifest, "encoder", ENCODER, FEATURES)
    assert check_condition(manifest, FEATURES, (1, 82)) == 82
    assert list(roles(manifest)) == ["encoder", "denoiser"]


def test_other_names_are_listed_beside_the_manifests(manifest: Manifest) -> None:
    found = {"x": (1, 9, 1, 16), "cond": (1, 82), "temb": (1, 64)}
    message = refusal(manifest, "denoiser", found, {"out": (1, 9, 1, 16)})
    assert "unet_a8w8.onnx: the denoiser's inputs are x [1, 9, 1, 16], cond [1, 82], temb [1, 64]" in message
    assert "sample [1, 16, 9], timestep_embedding [1, 64], global_cond [any]: denoiser.inputs must" in message


def test_an_input_too_many_is_refused(manifest: Manifest) -> None:
    assert "mask [1]" in refusal(manifest, "encoder", ENCODER | {"mask": (1,)}, FEATURES)


def test_another_output_name_is_refused(manifest: Manifest) -> None:
    message = refusal(manifest, "encoder", ENCODER, {"feat": (1, 64)})
    assert "outputs are feat [1, 64], but policy.yaml says features [any]: encoder.output must" in message


@pytest.mark.parametrize("size", ["batch_size", None, -1, 0])
def test_a_size_that_is_not_fixed_is_refused(manifest: Manifest, size: Any) -> None:
    message = refusal(manifest, "denoiser", DENOISER | {"global_cond": (size, 82)}, DENOISED)
    assert f"{size!r} is not fixed: export it with static shapes" in message


def test_another_shape_is_told_with_the_right_one(manifest: Manifest) -> None:
    message = refusal(manifest, "denoiser", DENOISER, {"denoised": (1, 9, 16)})
    assert "output 'denoised' has the shape [1, 9, 16], but policy.yaml says [1, 16, 9]" in message


def test_channels_last_are_recognised(manifest: Manifest) -> None:
    assert "it has the channels last" in refusal(manifest, "encoder", {"image": (1, 96, 96, 3)}, FEATURES)


def test_a_condition_of_another_size_is_told_with_what_it_is_made_of(manifest: Manifest) -> None:
    with pytest.raises(SdnpuError) as caught:
        check_condition(manifest, FEATURES, (1, 64))
    message = str(caught.value)
    assert "'global_cond' has 64 values [1, 64], but the condition has 82" in message
    assert "encoder output 'features' [1, 64] + state 1 x 18 (encoder.append_state)" in message


def test_two_observations_are_rows_of_the_encoders_inputs(manifest_data: dict[str, Any]) -> None:
    manifest_data["observation"]["n_obs_steps"] = 2
    manifest_data["encoder"]["inputs"]["state"] = "state"
    manifest = Manifest.model_validate(manifest_data)
    for inputs in (
        {"image": (2, 3, 96, 96), "state": (2, 18)},
        {"image": (1, 2, 3, 96, 96), "state": (1, 2, 18)},
    ):
        check_interface(manifest, "encoder", inputs, FEATURES)
    assert "[2, 3, 96, 96]" in refusal(manifest, "encoder", {"image": (1, 3, 96, 96), "state": (2, 18)}, FEATURES)
    assert check_condition(manifest, FEATURES, (1, 100)) == 100


def test_an_index_is_one_value_with_or_without_an_axis(manifest_data: dict[str, Any]) -> None:
    manifest_data["denoiser"]["timestep"] = {"encoding": "index"}
    manifest = Manifest.model_validate(manifest_data)
    for shape in ((1,), ()):
        check_interface(manifest, "denoiser", DENOISER | {"timestep_embedding": shape}, DENOISED)
    assert "says [1] or []" in refusal(manifest, "denoiser", DENOISER, DENOISED)


def test_a_latent_needs_a_decoder_of_its_shape(manifest_data: dict[str, Any]) -> None:
    manifest_data["denoiser"]["sample_shape"] = [4, 64, 64]
    manifest_data["decoder"] = {
        "file": "d.onnx",
        "precision": "fp32",
        "inputs": {"sample": "z"},
        "output": "actions",
    }
    manifest = Manifest.model_validate(manifest_data)
    assert list(roles(manifest)) == ["encoder", "denoiser", "decoder"]
    latent = {"z": (1, 4, 64, 64)}
    check_interface(manifest, "decoder", latent, {"actions": (1, 16, 9)})
    assert "[1, 16, 9]" in refusal(manifest, "decoder", latent, {"actions": (1, 9, 16)})
    hidden = DENOISER | {"sample": (1, 4, 64, 64), "global_cond": (1, 77, 768)}
    check_interface(manifest, "denoiser", hidden, {"denoised": (1, 4, 64, 64)})


def test_a_decoder_the_policy_does_not_have_is_refused(manifest: Manifest) -> None:
    with pytest.raises(SdnpuError, match="no decoder"):
        check_interface(manifest, "decoder", {}, {})
