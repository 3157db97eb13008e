"""Behind a transaction pooler, and with notifications off: everything works, a little later."""

import anyio
import asyncpg
import pytest
from anyio.abc import SocketAttribute, SocketStream

from ocean import Clog, Continue, Done, Ocean, Outcome, StoreUnusable, Tick
from ocean.stores.postgres.client.options import options_from
from tests.postgres.pooler import pooled

pytestmark = pytest.mark.anyio

NO_TLS = b"\x04\xd2\x16\x2f"
"""A client first requests TLS."""


def counter() -> Clog:
    clog = Clog("counter")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.read(run=True)
        n = (rows.run or 0) + 1
        await tick.write(run=n)
        return Done(n) if n == 3 else Continue()

    return clog


async def a_life(url: str) -> None:
    async with Ocean.open(url, clogs=[counter()]) as ocean, Ocean.open(url, clogs=[counter()]) as other:
        run = await ocean.create_run(session_id="s", clog_id="counter", input={})
        async with anyio.create_task_group() as tasks:
            seen: list[str] = []

            async def follow() -> None:
                seen.extend([event.type async for event in other.follow(run.run_id)])

            tasks.start_soon(follow)
            await ocean.advance()
        assert await ocean.result(run.run_id) == 3
        assert seen == ["run.created", "tick.committed", "tick.committed", "tick.committed", "run.done"]
        runs = [await ocean.create_run(session_id="s", clog_id="counter", input={}) for _ in range(5)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ocean.advance)
            tasks.start_soon(other.advance)
        assert [await ocean.result(each.run_id) for each in runs] == [3] * 5


async def test_a_run_completes_behind_a_transaction_pooler(real_database: str) -> None:
    async with pooled(f"{real_database}?pooler=on") as (url, clients):
        await a_life(url)
        assert sum(client.switches for client in clients) > 20


async def test_a_run_completes_without_notifications(real_database: str) -> None:
    arrived: list[object] = []
    db = await asyncpg.connect(real_database)
    await db.add_listener("ocean", lambda *facts: arrived.append(facts))
    await a_life(f"{real_database}?notify=off")
    await db.execute("SELECT 1")
    assert arrived == []
    await db.close()


async def test_other_options_are_passed_to_the_driver() -> None:
    options = options_from("postgresql://u@h/d?pool=9&sslmode=disable&notify=off&statement_ms=500")
    assert (options.url, options.pool, options.notify) == ("postgresql://u@h/d?sslmode=disable", 9, False)
    assert options.connect_arguments("x")["server_settings"]["statement_timeout"] == "500"


@pytest.mark.parametrize("query", ["pool=0", "pool=many", "notify=perhaps", "lock_ms=-1"])
async def test_an_option_with_an_invalid_value_is_refused(query: str) -> None:
    with pytest.raises(StoreUnusable, match=query.partition("=")[0]):
        async with Ocean.open(f"postgresql://u@127.0.0.1:1/d?{query}"):
            pass


async def test_a_pooler_that_refuses_the_settings_is_named_in_the_error() -> None:
    """As PgBouncer does, whatever its mode."""
    error_fields = b"SFATAL\0C08P01\0Munsupported startup parameter: jit\0\0"

    async def refuse(stream: SocketStream) -> None:
        async with stream:
            while NO_TLS in (received := await stream.receive()):
                await stream.send(b"N")
            assert b"statement_timeout" in received
            await stream.send(b"E" + (len(error_fields) + 4).to_bytes(4, "big") + error_fields)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, refuse)
        with pytest.raises(StoreUnusable, match=r"unsupported startup parameter: jit; .* add pooler=on"):
            async with Ocean.open(f"postgresql://u@127.0.0.1:{port}/d"):
                pass
        tasks.cancel_scope.cancel()
