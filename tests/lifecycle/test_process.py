"""A long-lived process: its event loop, its garbage collection, and that both are restored."""

import asyncio
import gc
import sys

import pytest

from ocean.process import YOUNG, run_process


async def seen() -> tuple[str, int, bool]:
    return type(asyncio.get_running_loop()).__module__, gc.get_threshold()[0], gc.get_freeze_count() > 0


@pytest.mark.parametrize(("is_there", "loop"), [(True, "uvloop"), (False, "asyncio.unix_events")])
def test_it_runs_on_uvloop_if_it_is_installed(is_there: bool, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    before = gc.get_threshold()
    assert run_process(seen()) == (loop, YOUNG, True)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


@pytest.mark.parametrize("chosen", [0, 2 * YOUNG])
def test_a_less_frequent_garbage_collection_is_kept(chosen: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(chosen, *before[1:])
    try:
        assert run_process(seen())[1] == chosen
        assert gc.get_threshold()[0] == chosen
    finally:
        gc.set_threshold(*before)


def test_an_error_is_raised_and_the_collector_is_restored() -> None:
    async def fail() -> None:
        raise RuntimeError("so it is")

    before = gc.get_threshold()
    with pytest.raises(RuntimeError, match="so it is"):
        run_process(fail())
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
