"""The seeds that CI runs. The long mode: python -m tests.simulation --seeds 100000 --from N --jobs 2"""

import pytest

from tests.simulation.batches import EXPECTED, run_batch, show

SHARE, SHARES = 120, 2
ON_POSTGRES = 12


@pytest.mark.parametrize("share", range(SHARES))
def test_no_seed_finds_a_fault_and_every_event_occurs(share: int) -> None:
    batch = run_batch(range(share, SHARES * SHARE, SHARES))
    assert not batch.failures, show(batch)
    assert not batch.missing, show(batch)


@pytest.mark.parametrize("share", range(2))
def test_no_seed_finds_a_fault_on_postgres(share: int) -> None:
    batch = run_batch(range(share, ON_POSTGRES, 2), backend="postgres")
    assert not batch.failures, show(batch)


def test_what_a_batch_has_not_seen_is_reported() -> None:
    batch = run_batch(range(1))
    assert batch.missing
    assert set(batch.missing) < set(EXPECTED)
    assert f"never occurred: {batch.missing[0]}" in show(batch)
