"""Whether a network has the inputs and outputs that the manifest says; names and shapes, nothing is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Literal

from sdnpu_policy.bundle.schema import Decoder, Manifest
from sdnpu_policy.errors import SdnpuError

Role = Literal["denoiser", "encoder", "decoder"]
Dimension = int | str | None
Shape = Sequence[Dimension]
Wanted = dict[str, tuple[tuple[int, ...], ...]]
"""Name -> the shapes it may have; none given: any static shape."""


def roles(manifest: Manifest) -> dict[Role, str]:
    """The networks of a policy in the order they run: role -> file name."""
    networks: dict[Role, str] = {"encoder": manifest.encoder.file, "denoiser": manifest.denoiser.file}
    if manifest.decoder:
        networks["decoder"] = manifest.decoder.file
    return networks


def wanted_inputs(manifest: Manifest, role: Role) -> Wanted:
    """The inputs that the manifest gives a network, with the shapes they may have."""
    sample = (1, *manifest.sample_shape)
    if role == "denoiser":
        names, timestep = manifest.denoiser.inputs, manifest.denoiser.timestep
        steps = ((1,), ()) if timestep.dim is None else ((1, timestep.dim),)
        return {names.sample: (sample,), names.timestep: steps, names.condition: ()}
    if role == "decoder":
        return {_decoder(manifest).inputs.sample: (sample,)}
    rows = manifest.observation.n_obs_steps
    inputs: Wanted = {}
    for feature, name in manifest.encoder.inputs.cameras.items():
        camera = manifest.observation.cameras[feature]
        picture = (rows, 3, camera.height, camera.width)
        inputs[name] = (picture, (1, *picture))
    state = manifest.observation.state
    if manifest.encoder.inputs.state and state:
        inputs[manifest.encoder.inputs.state] = ((rows, state.width), (1, rows, state.width))
    return inputs


def wanted_outputs(manifest: Manifest, role: Role) -> Wanted:
    """The output that the manifest takes from a network, with the shapes it may have."""
    if role == "denoiser":
        return {manifest.denoiser.output: ((1, *manifest.sample_shape),)}
    if role == "decoder":
        return {_decoder(manifest).output: ((1, manifest.action.horizon, manifest.action.width),)}
    return {manifest.encoder.output: ()}


def check_interface(
    manifest: Manifest, role: Role, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape]
) -> None:
    """Compare a network with the manifest. Outputs that the manifest does not name are let pass.

    Args:
        inputs: name -> shape, as the network has them; a text or None stands for a size that is not fixed.
        outputs: the same for what it gives.

    Raises:
        SdnpuError: one line with what the network has and what the manifest says.
    """
    wanted = wanted_inputs(manifest, role)
    file = roles(manifest)[role]
    if set(inputs) != set(wanted):
        raise SdnpuError(
            f"{file}: the {role}'s inputs are {_list(inputs)}, but policy.yaml says {_list_wanted(wanted)}:"
            f" {role}.inputs must have the network's names, all of them"
        )
    results = wanted_outputs(manifest, role)
    if not set(results) <= set(outputs):
        raise SdnpuError(
            f"{file}: the {role}'s outputs are {_list(outputs)}, but policy.yaml says {_list_wanted(results)}:"
            f" {role}.output must be the network's name"
        )
    for kind, found, expected in (("input", inputs, wanted), ("output", outputs, results)):
        for name, shapes in expected.items():
            _check_shape(f"{file}: the {role}'s {kind} {name!r}", tuple(found[name]), shapes)


def check_condition(manifest: Manifest, encoder_outputs: Mapping[str, Shape], condition: Shape) -> int:
    """Check that the encoder gives what the denoiser is conditioned on; returns the number of values.

    Args:
        encoder_outputs: name -> shape, as the encoder has them.
        condition: shape of the denoiser's condition input.

    Raises:
        SdnpuError: the numbers of values differ; the line has both.
    """
    output = manifest.encoder.output
    size = _size(encoder_outputs[output])
    made_of = f"encoder output {output!r} {_text(encoder_outputs[output])}"
    state = manifest.observation.state
    if manifest.encoder.append_state and state:
        rows = manifest.observation.n_obs_steps
        size += rows * state.width
        made_of += f" + state {rows} x {state.width} (encoder.append_state)"
    name = manifest.denoiser.inputs.condition
    if size != _size(condition):
        raise SdnpuError(
            f"{manifest.denoiser.file}: the denoiser's input {name!r} has {_size(condition)} values"
            f" {_text(condition)}, but the condition has {size}: {made_of}; both must be of one policy"
        )
    return size


def _decoder(manifest: Manifest) -> Decoder:
    if manifest.decoder is None:
        raise SdnpuError(f"policy.yaml: policy {manifest.name!r} has no decoder")
    return manifest.decoder


def _check_shape(where: str, found: tuple[Dimension, ...], shapes: tuple[tuple[int, ...], ...]) -> None:
    free = [size for size in found if not isinstance(size, int) or size < 1]
    if free:
        raise SdnpuError(
            f"{where} has the shape {_text(found)}, where {free[0]!r} is not fixed: export it with static shapes"
        )
    if shapes and found not in shapes:
        wanted = " or ".join(_text(shape) for shape in shapes)
        last = len(shapes[0]) == 4 and found == (shapes[0][0], *shapes[0][2:], shapes[0][1])
        hint = ": it has the channels last, export it with the channels first" if last else ""
        raise SdnpuError(f"{where} has the shape {_text(found)}, but policy.yaml says {wanted}{hint}")


def _size(shape: Shape) -> int:
    return prod(size for size in shape if isinstance(size, int))


def _text(shape: Shape) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"


def _list(found: Mapping[str, Shape]) -> str:
    return ", ".join(f"{name} {_text(shape)}" for name, shape in found.items()) or "none"


def _list_wanted(wanted: Wanted) -> str:
    return (
        ", ".join(f"{name} {_text(shapes[0]) if shapes else '[any]'}" for name, shapes in wanted.items()) or "none"
    )
