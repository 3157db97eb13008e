"""Wrong usage, told as other refusals are where JSON was asked for."""

import json
import sys
from typing import Any

import typer
from typer.core import TyperGroup

OF_ANY_CLOG = ("--help", "--json", "--db", "--clogs")
"""What may follow a clog's name where a command's is missing."""


class Commands(TyperGroup):
    """Typer writes a page about wrong usage. Whoever says --json reads envelopes, so it gets one."""

    def main(self, *given: Any, **named: Any) -> Any:
        words = named.get("args", given[0] if given else None)
        words = sys.argv[1:] if words is None else words
        if "--json" not in words:
            return super().main(*given, **named)
        try:
            code = super().main(*given, **{**named, "standalone_mode": False})
        except Exception as error:
            # Typer brings its own copy of the library whose errors these are: they are known by what they can say.
            message = getattr(error, "format_message", None)
            if message is None:
                raise
            typer.echo(json.dumps({"error": _refusal(message())}), err=True)
            code = getattr(error, "exit_code", 2)
        sys.exit(code or 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is no command of Ocean's may be one of a clog's: `ocean ops doctor`. The first word is the clog's id."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as unknown:
            if args[1:] and args[1].startswith("-") and args[1] not in OF_ANY_CLOG:
                raise
            from ocean.cli.commands.clog_commands import command_of

            return args[0], command_of(args[0], unknown), args[1:]


def _refusal(message: str) -> dict[str, Any]:
    return {
        "code": "wrong_usage",
        "message": message,
        "httpStatus": 400,
        "retryable": False,
        "requestId": None,
        "details": {},
    }
