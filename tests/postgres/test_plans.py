"""What verbs cost the server: the same, however many runs sleep or have ended, however old a run is, however long the
log, and whatever the statistics are."""

from collections.abc import AsyncIterator, Awaitable
from functools import cache
from typing import Any

import asyncpg
import pytest

from ocean import Done, Ok
from ocean.kernel.store.claims import RowsAsk
from ocean.kernel.store.events import SweepAsk
from ocean.state.effects import Effects, NewEvent, RowWrite, SetTimer
from ocean.state.filters import FeedFilter, RunFilter, Span
from ocean.state.records import Claim, ClogRecord, RunStatus
from tests.conformance.kit import CLOG, LOCK_MS, a_run, a_signal, an_ask, commit_of, pending, run_row, tick_row
from tests.postgres.costs import Cost, MeasuredStore, measured, together
from tests.postgres.crowd import AGE, OLD, OLD_TOO, make_burst, make_crowd
from tests.postgres.server import blocking, new_database

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("plans")]

Costs = dict[str, Cost]


@cache
def crowd() -> str:
    """A database with sleeping, finished and old runs. Never returned: no other test could use it."""
    url = new_database(has_test_clock=False)
    blocking(make_crowd(url))
    return url


async def analyze(url: str) -> None:
    db = await asyncpg.connect(url, command_timeout=60)
    await db.execute("VACUUM ANALYZE")
    await db.close()


@pytest.fixture(scope="module", params=["no statistics", "statistics"])
def place(request: pytest.FixtureRequest) -> int:
    """First without, then with statistics."""
    if request.param == "statistics":
        blocking(analyze(crowd()))
    return int(request.param == "statistics")


@pytest.fixture
async def full(place: int, anyio_backend: Any) -> AsyncIterator[MeasuredStore]:
    async with measured(crowd()) as store:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        yield store


class Life:
    """Every verb of a run's life, on an idle run and on runs that are created here."""

    def __init__(self, store: MeasuredStore, run_id: str, name: str) -> None:
        self.store, self.run_id, self.name = store, run_id, name
        self.costs: Costs = {}

    async def count(self, verb: str, deed: Any) -> None:
        self.costs[verb] = await self.store.cost(deed)

    async def begin(self) -> None:
        store, run_id, name = self.store, self.run_id, self.name
        new = a_run(f"{name}-all", input={}, concurrency_keys=["k"], dedupe_key=name, attributes={"size": 1})
        await self.count("create", store.create_run(a_run(name), None))
        await self.count("create with all", store.create_run(new, None))
        await self.count("signal", store.deliver_signal(a_signal(run_id, signal_id=name), None))
        await self.count("signal again", store.deliver_signal(a_signal(run_id, signal_id=name), None))
        await self.count("get", store.get_run(run_id))
        await self.count("standing", store.standing(run_id))
        await self.count("survey", store.survey(run_id, (CLOG,)))
        await self.count("preview", store.preview_claim(an_ask(run_id=run_id)))

    async def claim(self, verb: str) -> Claim:
        claims: list[Claim] = []
        await self.count(verb, kept(claims, self.store.claim_due(an_ask(run_id=self.run_id))))
        (held,) = claims
        return held

    async def work(self, held: Claim) -> None:
        store, run_id, name = self.store, self.run_id, self.name
        key, tick_key = run_row(run_id), tick_row(held.tick, name, run_id)
        ask = RowsAsk(CLOG, "s", run_id, keys=(key, tick_key), ticks=(1, 2), history=3, dedupe_keys=(name,))
        await self.count("read rows", store.read_rows(ask))
        await self.count("store step", store.store_step(held.lock, held.tick, name, "1"))
        await self.count("read step", store.read_step(run_id, held.tick, name))
        await self.count("stream", store.append_streamed(held.lock, held.tick, 1, [NewEvent("x", "1", CLOG)]))
        await self.count("renew", store.batches.write("renew_locks", [[run_id, held.lock.epoch, LOCK_MS]]))
        effects = Effects(
            writes=[RowWrite(key, 0, apply=lambda old: "1"), RowWrite(tick_key, 0, "1")],
            events=[NewEvent("x", "1", CLOG)],
            signals=[a_signal(name)],
            timers=[SetTimer("later", held.claimed_at + 10_000_000, "1")],
            attributes={"size": 2},
        )
        await self.count("commit", store.commit_tick(commit_of(held, Ok(), effects)))
        await self.count("commit again", store.commit_tick(commit_of(held, Ok(), effects)))
        _, last = await store.event_bounds()
        await self.count("bounds", store.event_bounds())
        await self.count("feed", store.read_events(FeedFilter(run_id=run_id), last - 10, 10))
        await self.count("newest", store.read_newest_events(FeedFilter(run_id=run_id), None, 10))
        await self.count("newest before", store.read_newest_events(FeedFilter(correlation_id=run_id), last, 10))
        await self.count("ticks", store.list_ticks(run_id, held.tick - 1, 10))
        await self.count("inputs", store.list_inputs(run_id, held.tick - 1, 10))
        await self.count("due inputs", store.due_inputs(run_id, 10))

    async def end(self) -> None:
        store, name = self.store, self.name
        await store.deliver_signal(a_signal(self.run_id), None)
        held = await self.claim("claim again")
        await self.count("commit of an end", store.commit_tick(commit_of(held, Done(1))))
        await self.count("cancel", store.cancel_run(f"{name}-all", None, None, None))
        await self.count("delete", store.delete_run(f"{name}-all", None, None))
        await self.count("delete alive", store.delete_run(name, None, None))
        await self.count("sweep", store.sweep(SweepAsk(0, 0, 0, 100)))
        await self.count("agenda", store.agenda((CLOG,)))


async def life(store: MeasuredStore, run_id: str, name: str) -> Costs:
    lived = Life(store, run_id, name)
    await lived.begin()
    await lived.work(await lived.claim("claim"))
    await lived.end()
    return lived.costs


async def kept(claims: list[Claim], claiming: Awaitable[list[Claim]]) -> None:
    claims.extend(await claiming)


def assert_no_dearer(costs: Costs, small: Costs) -> None:
    """Indexes are deeper, and may contain dead entries. Anything else would cost thousands."""
    dear = {
        verb: (cost, small[verb])
        for verb, cost in costs.items()
        if cost.walked or cost.pages > 3 * small[verb].pages + 30 or cost.rows > 2 * small[verb].rows + 300
    }
    assert not dear, [f"{verb}: {cost}" for verb, cost in dear.items()]


async def small_life(url: str) -> Costs:
    """In a database with nothing else, on a connection that has all plans cached."""
    async with measured(url) as store:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        await store.create_run(a_run("first"), None)
        await life(store, "first", "once")
        await store.create_run(a_run("second"), None)
        return await life(store, "second", "twice")


async def test_verbs_cost_the_same_among_a_million_runs_and_on_an_old_run(
    full: MeasuredStore, place: int, unused_database: str
) -> None:
    small = await small_life(unused_database)
    assert all(not cost.walked for cost in small.values())
    await full.create_run(a_run(f"young-{place}"), None)
    assert_no_dearer(await life(full, f"young-{place}", f"a-{place}"), cold(small))
    assert_no_dearer(await life(full, OLD[place], f"b-{place}"), small)


def cold(costs: Costs) -> Costs:
    """Making a plan reads every index once."""
    return {verb: Cost(cost.pages + 60, cost.rows, cost.walked, cost.indexes) for verb, cost in costs.items()}


async def test_an_idle_poll_costs_a_few_rows(full: MeasuredStore) -> None:
    for look in (full.claim_due(an_ask()), full.agenda((CLOG,)), full.claim_due(an_ask(limit=64))):
        cost = await full.cost(look)
        assert not cost.walked
        assert cost.pages < 120
        assert cost.rows < 300
    cost = await full.cost(full.claim_due(an_ask(limit=64)))
    assert (cost.pages < 60, cost.rows < 20) == (True, True), cost


async def test_a_claim_costs_what_it_claims(full: MeasuredStore, place: int) -> None:
    costs: list[Cost] = []
    for count in (8, 8, 64):
        for number in range(count):
            await pending(full, f"due-{place}-{len(costs)}-{number:02}")
        claims: list[Claim] = []
        costs.append(await full.cost(kept(claims, full.claim_due(an_ask(limit=64)))))
        assert len(claims) == count
        for held in claims:
            await full.commit_tick(commit_of(held, Done(1)))
    assert not any(cost.walked for cost in costs)
    _, few, many = costs
    assert few.pages < 8 * 100
    assert few.rows < 8 * 40
    assert many.pages < 10 * few.pages
    assert many.rows < 10 * few.rows


@pytest.mark.parametrize("analyzed_after", [0, 1, 3, None])
async def test_a_burst_needs_no_statistics(unused_database: str, analyzed_after: int | None) -> None:
    """Neither plans made when the tables were almost empty, nor statistics of that time, make anything expensive."""
    async with measured(unused_database) as store:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        for number, name in enumerate(("first", "second", "third", "last")):
            if number == analyzed_after:
                await analyze(unused_database)
            await store.create_run(a_run(name), None)
        await life(store, "first", "once")
        small = await life(store, "second", "twice")
        await make_burst(unused_database)
        costs = await life(store, "third", "thrice")
        # It counts due runs, up to a thousand.
        assert costs.pop("agenda").rows < 1_200
        assert_no_dearer(costs, small)
        async with measured(unused_database) as other:
            for claimer in (store, other):
                claims: list[Claim] = []
                cost = await claimer.cost(kept(claims, claimer.claim_due(an_ask(limit=32))))
                assert len(claims) == 32
                assert not cost.walked
                assert cost.pages < 32 * 100
                assert cost.rows < 32 * 40


async def group_life(store: MeasuredStore, name: str, old: str | None = None) -> Costs:
    """Verbs that are executed in bulk; an old run may be among their runs."""
    ids = [f"{name}-{number}" for number in range(8)]
    news = [a_run(run_id)._replace(is_id_given=False) for run_id in ids]
    costs = {"create": await store.cost(together(*(store.create_run(new, None) for new in news)))}
    ids += [old] if old else []
    signals = (store.deliver_signal(a_signal(run_id, signal_id=name), None) for run_id in ids)
    costs["signal"] = await store.cost(together(*signals))
    held = [(await store.claim_due(an_ask(run_id=run_id)))[0] for run_id in ids]
    outcomes = [Done(1) if claim.run.run_id != old else Ok() for claim in held]
    commits = (store.commit_tick(commit_of(claim, outcome)) for claim, outcome in zip(held, outcomes, strict=True))
    costs["commit"] = await store.cost(together(*commits))
    return costs


async def test_groups_cost_the_same_after_a_burst_with_plans_made_before_it(unused_database: str) -> None:
    async with measured(unused_database) as store:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        await group_life(store, "once")
        small = await group_life(store, "twice")
        await make_burst(unused_database)
        assert_no_dearer(await group_life(store, "thrice"), small)


async def test_groups_cost_the_same_among_a_million_runs_and_with_an_old_run(
    full: MeasuredStore, place: int, unused_database: str
) -> None:
    async with measured(unused_database) as store:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        await group_life(store, "once")
        small = await group_life(store, "twice")
    await group_life(full, f"group-{place}", OLD_TOO[place])
    assert_no_dearer(await group_life(full, f"group-again-{place}", OLD_TOO[place]), small)


LISTS: dict[str, tuple[str, RunFilter]] = {
    "all": ("runs_created", RunFilter()),
    "created": ("runs_created", RunFilter(created=Span(5, 25))),
    "clog": ("runs_clog", RunFilter(clog_ids=(CLOG,))),
    "status": ("runs_clog", RunFilter(statuses=(RunStatus.DONE,))),
    "a status that is rare": ("runs_clog", RunFilter(statuses=(RunStatus.FAILED,))),
    "clog, status and created": (
        "runs_clog",
        RunFilter(clog_ids=(CLOG, "other"), statuses=(RunStatus.WAITING, RunStatus.FAILED), created=Span(5, 25)),
    ),
    "session": ("runs_session", RunFilter(session_ids=("s",))),
    "another session": ("runs_session", RunFilter(session_ids=("t",))),
    "session and a rare status": ("runs_session", RunFilter(session_ids=("s",), statuses=(RunStatus.FAILED,))),
    "parent": ("runs_parent", RunFilter(parent_run_ids=("asleep-0000001",))),
    "another parent": ("runs_parent", RunFilter(parent_run_ids=("asleep-0000002",))),
    "ended incomplete": ("runs_end_incomplete", RunFilter(end_incomplete=True)),
    "ended incomplete, clog and status": (
        "runs_end_incomplete",
        RunFilter(clog_ids=(CLOG,), statuses=(RunStatus.FAILED,), end_incomplete=True),
    ),
    "ended": ("runs_clog_ended", RunFilter(ended=Span(5, None))),
    "ended and a rare status": ("runs_clog_ended", RunFilter(ended=Span(5, 25), statuses=(RunStatus.FAILED,))),
    "attribute": ("ocean_attributes_value", RunFilter(clog_ids=(CLOG,), attributes={"size": ("n000000007",)})),
    "an attribute's range": ("ocean_attributes_value", RunFilter(clog_ids=(CLOG,), ranged=("size", Span("n", "o")))),
}


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("name", LISTS)
async def test_a_list_walks_its_index(full: MeasuredStore, name: str, is_descending: bool) -> None:
    index, where = LISTS[name]
    cursor = None
    for _ in range(2):
        page = await full.list_runs(where, 10, cursor, is_descending)
        assert_walks(full.measured.last, index)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert_walks(await full.cost(full.count_runs(where, 10)), index)


def assert_walks(cost: Cost, index: str) -> None:
    assert not cost.walked
    assert index in cost.indexes
    assert cost.pages < 300, cost
    assert cost.rows < 600, cost


FEEDS = {
    "events_run": FeedFilter(run_id=OLD[0]),
    "events_session": FeedFilter(session_id=OLD[0]),
    "events_clog": FeedFilter(clog_id=OLD[0]),
    "events_correlation": FeedFilter(correlation_id=OLD[0]),
    "events_pkey": FeedFilter(),
}


@pytest.mark.parametrize("index", FEEDS)
async def test_a_feed_walks_its_index_from_its_cursor(full: MeasuredStore, index: str) -> None:
    """Also at its end, which is followed by as many events of the second old run."""
    for after in (0, AGE // 2, AGE + 100):
        cost = await full.cost(full.read_events(FEEDS[index], after, 10))
        assert cost.indexes == {index}
        assert cost.pages < 60, cost
        assert cost.rows < 20, cost
