"""Groups of writes: what queues up travels together, and nobody pays for another's refusal."""

from collections.abc import Callable
from typing import Any

import anyio
import asyncpg
import pytest

from ocean import StoreBusy, StoreUnusable
from ocean.kernel.store.runs import Request
from ocean.state.errors import InvalidValue, RunNotFound, StoreFailed
from ocean.stores.postgres.client.batches import AHEAD, GROUP_CHARACTERS, GROUP_LIMIT, Guesses
from tests.postgres.notes import Desk, desk, notes_database, words_in
from tests.postgres.proxy import proxied

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> str:
    return notes_database()


async def outcome_of(desk: Desk, verb: str, args: Any) -> Any:
    try:
        return await desk.writing.write(verb, args)
    except Exception as error:
        return error


async def together(desk: Desk, *items: tuple[str, Any]) -> list[Any]:
    """What becomes of each, when all are asked for at once."""
    outcomes: list[Any] = [None] * len(items)

    async def one(place: int, verb: str, args: Any) -> None:
        outcomes[place] = await outcome_of(desk, verb, args)

    async with anyio.create_task_group() as tasks:
        for place, (verb, args) in enumerate(items):
            tasks.start_soon(one, place, verb, args)
    return outcomes


def notes(*words: str) -> list[tuple[str, Any]]:
    return [("note", {"word": word}) for word in words]


async def test_a_verb_gets_its_answer_and_hands_on_its_request(url: str) -> None:
    async with desk(url) as d:
        answer = await d.writing.write("note", {"word": "a"}, Request("key", "hash"))
        assert answer == {"word": "a", "request": ["key", "hash"]}
        assert await words_in(url) == ["a"]


async def test_many_leave_while_another_group_is_on_its_way(url: str) -> None:
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


async def test_many_that_a_group_has_no_room_for_leave_right_after_it(url: str) -> None:
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


@pytest.mark.parametrize(("count", "is_guessing"), [(AHEAD - 1, False), (AHEAD, True)], ids=["few", "guesses"])
async def test_few_and_whoever_guesses_wait_for_the_group_that_is_on_its_way(
    url: str, count: int, is_guessing: bool
) -> None:
    async with proxied(url) as (there, proxy), desk(there) as d:

        async def note(word: str) -> None:
            await d.writing.write("note", {"word": word}, is_guessing=is_guessing)

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


async def test_what_queues_up_while_a_group_is_on_its_way_shares_the_next_in_order(url: str) -> None:
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
        assert (d.writing.batch_sizes.count, d.writing.batch_sizes.sum) == (2, 21)
        assert await words_in(url) == ["first", *words]


async def test_who_came_meanwhile_leaves_with_those_who_were_answered_and_have_more_to_say(url: str) -> None:
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
        assert (d.writing.batch_sizes.count, d.writing.batch_sizes.sum) == (2, 5)


async def test_a_sender_that_is_cancelled_between_groups_leaves_the_way_open(url: str) -> None:
    cancelled: list[bool] = []
    async with desk(url) as d:

        async def note(word: str) -> None:
            await d.note(word)
            cancelled.extend(sender.cancel() for sender in d.writing._senders)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note, "a")
            tasks.start_soon(note, "b")
        assert True in cancelled
        assert not d.writing._is_gathering
        await d.note("c")
        assert await words_in(url) == ["a", "b", "c"]


async def test_one_that_is_refused_or_fails_leaves_no_trace_and_the_others_stand(url: str) -> None:
    async with desk(url) as d:
        items = [*notes("a"), ("refuse", {"word": "b"}), *notes("c"), ("fail", {"word": "d"}), ("wait", {"word": "e"})]
        a, b, c, failed, waited, f = await together(d, *items, *notes("f"))
        assert d.writing.batch_sizes.count == 1
        assert [answer["word"] for answer in (a, c, f)] == ["a", "c", "f"]
        assert isinstance(b, RunNotFound)
        assert b.details["run_id"] == "b"
        assert isinstance(failed, StoreFailed)
        assert isinstance(waited, StoreBusy)
        assert await words_in(url) == ["a", "c", "f"]


@pytest.mark.parametrize("word", ["\0", "\ud800"], ids=["NUL", "half a character"])
async def test_one_that_cannot_even_be_sent_fails_alone(url: str, word: str) -> None:
    async with desk(url) as d:
        a, b, c = await together(d, *notes("a", word, "c"))
        assert [a["word"], c["word"]] == ["a", "c"]
        assert isinstance(b, StoreFailed)
        assert await words_in(url) == ["a", "c"]


async def test_a_function_that_raises_costs_its_own_caller_only(url: str) -> None:
    def broken(guesses: Guesses) -> Any:
        raise KeyError("mine")

    async with desk(url) as d:
        a, b, c = await together(d, *notes("a"), ("note", broken), *notes("c"))
        assert [a["word"], c["word"]] == ["a", "c"]
        assert isinstance(b, KeyError)
        assert await words_in(url) == ["a", "c"]


def turning(addition: str) -> Callable[[Guesses], Any]:
    def turn(guesses: Guesses) -> Any:
        before = guesses.get("page", "") or ""
        guesses["page"] = before + addition
        return {"before": before, "after": before + addition}

    return turn


async def test_functions_build_on_what_those_before_them_in_the_group_will_have_done(url: str) -> None:
    async with desk(url) as d:
        answers = await together(d, *[("turn", turning(str(number % 10))) for number in range(40)])
        assert d.writing.batch_sizes.count == 1
        assert answers[-1] == {"text": "0123456789" * 4}


async def test_guesses_end_with_their_group(url: str) -> None:
    async with desk(url) as d:
        await d.writing.write("turn", turning("a"))
        assert await d.writing.write("turn", turning("b")) == {"stale": "a"}


async def test_a_group_is_limited_in_number_and_in_size(url: str) -> None:
    async with desk(url) as d:
        await together(d, *notes(*(f"w{number}" for number in range(GROUP_LIMIT + 6))))
        assert (d.writing.batch_sizes.count, d.writing.batch_sizes.sum) == (2, GROUP_LIMIT + 6)
        third = "x" * (GROUP_CHARACTERS // 3)
        await together(d, *notes(third, third, third, third))
        assert (d.writing.batch_sizes.count, d.writing.batch_sizes.sum) == (4, GROUP_LIMIT + 10)


async def test_only_a_group_that_changed_something_is_noticed_and_kept(url: str) -> None:
    db = await asyncpg.connect(url)
    kept = "SELECT count(*) FROM ocean_groups"
    async with desk(url) as d:
        await d.words()
        await together(d, ("refuse", {"word": "a"}), ("fail", {"word": "b"}))
        assert (d.noticed, await db.fetchval(kept)) == ([], 0)
        await together(d, ("refuse", {"word": "a"}), *notes("b"))
        assert (len(d.noticed), await db.fetchval(kept)) == (1, 1)
        await d.writing.claim({"words": []})
        assert len(d.noticed) == 1
        await d.writing.claim({"words": ["c"]})
        assert (len(d.noticed), await db.fetchval(kept)) == (2, 2)
    await db.close()


async def test_tokens_are_forgotten_when_nobody_asks_for_them_any_more(url: str) -> None:
    db = await asyncpg.connect(url)
    await db.execute(
        "INSERT INTO ocean_groups (token, at, answer)"
        " SELECT 'old-' || i, extract(epoch FROM now()) - 700, '{}' FROM generate_series(1, 9) i"
        " UNION ALL SELECT 'void', extract(epoch FROM now()) - 300, NULL"
    )
    async with desk(url) as d:
        for number in range(4):
            # A few with each: it is nobody's work to sweep them all.
            await (d.note("a") if number % 2 else d.writing.claim({"words": ["b"]}))
    left = await db.fetch("SELECT token FROM ocean_groups WHERE token LIKE 'old%' OR token = 'void'")
    assert [row["token"] for row in left] == ["void"]
    await db.close()


async def test_a_claim_may_be_refused(url: str) -> None:
    async with desk(url) as d:
        with pytest.raises(InvalidValue, match="'a' is not external"):
            await d.writing.claim({"refused": "not_leased", "facts": {"clog_id": "a"}})


async def test_a_group_is_one_statement_and_so_is_a_claim(url: str) -> None:
    async with desk(url) as d:
        await together(d, *notes("a", "b", "c"))
        assert d.link.round_trips == 1
        await d.writing.claim({"words": ["d"]})
        assert d.link.round_trips == 2


async def test_a_cancelled_caller_learns_what_became_of_it(url: str) -> None:
    heard: list[Any] = []
    async with proxied(url) as (there, proxy), desk(there) as d:
        proxy.arm("held", b"first")
        async with anyio.create_task_group() as tasks:

            async def note() -> None:
                heard.append(await d.note("first"))

            async def queued() -> None:
                heard.append(await d.note("second"))

            async def claim() -> None:
                heard.append(await d.writing.claim({"words": ["third"]}))

            tasks.start_soon(note)
            await proxy.has_cut.wait()
            tasks.start_soon(queued)
            tasks.start_soon(claim)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            proxy.lets_go.set()
        assert len(heard) == 3
        assert sorted(await words_in(url)) == ["first", "second", "third"]


async def test_what_has_queued_up_is_done_before_the_end_and_nothing_after_it(url: str) -> None:
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
            await d.writing.claim({"words": ["third"]})
    assert await words_in(url) == ["first", "second"]


async def test_a_claim_waits_for_no_writer(url: str) -> None:
    db = await asyncpg.connect(url)
    async with desk(url) as d, anyio.create_task_group() as tasks, db.transaction():
        await db.execute("SELECT ocean_lock()")
        tasks.start_soon(d.note, "written")
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(20):
            assert (await d.writing.claim({"words": ["claimed"]}))["claims"] == ["claimed"]
        assert await words_in(url) == ["claimed"]
    assert await words_in(url) == ["claimed", "written"]
    await db.close()
