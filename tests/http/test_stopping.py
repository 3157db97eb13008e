"""Who is told that a server stops: everybody who waits then, and nobody else."""

from contextlib import ExitStack

from ocean.http.framework.call import Stopping


def test_who_waits_is_told_and_who_no_longer_does_is_not() -> None:
    stopping, told = Stopping(), list[str]()
    with stopping.calling(lambda: told.append("before")):
        pass
    with stopping.calling(lambda: told.append("now")):
        assert not stopping.is_set
        stopping.set()
    assert stopping.is_set
    assert told == ["now"]


def test_whoever_stops_waiting_when_told_keeps_it_from_nobody() -> None:
    stopping, told = Stopping(), list[str]()
    with ExitStack() as waiting:

        def leave() -> None:
            told.append("left")
            leaving.close()

        leaving = waiting.enter_context(ExitStack())
        leaving.enter_context(stopping.calling(leave))
        waiting.enter_context(stopping.calling(lambda: told.append("stayed")))
        stopping.set()
    assert told == ["left", "stayed"]
