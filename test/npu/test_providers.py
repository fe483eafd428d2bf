"""Opening a session: the checks come before the runtimes, and the runtimes come late."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.providers import PROVIDERS, open_session

MakeModel = Callable[..., Path]


def test_no_runtime_is_imported_before_a_session_is_opened() -> None:
    code = (
        "import sys, sdnpu_policy.npu.providers, sdnpu_policy.npu.stepper; "
        "sys.exit(any(m.split('.')[0] in ('onnxruntime', 'onnxruntime_qnn', 'openvino') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"no model at all"])
def test_every_provider_refuses_a_bad_file_in_one_line(tmp_path: Path, provider: str, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(SdnpuError) as caught:
        open_session(path, provider)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_refuses_missing_external_data(float_conv: MakeModel, provider: str) -> None:
    path = float_conv(external="weights.bin")
    (path.parent / "weights.bin").unlink()
    with pytest.raises(SdnpuError, match=r"external data 'weights.bin' is missing"):
        open_session(path, provider)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_refuses_a_dynamic_shape(quantized_conv: MakeModel, provider: str) -> None:
    with pytest.raises(SdnpuError, match="make_dynamic_shape_fixed"):
        open_session(quantized_conv(batch="N"), provider)


def test_options_are_checked_before_the_file() -> None:
    with pytest.raises(SdnpuError, match="no option 'threads'"):
        open_session("/no/such/file.onnx", "cpu", {"threads": 4})


def test_an_unknown_provider_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SdnpuError, match="'cuda' is not known; use one of cpu, qnn, openvino"):
        open_session(tmp_path / "m.onnx", "cuda")
