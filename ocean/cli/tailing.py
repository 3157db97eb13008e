"""`ocean tail`: the log as it grows."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ocean.cli.options import Clogs, Db, Json

if TYPE_CHECKING:
    from ocean import Event

LONGEST_PAUSE_S = 5.0


async def follow_patiently(
    opened: Callable[[], AbstractAsyncContextManager[Any]],
    run_id: str | None,
    after: int | None,
    narrowed: dict[str, Any],
    say: "Callable[[Event], None]",
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
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN_ID]", help="One run; ends after its end.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="SESSION", help="One session.")] = None,
    clog: Annotated[str | None, typer.Option("--clog", metavar="CLOG", help="One clog's runs.")] = None,
    type: Annotated[list[str] | None, typer.Option("--type", help="Only events of this type. Repeated: any.")] = None,
    after: Annotated[
        int | None, typer.Option("--after", metavar="SEQ", min=0, help="From this cursor. Else a run from its start.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on with what is still to come.")] = True,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Follow the events of a run, a session, a clog, or all: each once, in order.

    A run is told from its start, anything else from now on, unless --after says from where. With --json each event
    is one line, and its `seq` is the cursor to go on from.
    """
    import anyio

    from ocean import InvalidValue, Ocean
    from ocean.cli.running import leave, settings_of
    from ocean.cli.screen import Screen
    from ocean.cli.showing import event_line

    def act() -> None:
        screen = Screen(is_json)
        settings = settings_of(db, clogs)
        narrowed = {"session_id": session, "clog_id": clog, "types": type or ()}
        if sum(each is not None for each in (run_id, session, clog)) > 1:
            raise InvalidValue("tail follows one of a run, a --session or a --clog")

        def say(event: "Event") -> None:
            if screen.is_json:
                screen.json(event)
            else:
                screen.console.print(event_line(event, with_run=run_id is None), soft_wrap=True)

        async def pages() -> None:
            async with Ocean.open(settings.db) as ocean:
                seen = after or 0
                while page := await ocean.read_events(run_id, after=seen, limit=1_000, **narrowed):  # type: ignore[arg-type]
                    for event in page:
                        say(event)
                    seen = max(seen, page[-1].seq)

        async def following() -> None:
            await follow_patiently(lambda: Ocean.open(settings.db), run_id, start, narrowed, say, anyio.sleep)

        start = 0 if after is None and run_id is not None else after
        if follow:
            anyio.run(following)
        else:
            anyio.run(pages)

    leave(act, is_json)
