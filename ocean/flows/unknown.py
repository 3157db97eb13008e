"""`UNKNOWN`: the result of a step that was begun and whose effect may have happened."""

from enum import Enum
from typing import Final


class Unknown(Enum):
    """The type of `UNKNOWN`, for annotations: `async def refund(key: str, charge: str | Unknown) -> None`."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"

    __str__ = __repr__


UNKNOWN: Final = Unknown.UNKNOWN
"""Passed to an `undo` instead of a result, with the step's idempotency key: the step was begun, and no result of it is
known. Compare it with `is`."""
