"""What is common to all sessions, checked on the CPU provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.providers import (
    StepFailed,
    check_signature,
    describe,
    input_shapes,
    open_session,
    warm_up,
)

MakeModel = Callable[..., Path]


def test_a_session_says_where_it_runs_and_what_goes_in_and_out(quantized_conv: MakeModel) -> None:
    session = open_session(quantized_conv(), "cpu")
    assert input_shapes(session) == {"x": (1, 3, 8, 8)}
    line = describe(session)
    assert line.startswith("conv.onnx on cpu (")
    assert line.endswith("6 of 6 nodes: x [1, 3, 8, 8] float32 -> y [1, 4, 8, 8] float32")


def test_an_image_in_the_wrong_layout_is_found_before_the_first_step(quantized_conv: MakeModel) -> None:
    session = open_session(quantized_conv(), "cpu")
    check_signature(session, {"x": (1, 3, 8, 8)}, {"y": (1, 4, 8, 8)})
    with pytest.raises(
        SdnpuError, match=r"inputs are x \[1, 3, 8, 8\] float32, but x \[1, 8, 8, 3\] is asked for"
    ):
        check_signature(session, {"x": (1, 8, 8, 3)}, {"y": (1, 4, 8, 8)})


def test_wrong_names_are_listed_on_both_sides(quantized_conv: MakeModel) -> None:
    session = open_session(quantized_conv(), "cpu")
    with pytest.raises(SdnpuError, match=r"outputs are y .*, but denoised \[1, 4, 8, 8\] is asked for"):
        check_signature(session, {"x": (1, 3, 8, 8)}, {"denoised": (1, 4, 8, 8)})


def test_warm_up_reports_each_run(quantized_conv: MakeModel) -> None:
    durations_ms = warm_up(open_session(quantized_conv(), "cpu"), 3)
    assert durations_ms.shape == (3,)
    assert (durations_ms > 0).all()


def test_a_failing_warm_up_names_the_file(quantized_conv: MakeModel) -> None:
    session = open_session(quantized_conv(), "cpu")
    session.close()
    with pytest.raises(SdnpuError, match=r"conv.onnx: warm-up step 1 of 2 failed"):
        warm_up(session, 2)


@pytest.mark.parametrize("provider", ["cpu", "openvino"])
def test_a_closed_session_fails_its_steps_and_closes_again(quantized_conv: MakeModel, provider: str) -> None:
    if provider == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    session = open_session(quantized_conv(), provider)
    session.close()
    session.close()
    with pytest.raises(StepFailed, match="closed"):
        session.run()
    assert np.isfinite(session.outputs["y"]).all()
