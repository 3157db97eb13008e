"""What the log says about ticks: a sentence that a program without logging set up can show, at the right level."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ocean import Clog, Done, Failed, Flow, NotRead, Outcome, Refuse, Retry, RetryPolicy, Tick
from ocean.testing import world
from tests import failing
from tests.failing import NAME, charge, line_of
from tests.flows.kit import flow_clog
from tests.lifecycle.acting import Script, stage, start, start_idle

pytestmark = pytest.mark.anyio

PLACE = f"at {NAME}:{line_of('charge')} in charge"
ERROR = f"ValueError: no such card 4711, {PLACE}"


async def broken(tick: Tick) -> Outcome:
    charge()


def said(caplog: pytest.LogCaptureFixture, least: int = logging.WARNING) -> list[tuple[str, str]]:
    records = [each for each in caplog.records if each.name == "ocean.tick" and each.levelno >= least]
    return [(each.levelname, each.getMessage()) for each in records]


async def test_a_failed_attempt_is_a_warning_and_a_failed_run_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async with stage(Script(broken, clog_id="order")) as w:
        await start(w, clog_id="order", run_id="o-1", retry=RetryPolicy(max_attempts=2, delays_ms=(1_500,)))
        await w.drain()
        w.clock.advance(1_500)
        await w.drain()
    text = "order tick 1 of run o-1 failed (attempt {} of 2): " + ERROR
    assert said(caplog) == [
        ("WARNING", text.format(1) + "; next attempt in 1.5 s"),
        ("ERROR", text.format(2) + "; the run has failed"),
    ]
    first, second = (each.__dict__["ocean_fields"] for each in caplog.records if each.levelno >= logging.WARNING)
    assert (first["run_id"], first["tick"], first["attempt"], first["outcome"]) == ("o-1", 1, 1, "retry")
    assert first["place"] == PLACE.removeprefix("at ")
    assert second["attempt"] == 2


async def test_attempts_that_a_handler_gives_up_itself_are_logged_the_same_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    busy = Retry({"code": "busy", "message": "come back"}, after_ms=5)
    async with stage(Script(busy, Failed("sold out"))) as w:
        await start(w, run_id="r", retry=RetryPolicy(max_attempts=None))
        await w.drain()
        w.clock.advance(5)
        await w.drain()
    assert said(caplog) == [
        ("WARNING", "c tick 1 of run r failed (attempt 1): busy: come back; next attempt in 5 ms"),
        ("ERROR", "c tick 1 of run r failed (attempt 2): sold out; the run has failed"),
    ]


async def test_a_run_with_a_last_tick_is_said_to_be_ending_before_it_has_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stage(Script(broken, ends=(Done(),))) as w:
        await start(w, run_id="r", retry=RetryPolicy(max_attempts=1))
        await w.drain()
    assert said(caplog)[0] == ("WARNING", f"c tick 1 of run r failed (attempt 1 of 1): {ERROR}; the run is ending")


async def test_an_ordinary_tick_is_a_sentence_at_the_level_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ocean.tick")
    async with stage(Script(Done(1))) as w:
        await start(w, run_id="r")
        await w.drain()
    assert said(caplog, logging.INFO) == [("INFO", "c tick 1 of run r ended in 0 ms: done")]


async def test_secrets_and_line_breaks_are_kept_out_of_the_sentence(caplog: pytest.LogCaptureFixture) -> None:
    async def leaky(tick: Tick) -> Outcome:
        if tick.call_number == 1:
            failing.leak()
        failing.loud("one\ntwo\r\n\x1b[2Jthree " + "x" * 1_000_000)
        return Done()

    async with stage(Script(leaky)) as w:
        await start(w, run_id="a\nb", retry=RetryPolicy(max_attempts=2, delays_ms=(0,)))
        await w.drain()
    first, second = [text for _, text in said(caplog)]
    assert "password=[redacted]" in first
    assert "hunter22" not in first
    for text in (first, second):
        assert text.isprintable()
        assert text.startswith("c tick 1 of run a b failed")
        assert len(text) < 1_000


async def test_a_failed_step_of_a_flow_is_a_warning_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def order(flow: Flow, input: Any) -> None:
        await flow.step("card", lambda key: charge(), retry=RetryPolicy(max_attempts=2, delays_ms=(10,)))

    async with world([flow_clog(order, "order")]) as w:
        await start(w, clog_id="order", run_id="o-1")
        await w.wait(10)
    text = "order step 'card' of run o-1 failed in tick {} (attempt {} of 2): " + ERROR
    assert said(caplog)[:2] == [
        ("WARNING", text.format(1, 1) + "; next attempt in 10 ms"),
        ("WARNING", text.format(2, 2) + "; no attempt is left"),
    ]
    level, last = said(caplog)[-1]
    assert level == "ERROR"
    assert last.endswith(f"step 'card' failed 2 times: ValueError: no such card 4711, {PLACE}; the run has failed")


async def test_a_method_that_raises_is_logged_with_its_place_and_a_refusal_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clog = Clog("till")

    @clog.method
    async def pay(tick: Tick, payload: Any) -> None:
        charge()

    @clog.method
    async def misuse(tick: Tick, payload: Any) -> None:
        await tick.write(session=1)

    @clog.method
    async def refuse(tick: Tick, payload: Any) -> None:
        raise Refuse("closed")

    async with stage(clog, Script()) as w:
        run_id = await start_idle(w)
        with pytest.raises(ValueError, match="no such card"):
            await w.ocean.call_clog(clog_id="till", session_id="s", method="pay")
        with pytest.raises(NotRead):
            await w.ocean.call_clog(clog_id="till", session_id="s", method="misuse")
        with pytest.raises(Exception, match="closed"):
            await w.ocean.call_clog(clog_id="till", session_id="s", method="refuse")
        assert run_id
    (_, first), (_, second) = said(caplog)
    assert first == f"till.pay failed: {ERROR}"
    assert second.startswith("till.misuse failed: NotRead: ")
    assert second.endswith(" in misuse")


PROGRAM = """
import anyio
from ocean import Clog, Done, Ocean, RetryPolicy, RunFailed

order = Clog("order")


def charge(card):
    raise ValueError("no such card")


@order.on_advance
async def advance(tick):
    charge(tick.input)
    return Done()


async def main():
    async with Ocean.open("sqlite:///shop.db", clogs=[order]) as ocean:
        retry = RetryPolicy(max_attempts=2, delays_ms=(1,))
        await ocean.create_run(session_id="s", clog_id="order", run_id="o-1", input=1, retry=retry)
        try:
            await ocean.result("o-1")
        except RunFailed as failed:
            print("".join(failed.__notes__))


anyio.run(main)
"""


def test_a_program_without_logging_set_up_shows_a_line_for_each_failure(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM, encoding="utf-8")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "shop.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    line = "order tick 1 of run o-1 failed (attempt {} of 2): ValueError: no such card, at shop.py:9 in charge; {}"
    assert done.stderr.splitlines() == [
        line.format(1, "next attempt in 1 ms"),
        line.format(2, "the run has failed"),
    ]
    assert done.stdout.startswith("raised at shop.py:9 in charge:\nTraceback (most recent call last):\n")
    assert '  File "shop.py", line 14, in advance\n    charge(tick.input)\n' in done.stdout
    assert str(tmp_path) not in done.stdout
