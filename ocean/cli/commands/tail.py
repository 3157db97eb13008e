"""`ocean tail`: follows the event log of a database or a server."""

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ocean.cli.options import Clogs, Db, Json

if TYPE_CHECKING:
    from ocean import Event, StreamReader
    from ocean.cli.output import Screen

    OnEvent = Callable[[Event], None]

LONGEST_PAUSE_S = 5.0


async def follow_database(
    open_ocean: Callable[[], AbstractAsyncContextManager[Any]],
    run_id: str | None,
    after: int | None,
    filters: dict[str, Any],
    on_event: "OnEvent",
    pause: Callable[[float], Awaitable[None]],
) -> None:
    """Call `on_event` with every event once, in order. A busy database is opened again after a pause."""
    from ocean import StoreBusy

    wait_s = 0.2
    while True:
        try:
            async with open_ocean() as ocean:
                if after is None:
                    after = await ocean.last_cursor()
                async for event in ocean.follow(run_id, after=after, **filters):
                    on_event(event)
                    after, wait_s = max(after, event.seq), 0.2
                return
        except StoreBusy:
            await pause(wait_s)
            wait_s = min(2 * wait_s, LONGEST_PAUSE_S)


def tail(
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN_ID", help="Only this run; stops when it has ended.")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Only this session.")] = None,
    clog: Annotated[str | None, typer.Option("--clog", metavar="CLOG", help="Only runs of this clog.")] = None,
    type: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of this type. Repeated: any.")
    ] = None,
    after: Annotated[
        int | None,
        typer.Option("--after", metavar="SEQ", min=0, help="Start after this cursor. Default for a run: its start."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for new events.")] = True,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Read from a server. Default: OCEAN_URL; its key is in OCEAN_KEY."),
    ] = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Follow the events of a run, a session, a clog, or all.

    Each event is printed once, in order: of a run from its start, otherwise from now on; --after sets another start.
    With --json each event is one line, and its `seq` is the cursor for --after. If a server goes away, tail reconnects
    until it is back. If a call or a step is repeated, a line reports that what it had streamed does not count; with
    --json, `ocean.kept_events` finds that out.
    """
    import anyio

    from ocean import InvalidValue, StreamReader
    from ocean.cli.output import Screen
    from ocean.cli.runner import run_and_exit, settings_of

    def act() -> None:
        screen = Screen(is_json)
        wanted, reader = tuple(type or ()), None if screen.is_json else StreamReader()
        types = (*wanted, *StreamReader.TYPES) if wanted and reader else wanted
        filters = {"session_id": session, "clog_id": clog, "types": types}
        if sum(each is not None for each in (run_id, session, clog)) > 1:
            raise InvalidValue("tail must have at most one of RUN_ID, --session and --clog")
        if url and db:
            raise InvalidValue("tail must have at most one of --url (a server) and --db (a database)")

        on_event = _printer(screen, wanted, reader, run_id is None)
        start = 0 if after is None and (run_id is not None or not follow) else after
        if address := url or (None if db else os.environ.get("OCEAN_URL")):
            _tail_server(address, run_id, session, clog, types, start, follow, on_event, is_json)
        else:
            anyio.run(_tail_database, settings_of(db, clogs).db, run_id, filters, start, follow, on_event)

    run_and_exit(act, is_json)


def _printer(screen: "Screen", wanted: tuple[str, ...], reader: "StreamReader | None", with_run: bool) -> "OnEvent":
    """Return a function that prints an event if its type is wanted, after what has become obsolete by it."""
    from ocean.cli.tables import event_line, obsolete_line

    def on_event(event: "Event") -> None:
        for obsolete in reader.take(event) if reader else ():
            screen.console.print(obsolete_line(obsolete, with_run=with_run), soft_wrap=True)
        if wanted and event.type not in wanted:
            return
        if screen.is_json:
            screen.json(event)
        else:
            screen.console.print(event_line(event, with_run=with_run), soft_wrap=True)

    return on_event


async def _tail_database(
    url: str, run_id: str | None, filters: dict[str, Any], start: int | None, follow: bool, on_event: "OnEvent"
) -> None:
    import anyio

    from ocean import Ocean

    if follow:
        await follow_database(lambda: Ocean.open(url), run_id, start, filters, on_event, anyio.sleep)
        return
    async with Ocean.open(url) as ocean:
        seen = start or 0
        while page := await ocean.read_events(run_id, after=seen, limit=1_000, **filters):
            for event in page:
                on_event(event)
            seen = max(seen, page[-1].seq)


def _tail_server(
    url: str,
    run_id: str | None,
    session: str | None,
    clog: str | None,
    types: tuple[str, ...],
    start: int | None,
    follow: bool,
    on_event: "OnEvent",
    is_json: bool,
) -> None:
    from ocean.cli.commands.remote_log import Feed, RemoteServer, follow_server
    from ocean.cli.json_output import line

    server = RemoteServer(url, os.environ.get("OCEAN_KEY") or None)
    named = [("runs", run_id), ("sessions", session), ("clogs", clog)]
    paths = [f"/v1/{kind}/{quote(name, safe='')}/events" for kind, name in named if name is not None]
    feed = Feed(paths[0] if paths else "/v1/events", types)

    def notice(is_away: bool, after: int, why: str) -> None:
        message = f"{why}; reconnecting" if is_away else f"{url} is back; continuing after event {after}"
        status = "away" if is_away else "back"
        text = (
            line({"status": status, "url": url, "after": after, "message": message}) if is_json else f"ocean: {message}"
        )
        typer.echo(text, err=True)

    if follow:
        after = server.page(feed, "latest").next_cursor if start is None else start
        follow_server(server, feed, after, on_event, notice, time.sleep)
        return
    seen = start or 0
    while events := (page := server.page(feed, seen)).events:
        for event in events:
            on_event(event)
        seen = page.next_cursor
