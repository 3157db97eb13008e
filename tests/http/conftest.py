from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http.kit import House, house


@pytest.fixture
async def h(anyio_backend: Any) -> AsyncIterator[House]:
    async with house() as made:
        yield made
