"""Every command has help that names its options, and help is fast."""

import subprocess
import sys

import pytest
from typer.main import get_command

from ocean.cli.main import EPILOG, app
from tests.cli.kit import ROOT, Shell

OTHERS = {
    "delete-session",
    "doctor",
    "mcp",
    "retry-end",
    "demo",
    "bench",
    "new clog",
    "limit set",
    "limit get",
    "limit list",
    "keys create",
    "keys list",
    "keys revoke",
    *(f"schedule {verb}" for verb in ["add", "list", "show", "next", "trigger", "pause", "resume", "remove"]),
}
WITHOUT_DATABASE = {"demo", "new clog"}


def commands() -> dict[str, list[str]]:
    """Every command with its long options."""
    found: dict[str, list[str]] = {}

    def walk(command: object, name: str) -> None:
        for child_name, child in getattr(command, "commands", {}).items():
            walk(child, f"{name} {child_name}".strip())
        if not hasattr(command, "commands"):
            params = getattr(command, "params", [])
            found[name] = [opt for param in params for opt in param.opts if opt.startswith("--")]

    walk(get_command(app), "")
    return found


COMMANDS = commands()


def test_all_commands_of_the_design_exist() -> None:
    names = "serve advance create signal call show ps tail explain cancel pause resume retry delete sweep migrate clogs"
    assert set(names.split()) | OTHERS == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_names_its_options(ocean: Shell, name: str) -> None:
    result = ocean(*name.split(), "--help", COLUMNS="200")
    assert result.code == 0
    assert [option for option in COMMANDS[name] if option not in result.out] == []
    assert "Usage: " in result.out
    assert "--json" in COMMANDS[name]
    if name not in WITHOUT_DATABASE:
        assert {"--db", "--clogs"} <= set(COMMANDS[name])


@pytest.mark.parametrize("group", [[], ["keys"], ["limit"], ["new"], ["schedule"]])
def test_the_list_of_commands_describes_each_in_one_line(ocean: Shell, group: list[str]) -> None:
    result = ocean(*group, "--help", COLUMNS="80")
    assert "Commands:" in result.out
    assert [line for line in result.out.splitlines() if line.endswith("...") and "Usage" not in line] == []


def test_the_exit_codes_are_in_the_help_and_in_the_document(ocean: Shell) -> None:
    result = " ".join(ocean("--help").out.split())
    assert " ".join(EPILOG.split()) in result
    document = (ROOT / "docs" / "cli.md").read_text()
    for code in ("0", "1", "2", "3", "4", "130", "141"):
        assert f"| {code} |" in document


def test_the_document_names_every_command_and_option() -> None:
    document = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"`ocean {name}" not in document] == []
    options = {option for options in COMMANDS.values() for option in options}
    assert sorted(option for option in options if option not in document) == []


def test_help_imports_neither_the_kernel_nor_a_server_nor_tables() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from ocean.cli.main import app;"
        "assert CliRunner().invoke(app, ['advance', '--help']).exit_code == 0;"
        "print({'uvicorn', 'starlette', 'rich', 'anyio', 'ocean.http', 'ocean.kernel', 'ocean.cli.output'}"
        " & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("set()\n", "")
