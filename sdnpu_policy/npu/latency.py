"""Steps that are late on purpose: an overlay for demos, soak runs and tests of the ladder."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from sdnpu_policy.errors import SdnpuError


def late_steps(run: Callable[[], None], probability: float, late_ms: float, seed: int) -> Callable[[], None]:
    """A step that takes ``late_ms`` longer with ``probability``, the same ones each time for one ``seed``.

    It sleeps where the step runs, which is the stepper's thread, and holds nothing meanwhile.
    """
    chance = random.Random(seed)

    def late_run() -> None:
        run()
        if chance.random() < probability:
            time.sleep(late_ms / 1000.0)

    return late_run


def parse_late(text: str) -> tuple[float, float]:
    """'0.2:25' -> (0.2, 25.0): the probability of a late step, and by how many milliseconds.

    Raises SdnpuError for anything else.
    """
    parts = text.split(":")
    try:
        probability, late_ms = (float(part) for part in parts)
    except ValueError:
        probability = late_ms = math.nan
    if not (0.0 <= probability <= 1.0 and 0.0 <= late_ms < math.inf):
        raise SdnpuError(
            f"late steps '{text}': give PROBABILITY:MILLISECONDS with a probability from 0 to 1, such as 0.2:25"
        )
    return probability, late_ms
