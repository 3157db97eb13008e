"""A clog that no server should serve: its route does not say who may use it."""

from typing import Any

from ocean import Clog, Incoming

unguarded = Clog("unguarded")


@unguarded.route("GET", "/unguarded")
async def tell(incoming: Incoming) -> Any:
    return "everything"
