"""Cut the connection at the n-th request of a day, for n = 1, 2, 3 …, before or after the server gets it.

python -m tests.postgres.cut_requests --cut after --step 1
"""

import argparse
import time
from collections import Counter
from typing import Any

import anyio

from ocean import Ocean, OceanError
from ocean.compose import open_test_store
from ocean.testing import ManualClock
from tests.disk.failing_calls import PATIENCE_S, notice
from tests.disk.scenario import DEEDS, Stage, clogs, story
from tests.invariants import check_store
from tests.postgres.proxy import Cut, Proxy, proxied
from tests.postgres.server import fresh_database, return_database

NEVER = 1 << 60


async def day(cut: Cut, nth: int) -> tuple[dict[str, Any], int, Counter[str]]:
    """Return the story, the number of requests, and the errors by type. Each deed is repeated after an error."""
    url, errors = fresh_database(), Counter[str]()
    try:
        async with proxied(url) as (there, proxy):
            proxy.arm(cut, b"", let_through=nth - 1)
            seen = await _live(there, proxy, errors)
    finally:
        return_database(url)
    return *seen, errors


async def _live(url: str, proxy: Proxy, errors: Counter[str]) -> tuple[dict[str, Any], int]:
    clock = ManualClock()
    store = None
    while store is None:
        try:
            store = await open_test_store(url, clock)
        except OceanError as error:
            notice(error, errors)
    ocean = Ocean(store, clogs(), clock)
    stage = Stage(ocean, clock)

    async def start(_: Stage) -> None:
        await ocean.start()

    try:
        for deed in (start, *DEEDS.values()):
            await _until_answered(deed, stage, errors)
        requests = proxy.requests
        proxy.arm("before", b"no such bytes")
        seen = await story(stage)
        await check_store(store, clock.now())
        return seen, requests
    finally:
        await ocean.close()


async def _until_answered(deed: Any, stage: Stage, errors: Counter[str]) -> None:
    while True:
        try:
            with anyio.fail_after(PATIENCE_S):
                await deed(stage)
            return
        except (OceanError, ExceptionGroup) as error:
            notice(error, errors)
            stage.clock.advance(60_000)


async def _main(arguments: argparse.Namespace) -> None:
    wanted, requests, _ = await day("before", NEVER)
    chosen = range(arguments.first, requests + 1, arguments.step)
    began, errors = time.monotonic(), Counter[str]()
    for nth in chosen:
        try:
            seen, _, complaints = await day(arguments.cut, nth)
            assert seen == wanted, f"the story differs: {seen}"
        except BaseException as error:
            raise SystemExit(f"--from {nth} --cut {arguments.cut}: {error!r}") from error
        errors += complaints
    took = time.monotonic() - began
    print(f"{len(chosen)} of {requests} requests cut, {len(chosen) / took:.1f} days/s; errors: {dict(errors)}")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cut", choices=["before", "after"], default="after")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=1)
    anyio.run(_main, parser.parse_args())


if __name__ == "__main__":
    main()
