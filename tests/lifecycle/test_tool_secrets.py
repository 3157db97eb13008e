"""A credential's value is visible to the tool only: every table, the file's bytes and the log are searched for it."""

import io
import logging
from collections.abc import Iterator
from contextvars import Context, copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ocean import (
    Clog,
    ClogError,
    CredentialRef,
    Done,
    Failed,
    InvalidValue,
    Ocean,
    Outcome,
    RetryPolicy,
    Tick,
    ToolBox,
    ToolFailed,
)
from ocean.logs import LogKind, log_to
from ocean.testing import world
from tests.lifecycle.acting import Script, dump, log, look, start

pytestmark = pytest.mark.anyio

SECRET = "correct-horse-battery-4711"
ENCODED = ("Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LTQ3MTE", SECRET.encode().hex())
kept: list[tuple[CredentialRef, Context]] = []


def service() -> ToolBox:
    """Tools that leak the value in every possible way."""
    box = ToolBox("leaky")
    author_log = logging.getLogger("ocean.author")

    @box.tool
    async def echo(key: CredentialRef) -> Any:
        """Return the value."""
        value = key.reveal()
        author_log.warning("using %s", value)
        kept.append((key, copy_context()))
        return {"plain": value, f"name {value}": [ENCODED[0], value.encode().hex(), {"deep": value * 2}]}

    @box.tool
    def crash(key: CredentialRef) -> None:
        """Raise the value, in a thread."""
        value = key.reveal()
        author_log.error("about to fail with %s", value)
        try:
            raise ValueError(f"inner {value}")
        except ValueError as error:
            raise ConnectionError(f"cannot log in with {value!r}") from error

    @box.tool
    async def refuse(key: CredentialRef) -> None:
        """Raise the value in the tool's own error."""
        value = key.reveal()
        raise ToolFailed(f"no {value}", code="bad_key", details={"tried": [value], "count": {value: 1}})

    @box.tool
    async def odd(key: CredentialRef) -> Any:
        """Return an object that is not JSON, with the value as its key."""
        return {key.reveal(): {1}}

    return box


NAMES = ["leaky.echo", "leaky.crash", "leaky.refuse", "leaky.odd"]


async def leak_everywhere(tick: Tick) -> Outcome:
    """Write what the tools return or raise to rows, events, attributes, steps, other runs and the error."""
    results = [await tick.tools.attempt(name, {"key": "service"}) for name in NAMES]
    leaked = [[result.output, result.error.as_json() if result.error else None] for result in results]
    await tick.read(run=True, session=True, global_=True)
    await tick.write(run=leaked, session=leaked, global_=leaked)
    await tick.emit("told", leaked)
    await tick.stream("streamed", leaked)
    await tick.step("kept", lambda key: leaked)
    try:
        await tick.tools.invoke("leaky.crash", {"key": "service"}, step="again")
    except ToolFailed as error:
        logging.getLogger("ocean.handler").exception("failed: %s", error)
        return Failed(error)
    return Done()


async def raise_it(tick: Tick) -> Outcome:
    await tick.tools.invoke("leaky.crash", {"key": "service"})
    return Done()


@pytest.fixture(params=["text", "json"])
def logged(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    kind: LogKind = request.param
    stop = log_to(stream, kind)
    yield stream
    stop()


def secrets_in(text: str) -> list[str]:
    return [each for each in (SECRET, *ENCODED) if each in text]


async def test_no_table_and_no_line_of_the_log_has_the_value(logged: io.StringIO) -> None:
    clog = Script(leak_everywhere, raise_it, toolbox=service())
    async with world([clog], credentials={"service": SECRET}) as w:
        first = await start(w, {})
        second = await start(w, {}, retry=RetryPolicy(max_attempts=2))
        await w.wait(60_000)
        events = await log(w, first, "tool.called")
        assert [event.payload["outcome"] for event in events] == ["ok", "failed", "failed", "failed", "failed"]
        assert [event.payload["input"] for event in events] == [{"key": "service"}] * 5
        assert [event.payload["credentials"] for event in events] == [["service"]] * 5
        error = (await look(w, second)).error
        assert error is not None
        assert error["message"] == "ToolFailed: ConnectionError: cannot log in with '[credential service]'"
        assert secrets_in(str(await dump(w))) == []
    assert "using [credential service]" in logged.getvalue()
    assert secrets_in(logged.getvalue()) == []


async def test_no_byte_of_the_sqlite_file_has_the_value(
    logged: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open the database as users do: from the environment, on a file with a write-ahead log."""
    monkeypatch.setenv("OCEAN_CREDENTIAL_SERVICE", SECRET)
    clog = Script(leak_everywhere, raise_it, toolbox=service())
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    async with Ocean.open(url, clogs=[clog]) as ocean:
        for session in ("a", "b"):
            policy = RetryPolicy(max_attempts=1)
            await ocean.create_run(session_id=session, clog_id="c", input={}, retry=policy)
            await ocean.advance()
        assert len(await ocean.read_events(types=["tool.called"])) == 6
        assert files_with_secrets(tmp_path) == []
    assert files_with_secrets(tmp_path) == []
    assert secrets_in(logged.getvalue()) == []


def files_with_secrets(folder: Path) -> list[str]:
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert b"tool.called" in b"".join(contents.values())
    return [name for name, content in contents.items() for each in (SECRET, *ENCODED) if each.encode() in content]


async def outcome_of(input: Any, *, box: ToolBox | None = None, **options: Any) -> Any:
    """Return the result of an attempt."""
    results: list[Any] = []

    async def advance(tick: Tick) -> Outcome:
        results.append(await tick.tools.attempt("leaky.echo", input))
        return Done()

    async with world([Script(advance, toolbox=box or service())], **options) as w:
        await start(w, {})
        await w.drain()
        assert secrets_in(str(await dump(w))) == []
    return results[0]


def raising(name: str) -> str:
    raise OSError(f"the vault is closed, {SECRET}")


async def resolve_later(name: str) -> str | None:
    return SECRET if name == "service" else None


async def test_credentials_may_be_a_function() -> None:
    for resolver in (resolve_later, lambda name: SECRET):
        result = await outcome_of({"key": "service"}, credentials=resolver)
        assert result.output["plain"] == "[credential service]"


MISSING: dict[str, tuple[Any, str]] = {
    "none given": (None, "credential 'service' is not known here: set OCEAN_CREDENTIAL_SERVICE, or give Ocean.open"),
    "another": ({"mail": SECRET}, "credential 'service' is not known here"),
    "empty": ({"service": ""}, "must be a text of at least 4 characters"),
    "too short": ({"service": "abc"}, "must be a text of at least 4 characters"),
    "no text": ({"service": 12345}, "must be a text of at least 4 characters"),
    "a vault that raises": (raising, "credential 'service' could not be looked up (OSError)"),
}


@pytest.mark.parametrize(("credentials", "message"), MISSING.values(), ids=MISSING)
async def test_the_error_for_a_missing_credential_names_it(credentials: Any, message: str) -> None:
    result = await outcome_of({"key": "service"}, credentials=credentials)
    assert result.error.code == "credential_missing"
    assert message in result.error.message


async def test_a_value_given_instead_of_a_name_is_refused_and_not_repeated() -> None:
    for value in ("sk-abcdefghijklmnopqrstuvwxyz", f"{SECRET} "):
        result = await outcome_of({"key": value}, credentials={"service": SECRET})
        assert result.error.code == "invalid_value"
        assert "abcdefghijkl" not in result.error.message


async def test_a_tool_is_called_only_with_the_credentials_it_names() -> None:
    box = ToolBox("leaky")

    @box.tool(credentials=["service"])
    async def echo(key: CredentialRef) -> str:
        """Return the value."""
        return key.reveal()

    given = {"service": SECRET, "bank": "another-secret-4712"}
    assert (await outcome_of({"key": "service"}, box=box, credentials=given)).is_ok
    result = await outcome_of({"key": "bank"}, box=box, credentials=given)
    assert result.error.message == "leaky.echo: credentials must be among ['service']"


async def test_a_reference_reveals_nothing_outside_its_call() -> None:
    await outcome_of({"key": "service"}, credentials={"service": SECRET})
    key, context_of_the_call = kept[-1]
    for reveal in (key.reveal, partial(context_of_the_call.run, key.reveal)):
        with pytest.raises(ClogError, match="only inside a tool that is called with it"):
            reveal()
    assert repr(key) == "CredentialRef('service')"


async def test_references_are_found_in_models_lists_and_defaults_and_others_are_not_revealed() -> None:
    box = ToolBox("leaky")

    @box.tool
    async def echo(keys: dict[str, list[CredentialRef]], own: CredentialRef = CredentialRef("own")) -> Any:  # noqa: B008
        """Return the lengths of values, and one that was not passed."""
        lengths = [len(key.reveal()) for group in keys.values() for key in group] + [len(own.reveal())]
        try:
            CredentialRef("bank").reveal()
        except ClogError:
            return lengths
        return "revealed"

    given = {"service": SECRET, "own": "own-secret", "bank": "another-secret"}
    result = await outcome_of({"keys": {"a": ["service"], "b": []}}, box=box, credentials=given)
    assert result.output == [len(SECRET), len("own-secret")]


async def test_wrong_credentials_are_refused_when_opening() -> None:
    with pytest.raises(InvalidValue, match="credentials must be a mapping or a function of a name, got 7"):
        async with world([Clog("c")], credentials=7):  # type: ignore[arg-type]
            pass
