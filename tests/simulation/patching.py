"""Patches functions of Ocean with faults, and restores them."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

Change = Callable[[ExitStack], None]


def put(undo: ExitStack, place: Any, name: str, new: Any) -> None:
    """Replace an attribute until `undo` is closed."""
    undo.callback(setattr, place, name, getattr(place, name))
    setattr(place, name, new)


def put_everywhere(undo: ExitStack, old: Any, new: Any) -> None:
    """Replace a function in every module of Ocean that has imported it."""
    for module in [module for name, module in sys.modules.items() if name.startswith("ocean.")]:
        for name, value in list(vars(module).items()):
            if value is old:
                put(undo, module, name, new)
