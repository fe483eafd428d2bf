"""Statistics of a data set in LeRobot's ``stats.json`` layout, and the normalisation they define.

Normalised values are what the networks see; raw values are metres, radians or pixels / 255. Both directions are
those of LeRobot's normaliser for a dimension that varied in training. A dimension that did not vary carries no
information, and its deviation or range is rounding noise (3e-7 in a real data set): dividing by it would turn a
micrometre into a wild input. Such a dimension is normalised to the one value that it had in training, and whatever
the network says for it, the raw value is the one of the training: its scale is zero.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdnpu_policy.bundle.explain import nearest, shown
from sdnpu_policy.bundle.fields import NormalizationMode
from sdnpu_policy.errors import SdnpuError

LARGEST_FILE_BYTES = 64 * 1024 * 1024

CONSTANT_BELOW = 1e-6
"""A deviation or range below this, times the magnitude of the values where that is above 1, is rounding noise."""

LEROBOT_EPSILON = 1e-8
"""What LeRobot adds to a deviation."""

LARGEST_VALUE = 1e30
"""Statistics beyond this are not those of a robot, and their arithmetic would overflow float32."""

LARGEST_CONSTANT = 10.0
"""Bound of the normalised value of a dimension that did not vary."""

_NEEDED: dict[str, tuple[str, ...]] = {"MEAN_STD": ("mean", "std"), "MIN_MAX": ("min", "max"), "IDENTITY": ()}


@dataclass(frozen=True, slots=True)
class Statistics:
    """A ``stats.json`` as it was read: feature -> statistic (min, max, mean, std, ...) -> nested lists."""

    path: Path
    features: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Normalizer:
    """An affine map between raw and normalised values of one feature: raw = normalised * scale + offset.

    Attributes:
        feature: name in the statistics.
        mode: MEAN_STD, MIN_MAX or IDENTITY.
        scale: float64, the feature's shape, never negative; zero where the feature did not vary in training.
        offset: float64, the feature's shape.
        constant_value: float64, the normalised value of the dimensions that did not vary, 0 elsewhere.
    """

    feature: str
    mode: NormalizationMode
    scale: NDArray[np.float64]
    offset: NDArray[np.float64]
    constant_value: NDArray[np.float64]

    @property
    def constant(self) -> NDArray[np.bool_]:
        """True where the feature did not vary in training."""
        did_not_vary: NDArray[np.bool_] = self.scale == 0.0
        return did_not_vary

    def normalize(self, x: ArrayLike) -> NDArray[np.float32]:
        """Raw to normalised, float32; ``x`` broadcasts against the feature's shape. NaN and infinity stay such."""
        raw = np.asarray(x, dtype=np.float64)
        with np.errstate(over="ignore"):  # beyond float32: infinity, which the checks of the inputs refuse
            constant = self.constant
            normalised = (raw - self.offset) / np.where(constant, 1.0, self.scale)
            if constant.any():
                fixed = np.where(np.isfinite(raw), self.constant_value, normalised)
                normalised = np.where(constant, fixed, normalised)
            return normalised.astype(np.float32)

    def unnormalize(self, x: ArrayLike) -> NDArray[np.float64]:
        """Normalised to raw, float64; ``x`` broadcasts against the feature's shape."""
        with np.errstate(invalid="ignore"):  # infinity times a scale of zero: NaN, which the decoding refuses
            return np.asarray(x, dtype=np.float64) * self.scale + self.offset

    def scale_offset(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``(scale, offset)`` with raw = normalised * scale + offset, float64 copies."""
        return self.scale.copy(), self.offset.copy()


def load_statistics(path: Path) -> Statistics:
    """Read a ``stats.json``; the numbers of a feature are checked when its normaliser is made.

    Raises:
        SdnpuError: not readable, not JSON, or not a mapping of features to mappings.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise SdnpuError(f"{path}: can't be read: {error.strerror}") from None
    if len(content) > LARGEST_FILE_BYTES:
        raise SdnpuError(f"{path}: is larger than {LARGEST_FILE_BYTES >> 20} MiB: statistics are a few kilobytes")
    try:
        data = json.loads(content, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise SdnpuError(
            f"{path}: line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:
        detail = " ".join(str(error).split())
        raise SdnpuError(f"{path}: not valid JSON: {detail}") from None
    if not isinstance(data, dict) or not data:
        raise SdnpuError(f"{path}: found {shown(data)}, should be a mapping of features, as LeRobot's stats.json")
    for feature, entries in data.items():
        if not isinstance(entries, dict):
            raise SdnpuError(
                f"{path}: {feature!r}: found {shown(entries)}, should be a mapping (mean, std, min, max)"
            )
    return Statistics(path, data)


def make_normalizer(
    statistics: Statistics,
    feature: str,
    mode: NormalizationMode,
    shapes: Sequence[tuple[int, ...]],
    width_of: str = "the policy",
) -> Normalizer:
    """The normaliser of ``feature``.

    Args:
        shapes: shapes the statistics may have, the preferred one first; those of another with as many values are
            brought into the first's form, so (3,) serves where (3, 1, 1) is wanted.
        width_of: what the shapes come from, for the message.

    Raises:
        SdnpuError: the feature or one of its statistics is missing, not finite, out of order, or of another width.
    """
    if mode == "IDENTITY":
        shape = shapes[0]
        return Normalizer(feature, mode, np.ones(shape), np.zeros(shape), np.zeros(shape))
    entries = _find_feature(statistics, feature, mode)
    first, second = (_read_array(statistics.path, feature, entries, name, mode) for name in _NEEDED[mode])
    if first.shape != second.shape:
        names = " and ".join(_NEEDED[mode])
        raise SdnpuError(
            f"{statistics.path}: {feature!r}: {names} have the shapes {list(first.shape)} and"
            f" {list(second.shape)}: they must be the same"
        )
    first, second = (_fit(statistics.path, feature, array, shapes, width_of) for array in (first, second))
    if mode == "MEAN_STD":
        return _from_mean_std(statistics.path, feature, entries, first, second)
    return _from_min_max(statistics.path, feature, first, second)


def _from_mean_std(
    path: Path, feature: str, entries: Mapping[str, Any], mean: NDArray[np.float64], std: NDArray[np.float64]
) -> Normalizer:
    if (std < 0).any():
        at, wrong = _first_where(std < 0, std)
        raise SdnpuError(f"{path}: {feature!r}: std{at} is {wrong}: a deviation can't be negative")
    constant = std < CONSTANT_BELOW * np.maximum(1.0, np.abs(mean))
    value = np.zeros_like(mean)
    limits = [_try_array(entries.get(name), mean.shape) for name in ("min", "max")]
    if limits[0] is not None and limits[1] is not None:
        centre = (limits[0] + limits[1]) / 2
        value = np.clip((centre - mean) / (std + LEROBOT_EPSILON), -LARGEST_CONSTANT, LARGEST_CONSTANT)
    return Normalizer(feature, "MEAN_STD", np.where(constant, 0.0, std), mean, np.where(constant, value, 0.0))


def _from_min_max(path: Path, feature: str, low: NDArray[np.float64], high: NDArray[np.float64]) -> Normalizer:
    if (low > high).any():
        at, value = _first_where(low > high, low)
        raise SdnpuError(f"{path}: {feature!r}: min{at} is {value}, above max{at}, which is {high[low > high][0]}")
    constant = high - low < CONSTANT_BELOW * np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))
    scale = np.where(constant, 0.0, (high - low) / 2)
    return Normalizer(feature, "MIN_MAX", scale, low + scale, np.where(constant, -1.0, 0.0))


def _find_feature(statistics: Statistics, feature: str, mode: str) -> Mapping[str, Any]:
    if feature in statistics.features:
        return statistics.features[feature]
    similar = next((name for name in statistics.features if name.endswith((f".{feature}", f"/{feature}"))), "")
    similar = similar or nearest(feature, statistics.features)
    has = f"{similar!r} is similar" if similar else f"it has {', '.join(map(repr, statistics.features))}"
    raise SdnpuError(
        f"{statistics.path}: no statistics of {feature!r} for its {mode} normalisation; {has}:"
        " the name must be exactly that of policy.yaml"
    )


def _read_array(path: Path, feature: str, entries: Mapping[str, Any], name: str, mode: str) -> NDArray[np.float64]:
    if name not in entries:
        raise SdnpuError(
            f"{path}: {feature!r}: {name} is missing, and {mode} needs it; found {', '.join(entries)}"
        )
    try:
        array = np.asarray(entries[name])
    except ValueError:
        raise SdnpuError(
            f"{path}: {feature!r}: {name} is {shown(entries[name])}: rows of unequal length"
        ) from None
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise SdnpuError(f"{path}: {feature!r}: {name} is {shown(entries[name])}: should be a list of numbers")
    array = array.astype(np.float64)
    unusable = ~(np.abs(array) <= LARGEST_VALUE)
    if unusable.any():
        at, value = _first_where(unusable, array)
        raise SdnpuError(f"{path}: {feature!r}: {name}{at} is {value}: should be a finite number")
    return array


def _try_array(value: object, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """Optional limits: None where they are absent or unusable."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array.reshape(shape) if array.size == np.prod(shape) and np.isfinite(array).all() else None


def _fit(
    path: Path, feature: str, array: NDArray[np.float64], shapes: Sequence[tuple[int, ...]], width_of: str
) -> NDArray[np.float64]:
    if array.shape in shapes:
        same_size = array.size == np.prod(shapes[0])
        return array.reshape(shapes[0]) if same_size else array
    wanted = " or ".join(str(list(shape)) for shape in shapes)
    raise SdnpuError(
        f"{path}: {feature!r} has statistics of the shape {list(array.shape)}, but {width_of} has {wanted}:"
        " statistics and policy must be of the same data set"
    )


def _first_where(mask: NDArray[np.bool_], array: NDArray[np.float64]) -> tuple[str, float]:
    index = tuple(int(i) for i in np.argwhere(mask)[0])
    return "".join(f"[{i}]" for i in index), float(array[index])


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {key!r} comes twice")
        mapping[key] = value
    return mapping
