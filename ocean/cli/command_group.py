"""The top-level command group: it reports wrong usage as JSON with `--json`, and finds the commands of clogs."""

import json
import sys
from typing import Any

import typer
from typer.core import TyperGroup

CLOG_OPTIONS = ("--help", "--json", "--db", "--clogs")
"""Options that may follow a clog's id when no command is named."""


class CommandGroup(TyperGroup):
    """Ocean's commands, and after them the commands of clogs: `ocean CLOG_ID NAME`."""

    def main(self, *given: Any, **named: Any) -> Any:
        """Run the command. With `--json`, wrong usage is printed as an error envelope instead of Typer's text."""
        words = named.get("args", given[0] if given else None)
        words = sys.argv[1:] if words is None else words
        if "--json" not in words:
            return super().main(*given, **named)
        try:
            code = super().main(*given, **{**named, "standalone_mode": False})
        except Exception as error:
            # Typer vendors click, so its error classes cannot be imported: they are recognised by this method.
            message = getattr(error, "format_message", None)
            if message is None:
                raise
            typer.echo(json.dumps({"error": _wrong_usage(message())}), err=True)
            code = getattr(error, "exit_code", 2)
        sys.exit(code or 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return Ocean's command of that name, or else the command of the clog with that id (`ocean ops doctor`)."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as unknown:
            if args[1:] and args[1].startswith("-") and args[1] not in CLOG_OPTIONS:
                raise
            from ocean.cli.commands.clog_commands import command_of

            return args[0], command_of(args[0], unknown), args[1:]


def _wrong_usage(message: str) -> dict[str, Any]:
    return {
        "code": "wrong_usage",
        "message": message,
        "httpStatus": 400,
        "retryable": False,
        "requestId": None,
        "details": {},
    }
