"""Pictures and poses to the tensors a policy was trained on, as its manifest says."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.bundle.schema import Camera, CropSize, StateObservation
from sdnpu_policy.bundle.statistics import Normalizer
from sdnpu_policy.clock import SECOND
from sdnpu_policy.observation.history import PoseHistory
from sdnpu_policy.observation.image import Rgb
from sdnpu_policy.observation.rejected import ImageRejected, RejectReason

Float32 = NDArray[np.float32]

_INTERPOLATIONS = {
    "area": cv2.INTER_AREA,
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "nearest": cv2.INTER_NEAREST,
}


class CameraTransform:
    """Crop, resize, /255, channel order and normalisation of one camera; crop and resize as in `schema.Camera`."""

    def __init__(self, camera: Camera, normalizer: Normalizer) -> None:
        self._camera = camera
        # normalize() is affine, so two of its values give its line: one multiplication and one addition a pixel.
        shape = (3, 1, 1)
        zero = np.broadcast_to(normalizer.normalize(np.zeros(shape)), shape)
        self._gain = ((np.broadcast_to(normalizer.normalize(np.ones(shape)), shape) - zero) / 255.0).astype(
            np.float32
        )
        self._offset = zero.astype(np.float32)

    def into(self, rgb: Rgb, out: Float32) -> None:
        """The picture (H, W, 3) as float32 [3, height, width] in ``out``.

        Raises:
            ImageRejected: the picture is smaller than the crop.
        """
        small = self._resized(self._cropped(rgb))
        if self._camera.color_order == "bgr":
            small = small[:, :, ::-1]
        np.multiply(small.transpose(2, 0, 1), self._gain, out=out, casting="unsafe")
        out += self._offset

    def _cropped(self, rgb: Rgb) -> Rgb:
        crop = self._camera.crop
        height, width = rgb.shape[:2]
        if crop == "none":
            return rgb
        if isinstance(crop, CropSize):
            high, wide = crop.height, crop.width
        else:
            high = wide = min(height, width)
        if high > height or wide > width:
            raise ImageRejected(
                RejectReason.TOO_SMALL, f"image is {width}x{height}: the policy crops {wide}x{high} from it"
            )
        return _centre(rgb, high, wide)

    def _resized(self, rgb: Rgb) -> Rgb:
        camera = self._camera
        height, width = rgb.shape[:2]
        if (height, width) == (camera.height, camera.width):
            return rgb
        if camera.resize == "cover":
            factor = max(camera.height / height, camera.width / width)
            # at least one pixel of a picture that is very flat
            wide, high = (
                min(max(round(side / factor), 1), most)
                for side, most in ((camera.width, width), (camera.height, height))
            )
            rgb = _centre(rgb, high, wide)
        size = (camera.width, camera.height)
        return np.asarray(cv2.resize(rgb, size, interpolation=_INTERPOLATIONS[camera.interpolation]), np.uint8)


def _centre(rgb: Rgb, high: int, wide: int) -> Rgb:
    """The middle; an odd rest is rounded half to even, as torchvision's center_crop does."""
    top, left = round((rgb.shape[0] - high) / 2), round((rgb.shape[1] - wide) / 2)
    return rgb[top : top + high, left : left + wide]


def state_vector(state: StateObservation, poses: PoseHistory, t_ns: int) -> NDArray[np.float64] | None:
    """The robot state (width,) at ``t_ns`` before normalisation; None where the history does not reach.

    Positions in metres, rotations as the layout says, ``_delta`` parts the value at ``t_ns`` minus that ``delta_s``
    before. Of the two quaternions of a rotation the one with w >= 0 is given, whichever the robot reported.
    """
    now = poses.at(t_ns)
    before = poses.at(t_ns - round((state.delta_s or 0.0) * SECOND)) if state.delta_s else None
    if now is None or (state.delta_s and before is None):
        return None
    parts = []
    for part in state.layout:
        name = part.removesuffix("_delta")
        value = _part(name, now, state)
        if name != part and before is not None:
            value = value - _part(name, before, state)
        parts.append(value)
    return np.concatenate(parts)


def _part(name: str, pose: NDArray[np.float64], state: StateObservation) -> NDArray[np.float64]:
    if name == "position":
        return pose[:3]
    quaternion = pose[3:]
    if name == "quaternion":
        return -quaternion if quaternion[3] < 0.0 else quaternion
    if name == "rotvec":
        return _rotation_vector(quaternion)
    matrix = _matrix(quaternion)
    return np.concatenate(
        [matrix[0], matrix[1]] if state.rotation_6d_layout == "rows" else [matrix[:, 0], matrix[:, 1]]
    )


def _matrix(q: NDArray[np.float64]) -> NDArray[np.float64]:
    x, y, z, w = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def _rotation_vector(q: NDArray[np.float64]) -> NDArray[np.float64]:
    vector, scalar = (q[:3], q[3]) if q[3] >= 0.0 else (-q[:3], -q[3])
    length = float(np.linalg.norm(vector))
    return np.asarray(vector * (2.0 if length < 1e-12 else 2.0 * np.arctan2(length, scalar) / length))
