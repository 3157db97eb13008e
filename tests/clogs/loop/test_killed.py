"""A process is killed between the effect and its record, and no other process is alive."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from ocean import CallRefused, Ocean
from tests.clogs.loop.victim import LOCK_MS, merging
from tests.postgres.server import fresh_database, return_database

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ocean.db'}"
        return
    url = fresh_database(has_test_clock=False)
    yield url
    return_database(url)


@pytest.mark.anyio
async def test_a_killed_process_is_followed_by_one_that_finishes_its_step_and_frees_the_issue(
    url: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "merged"
    loop = merging(ledger)
    async with Ocean.open(url, clogs=loop.clogs, lock_ms=LOCK_MS) as ocean:
        await loop.create_issue(ocean, "mend", actor="ann", issue_id="AFU9-123")
        command = [sys.executable, "-m", "tests.clogs.loop.victim", url, str(ledger)]
        killed = await anyio.run_process(command, cwd=ROOT, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr

        with pytest.raises(CallRefused) as refused:
            await loop.run_next_step(ocean, "AFU9-123", actor="kim")
        assert (refused.value.code, refused.value.details["owner"]) == ("LOOP_CONFLICT", "ann")
        ended = await ocean.settle(refused.value.details["runId"], timeout_ms=30_000)
        assert ended.is_ended

        answer = await loop.run_next_step(ocean, "AFU9-123", actor="ann", idempotency_key="k")
        assert (answer.run_id, answer.loop_status) == (ended.run_id, "completed")
        assert (await loop.get_issue(ocean, "AFU9-123")).lock is None
        first, second = (line.split(" ") for line in ledger.read_text().splitlines())
        assert (first[0], second[0], first[1] == second[1]) == ("merged", "again", True)
