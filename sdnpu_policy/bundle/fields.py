"""Building blocks of the schema: the common settings of its models, names, sizes and the words it knows."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

FORMAT = "sdnpu-policy/1"
"""The version of the format that this package reads and writes."""

Precision = Literal["fp32", "fp16", "a8w8", "a16w8", "mixed"]
PredictionType = Literal["epsilon", "sample", "v_prediction"]
NormalizationMode = Literal["MEAN_STD", "MIN_MAX", "IDENTITY"]
Rotation6dLayout = Literal["columns", "rows"]
StatePart = Literal["position", "rotation_6d", "rotvec", "quaternion", "position_delta", "rotation_6d_delta"]

STATE_PART_WIDTHS: dict[str, int] = {
    "position": 3,
    "rotation_6d": 6,
    "rotvec": 3,
    "quaternion": 4,
    "position_delta": 3,
    "rotation_6d_delta": 6,
}
ROTATION_WIDTHS: dict[str, int] = {"rotation_6d": 6, "rotvec": 3, "quaternion": 4}


def fault(message: str) -> PydanticCustomError:
    """An error whose text says what would be right (braces in it are kept as they are)."""
    return PydanticCustomError("sdnpu", "{text}", {"text": message})


def _check_file_name(name: str) -> str:
    path = PurePosixPath(name)
    if not name or not name.isprintable() or path.name in ("", ".", ".."):
        raise fault("should be the name of a file in the bundle")
    if path.is_absolute() or "\\" in name or name[1:2] == ":" or ".." in path.parts:
        raise fault("should be a path relative to the bundle that stays inside it: no '/' first, no '..'")
    return name


def _check_name(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise fault("should be a name that is not empty")
    return name


FileName = Annotated[str, AfterValidator(_check_file_name)]
Name = Annotated[str, AfterValidator(_check_name)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=1, le=4096)]


class Part(BaseModel):
    """Common settings: frozen, no unknown keys, no conversion of types, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
