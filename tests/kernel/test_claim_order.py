"""The order of claims."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ocean.state.eligibility import FAIR_EVERY, pick
from ocean.state.outcomes import Continue
from ocean.state.records import Run
from ocean.state.transitions import claimed, due_at, settled
from tests.kernel.test_transitions import LOCK_MS, NOW, a_run

FAIR = FAIR_EVERY - 1
"""The slot that goes to the run that has been due longest."""


def due(name: str, priority: int = 5, age: int = 0, epoch: int = 0) -> Run:
    return a_run("pending", run_id=name, priority=priority, ready_at=NOW - age, lock_epoch=epoch)


def names(runs: list[Run]) -> list[str]:
    return [run.run_id for run in runs]


def test_one_slot_in_eight_is_fair() -> None:
    assert FAIR_EVERY == 8


def test_the_more_urgent_goes_first_however_long_the_others_are_due() -> None:
    runs = [due("nine", 9, age=900), due("five", 5, age=500), due("zero", 0, age=1)]
    assert names(pick(runs, 3, slot=0)) == ["zero", "five", "nine"]


def test_within_a_priority_the_longest_due_goes_first() -> None:
    runs = [due("fresh", age=1), due("old", age=900), due("middle", age=50)]
    assert names(pick(runs, 3, slot=0)) == ["old", "middle", "fresh"]


def test_equally_due_runs_go_by_number_of_claims_then_by_id() -> None:
    runs = [due("b", epoch=2), due("c", epoch=1), due("a", epoch=2)]
    assert names(pick(runs, 3, slot=0)) == ["c", "a", "b"]


def test_the_eighth_slot_goes_to_the_longest_due_of_any_priority() -> None:
    urgent = [due(f"urgent-{number}", 0) for number in range(20)]
    patient = due("patient", 9, age=1)
    assert names(pick([*urgent, patient], 8, slot=0))[FAIR] == "patient"
    assert names(pick([*urgent, patient], 1, slot=FAIR)) == ["patient"]
    assert "patient" not in names(pick([*urgent, patient], FAIR, slot=0))


def test_the_fair_slot_comes_round_over_many_small_claims() -> None:
    urgent = [due(f"urgent-{number}", 0) for number in range(20)]
    patient = due("patient", 9, age=1)
    firsts = [names(pick([*urgent, patient], 1, slot))[0] for slot in range(24)]
    assert [slot for slot, name in enumerate(firsts) if name == "patient"] == [7, 15, 23]


def test_a_deadline_counts_as_the_time_a_run_is_due() -> None:
    sleeper = a_run("waiting", run_id="sleeper", deadline_at=NOW - 5_000)
    assert names(pick([due("fresh"), sleeper], 1, slot=0)) == ["sleeper"]


def test_a_limit_of_zero_and_an_empty_list_pick_nothing() -> None:
    assert pick([due("a")], 0, slot=0) == []
    assert pick([], 8, slot=FAIR) == []


def test_a_run_that_keeps_continuing_goes_to_the_back_even_within_one_millisecond() -> None:
    runs = {name: due(name) for name in ("greedy", "second", "third")}
    order: list[str] = []
    for _ in range(6):
        (chosen,) = pick(runs.values(), 1, slot=0)
        order.append(chosen.run_id)
        at_work = claimed(chosen, "i-me", LOCK_MS, NOW)
        assert isinstance(at_work, Run)
        runs[chosen.run_id] = settled(at_work, Continue(), None, NOW)
    assert order == ["greedy", "second", "third"] * 2


def test_no_run_starves_behind_urgent_runs_that_always_continue() -> None:
    """With eight urgent runs that are always due and three of low priority, the latter get one call in eight."""
    runs = {f"urgent-{number}": due(f"urgent-{number}", 0) for number in range(8)}
    runs |= {f"patient-{number}": due(f"patient-{number}", 9) for number in range(3)}
    calls: Counter[str] = Counter()
    for slot in range(240):
        (chosen,) = pick(runs.values(), 1, slot)
        calls[chosen.run_id] += 1
        at_work = claimed(chosen, "i-me", LOCK_MS, NOW + slot)
        assert isinstance(at_work, Run)
        runs[chosen.run_id] = settled(at_work, Continue(), None, NOW + slot + 1)
    patient = {name: calls[name] for name in runs if name.startswith("patient")}
    assert patient == {"patient-0": 10, "patient-1": 10, "patient-2": 10}


RUNS = st.lists(
    st.builds(
        due,
        st.uuids().map(str),
        priority=st.integers(0, 9),
        age=st.integers(0, 5),
        epoch=st.integers(0, 3),
    ),
    max_size=20,
    unique_by=lambda run: run.run_id,
)


@settings(deadline=None)
@given(runs=RUNS, limit=st.integers(0, 12), slot=st.integers(0, 30))
def test_a_pick_is_complete_without_duplicates_and_independent_of_the_order_given(
    runs: list[Run], limit: int, slot: int
) -> None:
    chosen = pick(runs, limit, slot)
    assert len(chosen) == len(set(names(chosen))) == min(limit, len(runs))
    assert pick(reversed(runs), limit, slot) == chosen


@settings(deadline=None)
@given(runs=RUNS, slot=st.integers(0, 30))
def test_every_slot_goes_to_the_first_by_urgency_or_in_a_fair_slot_by_age(runs: list[Run], slot: int) -> None:
    left = {run.run_id: run for run in runs}
    for place, run in enumerate(pick(runs, len(runs), slot)):
        is_fair = (slot + place) % FAIR_EVERY == FAIR
        assert run == min(
            left.values(), key=lambda r: (0 if is_fair else r.priority, due_at(r), r.lock_epoch, r.run_id)
        )
        del left[run.run_id]
