"""The schema of ``policy.yaml``: what a policy bundle says about itself, as frozen pydantic models.

Unknown keys, values of another type, non-finite numbers and values that contradict each other are refused. The
messages are completed with file and key by :mod:`sdnpu_policy.bundle.explain`; nothing here touches a file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from sdnpu_policy.bundle.fields import (
    ROTATION_WIDTHS,
    STATE_PART_WIDTHS,
    FileName,
    Name,
    NormalizationMode,
    Part,
    Precision,
    PredictionType,
    Rotation6dLayout,
    Sha256,
    Size,
    StatePart,
    fault,
)


class Timestep(Part):
    """How the denoiser is told its timestep.

    ``index``: int64 [1]. ``sinusoidal``: float32 [1, dim], first the sines, then the cosines of
    t * max_period ** (-i / (dim / 2 - 1)), as in diffusion_policy and LeRobot.
    """

    encoding: Literal["index", "sinusoidal"]
    dim: Annotated[int, Field(ge=4, le=4096)] | None = None
    max_period: Annotated[float, Field(gt=1.0)] = 10000.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.encoding == "sinusoidal" and (self.dim is None or self.dim % 2):
            raise fault(f"dim is {self.dim}, and encoding sinusoidal needs the even width of the embedding")
        if self.encoding == "index" and self.dim is not None:
            raise fault(f"dim is {self.dim}, but encoding index has no width: leave dim out, or choose sinusoidal")
        return self


class DenoiserInputs(Part):
    """Names of the denoiser's inputs in its ONNX file."""

    sample: Name
    timestep: Name
    condition: Name


class Denoiser(Part):
    """One call of the U-Net.

    ``sample_shape`` is the sample's shape without the batch: null for [horizon, action width]; a latent such as
    [4, 64, 64] needs a decoder.
    """

    file: FileName
    precision: Precision
    prediction_type: PredictionType
    inputs: DenoiserInputs
    output: Name
    timestep: Timestep
    sample_shape: Annotated[tuple[Size, ...], Field(strict=False, min_length=1, max_length=4)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [self.inputs.sample, self.inputs.timestep, self.inputs.condition]
        if len(set(names)) < len(names):
            raise fault(f"inputs are {', '.join(names)}: three different names are needed")
        return self


class Scheduler(Part):
    """The noise schedule, with diffusers' field names and defaults; ``num_inference_steps`` is ours."""

    class_name: Literal["DDIMScheduler", "DDPMScheduler"]
    num_train_timesteps: Annotated[int, Field(ge=1, le=100_000)]
    beta_start: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.0001
    beta_end: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.02
    beta_schedule: Literal["linear", "scaled_linear", "squaredcos_cap_v2"]
    trained_betas: Annotated[tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...], Field(strict=False)] | None = (
        None
    )
    prediction_type: PredictionType
    clip_sample: bool = True
    clip_sample_range: Annotated[float, Field(gt=0.0)] = 1.0
    thresholding: bool = False
    set_alpha_to_one: bool = True
    steps_offset: Annotated[int, Field(ge=0)] = 0
    timestep_spacing: Literal["leading", "trailing", "linspace"] = "leading"
    rescale_betas_zero_snr: bool = False
    variance_type: Literal["fixed_small", "fixed_small_log", "fixed_large", "fixed_large_log"] = "fixed_small"
    num_inference_steps: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        train, steps = self.num_train_timesteps, self.num_inference_steps
        if self.thresholding:
            raise fault("thresholding is true, and only false is supported: use clip_sample")
        if steps > train:
            raise fault(f"num_inference_steps is {steps}, more than num_train_timesteps, which is {train}")
        if self.steps_offset >= train:
            raise fault(f"steps_offset is {self.steps_offset}, and must be below num_train_timesteps ({train})")
        if self.beta_start > self.beta_end:
            raise fault(f"beta_start is {self.beta_start}, above beta_end, which is {self.beta_end}")
        if self.trained_betas is not None and len(self.trained_betas) != train:
            raise fault(f"trained_betas has {len(self.trained_betas)} values, num_train_timesteps is {train}")
        if self.rescale_betas_zero_snr and self.prediction_type == "epsilon":
            raise fault(
                "rescale_betas_zero_snr is true with prediction_type epsilon, which is undefined at zero SNR:"
                " the prediction must be sample or v_prediction"
            )
        if steps == 1 and self.timestep_spacing == "leading" and train > 1:
            raise fault(
                "num_inference_steps is 1 with timestep_spacing leading, which takes pure noise for an almost"
                " clean sample: use timestep_spacing trailing"
            )
        return self


class EncoderInputs(Part):
    """Names of the encoder's inputs: one for each camera feature, and one for the state if it takes it itself."""

    cameras: dict[Name, Name]
    state: Name | None = None


class Encoder(Part):
    """Images (and state) to features.

    A camera's input is float32 [n_obs_steps, 3, height, width], a state input [n_obs_steps, width], oldest first.
    With ``append_state`` the condition is the flattened output followed by the normalised state of each step.
    """

    file: FileName
    precision: Precision
    inputs: EncoderInputs
    output: Name
    append_state: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [*self.inputs.cameras.values(), *([self.inputs.state] if self.inputs.state else [])]
        if len(set(names)) < len(names):
            raise fault(f"inputs are {', '.join(names)}: each needs a name of its own")
        if not names:
            raise fault("inputs name neither a camera nor a state: the encoder needs one")
        return self


class DecoderInputs(Part):
    """Names of the decoder's inputs."""

    sample: Name


class Decoder(Part):
    """Latent to normalised actions [1, horizon, width]."""

    file: FileName
    precision: Precision
    inputs: DecoderInputs
    output: Name


class CropSize(Part):
    """A crop of this many pixels of the camera's picture."""

    width: Size
    height: Size


def _crop_kind(value: Any) -> str:
    return "<size>" if isinstance(value, dict | CropSize) else "<name>"


Crop = Annotated[
    Annotated[Literal["none", "center_square"], Tag("<name>")] | Annotated[CropSize, Tag("<size>")],
    Discriminator(_crop_kind),
]


class Camera(Part):
    """How a camera's picture becomes the network's input.

    First the centre ``crop``, in the camera's own pixels; then the ``resize`` to width x height: ``stretch`` each
    axis by itself, or ``cover`` (one factor for both, the rest cut off evenly). Then /255, channels first and in
    ``color_order``, and the normalisation (statistics per channel, in the same order).
    """

    width: Size
    height: Size
    color_order: Literal["rgb", "bgr"] = "rgb"
    crop: Crop = "none"
    resize: Literal["stretch", "cover"] = "stretch"
    interpolation: Literal["area", "linear", "cubic", "nearest"] = "area"
    normalization: NormalizationMode = "MEAN_STD"


class StateObservation(Part):
    """The robot state that the policy sees: parts of the TCP pose in the order of ``layout``.

    The ``_delta`` parts are the value now minus the value ``delta_s`` ago.
    """

    feature: Name = "observation.state"
    layout: Annotated[tuple[StatePart, ...], Field(strict=False, min_length=1, max_length=16)]
    delta_s: Annotated[float, Field(gt=0.0, le=10.0)] | None = None
    rotation_6d_layout: Rotation6dLayout = "columns"
    normalization: NormalizationMode = "MIN_MAX"

    @property
    def width(self) -> int:
        """Numbers of one observation step."""
        return sum(STATE_PART_WIDTHS[part] for part in self.layout)

    @model_validator(mode="after")
    def _check(self) -> Self:
        deltas = [part for part in self.layout if part.endswith("_delta")]
        if deltas and self.delta_s is None:
            raise fault(
                f"delta_s is missing, and layout has {', '.join(deltas)}: give the time between in seconds"
            )
        if self.delta_s is not None and not deltas:
            raise fault(f"delta_s is {self.delta_s}, but no part of layout ends in _delta: leave delta_s out")
        return self


class Observation(Part):
    """What the policy looks at; observation steps are one action period (1 / action.rate_hz) apart."""

    n_obs_steps: Annotated[int, Field(ge=1, le=16)] = 1
    cameras: dict[Name, Camera]
    state: StateObservation | None = None


class Action(Part):
    """What the policy does.

    Waypoint k (0 .. horizon - 1) is meant for the observation's time + (k + first_offset_steps) / rate_hz, and
    the first ``execute`` waypoints may be used. A row is position (3), rotation (6, 3 or 4) and, with
    ``gripper: last``, one number more.
    """

    feature: Name = "action"
    horizon: Annotated[int, Field(ge=1, le=1024)]
    execute: Annotated[int, Field(ge=1, le=1024)]
    rate_hz: Annotated[float, Field(gt=0.0, le=1000.0)]
    first_offset_steps: Annotated[int, Field(ge=-64, le=64)] = 0
    position: Literal["absolute", "relative"]
    rotation: Literal["rotation_6d", "rotvec", "quaternion"]
    rotation_6d_layout: Rotation6dLayout = "columns"
    relative_axes: Literal["base", "tool"] = "base"
    gripper: Literal["none", "last"] = "none"
    frame: Literal["base", "base_link"] = "base"
    normalization: NormalizationMode = "MIN_MAX"

    @property
    def width(self) -> int:
        """Numbers of one action."""
        return 3 + ROTATION_WIDTHS[self.rotation] + (self.gripper == "last")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.execute > self.horizon:
            raise fault(f"execute is {self.execute}, more than horizon, which is {self.horizon}")
        if self.execute + self.first_offset_steps < 1:
            raise fault(
                f"execute is {self.execute} with first_offset_steps {self.first_offset_steps}: no action would lie"
                " after the observation; execute + first_offset_steps must be at least 1"
            )
        return self


class Golden(Part):
    """Recorded inputs and outputs (``denoiser/<name>``, ``encoder/<name>``) and how near a device must come."""

    file: FileName
    min_snr_db: Annotated[float, Field(ge=0.0, le=200.0)]


class Manifest(Part):
    """The whole of ``policy.yaml``."""

    format: Literal["sdnpu-policy/1"]
    name: Name
    description: str = ""
    denoiser: Denoiser
    scheduler: Scheduler
    encoder: Encoder
    decoder: Decoder | None = None
    observation: Observation
    action: Action
    statistics: FileName
    golden: Golden | None = None
    sha256: dict[FileName, Sha256]
    quality: dict[str, Any] = Field(default_factory=dict)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of the denoiser's sample without the batch."""
        return self.denoiser.sample_shape or (self.action.horizon, self.action.width)

    @property
    def files(self) -> dict[str, str]:
        """The dotted key of every file that the manifest names: key -> file name."""
        named = {"denoiser.file": self.denoiser.file, "encoder.file": self.encoder.file}
        if self.decoder:
            named["decoder.file"] = self.decoder.file
        named["statistics"] = self.statistics
        if self.golden:
            named["golden.file"] = self.golden.file
        return named

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_diffusion(self)
        _check_observation(self)
        return self


def _check_diffusion(manifest: Manifest) -> None:
    predicts, scheduled = manifest.denoiser.prediction_type, manifest.scheduler.prediction_type
    if predicts != scheduled:
        raise fault(
            f"denoiser.prediction_type is {predicts} but scheduler.prediction_type is {scheduled}:"
            " both must say what the network was trained to predict"
        )
    actions = (manifest.action.horizon, manifest.action.width)
    if manifest.decoder is None and manifest.sample_shape != actions:
        raise fault(
            f"denoiser.sample_shape is {list(manifest.sample_shape)} but action has horizon {actions[0]} and width"
            f" {actions[1]}: they must agree, or a decoder is needed"
        )


def _check_observation(manifest: Manifest) -> None:
    encoder, observation = manifest.encoder, manifest.observation
    taken, given = set(encoder.inputs.cameras), set(observation.cameras)
    if taken != given:
        raise fault(
            f"encoder.inputs.cameras names {sorted(taken)} but observation.cameras names {sorted(given)}:"
            " both must have the same features"
        )
    takers = [
        key
        for key, used in (
            ("encoder.inputs.state", encoder.inputs.state is not None),
            ("encoder.append_state", encoder.append_state),
        )
        if used
    ]
    if takers and observation.state is None:
        raise fault(f"{takers[0]} wants the state, but observation.state is null: describe its feature and layout")
    if observation.state is not None and not takers:
        raise fault(
            "observation.state is given, but nothing takes it: name encoder.inputs.state, set"
            " encoder.append_state, or make observation.state null"
        )
