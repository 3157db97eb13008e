"""`ocean tail` reports which streamed events do not count any more."""

import json
from pathlib import Path

import anyio
import pytest

from ocean import Clog, Done, Event, Outcome, Tick, kept_events
from ocean.testing import world
from tests.cli.kit import Shell
from tests.cli.test_processes import next_json, started

pytestmark = pytest.mark.xdist_group("processes")


async def make_log(url: str) -> list[Event]:
    """Make a run whose first step is stored in a call that fails, and whose second step fails once."""
    poet = Clog("poet")

    @poet.on_advance
    async def advance(tick: Tick) -> Outcome:
        async def write(name: str) -> None:
            await tick.stream("token", f"{name} {tick.call_number}")
            if name == "second" and tick.call_number == 1:
                raise OSError("cut")

        await tick.stream("note", f"call {tick.call_number}")
        await tick.step("first", lambda key: write("first"))
        await tick.step("second", lambda key: write("second"))
        return Done()

    async with world([poet], url=url) as w:
        await w.ocean.create_run(session_id="s", clog_id="poet", input=None, run_id="r")
        await w.wait(60_000)
        return await w.ocean.read_events("r", limit=100)


@pytest.mark.parametrize("follow", ["--follow", "--no-follow"])
def test_a_line_reports_what_does_not_count_here_and_over_http(ocean: Shell, follow: str, tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path / 'log.db'}"
    events = anyio.run(make_log, db)
    with started(ocean, "serve", "--port", 0, "--json", "--db", db, "--no-ticker") as server:
        url = next_json(server)["url"]
        for place in (("--db", db), ("--url", url)):
            every, tokens = ocean("tail", "r", follow, *place), ocean("tail", "r", follow, *place, "--type", "token")
            assert (every.code, every.err, tokens.code, tokens.err) == (0, "", 0, "")
            reports = [line.split("tick 1  ")[1] for line in every.out.splitlines() if "does not count" in line]
            assert sorted(reports) == [
                "does not count: what call 1 streamed",
                "does not count: what call 1 streamed in step 1:poet/second",
            ]
            words = [line.split("tick 1  ")[1] for line in tokens.out.splitlines()]
            assert words == [
                'token  "first 1"',
                'token  "second 1"',
                "does not count: what call 1 streamed in step 1:poet/second",
                'token  "second 2"',
            ]
            lines = ocean("tail", "r", follow, *place, "--json").out.splitlines()
            assert [json.loads(line)["step"] for line in lines] == [event.step for event in events]
    kept = [event.payload for event in kept_events(events) if event.type in ("note", "token")]
    assert kept == ["first 1", "call 2", "second 2"]
