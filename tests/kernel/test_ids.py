"""Ids: ordered by time and unique; derived ids are the same every time."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ocean.state.ids import (
    IdSource,
    derived_id,
    drawing_from,
    even_roll,
    instance_id,
    new_api_key,
    new_lease_id,
    new_token,
    new_web_token,
)

NOW = 1_700_000_000_000


def test_a_new_id_is_a_uuid_of_version_7_that_carries_its_millisecond() -> None:
    made = uuid.UUID(IdSource().new(NOW))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == NOW


def test_every_one_of_many_ids_has_its_version_bits() -> None:
    source = IdSource()
    made = [uuid.UUID(source.new(NOW)) for _ in range(2_000)]
    assert {(one.version, one.variant) for one in made} == {(7, uuid.RFC_4122)}


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**47), min_size=2, max_size=50))
def test_ids_grow_whatever_the_clock_does(times: list[int]) -> None:
    source = IdSource()
    made = [source.new(now) for now in times]
    assert made == sorted(set(made))


def test_ids_of_one_millisecond_grow_and_stay_in_it() -> None:
    source = IdSource()
    made = [source.new(NOW) for _ in range(5_000)]
    assert made == sorted(set(made))
    assert uuid.UUID(made[-1]).int >> 80 in (NOW, NOW + 1)


def test_a_clock_set_back_makes_no_id_that_sorts_before_an_earlier_one() -> None:
    source = IdSource()
    first = source.new(NOW)
    assert first < source.new(NOW - 60_000) < source.new(NOW + 60_000)


def test_threads_that_share_a_source_get_different_ids() -> None:
    source = IdSource()
    with ThreadPoolExecutor(4) as pool:
        made = [name for part in pool.map(lambda _: [source.new(NOW) for _ in range(500)], range(4)) for name in part]
    assert len(set(made)) == 2_000


def test_two_sources_do_not_make_the_same_ids() -> None:
    assert IdSource().new(NOW) != IdSource().new(NOW)


def test_a_derived_id_is_the_same_in_every_version_of_ocean() -> None:
    """A tick that is called again by a newer process must get the same ids as before."""
    assert derived_id("r-1:4", 1) == "78622c28-1aa9-587e-81e8-e132913b7916"


def test_a_derived_id_is_a_uuid() -> None:
    made = uuid.UUID(derived_id("r-1:4", 1))
    assert (made.version, made.variant) == (5, uuid.RFC_4122)


def test_derived_ids_differ_by_run_tick_and_ordinal() -> None:
    seeds = ["r-1:4", "r-1:5", "r-2:4", "r-1:41", "r-14:1"]
    assert len({derived_id(seed, ordinal) for seed in seeds for ordinal in range(1, 50)}) == len(seeds) * 49


def test_the_boundary_between_parts_matters() -> None:
    assert derived_id("a", "bc") != derived_id("ab", "c")
    assert derived_id("r", 11) != derived_id("r1", 1)


@settings(deadline=None)
@given(st.text(max_size=40), st.integers(), st.integers())
def test_a_roll_is_a_stable_fraction_below_one(run_id: str, tick: int, attempt: int) -> None:
    run_id = run_id.encode(errors="replace").decode()
    roll = even_roll(run_id, tick, attempt)
    assert 0 <= roll < 1
    assert even_roll(run_id, tick, attempt) == roll


def test_rolls_are_spread_evenly() -> None:
    rolls = [even_roll("r-1", tick, 1) for tick in range(4_000)]
    tenths = [sum(1 for roll in rolls if tenth <= roll * 10 < tenth + 1) for tenth in range(10)]
    assert min(tenths) > 300


def test_an_instance_has_another_id_after_every_start() -> None:
    assert instance_id() != instance_id()
    assert instance_id().startswith("i-")


def test_ids_drawn_from_the_same_source_are_the_same() -> None:
    def drawn(seed: int) -> list[str]:
        with drawing_from(Random(seed)):
            return [IdSource().new(1), new_lease_id(), instance_id(), new_token(), *new_api_key()]

    assert drawn(1) == drawn(1)
    assert not set(drawn(1)) & set(drawn(2))
    assert instance_id() != instance_id()


def test_the_length_of_secrets_does_not_change() -> None:
    assert len(new_lease_id()) == len("lease_") + 32
    assert len(new_web_token()) == 43
    assert len(new_token()) == 24
