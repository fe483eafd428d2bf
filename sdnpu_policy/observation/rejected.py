"""Why an image can't be used: counted, named, and never the end of a process."""

from __future__ import annotations

from enum import StrEnum


class RejectReason(StrEnum):
    """The kinds of images that are refused."""

    EMPTY = "empty"
    STEP = "step"
    SHORT = "short"
    TOO_LARGE = "too_large"
    ENCODING = "encoding"
    DEPTH = "depth"
    FORMAT = "format"
    DAMAGED = "damaged"
    TRUNCATED = "truncated"
    TOO_SMALL = "too_small"
    STAMP = "stamp"
    CLOCK = "clock"
    STALE = "stale"
    FUTURE = "future"
    BACKWARDS = "backwards"
    FROZEN = "frozen"
    NOT_TOGETHER = "not_together"
    NON_FINITE = "non_finite"


class ImageRejected(Exception):
    """One image is refused; the message is one line, whatever a driver put into the fields it shows."""

    def __init__(self, reason: RejectReason, text: str) -> None:
        super().__init__(" ".join(text.split()))
        self.reason = reason
