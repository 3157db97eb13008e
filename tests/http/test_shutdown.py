"""Shutdown: the callbacks of all open waits are called, and no others."""

from contextlib import ExitStack

from ocean.http.framework.call import Stopping


def test_callbacks_are_called_only_while_their_block_runs() -> None:
    stopping, called = Stopping(), list[str]()
    with stopping.calling(lambda: called.append("before")):
        pass
    with stopping.calling(lambda: called.append("now")):
        assert not stopping.is_set
        stopping.set()
    assert stopping.is_set
    assert called == ["now"]


def test_a_callback_that_removes_itself_does_not_skip_others() -> None:
    stopping, called = Stopping(), list[str]()
    with ExitStack() as waiting:

        def leave() -> None:
            called.append("left")
            leaving.close()

        leaving = waiting.enter_context(ExitStack())
        leaving.enter_context(stopping.calling(leave))
        waiting.enter_context(stopping.calling(lambda: called.append("stayed")))
        stopping.set()
    assert called == ["left", "stayed"]
