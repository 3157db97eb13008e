"""The options that commands share, each said once."""

from typing import Annotated

import typer

Db = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="The database. Else OCEAN_DB, [tool.ocean] db, sqlite:///ocean.db."),
]
Clogs = Annotated[
    str | None,
    typer.Option(
        "--clogs", metavar="MODULE:ATTR,…", help="The clogs. Else OCEAN_CLOGS, [tool.ocean] clogs, entry points."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON; errors too, on standard error.")]
Actor = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Who is named in the events.")]
RequestKey = Annotated[
    str | None,
    typer.Option("--request-key", metavar="KEY", help="Repeated with it, the command gets the first answer."),
]
Input = Annotated[
    str | None, typer.Option("--input", "-i", metavar="JSON", help="JSON text, @FILE, or - for standard input.")
]

RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run.")]
RunIds = Annotated[list[str] | None, typer.Argument(metavar="RUN_ID", help="Runs; or say which by filters.")]
PausedIds = Annotated[list[str] | None, typer.Argument(metavar="RUN_ID", help="Runs; or --clog for all of a clog.")]

FILTERS = "Which runs"
ClogFilter = Annotated[
    list[str] | None, typer.Option("--clog", metavar="CLOG", help="Of this clog. Repeated: of any of them.")
]
StatusFilter = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="STATUS", help="idle, pending, active, waiting, done, failed. Repeated: any."),
]
SessionFilter = Annotated[list[str] | None, typer.Option("--session", metavar="SESSION", help="In this session.")]
ParentFilter = Annotated[list[str] | None, typer.Option("--parent", metavar="RUN_ID", help="Children of this run.")]
AttrFilter = Annotated[
    list[str] | None,
    typer.Option("--attr", metavar="NAME=VALUE", help="By an attribute; one may have a range: 'size>=3', 'size<9'."),
]
CreatedSince = Annotated[
    str | None, typer.Option("--created-since", metavar="WHEN", help="10m, 2h, 3d ago; or an ISO time.")
]
CreatedUntil = Annotated[str | None, typer.Option("--created-until", metavar="WHEN", help="Created before then.")]
EndedSince = Annotated[str | None, typer.Option("--ended-since", metavar="WHEN", help="Ended since then.")]
EndedUntil = Annotated[str | None, typer.Option("--ended-until", metavar="WHEN", help="Ended before then.")]

Everything = Annotated[bool, typer.Option("--everything", help="Instead of filters: every run there is.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Rate = Annotated[int | None, typer.Option("--rate", min=1, metavar="N", help="At most so many runs a second.")]
Most = Annotated[int | None, typer.Option("--most", min=1, metavar="N", help="Stop after so many runs.")]
