"""`/readyz`: who pokes, and who has stopped."""

import pytest

from tests.http.kit import House, error_of, house

pytestmark = pytest.mark.anyio


async def test_who_pokes_is_told_by_readiness(h: House) -> None:
    assert (await h.asked("/readyz"))["sources"] == []
    await h.post("/v1/advance")
    h.w.clock.advance(250)
    await h.post("/v1/advance")
    (source,) = (await h.asked("/readyz"))["sources"]
    now = h.w.clock.now()
    assert source == {
        "source": "http",
        "pokes": 2,
        "lastPokeAt": now,
        "usualGapMs": 250,
        "underWay": 0,
        "isQuiet": False,
    }


async def test_readiness_says_that_nobody_pokes() -> None:
    async with house(ready_age_ms=1_000) as h:
        await h.made({"done": 1})
        h.w.clock.advance(1_001)
        error = error_of(await h.get("/readyz"))
        assert error["message"].endswith(
            "over 1000; no poke has reached this process: start a ticker, a cron job or a client that pokes it"
        )
        assert error["details"]["sources"] == []


async def test_readiness_names_the_source_that_has_gone_quiet() -> None:
    async with house(ready_age_ms=1_000) as h:
        for _ in range(3):
            await h.post("/v1/advance")
            h.w.clock.advance(100)
        await h.made({"done": 1})
        h.w.clock.advance(1_001)
        await h.w.ocean.advance(max_ticks=0, source="ticker")
        error = error_of(await h.get("/readyz"))
        assert error["message"] == (
            "the oldest due run has waited for 1001 ms, over 1000; "
            "stopped poking: http (last poke 1101 ms ago, usually every 100 ms)"
        )
        quiet = {each["source"]: each["isQuiet"] for each in error["details"]["sources"]}
        assert quiet == {"ticker": False, "http": True}
