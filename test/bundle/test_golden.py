"""Golden vectors are read as plain finite numbers or refused by name."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sdnpu_policy.bundle.golden import load_golden
from sdnpu_policy.bundle.manifest import Bundle, hash_files, load_bundle
from sdnpu_policy.errors import SdnpuError

ARRAYS: dict[str, Any] = {
    "denoiser/sample": np.ones((1, 16, 9), np.float32),
    "denoiser/timestep_embedding": np.ones((1, 64), np.float32),
    "denoiser/global_cond": np.ones((1, 82), np.float32),
    "denoiser/denoised": np.ones((1, 16, 9), np.float32),
}


@pytest.fixture
def bundle_with(bundle_dir: Path, change_manifest: Any) -> Callable[[Callable[[Path], object]], Bundle]:
    """The valid bundle with a golden file written by the given function."""

    def make(write: Callable[[Path], object]) -> Bundle:
        write(bundle_dir / "golden.npz")
        digest = hash_files(bundle_dir, ["golden.npz"])
        return load_bundle(change_manifest(lambda data: data["sha256"].update(digest)))

    return make


def test_the_arrays_of_a_network_are_found_by_role_and_name(bundle_with: Any) -> None:
    golden = load_golden(bundle_with(lambda path: np.savez(path, **ARRAYS)), "denoiser")
    assert golden is not None
    assert sorted(golden.inputs) == ["global_cond", "sample", "timestep_embedding"]
    assert list(golden.outputs) == ["denoised"]
    assert golden.min_snr_db == 20.0


def test_a_bundle_without_a_golden_file_has_none(change_manifest: Any) -> None:
    assert load_golden(load_bundle(change_manifest(lambda data: data.update(golden=None))), "denoiser") is None


def write_pickle(path: Path) -> None:
    np.savez(path, **(ARRAYS | {"denoiser/sample": np.array([{"a": 1}], dtype=object)}))


def write_without(path: Path) -> None:
    arrays = {key.replace("global_cond", "global_condition"): array for key, array in ARRAYS.items()}
    np.savez(path, **arrays)


def write_half(path: Path) -> None:
    np.savez(path, **ARRAYS)
    path.write_bytes(path.read_bytes()[:700])


def write_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as entry:
        entry.write(bytes(3 * 1024 * 1024))


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (write_pickle, "can't be read as .npz with plain arrays: Object arrays cannot be loaded"),
        (
            write_without,
            "no array 'denoiser/global_cond', which the denoiser needs; there is 'denoiser/global_condi",
        ),
        (write_half, "can't be read as .npz with plain arrays: File is not a zip file"),
        (lambda path: path.write_bytes(b"\x80\x04N."), "can't be read as .npz"),
        (lambda path: np.savez(path, **(ARRAYS | {"denoiser/denoised": np.full((1, 16, 9), np.nan)})), "finite"),
        (lambda path: np.savez(path, **(ARRAYS | {"denoiser/denoised": np.array(["a"])})), "finite numbers only"),
        (lambda path: np.savez(path, **(ARRAYS | {"denoiser/denoised": np.zeros(0)})), "finite numbers only"),
    ],
)
def test_an_unusable_golden_file_is_refused(bundle_with: Any, write: Any, told: str) -> None:
    bundle = bundle_with(write)
    with pytest.raises(SdnpuError) as caught:
        load_golden(bundle, "denoiser")
    message = str(caught.value)
    assert message.startswith(str(bundle.path / "golden.npz"))
    assert told in message
    assert "\n" not in message


def test_a_file_that_unpacks_to_too_much_is_not_unpacked(
    bundle_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sdnpu_policy.bundle.golden.LARGEST_UNPACKED_BYTES", 2 << 20)
    bundle = bundle_with(write_bomb)
    with pytest.raises(SdnpuError, match="unpacks to 3 MiB, more than 2"):
        load_golden(bundle, "denoiser")
