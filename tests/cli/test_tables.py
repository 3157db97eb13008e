"""Tables in a narrow terminal. The time is fixed."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from ocean import AdvanceResult, ClogRecord, Event, Explanation, Hold, RunInfo, RunStatus, TickResult
from ocean.cli.output import printable
from ocean.cli.tables import (
    advance_lines,
    clogs_table,
    due,
    event_line,
    holds_lines,
    moment,
    run_table,
    runs_table,
    span,
    value,
)

NOW = 1_700_000_000_000
RUN = RunInfo(
    run_id="018bcfe5-6800-7000-8000-000000000001",
    session_id="s",
    clog_id="counter",
    status=RunStatus.WAITING,
    attempt=1,
    max_attempts=3,
    priority=5,
    tick=12,
    pending_count=2,
    paused=False,
    ending=None,
    wake_at=NOW + 90_000,
    due_at=NOW + 90_000,
    deadline_at=None,
    locked_by=None,
    lock_expires_at=None,
    output=None,
    error=None,
    attributes={"size": 3},
    parent_run_id=None,
    correlation_id="c",
    dedupe_key=None,
    created_at=NOW - 7_200_000,
    updated_at=NOW,
    ended_at=None,
)


def drawn(*things: object, width: int = 60) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(*things, sep="\n")
    assert isinstance(console.file, StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def test_a_narrow_table_folds_ids_and_keeps_the_rest_whole() -> None:
    failed = replace(RUN, run_id="short", status=RunStatus.FAILED, due_at=None, paused=True, created_at=NOW - 5)
    assert drawn(runs_table([RUN, failed], NOW), width=60) == (
        "RUN      CLOG     SESSION  STATUS           TICK  AGE  DUE\n"
        "018bcfe  counter  s        waiting          12    2h   in 1m\n"
        "5-6800-\n"
        "7000-80\n"
        "00-0000\n"
        "0000000\n"
        "1\n"
        "short    counter  s        failed (paused)  12    5ms  -\n"
    )


def test_a_wide_table_has_one_line_per_run() -> None:
    assert drawn(runs_table([RUN], NOW), width=100) == (
        "RUN                                   CLOG     SESSION  STATUS   TICK  AGE  DUE\n"
        "018bcfe5-6800-7000-8000-000000000001  counter  s        waiting  12    2h   in 1m\n"
    )


def test_a_run_is_shown_without_empty_fields() -> None:
    assert drawn(run_table(RUN, NOW)) == (
        "run         018bcfe5-6800-7000-8000-000000000001\n"
        "clog        counter\n"
        "session     s\n"
        "status      waiting\n"
        "tick        12\n"
        "attempt     1 of 3\n"
        "priority    5\n"
        "inbox       2 not delivered\n"
        "created     2023-11-14 20:13:20.000Z\n"
        "due         in 1m\n"
        'attributes  {"size": 3}\n'
    )


def test_clogs_and_holds_and_pokes_are_lines() -> None:
    clogs = [ClogRecord("a", "1", False), ClogRecord("b", "2", False, paused=True, external=True)]
    assert drawn(clogs_table(clogs, {"a"})) == (
        "CLOG  VERSION  LOADED  KIND      STATE\n"
        "a     1        yes     calls     runs\n"
        "b     2        no      external  paused\n"
    )
    held = Explanation("r", RunStatus.WAITING, None, (Hold("waiting", "it sleeps", NOW + 5_000),))
    assert drawn(*holds_lines(held, NOW)) == "waiting: it sleeps (in 5s)\n"
    poked = AdvanceResult((TickResult("r", 1, "ok", RunStatus.IDLE),), 2, NOW, 61_000, 3)
    assert drawn(*advance_lines(poked, NOW), width=80) == (
        "1 tick: 1 ok\n2 due now, the oldest for 1m\n3 due, but their clogs are not loaded here; see ocean doctor\n"
    )


def test_an_event_is_one_line() -> None:
    event = Event(seq=7, ts=NOW, type="sold", payload={"what": "tea"}, run_id="r", run_seq=2, tick=3)
    assert event_line(event, with_run=True).plain == (
        '     7  2023-11-14 22:13:20.000Z  r  tick 3  sold  {"what": "tea"}'
    )
    assert event_line(replace(event, payload={}), with_run=False).plain.endswith("tick 3  sold")


@pytest.mark.parametrize(
    ("ms", "text"), [(-5, "0s"), (0, "0s"), (999, "999ms"), (59_999, "59s"), (60_000, "1m"), (200_000_000, "2d")]
)
def test_a_span_is_one_unit(ms: int, text: str) -> None:
    assert span(ms) == text


def test_times_and_values_are_short() -> None:
    assert (due(None, NOW), due(NOW, NOW), moment(None)) == ("-", "now", "-")
    assert len(value("x" * 1_000)) < 300
    assert moment(253_402_300_799_999) == "9999-12-31 23:59:59.999Z"
    assert moment(2**53) == "9007199254740992 ms after 1970"
    assert printable("a\x1b[2Jb\ud800") == "a\\x1b[2Jb\\ud800"
