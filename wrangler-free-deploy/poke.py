"""One poke for cron or a systemd timer: does what is due, prints one JSON line, ends.

OCEAN_DB=sqlite:////srv/app/ocean.db  OCEAN_CLOGS=module:attr,…  OCEAN_BUDGET_MS=30000
"""

import importlib
import json
import os
import sys

import anyio

from ocean import Clog, Ocean, OceanError


def clog_at(place: str) -> Clog:
    module, _, attribute = place.partition(":")
    if not module or not attribute:
        sys.exit(f"OCEAN_CLOGS: {place!r} is not module:attr, as in clogs.counter:counter")
    try:
        clog = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        sys.exit(f"OCEAN_CLOGS: cannot load {place!r}: {error}")
    return clog if isinstance(clog, Clog) else sys.exit(f"OCEAN_CLOGS: {place!r} is no Clog, but {clog!r:.80}")


async def poke(url: str, clogs: list[Clog], budget_ms: int) -> str:
    async with Ocean.open(url, clogs=clogs) as ocean:
        did = await ocean.advance(budget_ms=budget_ms)
    names = {"advanced": did.advanced, "dueNow": did.due_now, "nextWakeAt": did.next_wake_at}
    return json.dumps(names | {"oldestDueAgeMs": did.oldest_due_age_ms, "unclaimable": did.unclaimable})


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    settings = {name: os.environ.get(name, "").strip() for name in ("OCEAN_DB", "OCEAN_CLOGS")}
    for name in [name for name, value in settings.items() if not value]:
        sys.exit(f"{name} is not set; see the README beside this script")
    places = [place.strip() for place in settings["OCEAN_CLOGS"].split(",") if place.strip()]
    budget = os.environ.get("OCEAN_BUDGET_MS", "30000")
    if not budget.isdecimal():
        sys.exit(f"OCEAN_BUDGET_MS is milliseconds, got {budget!r}")
    try:
        line = anyio.run(poke, settings["OCEAN_DB"], [clog_at(place) for place in places], int(budget))
    except OceanError as error:
        sys.exit(f"{error.code}: {error}")
    sys.stdout.write(line + "\n")
