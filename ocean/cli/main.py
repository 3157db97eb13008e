"""The commands. Each imports what only it needs when it is called, so that the others do not pay for it."""

from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="ocean",
    help="Durable runs without a worker, a broker or a control plane.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        try:
            version = metadata.version("ocean-runtime")
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        typer.echo(f"ocean {version}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Durable runs without a worker, a broker or a control plane."""


@app.command()
def demo(
    db: Annotated[
        Path | None, typer.Option(help="A new SQLite file to use and keep; without it a temporary one is used.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=50, help="How many runs to start.")] = 6,
) -> None:
    """Kill a process at work and watch another finish its runs, with nothing lost or doubled.

    Needs no network and ends by itself in a few seconds. The exit code is 0 if every check held, 1 if one did not,
    2 if the demo could not start.
    """
    from ocean.cli.demo import run_demo

    raise typer.Exit(run_demo(db, runs))
