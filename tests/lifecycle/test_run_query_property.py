"""For any runs and any query, `list_runs` returns what a plain filter and sort would."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocean import Done, Failed, Ok, Outcome, RunInfo, Tick, Within
from ocean.kernel.run_query import RunOrder
from ocean.state.attributes import sort_key
from ocean.testing import World
from tests.lifecycle.acting import Script, stage

CLOGS = ["c", "d"]
SESSIONS = ["s", "t", "é"]
VALUES = st.one_of(st.sampled_from([0, 1, 1.5, -1, "", "a", "b", "é", "𝄞", "�"]), st.booleans())
NAMES = ["x", "y"]
ENDS: dict[str, Outcome] = {"ok": Ok(), "done": Done(), "failed": Failed("no")}
STATUSES = ["idle", "pending", "done", "failed", "waiting"]

runs = st.lists(
    st.fixed_dictionaries(
        {
            "clog_id": st.sampled_from(CLOGS),
            "session_id": st.sampled_from(SESSIONS),
            "attributes": st.dictionaries(st.sampled_from(NAMES), VALUES),
            "input": st.sampled_from(sorted(ENDS)),
            "children": st.integers(0, 2),
            "wait_ms": st.integers(0, 2),
            "is_ticked": st.booleans(),
        }
    ),
    max_size=12,
)


def perhaps(what: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw `what` in one of four examples, so that most queries select some runs."""
    return st.integers(0, 3).flatmap(lambda n: what if n == 0 else st.none())


def some(values: list[str]) -> st.SearchStrategy[Any]:
    return perhaps(st.one_of(st.sampled_from(values), st.lists(st.sampled_from(values), max_size=4)))


times = perhaps(st.integers(0, 12))
numbers = st.sampled_from([-2, -1, 0, 0.5, 1, 1.5])
texts = st.sampled_from(["", "a", "aa", "é", "𝄞"])
withins = st.one_of(
    st.one_of(numbers, texts).flatmap(
        lambda v: st.sampled_from([Within(gt=v), Within(gte=v), Within(lt=v), Within(lte=v)])
    ),
    st.tuples(numbers, numbers).map(sorted).map(lambda pair: Within(gte=pair[0], lt=pair[1])),
    st.tuples(texts, texts).map(sorted).map(lambda pair: Within(gt=pair[0], lte=pair[1])),
)
queries = st.fixed_dictionaries(
    {
        "clog_id": some([*CLOGS, "nobody"]),
        "session_id": some([*SESSIONS, "nowhere"]),
        "status": some(STATUSES),
        "parent": perhaps(st.lists(st.integers(0, 11), min_size=1, max_size=2)),
        "created_from": times,
        "created_until": times,
        "ended_from": times,
        "ended_until": times,
        "equal": perhaps(
            st.dictionaries(st.sampled_from(NAMES), st.one_of(VALUES, st.lists(VALUES, max_size=3)), max_size=2)
        ),
        "within": perhaps(st.tuples(st.sampled_from(NAMES), withins)),
    },
)


def actor(clog_id: str) -> Script:
    async def act(tick: Tick) -> Outcome:
        if tick.reason == "created" and isinstance(tick.input, list):
            end, children = tick.input
            for _ in range(children):
                await tick.create_run(clog_id="d", attributes={"x": 1})
            return ENDS[end]
        return Ok()

    return Script(act, clog_id=clog_id)


async def populate(w: World, wanted: list[dict[str, Any]]) -> list[str]:
    ids = []
    for one in wanted:
        run = await w.ocean.create_run(
            session_id=one["session_id"],
            clog_id=one["clog_id"],
            input=[one["input"], one["children"]],
            attributes=one["attributes"],
        )
        ids.append(run.run_id)
        w.clock.advance(one["wait_ms"])
        if one["is_ticked"]:
            await w.ocean.advance(run_id=run.run_id)
    return ids


def arguments_of(query: dict[str, Any], ids: list[str], start: int) -> dict[str, Any]:
    """Return the drawn query as valid arguments of `list_runs`."""
    arguments = {name: query[name] for name in ("clog_id", "session_id", "status") if query[name] is not None}
    if query["parent"] is not None:
        arguments["parent_run_id"] = [ids[n] if n < len(ids) else "nobody" for n in query["parent"]]
    for name in ("created", "ended"):
        low, high = query[f"{name}_from"], query[f"{name}_until"]
        if low is not None and high is not None and low > high:
            low, high = high, low
        for side, value in (("from", low), ("until", high)):
            if value is not None:
                arguments[f"{name}_{side}"] = start + value
    attributes = dict(query["equal"] or {}) | dict([query["within"]] if query["within"] else [])
    if attributes:
        arguments["attributes"] = attributes
        arguments.setdefault("clog_id", CLOGS)
    has_end = "ended_from" in arguments or "ended_until" in arguments
    if has_end and "status" in arguments and arguments["status"]:
        several = arguments["status"] if isinstance(arguments["status"], list) else [arguments["status"]]
        arguments["status"] = ["done", *several]
    return arguments


def among(value: Any, wanted: Any) -> bool:
    return wanted is None or value in (wanted if isinstance(wanted, list) else [wanted])


def fits(attributes: Mapping[str, Any], name: str, wanted: Any) -> bool:
    if name not in attributes:
        return False
    value = attributes[name]
    if isinstance(wanted, Within):
        bounds = [(side, bound) for side in Within.__slots__ if (bound := getattr(wanted, side)) is not None]
        kinds = str if isinstance(bounds[0][1], str) else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        tests: dict[str, Callable[[Any, Any], bool]] = {
            "gt": lambda v, b: v > b,
            "gte": lambda v, b: v >= b,
            "lt": lambda v, b: v < b,
            "lte": lambda v, b: v <= b,
        }
        return all(tests[side](value, bound) for side, bound in bounds)
    several = wanted if isinstance(wanted, list) else [wanted]
    return any(isinstance(value, bool) == isinstance(each, bool) and value == each for each in several)


def is_selected(run: RunInfo, arguments: dict[str, Any]) -> bool:
    named = all(
        among(getattr(run, name), arguments.get(name)) for name in ("clog_id", "session_id", "status", "parent_run_id")
    )
    for name in ("created", "ended"):
        at, low, high = getattr(run, f"{name}_at"), arguments.get(f"{name}_from"), arguments.get(f"{name}_until")
        if (low is not None or high is not None) and at is None:
            return False
        named = named and (low is None or at >= low) and (high is None or at < high)
    return named and all(fits(run.attributes, name, wanted) for name, wanted in arguments.get("attributes", {}).items())


def sort_position(run: RunInfo, arguments: dict[str, Any]) -> tuple[Any, ...]:
    for name, wanted in arguments.get("attributes", {}).items():
        if isinstance(wanted, Within):
            return (sort_key(name, run.attributes[name]), run.created_at, run.run_id)
    by_end = "ended_from" in arguments or "ended_until" in arguments
    return (run.ended_at if by_end else run.created_at, run.run_id)


async def paged(w: World, arguments: dict[str, Any], order: RunOrder, limit: int) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await w.ocean.list_runs(**arguments, order=order, limit=limit, cursor=cursor)
        found += [run.run_id for run in page.runs]
        assert len(found) == len(set(found)), f"a page came twice: {arguments}"
        cursor = page.next_cursor
        if cursor is None:
            return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs, st.lists(queries, min_size=1, max_size=8), st.integers(1, 5), st.booleans())
def test_a_list_is_a_plain_filter_and_sort(
    wanted: list[dict[str, Any]], wanted_queries: list[dict[str, Any]], limit: int, is_descending: bool
) -> None:
    async def play() -> None:
        async with stage(actor("c"), actor("d")) as w:
            start = w.clock.now()
            ids = await populate(w, wanted)
            all_runs = (await w.ocean.list_runs(limit=1_000)).runs
            for query in wanted_queries:
                arguments = arguments_of(query, ids, start)
                expected = [run for run in all_runs if is_selected(run, arguments)]
                expected.sort(key=lambda run: sort_position(run, arguments), reverse=is_descending)
                is_ranged = any(isinstance(value, Within) for value in arguments.get("attributes", {}).values())
                orders: tuple[RunOrder, RunOrder] = ("descending", "ascending") if is_ranged else ("newest", "oldest")
                order = orders[0] if is_descending else orders[1]
                assert await paged(w, arguments, order, limit) == [run.run_id for run in expected], arguments
                assert (await w.ocean.count_runs(**arguments)).count == len(expected)
                capped = await w.ocean.count_runs(**arguments, cap=2)
                assert (capped.count, capped.is_capped) == (min(2, len(expected)), len(expected) > 2)

    anyio.run(play)
