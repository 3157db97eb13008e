"""The options that several commands share, each declared once.

Typer builds the options of a command from its signature. A command that takes a group of options has one parameter for
the group, a dataclass, and the decorator `expand_options` puts the fields of the dataclass in its place.
"""

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any

import typer

Db = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="The database. Default: OCEAN_DB, [tool.ocean] db, sqlite:///ocean.db."),
]
Clogs = Annotated[
    str | None,
    typer.Option(
        "--clogs", metavar="MODULE:ATTR,…", help="The clogs. Default: OCEAN_CLOGS, [tool.ocean] clogs, entry points."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON; errors too, on standard error.")]
Actor = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Named in the events as the author.")]
RequestKey = Annotated[
    str | None,
    typer.Option("--request-key", metavar="KEY", help="A repeat with the same key returns the first result."),
]
Input = Annotated[
    str | None, typer.Option("--input", "-i", metavar="JSON", help="JSON text, @FILE, or - for standard input.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run.")]
RunIds = Annotated[list[str] | None, typer.Argument(metavar="RUN_ID", help="Runs; or select them with filters.")]
PausedIds = Annotated[
    list[str] | None, typer.Argument(metavar="RUN_ID", help="Runs; or --clog for all runs of a clog.")
]

Texts = list[str] | None


@dataclass(frozen=True, slots=True)
class Selection:
    """The filters that select runs. None means any."""

    clog: Annotated[
        Texts, typer.Option("--clog", metavar="CLOG", help="Runs of this clog. Repeated: of any of them.")
    ] = None
    status: Annotated[
        Texts,
        typer.Option("--status", metavar="STATUS", help="idle, pending, active, waiting, done, failed. Repeated: any."),
    ] = None
    session: Annotated[Texts, typer.Option("--session", metavar="SESSION", help="Runs in this session.")] = None
    parent: Annotated[Texts, typer.Option("--parent", metavar="RUN_ID", help="Children of this run.")] = None
    attr: Annotated[
        Texts,
        typer.Option(
            "--attr", metavar="NAME=VALUE", help="By attribute; one name may have a range: 'size>=3', 'size<9'."
        ),
    ] = None
    created_since: Annotated[
        str | None,
        typer.Option("--created-since", metavar="WHEN", help="Created since then: 10m, 2h, 3d (ago), or an ISO time."),
    ] = None
    created_until: Annotated[
        str | None, typer.Option("--created-until", metavar="WHEN", help="Created before then.")
    ] = None
    ended_since: Annotated[str | None, typer.Option("--ended-since", metavar="WHEN", help="Ended since then.")] = None
    ended_until: Annotated[str | None, typer.Option("--ended-until", metavar="WHEN", help="Ended before then.")] = None
    end_incomplete: Annotated[
        bool, typer.Option("--end-incomplete", help="Ended without their last tick; see ocean retry-end.")
    ] = False


ANY_RUN = Selection()


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """How a verb is applied to the runs that a `Selection` selects."""

    everything: Annotated[bool, typer.Option("--everything", help="Every run, instead of filters.")] = False
    yes: Yes = False
    rate: Annotated[int | None, typer.Option("--rate", min=1, metavar="N", help="At most N runs a second.")] = None
    most: Annotated[int | None, typer.Option("--most", min=1, metavar="N", help="Stop after N runs.")] = None
    actor: Actor = None
    request_key: RequestKey = None


BULK_DEFAULTS = BulkOptions()


def expand_options(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace each dataclass parameter of a command by its fields, except those in `without`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
        for parameter in inspect.signature(command).parameters.values():
            if not (isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)):
                parameters.append(parameter)
                continue
            group = [field for field in fields(parameter.annotation) if field.name not in without]
            groups[parameter.name] = (parameter.annotation, [field.name for field in group])
            parameters += [
                inspect.Parameter(field.name, parameter.kind, default=field.default, annotation=field.type)
                for field in group
            ]

        @wraps(command)
        def call(**values: Any) -> None:
            for name, (make, names) in groups.items():
                values[name] = make(**{each: values.pop(each) for each in names})
            command(**values)

        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return decorate
