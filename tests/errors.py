"""Errors as tests compare them."""

from collections.abc import Mapping
from typing import Any


def bare(error: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return an error without the place where it was raised."""
    return error if error is None else {name: value for name, value in error.items() if name != "where"}
