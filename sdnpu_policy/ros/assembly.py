"""From parameters and a bundle to the parts of the core, in one place."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdnpu_policy.bundle.manifest import Bundle
from sdnpu_policy.clock import MS, Clock
from sdnpu_policy.control.denoiser import Feeds, SlicedDenoiser, SliceSettings
from sdnpu_policy.control.loop import ControlLoop, LoopSettings
from sdnpu_policy.control.tick_log import TickLog
from sdnpu_policy.control.watchdog import LadderSettings
from sdnpu_policy.denoise.sampler import Sampler, timestep_rows
from sdnpu_policy.denoise.schedule import make_schedule
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.motion.actions import ActionSpec
from sdnpu_policy.motion.envelope import Envelope, EnvelopeSettings
from sdnpu_policy.motion.follower import PathClock
from sdnpu_policy.motion.plan import Plan, PlanSettings
from sdnpu_policy.npu.session import Session
from sdnpu_policy.npu.stepper import StepRunner


def action_spec(bundle: Bundle) -> ActionSpec:
    """How to read the policy's actions.

    Raises:
        SdnpuError: its poses are in a frame the arm process does not speak.
    """
    action = bundle.manifest.action
    if action.frame != "base":
        # Its chunks would have to be turned back into 'base' before they reach the plan, or x and y are mirrored.
        raise SdnpuError(f"{bundle.path}: action.frame is {action.frame!r}: only 'base' can be run so far")
    scale, offset = bundle.normalizers[action.feature].scale_offset()
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


def make_loop(
    values: dict[str, Any],
    bundle: Bundle,
    session: Session,
    stepper: StepRunner,
    clock: Clock,
    log: TickLog,
) -> tuple[SlicedDenoiser, ControlLoop]:
    """The denoiser in slices and the loop around it, as the parameters say.

    Raises:
        SdnpuError: more denoising steps than the scheduler has, or limits that leave no room.
    """
    manifest = bundle.manifest
    steps = values["denoising_steps"] or manifest.scheduler.num_inference_steps
    if steps > manifest.scheduler.num_train_timesteps:
        raise SdnpuError(
            f"parameter 'denoising_steps' is {steps}: at most {manifest.scheduler.num_train_timesteps}, "
            "the scheduler's num_train_timesteps, is needed"
        )
    schedule = make_schedule(manifest.scheduler, steps)
    names = manifest.denoiser.inputs
    timestep = session.inputs[names.timestep]
    sampler = Sampler(
        schedule,
        manifest.sample_shape,
        np.random.default_rng(values["seed"]),
        timestep_rows(manifest.denoiser.timestep, schedule.timesteps),
    )
    spec = action_spec(bundle)
    denoiser = SlicedDenoiser(
        sampler=sampler,
        stepper=stepper,
        feeds=Feeds(
            sample=session.inputs[names.sample],
            timestep=timestep,
            condition=session.inputs[names.condition],
            output=session.outputs[manifest.denoiser.output],
        ),
        actions=spec,
        clock=clock,
        settings=SliceSettings(
            steps_per_tick=values["steps_per_tick"],
            warm_start_steps=values["warm_start_steps"],
            max_age_ns=int(values["plan_max_age_ms"] * MS),
            wait_for_late=values["on_late"] == "block",
        ),
        on_step=log.add_step,
    )
    try:
        envelope = Envelope(_envelope_settings(values))
    except ValueError as error:
        raise SdnpuError(f"parameters of the envelope: {error}") from None
    loop = ControlLoop(
        clock=clock,
        denoiser=denoiser,
        plan=Plan(PlanSettings(blend_ms=values["plan_blend_ms"], max_age_ms=values["plan_max_age_ms"])),
        envelope=envelope,
        path_clock=PathClock(lead_ns=int(values["plan_lead_ms"] * MS)),
        actions=spec,
        settings=LoopSettings(
            tick_ns=int(values["tick_ms"] * MS),
            step_deadline_ns=int(values["step_deadline_ms"] * MS),
            brake_deceleration_m_s2=values["brake_deceleration_m_s2"],
            execute=manifest.action.execute,
        ),
        ladder_settings=LadderSettings(
            coast_on_late=values["on_late"] != "hold",
            plan_min_future_ms=_braking_ms(values),
            plan_max_age_ms=values["plan_max_age_ms"],
            condition_max_age_ms=values["condition_max_age_ms"],
            robot_max_age_ms=values["robot_max_age_ms"],
            max_late_in_a_row=values["max_late_in_a_row"],
            max_bad_outputs=values["max_bad_outputs"],
            max_hold_s=values["max_hold_s"],
        ),
        log=log,
        now_ns=clock.now_ns(),
    )
    return denoiser, loop


def _braking_ms(values: dict[str, Any]) -> float:
    """How much of the plan braking along it from full speed uses up: v / 2a."""
    return float(1e3 * values["max_speed_m_s"] / (2.0 * values["brake_deceleration_m_s2"]))


def _envelope_settings(values: dict[str, Any]) -> EnvelopeSettings:
    low, high = values["workspace_min_m"], values["workspace_max_m"]
    return EnvelopeSettings(
        workspace_min_m=(low[0], low[1], low[2]),
        workspace_max_m=(high[0], high[1], high[2]),
        max_reach_m=values["max_reach_m"],
        max_speed_m_s=values["max_speed_m_s"],
        max_acceleration_m_s2=values["max_acceleration_m_s2"],
        max_angular_speed_rad_s=values["max_angular_speed_rad_s"],
        max_angular_acceleration_rad_s2=values["max_angular_acceleration_rad_s2"],
        max_step_m=values["max_step_m"],
    )


def perception_settings(values: dict[str, Any], bundle: Bundle, topics: list[str]) -> dict[str, Any]:
    """What the perception process is told at its start."""
    return {
        "policy": str(bundle.path.resolve()),
        "provider": values["encoder_provider"],
        "provider_options": values["encoder_provider_options"],
        "topics": topics,
        "transport": values["image_transport"],
        "max_age_ms": values["image_max_age_ms"],
        "max_future_ms": values["image_max_future_ms"],
        "max_pixels": values["image_max_pixels"],
        "frozen_after": values["image_frozen_after"],
    }


def arm_settings(values: dict[str, Any]) -> dict[str, Any]:
    """What the arm process is told at its start."""
    return {
        "robot_ip": values["robot_ip"],
        "lookahead_s": values["servo_lookahead_s"],
        "gain": values["servo_gain"],
        "target_timeout_ms": values["arm_target_timeout_ms"],
        "watchdog_hz": values["robot_watchdog_hz"],
        "connect_timeout_s": values["connect_timeout_s"],
        "max_step_m": values["max_step_m"],
        "servo_stop_m_s2": 0.8 * values["arm_max_acceleration_m_s2"],
        "realtime_priority": values["arm_realtime_priority"],
        "limits": {
            "max_speed_m_s": values["arm_max_speed_m_s"],
            "max_acceleration_m_s2": values["arm_max_acceleration_m_s2"],
            "max_jerk_m_s3": values["arm_max_jerk_m_s3"],
            "max_angular_speed_rad_s": values["arm_max_angular_speed_rad_s"],
            "max_angular_acceleration_rad_s2": values["arm_max_angular_acceleration_rad_s2"],
            "max_angular_jerk_rad_s3": values["arm_max_angular_jerk_rad_s3"],
        },
    }
