"""A clog that a server must refuse: its route has no access policy."""

from typing import Any

from ocean import Clog, Incoming

unguarded = Clog("unguarded")


@unguarded.route("GET", "/unguarded")
async def read(incoming: Incoming) -> Any:
    return "everything"
