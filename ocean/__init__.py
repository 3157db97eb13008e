"""Ocean: durable runs without a worker, a broker or a control plane.

The public names are those of `ocean.public`. They are imported when the first one is used, so that `ocean --help` is
fast.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ocean.public import *  # noqa: F403
else:

    def __getattr__(name):
        from importlib import import_module

        is_public = name == "__all__" or not name.startswith("_")
        public = import_module("ocean.public") if is_public else None
        if not hasattr(public, name):
            raise AttributeError(f"module 'ocean' has no attribute {name!r}")
        value = globals()[name] = getattr(public, name)
        return value
