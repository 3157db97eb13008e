"""Groups of writes: queued verbs are sent together, and none fails because another is refused."""

from collections.abc import Callable
from typing import Any

import anyio
import asyncpg
import pytest

from ocean import StoreBusy, StoreUnusable
from ocean.kernel.store.runs import Request
from ocean.state.errors import InvalidValue, RunNotFound, StoreFailed
from ocean.stores.postgres.client.batches import AHEAD, GROUP_CHARACTERS, GROUP_LIMIT, Predictions
from tests.postgres.notes import Desk, desk, notes_database, words_in
from tests.postgres.proxy import proxied

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> str:
    return notes_database()


async def outcome_of(desk: Desk, verb: str, args: Any) -> Any:
    try:
        return await desk.batches.write(verb, args)
    except Exception as error:
        return error


async def together(desk: Desk, *items: tuple[str, Any]) -> list[Any]:
    """Send all verbs at once; returns their results or errors."""
    outcomes: list[Any] = [None] * len(items)

    async def one(place: int, verb: str, args: Any) -> None:
        outcomes[place] = await outcome_of(desk, verb, args)

    async with anyio.create_task_group() as tasks:
        for place, (verb, args) in enumerate(items):
            tasks.start_soon(one, place, verb, args)
    return outcomes


def notes(*words: str) -> list[tuple[str, Any]]:
    return [("note", {"word": word}) for word in words]


async def test_a_verb_returns_its_result_and_passes_its_request(url: str) -> None:
    async with desk(url) as d:
        answer = await d.batches.write("note", {"word": "a"}, Request("key", "hash"))
        assert answer == {"word": "a", "request": ["key", "hash"]}
        assert await words_in(url) == ["a"]


async def test_a_large_group_is_sent_while_another_is_in_flight(url: str) -> None:
    words = [f"w{number}" for number in range(AHEAD)]
    async with proxied(url) as (there, proxy), desk(there) as d:
        proxy.arm("held", b"first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(d.note, "first")
            await proxy.has_cut.wait()
            for word in words:
                tasks.start_soon(d.note, word)
            with anyio.fail_after(20):
                while await words_in(url) != words:
                    await anyio.lowlevel.checkpoint()
            proxy.lets_go.set()
        assert await words_in(url) == [*words, "first"]


async def test_verbs_that_do_not_fit_into_a_group_are_sent_right_after_it(url: str) -> None:
    words = [f"w{number:02}" for number in range(GROUP_LIMIT + AHEAD)]
    async with proxied(url) as (there, proxy), desk(there) as d:
        proxy.arm("held", b"w00")
        async with anyio.create_task_group() as tasks:
            for word in words:
                tasks.start_soon(d.note, word)
            with anyio.fail_after(20):
                while await words_in(url) != words[GROUP_LIMIT:]:
                    await anyio.lowlevel.checkpoint()
            proxy.lets_go.set()


@pytest.mark.parametrize(("count", "is_predicting"), [(AHEAD - 1, False), (AHEAD, True)], ids=["few", "predictions"])
async def test_few_verbs_and_those_that_predict_wait_for_the_group_in_flight(
    url: str, count: int, is_predicting: bool
) -> None:
    async with proxied(url) as (there, proxy), desk(there) as d:

        async def note(word: str) -> None:
            await d.batches.write("note", {"word": word}, is_predicting=is_predicting)

        proxy.arm("held", b"first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(d.note, "first")
            await proxy.has_cut.wait()
            for number in range(count):
                tasks.start_soon(note, f"w{number}")
            await anyio.wait_all_tasks_blocked()
            assert await words_in(url) == []
            proxy.lets_go.set()
        assert (await words_in(url))[0] == "first"


async def test_verbs_queued_while_a_group_is_in_flight_share_the_next_in_order(url: str) -> None:
    words = [f"w{number}" for number in range(20)]
    async with proxied(url) as (there, proxy), desk(there) as d:
        proxy.arm("held", b"first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(d.note, "first")
            await proxy.has_cut.wait()
            for word in words:
                tasks.start_soon(d.note, word)
            await anyio.wait_all_tasks_blocked()
            proxy.lets_go.set()
        assert (d.batches.batch_sizes.count, d.batches.batch_sizes.sum) == (2, 21)
        assert await words_in(url) == ["first", *words]


async def test_verbs_queued_meanwhile_share_a_group_with_those_of_callers_just_woken(url: str) -> None:
    async with proxied(url) as (there, proxy), desk(there) as d:

        async def two(word: str) -> None:
            await d.note(word)
            await d.note(f"{word} again")

        proxy.arm("held", b"first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(two, "first")
            tasks.start_soon(two, "second")
            await proxy.has_cut.wait()
            tasks.start_soon(d.note, "meanwhile")
            await anyio.wait_all_tasks_blocked()
            proxy.lets_go.set()
        assert (d.batches.batch_sizes.count, d.batches.batch_sizes.sum) == (2, 5)


async def test_a_sender_cancelled_between_groups_does_not_block_the_next(url: str) -> None:
    cancelled: list[bool] = []
    async with desk(url) as d:

        async def note(word: str) -> None:
            await d.note(word)
            cancelled.extend(sender.cancel() for sender in d.batches._senders)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note, "a")
            tasks.start_soon(note, "b")
        assert True in cancelled
        assert not d.batches._is_gathering
        await d.note("c")
        assert await words_in(url) == ["a", "b", "c"]


async def test_a_verb_that_is_refused_or_fails_leaves_no_trace_and_the_others_stand(url: str) -> None:
    async with desk(url) as d:
        items = [*notes("a"), ("refuse", {"word": "b"}), *notes("c"), ("fail", {"word": "d"}), ("wait", {"word": "e"})]
        a, b, c, failed, waited, f = await together(d, *items, *notes("f"))
        assert d.batches.batch_sizes.count == 1
        assert [answer["word"] for answer in (a, c, f)] == ["a", "c", "f"]
        assert isinstance(b, RunNotFound)
        assert b.details["run_id"] == "b"
        assert isinstance(failed, StoreFailed)
        assert isinstance(waited, StoreBusy)
        assert await words_in(url) == ["a", "c", "f"]


@pytest.mark.parametrize("word", ["\0", "\ud800"], ids=["NUL", "half a character"])
async def test_a_verb_that_cannot_be_encoded_fails_alone(url: str, word: str) -> None:
    async with desk(url) as d:
        a, b, c = await together(d, *notes("a", word, "c"))
        assert [a["word"], c["word"]] == ["a", "c"]
        assert isinstance(b, StoreFailed)
        assert await words_in(url) == ["a", "c"]


async def test_a_function_that_raises_fails_only_for_its_caller(url: str) -> None:
    def broken(predictions: Predictions) -> Any:
        raise KeyError("mine")

    async with desk(url) as d:
        a, b, c = await together(d, *notes("a"), ("note", broken), *notes("c"))
        assert [a["word"], c["word"]] == ["a", "c"]
        assert isinstance(b, KeyError)
        assert await words_in(url) == ["a", "c"]


def turning(addition: str) -> Callable[[Predictions], Any]:
    def turn(predictions: Predictions) -> Any:
        before = predictions.get("page", "") or ""
        predictions["page"] = before + addition
        return {"before": before, "after": before + addition}

    return turn


async def test_functions_see_the_predicted_rows_of_earlier_verbs_in_the_group(url: str) -> None:
    async with desk(url) as d:
        results = await together(d, *[("turn", turning(str(number % 10))) for number in range(40)])
        assert d.batches.batch_sizes.count == 1
        assert results[-1] == {"text": "0123456789" * 4}


async def test_predictions_end_with_their_group(url: str) -> None:
    async with desk(url) as d:
        await d.batches.write("turn", turning("a"))
        assert await d.batches.write("turn", turning("b")) == {"stale": "a"}


async def test_a_group_is_limited_in_number_and_in_size(url: str) -> None:
    async with desk(url) as d:
        await together(d, *notes(*(f"w{number}" for number in range(GROUP_LIMIT + 6))))
        assert (d.batches.batch_sizes.count, d.batches.batch_sizes.sum) == (2, GROUP_LIMIT + 6)
        third = "x" * (GROUP_CHARACTERS // 3)
        await together(d, *notes(third, third, third, third))
        assert (d.batches.batch_sizes.count, d.batches.batch_sizes.sum) == (4, GROUP_LIMIT + 10)


async def test_only_a_group_that_changed_something_is_noticed_and_stored(url: str) -> None:
    db = await asyncpg.connect(url)
    kept = "SELECT count(*) FROM ocean_groups"
    async with desk(url) as d:
        await d.words()
        await together(d, ("refuse", {"word": "a"}), ("fail", {"word": "b"}))
        assert (d.noticed, await db.fetchval(kept)) == ([], 0)
        await together(d, ("refuse", {"word": "a"}), *notes("b"))
        assert (len(d.noticed), await db.fetchval(kept)) == (1, 1)
        await d.batches.claim({"words": []})
        assert len(d.noticed) == 1
        await d.batches.claim({"words": ["c"]})
        assert (len(d.noticed), await db.fetchval(kept)) == (2, 2)
    await db.close()


async def test_old_tokens_are_deleted(url: str) -> None:
    db = await asyncpg.connect(url)
    await db.execute(
        "INSERT INTO ocean_groups (token, at, answer)"
        " SELECT 'old-' || i, extract(epoch FROM now()) - 700, '{}' FROM generate_series(1, 9) i"
        " UNION ALL SELECT 'void', extract(epoch FROM now()) - 300, NULL"
    )
    async with desk(url) as d:
        for number in range(4):
            # Each statement deletes a few, so that none has to delete them all.
            await (d.note("a") if number % 2 else d.batches.claim({"words": ["b"]}))
    left = await db.fetch("SELECT token FROM ocean_groups WHERE token LIKE 'old%' OR token = 'void'")
    assert [row["token"] for row in left] == ["void"]
    await db.close()


async def test_a_claim_may_be_refused(url: str) -> None:
    async with desk(url) as d:
        with pytest.raises(InvalidValue, match="clog 'a' must be external"):
            await d.batches.claim({"refused": "not_leased", "facts": {"clog_id": "a"}})


async def test_a_group_is_one_statement_and_so_is_a_claim(url: str) -> None:
    async with desk(url) as d:
        await together(d, *notes("a", "b", "c"))
        assert d.pool.round_trips == 1
        await d.batches.claim({"words": ["d"]})
        assert d.pool.round_trips == 2


async def test_a_cancelled_caller_still_gets_the_result(url: str) -> None:
    received: list[Any] = []
    async with proxied(url) as (there, proxy), desk(there) as d:
        proxy.arm("held", b"first")
        async with anyio.create_task_group() as tasks:

            async def note() -> None:
                received.append(await d.note("first"))

            async def queued() -> None:
                received.append(await d.note("second"))

            async def claim() -> None:
                received.append(await d.batches.claim({"words": ["third"]}))

            tasks.start_soon(note)
            await proxy.has_cut.wait()
            tasks.start_soon(queued)
            tasks.start_soon(claim)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            proxy.lets_go.set()
        assert len(received) == 3
        assert sorted(await words_in(url)) == ["first", "second", "third"]


async def test_queued_verbs_are_finished_before_it_closes_and_none_after_it(url: str) -> None:
    async with proxied(url) as (there, proxy), anyio.create_task_group() as tasks:
        async with desk(there) as d:
            proxy.arm("held", b"first")
            tasks.start_soon(d.note, "first")
            await proxy.has_cut.wait()
            tasks.start_soon(d.note, "second")
            await anyio.wait_all_tasks_blocked()
            proxy.lets_go.set()
        with pytest.raises(StoreUnusable, match="closed"):
            await d.note("third")
        with pytest.raises(StoreUnusable, match="closed"):
            await d.batches.claim({"words": ["third"]})
    assert await words_in(url) == ["first", "second"]


async def test_a_claim_waits_for_no_writer(url: str) -> None:
    db = await asyncpg.connect(url)
    async with desk(url) as d, anyio.create_task_group() as tasks, db.transaction():
        await db.execute("SELECT ocean_lock()")
        tasks.start_soon(d.note, "written")
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(20):
            assert (await d.batches.claim({"words": ["claimed"]}))["claims"] == ["claimed"]
        assert await words_in(url) == ["claimed"]
    assert await words_in(url) == ["claimed", "written"]
    await db.close()
