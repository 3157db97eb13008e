"""Random days: with pokes at any time, pauses and moved clocks, a schedule fires as a plain model predicts."""

from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clogs.schedule.kit import HOUR, add, fired, hours

GRACE = 60_000
Act = tuple[str, int]


@dataclass
class Model:
    """Return the hours since the start, in plain steps. `last` only grows."""

    missed: str
    last: int = 0
    fired: list[int] = field(default_factory=list)

    def poke(self, now: int) -> None:
        due = list(range(self.last + 1, now // HOUR + 1))
        if not due:
            return
        self.last = due[-1]
        is_late = now - due[-1] * HOUR > GRACE
        self.fired += {"all": due, "once": due[-1:], "skip": [] if is_late else due[-1:]}[self.missed]


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("ahead"), st.integers(0, 5 * HOUR)),
        st.tuples(st.just("ahead"), st.sampled_from([HOUR, HOUR - 1, HOUR + GRACE, HOUR + GRACE + 1])),
        st.tuples(st.just("back"), st.integers(0, 3 * HOUR)),
        st.tuples(st.sampled_from(["pause", "resume", "poke", "poke", "trigger"]), st.just(0)),
    ),
    max_size=14,
)


async def live(missed: str, acts: list[Act]) -> None:
    async with hours() as w:
        begin, model, is_paused = w.clock.now(), Model(missed), False
        run_id = await add(w, missed=missed, catch_up=500)
        triggered = 0
        for act, ms in [*acts, ("resume", 0), ("poke", 0)]:
            if act in ("ahead", "back"):
                w.clock.jump(ms if act == "ahead" else -min(ms, w.clock.now() - begin))
            elif act == "poke":
                await w.drain()
                if not is_paused:
                    model.poke(w.clock.now() - begin)
            elif act == "trigger":
                await w.ocean.call_clog(run_id=run_id, method="trigger")
                triggered += 1
            else:
                is_paused = act == "pause"
                await (w.ocean.pause_run if is_paused else w.ocean.resume_run)(run_id)
        events = await w.ocean.read_events(run_id, types=["schedule.fired"], limit=1_000)
        times = [(each.payload["intended_at"] - begin) // HOUR for each in events if not each.payload["by_hand"]]
        assert times == model.fired
        assert len(await fired(w, run_id, begin)) == len(times) + triggered


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_schedule_fires_as_a_plain_model_predicts(missed: str) -> None:
    @settings(max_examples=15, deadline=None)
    @given(acts=ACTS)
    def any_day(acts: list[Act]) -> None:
        anyio.run(partial(live, missed, acts))

    any_day()
