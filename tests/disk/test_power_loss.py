"""Power loss: acknowledged writes are there, whole, and all others are as if they had never been requested."""

import random
from collections import Counter

import pytest

from tests.disk.power import DAMAGED, LOST, check_files, check_goes_on, cuts, record, try_seed
from tests.disk.power_cut import SECTOR, Platter
from tests.disk.vfs import Created, Deleted, Synced, Written

pytestmark = pytest.mark.anyio

SEEDS, CUTS = 6, 50
SHORT_DAY = ("make several", "call")


async def test_acknowledged_writes_survive_a_power_cut_and_the_rest_can_be_repeated() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        seen += await try_seed(seed, CUTS, again_every=25)
    assert seen.total() == SEEDS * CUTS
    # A commit in progress is there or not. A batch of cuts in which it never was is too weak.
    assert min(seen["as acknowledged"], seen["one more"], seen["nothing yet"]) > 0


async def test_a_power_cut_between_any_two_disk_calls_leaves_whole_commits() -> None:
    recording, chance = await record(3, deeds=SHORT_DAY), random.Random(3)
    every_moment = set(range(len(recording.happenings)))
    for cut in cuts(recording, every_moment, chance):
        check_files(recording, cut, chance)


async def test_the_same_seed_leaves_the_same_files() -> None:
    recording = await record(1, deeds=SHORT_DAY)
    moments = set(range(0, len(recording.happenings), 50))
    first, second = ([cut.files for cut in cuts(recording, moments, random.Random(1))] for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("synchronous", "seen"), [("NORMAL", {LOST}), ("OFF", {LOST, DAMAGED})])
async def test_a_database_that_does_not_sync_each_commit_is_detected(synchronous: str, seen: set[str]) -> None:
    """Shows that the other tests can fail: with less than `synchronous=FULL`, acknowledged writes are lost."""
    recording, chance = await record(1, synchronous), random.Random(1)
    moments = set(chance.sample(range(len(recording.happenings)), 40))
    complaints: set[str] = set()
    for cut in cuts(recording, moments, chance):
        try:
            check_files(recording, cut, chance)
        except AssertionError as error:
            complaints.add(str(error).splitlines()[0])
    assert complaints >= seen


async def test_a_result_that_differs_when_repeated_is_detected() -> None:
    recording, chance = await record(1), random.Random(1)
    *_, cut = cuts(recording, {len(recording.happenings) - 1}, chance)
    cut.acknowledged["call"] = "something else"
    with pytest.raises(AssertionError, match="answered otherwise"):
        await check_goes_on(recording, cut, chance)


def left(*happenings: Created | Written | Synced | Deleted) -> list[dict[str, bytes]]:
    platter = Platter()
    for happening in happenings:
        platter.take_in(happening)
    return [platter.left(random.Random(seed)) for seed in range(60)]


def test_a_synced_write_is_kept_and_any_sectors_of_others() -> None:
    made, zeros, ones = Created("f", True), Written("f", 0, bytes(2 * SECTOR)), Written("f", 100, b"1" * SECTOR)
    found = {kept["f"] for kept in left(made, zeros, Synced("f"), ones)}
    tail = bytes(SECTOR - 100)
    whole, lost = bytes(100) + b"1" * SECTOR + tail, bytes(2 * SECTOR)
    halves = {bytes(100) + b"1" * (SECTOR - 100) + bytes(SECTOR), bytes(SECTOR) + b"1" * 100 + tail}
    assert found >= {whole, lost} | halves
    # Bytes next to a write are not changed, whatever happened to the write.
    assert {kept[:100] + kept[SECTOR + 100 :] for kept in found} == {bytes(100) + tail}


def test_a_file_whose_folder_was_not_synced_may_be_missing() -> None:
    made = (Created("db", False), Written("db", 0, b"x"), Synced("db"))
    assert {kept.get("db") for kept in left(*made)} == {None, b"x"}
    journal = (Created("journal", True), Synced("journal"))
    assert {kept["db"] for kept in left(*made, *journal)} == {b"x"}
    assert {"journal" in kept for kept in left(*made, *journal, Deleted("journal", False))} == {True, False}
    assert {"journal" in kept for kept in left(*made, *journal, Deleted("journal", True))} == {False}
