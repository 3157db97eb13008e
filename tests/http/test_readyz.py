"""`/readyz`: which sources poke, and which have stopped."""

import pytest

from tests.http.kit import AppWorld, app_world, error_of

pytestmark = pytest.mark.anyio


async def test_readiness_lists_the_sources_of_pokes(h: AppWorld) -> None:
    assert (await h.get_json("/readyz"))["sources"] == []
    await h.post("/v1/advance")
    h.w.clock.advance(250)
    await h.post("/v1/advance")
    (source,) = (await h.get_json("/readyz"))["sources"]
    now = h.w.clock.now()
    assert source == {
        "source": "http",
        "pokes": 2,
        "lastPokeAt": now,
        "usualGapMs": 250,
        "underWay": 0,
        "isQuiet": False,
    }


async def test_readiness_reports_that_nothing_pokes() -> None:
    async with app_world(ready_age_ms=1_000) as h:
        await h.new_run({"done": 1})
        h.w.clock.advance(1_001)
        error = error_of(await h.get("/readyz"))
        assert error["message"].endswith(
            "the limit is 1000; no poke has reached this process: start a ticker, a cron job or a client that pokes it"
        )
        assert error["details"]["sources"] == []


async def test_readiness_names_the_source_that_stopped() -> None:
    async with app_world(ready_age_ms=1_000) as h:
        for _ in range(3):
            await h.post("/v1/advance")
            h.w.clock.advance(100)
        await h.new_run({"done": 1})
        h.w.clock.advance(1_001)
        await h.w.ocean.advance(max_ticks=0, source="ticker")
        error = error_of(await h.get("/readyz"))
        assert error["message"] == (
            "the oldest due run has waited for 1001 ms, the limit is 1000; "
            "stopped poking: http (last poke 1101 ms ago, usually every 100 ms)"
        )
        quiet = {each["source"]: each["isQuiet"] for each in error["details"]["sources"]}
        assert quiet == {"ticker": False, "http": True}
