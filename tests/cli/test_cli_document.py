"""The session in docs/cli.md is executed and must print what the document shows."""

import re
import shlex

from tests.cli.kit import ROOT, Shell

SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z"), "<moment>"),
    (re.compile(r"\b\d+(ms|s|m|h|d)\b +(?=-|in |now)"), "<span> "),
    (re.compile(r"oldest for \d+(ms|s)"), "oldest for <span>"),
    (re.compile(r" {2,}"), "  "),
)


def without_times(text: str) -> str:
    for pattern, name in TIMES:
        text = pattern.sub(name, text)
    return text


def test_the_session_prints_what_the_document_shows(ocean: Shell) -> None:
    (session,) = SESSION.findall((ROOT / "docs" / "cli.md").read_text())
    typed, last_code, environ = "", 0, {}
    for line in session.splitlines():
        if not line.startswith("$ "):
            continue
        typed += f"{line}\n"
        words = shlex.split(line[2:])
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            environ[name] = value
        elif words[0] == "echo":
            typed += f"{last_code}\n"
        else:
            answer = ocean(*words[1:], **environ)
            last_code = answer.code
            typed += answer.out + answer.err
    assert without_times(typed).splitlines() == without_times(session).splitlines()
