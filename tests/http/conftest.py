from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http.kit import AppWorld, app_world


@pytest.fixture
async def h(anyio_backend: Any) -> AsyncIterator[AppWorld]:
    async with app_world() as world:
        yield world
