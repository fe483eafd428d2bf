"""Golden vectors: recorded inputs and outputs of a bundle's networks, against which a device is checked."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.bundle.explain import nearest
from sdnpu_policy.bundle.interface import Role, wanted_inputs, wanted_outputs
from sdnpu_policy.bundle.manifest import Bundle
from sdnpu_policy.errors import SdnpuError

LARGEST_UNPACKED_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GoldenVectors:
    """One recorded call of a network: name -> array for its inputs and for the outputs that matter."""

    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    min_snr_db: float


def load_golden(bundle: Bundle, role: Role) -> GoldenVectors | None:
    """The golden vectors of a network, None where the bundle has no golden file.

    Raises:
        SdnpuError: the file is damaged or too large, an array is missing, not finite or not of numbers.
    """
    golden = bundle.manifest.golden
    if golden is None:
        return None
    path = bundle.file(golden.file)
    inputs = [f"{role}/{name}" for name in wanted_inputs(bundle.manifest, role)]
    outputs = [f"{role}/{name}" for name in wanted_outputs(bundle.manifest, role)]
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > LARGEST_UNPACKED_BYTES:
            limit = LARGEST_UNPACKED_BYTES >> 20
            raise SdnpuError(
                f"{path}: unpacks to {unpacked >> 20} MiB, more than {limit}: keep one call of each network"
            )
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in (*inputs, *outputs) if key not in file.files]
            if missing:
                near = nearest(missing[0], file.files)
                hint = f"; there is {near!r}" if near else f"; it has {', '.join(file.files) or 'nothing'}"
                raise SdnpuError(f"{path}: no array {missing[0]!r}, which the {role} needs{hint}")
            arrays = {key: file[key] for key in (*inputs, *outputs)}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, MemoryError) as error:
        detail = " ".join(str(error).split())
        raise SdnpuError(f"{path}: can't be read as .npz with plain arrays: {detail}") from None
    for key, array in arrays.items():
        if array.dtype.kind not in "iuf" or array.size == 0 or not np.isfinite(array).all():
            raise SdnpuError(f"{path}: {key!r} ({array.dtype}, {array.shape}) should hold finite numbers only")
    prefix = len(role) + 1
    return GoldenVectors(
        {key[prefix:]: arrays[key] for key in inputs},
        {key[prefix:]: arrays[key] for key in outputs},
        golden.min_snr_db,
    )
