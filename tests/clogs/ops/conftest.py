"""Every test of the Ops-Loop runs on SQLite and on PostgreSQL, unless it says that the store does not matter."""

import inspect

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_marked = any(metafunc.definition.iter_markers("sqlite"))
    if inspect.iscoroutinefunction(metafunc.function) and not is_marked:
        metafunc.fixturenames.append("ground")
        metafunc.parametrize("ground", ["sqlite", "postgres"], indirect=True)
