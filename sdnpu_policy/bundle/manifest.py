"""Loads a policy bundle: a directory with ``policy.yaml`` and the files it names, checked before they are used.

Nothing from a bundle is executed or unpickled, and no path leaves its directory. The networks themselves are
opened by ``sdnpu_policy.npu``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from sdnpu_policy.bundle.explain import explain, nearest, shown
from sdnpu_policy.bundle.fields import FORMAT
from sdnpu_policy.bundle.files import check_hashes, find_file, hash_files
from sdnpu_policy.bundle.schema import (
    Action,
    Camera,
    CropSize,
    Decoder,
    Denoiser,
    Encoder,
    Golden,
    Manifest,
    Observation,
    Scheduler,
    StateObservation,
    Timestep,
)
from sdnpu_policy.bundle.statistics import Normalizer, Statistics, load_statistics, make_normalizer
from sdnpu_policy.bundle.yaml_file import read_yaml, to_yaml
from sdnpu_policy.errors import SdnpuError

__all__ = [
    "FORMAT",
    "MANIFEST_NAME",
    "Action",
    "Bundle",
    "Camera",
    "CropSize",
    "Decoder",
    "Denoiser",
    "Encoder",
    "Golden",
    "Manifest",
    "Observation",
    "Scheduler",
    "StateObservation",
    "Timestep",
    "hash_files",
    "load_bundle",
    "read_manifest",
    "write_manifest",
]

MANIFEST_NAME = "policy.yaml"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A policy on disk that was found whole and consistent.

    Attributes:
        path: its directory.
        manifest: what ``policy.yaml`` says.
        statistics: the data set's statistics.
        normalizers: one for each feature of the policy: cameras (3, 1, 1), state (width,), action (width,) or
            (horizon, width).
    """

    path: Path
    manifest: Manifest
    statistics: Statistics
    normalizers: Mapping[str, Normalizer]

    def file(self, name: str) -> Path:
        """The path of one of the bundle's files, by the name the manifest gives it.

        Raises:
            SdnpuError: the manifest lists no such file.
        """
        if name not in self.manifest.sha256:
            listed = ", ".join(self.manifest.sha256)
            raise SdnpuError(f"{self.path / MANIFEST_NAME}: sha256 has no file {name!r}; it has {listed}")
        return self.path / name


def load_bundle(directory: Path | str) -> Bundle:
    """Load and check a bundle.

    Raises:
        SdnpuError: one line with the file, the key, the value found and what would be right.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    path = directory / MANIFEST_NAME
    check_hashes(directory, path, manifest.files, manifest.sha256)
    statistics = load_statistics(directory / manifest.statistics)
    return Bundle(directory, manifest, statistics, _make_normalizers(manifest, statistics))


def read_manifest(directory: Path | str) -> Manifest:
    """Read ``policy.yaml`` alone; the files it names are not looked at.

    Raises:
        SdnpuError: there is none, or something in it is wrong.
    """
    directory = Path(directory)
    _check_directory(directory)
    path = find_file(directory, MANIFEST_NAME, "a policy bundle")
    data = read_yaml(path)
    if data is None:
        raise SdnpuError(f"{path}: holds no values: it should begin with `format: {FORMAT}`")
    if not isinstance(data, dict):
        raise SdnpuError(f"{path}: found {shown(data)}, should be a mapping that begins with `format: {FORMAT}`")
    version = data.get("format")
    if version != FORMAT:
        wrong = f"format is {shown(version)}" if "format" in data else _missing_format(data)
        raise SdnpuError(f"{path}: {wrong}: this version of sdnpu_policy reads {FORMAT!r}")
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        raise SdnpuError(f"{path}: {explain(error, Manifest, data)}") from None


def write_manifest(directory: Path, manifest: Manifest) -> Path:
    """Write ``policy.yaml``, replacing one that is there in a single step; returns its path.

    Raises:
        SdnpuError: the file can't be written.
    """
    path = directory / MANIFEST_NAME
    partial = directory / f".{MANIFEST_NAME}.{os.getpid()}"
    try:
        partial.write_text(to_yaml(manifest.model_dump()), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise SdnpuError(f"{path}: can't be written: {error.strerror}") from None
    return path


def _check_directory(directory: Path) -> None:
    try:
        if directory.is_dir():
            return
        is_file = directory.exists()
    except (OSError, ValueError):
        is_file = False
    if is_file:
        raise SdnpuError(
            f"{directory}: is a file: name the bundle's directory, the one with {MANIFEST_NAME} in it"
        )
    raise SdnpuError(
        f"{directory}: there is no such directory: name a policy bundle, a directory with {MANIFEST_NAME}"
    )


def _missing_format(data: Mapping[object, object]) -> str:
    near = nearest("format", [key for key in data if isinstance(key, str)])
    return f"the key format is missing (there is {near!r})" if near else "the key format is missing"


def _make_normalizers(manifest: Manifest, statistics: Statistics) -> dict[str, Normalizer]:
    normalizers: dict[str, Normalizer] = {}
    for feature, camera in manifest.observation.cameras.items():
        where = f"observation.cameras[{feature!r}] (3 channels)"
        normalizers[feature] = make_normalizer(statistics, feature, camera.normalization, [(3, 1, 1), (3,)], where)
    state = manifest.observation.state
    if state is not None:
        where = f"observation.state (layout {' + '.join(state.layout)})"
        normalizers[state.feature] = make_normalizer(
            statistics, state.feature, state.normalization, [(state.width,)], where
        )
    action = manifest.action
    where = f"action (position 3, {action.rotation}, gripper {action.gripper}, horizon {action.horizon})"
    shapes = [(action.width,), (action.horizon, action.width)]
    normalizers[action.feature] = make_normalizer(statistics, action.feature, action.normalization, shapes, where)
    return normalizers
