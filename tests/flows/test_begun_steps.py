"""An effect that may have happened is undone: a step with an undo is stored as begun before its effect."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from ocean import UNKNOWN, Abort, Flow, RetryPolicy, RunStatus, StepFailed, Unknown
from ocean.flows.journal import explain_wait
from ocean.kernel.store import Store
from ocean.testing import World
from tests.flows.kit import Effects, Function, events_of, flow_clog, journal, look, stage, start
from tests.flows.test_undo import undo_run
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


TICK_MS = 20_000


class Bank:
    """Charges and refunds by key. `hangs` are the steps whose effect has happened and which do not return."""

    def __init__(self, *hangs: str, is_broken: bool = False) -> None:
        self.effects: list[tuple[str, Any]] = []
        self.keys: dict[str, str] = {}
        self.hangs = set(hangs)
        self.is_broken = is_broken
        self.reached, self.is_left = anyio.Event(), anyio.Event()

    async def charge(self, key: str, what: str) -> str:
        self.effects.append(("charge", what))
        self.keys[what] = key
        if what in self.hangs:
            self.hangs.discard(what)
            self.reached.set()
            await anyio.sleep_forever()
        if self.is_broken:
            raise Abort("declined", code="declined")
        return f"receipt of {what}"

    async def refund(self, key: str, result: str | Unknown) -> None:
        self.effects.append(("refund", result))
        self.keys[f"refund {result}"] = key

    @property
    def refunds(self) -> list[Any]:
        return [what for kind, what in self.effects if kind == "refund"]


@asynccontextmanager
async def at_work(bank: Bank, function: Function, **options: Any) -> AsyncIterator[tuple[World, str]]:
    """A run whose step is at work, and hangs until its tick's time is over."""
    async with stage(flow_clog(function, tick_ms=TICK_MS)) as w, anyio.create_task_group() as tasks:

        async def work() -> None:
            await w.drain()
            bank.is_left.set()

        run_id = await start(w, **options)
        tasks.start_soon(work)
        with anyio.fail_after(20):
            await bank.reached.wait()
        yield w, run_id
        tasks.cancel_scope.cancel()


async def time_is_over(w: World, bank: Bank) -> None:
    """Let the call at work run into its time limit, which is a failed attempt."""
    w.clock.advance(TICK_MS)
    with anyio.fail_after(20):
        await bank.is_left.wait()


def order(bank: Bank, *steps: str, then: Callable[[Flow], Awaitable[Any]] | None = None) -> Function:
    async def function(flow: Flow, input: Any) -> Any:
        for what in steps:
            await flow.step(what, bank.charge, what, undo=bank.refund)
        return await then(flow) if then is not None else "paid"

    return function


@pytest.mark.parametrize("steps", [("one",), ("one", "two")])
async def test_a_step_at_work_when_its_run_is_cancelled_is_undone_with_its_own_key(steps: tuple[str, ...]) -> None:
    bank = Bank(steps[-1])
    async with at_work(bank, order(bank, *steps)) as (w, run_id):
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert bank.refunds == [UNKNOWN, *(f"receipt of {what}" for what in reversed(steps[:-1]))]
        assert bank.keys["refund UNKNOWN"] == bank.keys[steps[-1]]
        info = await look(w, await undo_run(w, run_id))
        assert info.output == {"undone": list(reversed(steps))}
        assert ((await look(w, run_id)).error or {})["code"] == "cancelled"


@pytest.mark.parametrize("where", ["begun", "acted", "stored"])
async def test_a_run_cancelled_after_its_call_died_is_undone_with_what_is_known(where: str) -> None:
    """The call dies between begin and effect, between effect and result, or after the result was stored."""
    bank = Bank("two" if where == "acted" else "three")

    async def two(key: str) -> str:
        if where == "begun":
            bank.reached.set()
            await anyio.sleep_forever()
        return await bank.charge(key, "two")

    async def function(flow: Flow, input: Any) -> Any:
        await flow.step("one", bank.charge, "one", undo=bank.refund)
        await flow.step("two", two, undo=bank.refund)
        await flow.step("three", bank.charge, "three")

    async with at_work(bank, function) as (w, run_id):
        await time_is_over(w, bank)
        assert (await look(w, run_id)).status is RunStatus.PENDING
        await w.ocean.cancel_run(run_id)
        await w.drain()
        second = "receipt of two" if where == "stored" else UNKNOWN
        assert bank.refunds == [second, "receipt of one"]
        assert ((await look(w, await undo_run(w, run_id))).output) == {"undone": ["two", "one"]}


async def test_a_step_at_work_at_the_deadline_is_undone() -> None:
    bank = Bank("one")
    async with stage(order(bank, "one")) as w, anyio.create_task_group() as tasks:
        run_id = await start(w, deadline_at=w.clock.now() + 5_000)
        tasks.start_soon(w.drain)
        with anyio.fail_after(20):
            await bank.reached.wait()
        w.clock.advance(5_000)
        await w.drain()
        assert ((await look(w, run_id)).error or {})["code"] == "deadline_exceeded"
        await until(lambda: bool(bank.refunds))
        assert bank.refunds == [UNKNOWN]
        tasks.cancel_scope.cancel()


async def test_a_step_at_work_when_its_parent_ends_is_undone() -> None:
    bank = Bank("one")

    async def parent(flow: Flow, input: Any) -> Any:
        await flow.start("f")
        await flow.wait_for_signal("end")

    async with stage(order(bank, "one"), flow_clog(parent, "parent")) as w, anyio.create_task_group() as tasks:
        run_id = await start(w, clog_id="parent")
        tasks.start_soon(w.drain)
        with anyio.fail_after(20):
            await bank.reached.wait()
        await w.ocean.signal(run_id, {"type": "end"})
        await w.drain()
        assert bank.refunds == [UNKNOWN]
        tasks.cancel_scope.cancel()


async def test_a_step_that_never_returns_in_any_attempt_is_undone_once() -> None:
    bank = Bank("one")

    async def function(flow: Flow, input: Any) -> Any:
        with anyio.CancelScope() as scope:

            async def charge(key: str) -> str:
                bank.effects.append(("charge", "one"))
                scope.cancel()
                await anyio.sleep_forever()
                return "never"

            await flow.step("one", charge, undo=bank.refund)
        raise RuntimeError("a bug")

    async with stage(function) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=2))
        await w.wait(60_000)
        assert (await look(w, run_id)).status is RunStatus.FAILED
        assert bank.effects == [("charge", "one"), ("charge", "one"), ("refund", UNKNOWN)]


async def test_a_step_that_aborts_after_it_was_begun_is_undone_and_one_never_begun_is_not() -> None:
    bank = Bank(is_broken=True)
    async with stage(order(bank, "one", "two")) as w:
        run_id = await start(w)
        await w.drain()
        assert ((await look(w, run_id)).error or {})["code"] == "declined"
        assert bank.effects == [("charge", "one"), ("refund", UNKNOWN)]
        assert bank.keys["refund UNKNOWN"] == bank.keys["one"]


async def test_a_step_that_failed_and_was_caught_is_undone_only_if_the_flow_fails() -> None:
    effects, bank = Effects(), Bank()

    async def function(flow: Flow, fails: bool) -> Any:
        try:
            await flow.step("one", effects.failing(9), undo=bank.refund, retry=RetryPolicy(max_attempts=1))
        except StepFailed:
            if fails:
                raise Abort("without it there is no point") from None
        return "without it"

    async with stage(function) as w:
        runs = [await start(w, fails) for fails in (False, True)]
        await w.drain()
        assert [(await look(w, run_id)).status for run_id in runs] == [RunStatus.DONE, RunStatus.FAILED]
        assert bank.refunds == [UNKNOWN]


async def test_a_step_cancelled_between_its_attempts_is_undone() -> None:
    effects, bank = Effects(), Bank()

    async def function(flow: Flow, input: Any) -> Any:
        await flow.step("one", effects.failing(1), undo=bank.refund)

    async with stage(function) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.wait(60_000)
        assert (effects.done, bank.refunds) == ([], [UNKNOWN])


async def test_a_branch_of_a_gather_that_was_begun_is_undone_with_those_that_were_done() -> None:
    bank = Bank("slow")

    async def function(flow: Flow, input: Any) -> Any:
        is_done = anyio.Event()

        async def charge_slowly(key: str) -> str:
            await is_done.wait()
            return await bank.charge(key, "slow")

        async def quick() -> str:
            receipt = await flow.step("quick", bank.charge, "quick", undo=bank.refund)
            is_done.set()
            return receipt

        await flow.gather(flow.step("slow", charge_slowly, undo=bank.refund), quick())

    async with at_work(bank, function) as (w, run_id):
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert bank.refunds == ["receipt of quick", UNKNOWN], "the last one that was done or begun comes first"


async def test_a_step_begun_after_again_is_undone_and_those_before_it_are_not() -> None:
    bank = Bank("2")

    async def function(flow: Flow, n: int) -> Any:
        await flow.step("month", bank.charge, str(n), undo=bank.refund)
        return flow.again(n + 1)

    async with at_work(bank, function, input=0) as (w, run_id):
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert bank.refunds == [UNKNOWN]
        assert bank.keys["refund UNKNOWN"] == bank.keys["2"]


async def test_what_was_begun_in_a_held_flow_is_undone_when_the_code_fits_again() -> None:
    bank = Bank("two")
    async with at_work(bank, order(bank, "one", "two")) as (w, run_id):
        changed = await w.instance([flow_clog(order(bank, "other"))])
        await time_is_over(w, bank)
        w.clock.advance(10_000)
        await w.drain(changed)
        assert [type for type, _ in await events_of(w, run_id, "flow.held")] == ["flow.held"]
        await changed.cancel_run(run_id)
        await w.drain(changed)
        assert bank.refunds == []
        undoing = await undo_run(w, run_id)
        assert "is held" in (await w.ocean.explain(undoing)).holds[0].message
        await w.wait(600_000)
        assert bank.refunds == [UNKNOWN, "receipt of one"]


async def test_undoing_is_held_while_the_code_has_no_undo_for_a_step_that_was_begun() -> None:
    bank = Bank("one")

    async def without(flow: Flow, input: Any) -> Any:
        await flow.step("one", bank.charge, "one")

    async with at_work(bank, order(bank, "one")) as (w, run_id):
        other = await w.instance([flow_clog(without)])
        await w.ocean.cancel_run(run_id)
        await w.drain(other)
        undoing = await undo_run(w, run_id)
        ((_, held),) = await events_of(w, undoing, "flow.held")
        assert (held["details"]["remembered"], held["details"]["asked"]) == ("step 'one'", "no undo")
        await w.wait(600_000)
        assert bank.refunds == [UNKNOWN]


async def test_a_step_begun_that_was_completed_by_a_later_call_is_undone_with_its_result() -> None:
    bank = Bank("two")

    async def waits(flow: Flow) -> Any:
        await flow.wait_for_signal()

    async with at_work(bank, order(bank, "one", "two", then=waits)) as (w, run_id):
        await time_is_over(w, bank)
        await w.wait(10_000)
        assert bank.effects.count(("charge", "two")) == 2
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert bank.refunds == ["receipt of two", "receipt of one"]


class Counted:
    """Counts the writes of a store."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        for name in ("store_step", "commit_tick", "read_step"):
            monkeypatch.setattr(store, name, self._counting(name, getattr(store, name)))

    def _counting(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any) -> Any:
            self.calls.append(name)
            return await verb(*args)

        return call


@pytest.mark.parametrize(("has_undo", "stores", "commits"), [(False, 3, 1), (True, 5, 2)])
async def test_a_begin_costs_a_write_only_if_no_commit_stores_it(
    has_undo: bool, stores: int, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps: the first begin is in the commit of the first tick, the other two are writes of their own."""
    effects = Effects()

    async def function(flow: Flow, input: Any) -> Any:
        for name in ("a", "b", "c"):
            await flow.step(name, effects.do, name, undo=effects.do if has_undo else None)

    async with stage(function) as w:
        counted = Counted(w.store, monkeypatch)
        await start(w)
        await w.drain()
        assert (counted.calls.count("store_step"), counted.calls.count("commit_tick")) == (stores, commits)
        assert counted.calls.count("read_step") == 0


async def test_the_journal_has_a_begun_step_before_its_effect_and_explain_names_it() -> None:
    bank = Bank("one")
    async with at_work(bank, order(bank, "one")) as (w, run_id):
        row = await journal(w, run_id)
        (entry,) = row["entries"].values()
        assert (entry["name"], entry.get("is_done"), entry["undo"]) == ("one", None, 1)
        assert explain_wait(row) == "the flow waits for step 'one', which was begun"
