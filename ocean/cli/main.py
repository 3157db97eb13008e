"""The list of commands. A command imports what only it needs when it is called, so that the others start faster."""

from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from ocean.cli.command_group import CommandGroup
from ocean.cli.commands import advance, change_runs, create_runs, inspect_runs, keys, maintenance, mcp, schedule, tail
from ocean.cli.options import Clogs, Db, Json

EPILOG = """Exit codes: 0 done; 1 refused, or the run failed, or doctor found a problem; 2 wrong usage, value or
setting; 3 no such run, clog or method; 4 the database is busy, failing, or cannot be opened, or the server does not
respond; 130 Ctrl-C; 141 the output was closed."""

app = typer.Typer(
    name="ocean",
    cls=CommandGroup,
    help="Durable runs without a worker, a broker or a control plane.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
new_app = typer.Typer(help="Write a new package: a clog.", no_args_is_help=True)


def _show_version(is_given: bool) -> None:
    if is_given:
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
def serve(
    host: Annotated[
        str, typer.Option("--host", envvar="OCEAN_HOST", help="Must be loopback while there are no API keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", envvar="PORT", min=0, max=65_535, help="0 picks a free one.")] = 8_080,
    ticker: Annotated[bool, typer.Option("--ticker/--no-ticker", help="Poke when runs are due.")] = True,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="How long one poke of the ticker may take.")
    ] = "1s",
    poke: Annotated[
        str, typer.Option("--poke", metavar="TIME", help="How long to do due work after a response; 0s: never.")
    ] = "500ms",
    log: Annotated[
        str | None, typer.Option("--log", metavar="KIND", help="text, json or off. Default: OCEAN_LOG, text.")
    ] = None,
    mcp: Annotated[bool, typer.Option("--mcp", help="Also serve agents, over MCP at /mcp.")] = False,
    stop_grace: Annotated[
        str,
        typer.Option(
            "--stop-grace", envvar="OCEAN_STOP_GRACE", metavar="TIME", help="How long a stop waits for ticks at work."
        ),
    ] = "8s",
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Serve the HTTP API until SIGTERM or Ctrl-C. Open requests and ticks are finished before it exits."""
    from ocean.cli.commands.serve import serve as serve_app
    from ocean.cli.output import Screen
    from ocean.cli.parsing import duration_ms
    from ocean.cli.runner import run_and_exit
    from ocean.process import run_process

    def act() -> int:
        budget_ms, poke_ms = duration_ms(budget, "--budget") or 0, duration_ms(poke, "--poke") or 0
        grace_ms = duration_ms(stop_grace, "--stop-grace") or 0
        return run_process(
            serve_app(Screen(is_json), db, clogs, host, port, ticker, budget_ms, poke_ms, log, mcp, grace_ms)
        )

    run_and_exit(act, is_json)


app.command()(mcp.mcp)
app.command()(advance.advance)
app.command()(create_runs.create)
app.command()(change_runs.signal)
app.command()(create_runs.call)
app.command()(inspect_runs.ps)
app.command()(inspect_runs.show)
app.command()(inspect_runs.explain)
app.command()(tail.tail)
app.command()(change_runs.cancel)
app.command()(change_runs.pause)
app.command()(change_runs.resume)
app.command()(change_runs.retry)
app.command()(change_runs.delete)
app.command("delete-session")(maintenance.delete_session)
app.add_typer(maintenance.limit_app, name="limit")
app.add_typer(keys.keys_app, name="keys")
app.add_typer(schedule.schedule_app, name="schedule")
app.command("clogs")(inspect_runs.list_clogs)
app.command()(maintenance.sweep)
app.command()(maintenance.migrate)


@app.command()
def doctor(db: Db = None, clogs: Clogs = None, is_json: Json = False) -> None:
    """Check for what keeps runs from moving, and give advice. Exit 1 if a check fails."""
    import anyio

    from ocean.cli.commands.doctor import examine
    from ocean.cli.output import Screen
    from ocean.cli.runner import run_and_exit

    run_and_exit(lambda: anyio.run(examine, Screen(is_json), db, clogs), is_json)


app.add_typer(new_app, name="new")


@new_app.callback()
def new() -> None:
    """Write a new package."""


@new_app.command("clog")
def new_clog(name: Annotated[str, typer.Argument(metavar="NAME")], is_json: Json = False) -> None:
    """Write a package NAME with a working clog and its test. It is created in the working directory."""
    from ocean.cli.commands.new_clog import write_clog
    from ocean.cli.output import Screen
    from ocean.cli.runner import run_and_exit

    def act() -> None:
        folder, screen = Path.cwd(), Screen(is_json)
        files = [str(path.relative_to(folder)) for path in write_clog(name, folder)]
        if screen.is_json:
            screen.json({"files": files})
            return
        for file in files:
            screen.print(f"wrote {file}")
        screen.print(f"test it:  python -m pytest {name}")
        screen.print(f"run it:   ocean create {name} --input '{{}}' --clogs {name}:{name}")

    run_and_exit(act, is_json)


@app.command()
def bench(
    runs: Annotated[int, typer.Option(min=10, max=100_000, help="How many one-tick runs.")] = 1_000,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Measure how fast Ocean is on your database.

    Takes a few seconds. It creates runs in a session of its own and removes that session at the end. Other runs are
    not touched, but they share the machine. The events of its runs stay in the log until they are swept.
    """
    from ocean.cli.commands.bench import bench as measure
    from ocean.cli.output import Screen
    from ocean.cli.runner import run_and_exit, settings_of
    from ocean.process import run_process

    run_and_exit(lambda: run_process(measure(Screen(is_json), settings_of(db, clogs).db, runs)), is_json)


@app.command()
def demo(
    db: Annotated[
        Path | None, typer.Option(help="A new SQLite file, which is kept. Default: a temporary file.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=50, help="How many runs to start.")] = 6,
    is_json: Json = False,
) -> None:
    """Kill a worker process and let another finish its runs.

    At the end the event log is checked: nothing is lost, nothing is done twice. Needs no network and takes a few
    seconds. The exit code is 0 if every check passed, 1 if one failed, 2 if the demo could not start.
    """
    from ocean.cli.demo.demo import run_demo

    raise typer.Exit(run_demo(db, runs, is_json))
