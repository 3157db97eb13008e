"""When a server is told to stop, those who only wait are answered at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopping:
    """Known to whoever runs the server as `app.state.stopping`, and to every request that waits."""

    def __init__(self) -> None:
        self.is_set = False
        self._then: dict[object, Callable[[], object]] = {}

    def set(self) -> None:
        self.is_set = True
        for then in tuple(self._then.values()):
            then()

    @contextmanager
    def calling(self, then: Callable[[], object]) -> Iterator[None]:
        """Call it if the server stops while the block lasts."""
        mark = object()
        self._then[mark] = then
        try:
            yield
        finally:
            del self._then[mark]
