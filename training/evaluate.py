"""Closed-loop success of the reference policy's networks on fresh scenes.

python training/evaluate.py --encoder models/reference/encoder_a16w8.onnx --unet models/reference/unet_a8w8.onnx
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from rollout import Networks, Timing, open_network, run_episode

from sdnpu_policy.sim.cell import Outcome, Verdict, make_scene

EVALUATION_SEED = 5


def evaluate(networks: Networks, timing: Timing, scenes: int, seed: int = EVALUATION_SEED) -> list[Verdict]:
    """One episode in each of the first `scenes` scenes of a seed."""
    return [
        run_episode(networks, make_scene(seed, index), timing, np.random.default_rng([seed, index, 1]))
        for index in range(scenes)
    ]


def summarise(verdicts: Sequence[Verdict]) -> dict[str, float | int]:
    """Success rates and errors; the errors are those of placed tools."""
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    placed = [verdict for verdict in verdicts if verdict.outcome is Outcome.PLACED]

    def percentile(values: list[float], q: float) -> float:
        return round(float(np.percentile(values, q)), 2) if values else float("nan")

    return {
        "scenes": len(verdicts),
        "success_rate": round(sum(verdict.success for verdict in verdicts) / len(verdicts), 3),
        "success_rate_10_mm": round(sum(verdict.placed_within(10.0) for verdict in verdicts) / len(verdicts), 3),
        "collisions": outcomes[Outcome.COLLISION],
        "crashes": outcomes[Outcome.CRASH],
        "timeouts": outcomes[Outcome.TIMEOUT],
        "xy_mm_p50": percentile([verdict.xy_mm for verdict in placed], 50),
        "xy_mm_p90": percentile([verdict.xy_mm for verdict in placed], 90),
        "z_mm_p50": percentile([verdict.z_mm for verdict in placed], 50),
        "yaw_deg_p50": percentile([verdict.yaw_deg for verdict in placed], 50),
        "duration_s_p50": percentile([verdict.duration_s for verdict in placed], 50),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--unet", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[4], help="denoising steps; one evaluation for each"
    )
    parser.add_argument("--seed", type=int, default=EVALUATION_SEED)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    networks = Networks(open_network(arguments.encoder), open_network(arguments.unet))
    for steps in arguments.steps:
        started = time.monotonic()
        verdicts = evaluate(networks, Timing(denoising_steps=steps), arguments.scenes, arguments.seed)
        result = {"encoder": arguments.encoder.name, "unet": arguments.unet.name, "denoising_steps": steps}
        print(
            json.dumps({**result, **summarise(verdicts), "took_s": round(time.monotonic() - started)}), flush=True
        )


if __name__ == "__main__":
    main()
