"""`ocean tail`: the log as it grows, in a database or on a server."""

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ocean.cli.options import Clogs, Db, Json

if TYPE_CHECKING:
    from ocean import Event

    Say = Callable[[Event], None]

LONGEST_PAUSE_S = 5.0


async def follow_patiently(
    opened: Callable[[], AbstractAsyncContextManager[Any]],
    run_id: str | None,
    after: int | None,
    narrowed: dict[str, Any],
    say: "Say",
    pause: Callable[[float], Awaitable[None]],
) -> None:
    """Say every event once, in order. A busy database is opened again, from the last event that was said."""
    from ocean import StoreBusy

    wait_s = 0.2
    while True:
        try:
            async with opened() as ocean:
                if after is None:
                    after = await ocean.last_cursor()
                async for event in ocean.follow(run_id, after=after, **narrowed):
                    say(event)
                    after, wait_s = max(after, event.seq), 0.2
                return
        except StoreBusy:
            await pause(wait_s)
            wait_s = min(2 * wait_s, LONGEST_PAUSE_S)


def tail(
    run_id: Annotated[str | None, typer.Argument(metavar="RUN_ID", help="One run; ends after its end.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="SESSION", help="One session.")] = None,
    clog: Annotated[str | None, typer.Option("--clog", metavar="CLOG", help="One clog's runs.")] = None,
    type: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of this type. Repeated: any.")
    ] = None,
    after: Annotated[
        int | None, typer.Option("--after", metavar="SEQ", min=0, help="From this cursor. Else a run from its start.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on with what is still to come.")] = True,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="Of a server, instead of a database. Else OCEAN_URL; key: OCEAN_KEY."
        ),
    ] = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Follow the events of a run, a session, a clog, or all.

    Each is told once and in order: those of a run from its start, others from now on, unless --after says from where.
    With --json each event is one line, and its `seq` is the cursor to go on from. A server that goes away is asked
    again until it is back.
    """
    import anyio

    from ocean import InvalidValue
    from ocean.cli.output import Screen
    from ocean.cli.runner import leave, settings_of
    from ocean.cli.tables import event_line

    def act() -> None:
        screen = Screen(is_json)
        narrowed = {"session_id": session, "clog_id": clog, "types": type or ()}
        if sum(each is not None for each in (run_id, session, clog)) > 1:
            raise InvalidValue("tail follows one of a run, a --session or a --clog")
        if url and db:
            raise InvalidValue("tail reads a server's log with --url or a database with --db; leave one of them out")

        def say(event: "Event") -> None:
            if screen.is_json:
                screen.json(event)
            else:
                screen.console.print(event_line(event, with_run=run_id is None), soft_wrap=True)

        start = 0 if after is None and (run_id is not None or not follow) else after
        if address := url or (None if db else os.environ.get("OCEAN_URL")):
            tail_server(address, run_id, session, clog, tuple(type or ()), start, follow, say, is_json)
        else:
            anyio.run(tail_database, settings_of(db, clogs).db, run_id, narrowed, start, follow, say)

    leave(act, is_json)


async def tail_database(
    url: str, run_id: str | None, narrowed: dict[str, Any], start: int | None, follow: bool, say: "Say"
) -> None:
    import anyio

    from ocean import Ocean

    if follow:
        await follow_patiently(lambda: Ocean.open(url), run_id, start, narrowed, say, anyio.sleep)
        return
    async with Ocean.open(url) as ocean:
        seen = start or 0
        while page := await ocean.read_events(run_id, after=seen, limit=1_000, **narrowed):
            for event in page:
                say(event)
            seen = max(seen, page[-1].seq)


def tail_server(
    url: str,
    run_id: str | None,
    session: str | None,
    clog: str | None,
    types: tuple[str, ...],
    start: int | None,
    follow: bool,
    say: "Say",
    is_json: bool,
) -> None:
    from ocean.cli.commands.remote_log import Feed, Server, follow_server
    from ocean.cli.json_output import line

    server = Server(url, os.environ.get("OCEAN_KEY") or None)
    named = [("runs", run_id), ("sessions", session), ("clogs", clog)]
    paths = [f"/v1/{kind}/{quote(name, safe='')}/events" for kind, name in named if name is not None]
    feed = Feed(paths[0] if paths else "/v1/events", types)

    def notice(is_away: bool, after: int, why: str) -> None:
        said = f"{why}; asking again" if is_away else f"{url} is back; going on after event {after}"
        status = "away" if is_away else "back"
        text = line({"status": status, "url": url, "after": after, "message": said}) if is_json else f"ocean: {said}"
        typer.echo(text, err=True)

    if follow:
        after = server.page(feed, "latest").next_cursor if start is None else start
        follow_server(server, feed, after, say, notice, time.sleep)
        return
    seen = start or 0
    while events := (page := server.page(feed, seen)).events:
        for event in events:
            say(event)
        seen = page.next_cursor
