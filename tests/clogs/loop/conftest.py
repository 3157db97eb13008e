"""Every async test of the Loop API runs on SQLite and on PostgreSQL, but for those marked."""

import inspect

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_apart = "place" in metafunc.fixturenames or any(metafunc.definition.iter_markers("sqlite"))
    if inspect.iscoroutinefunction(metafunc.function) and not is_apart:
        metafunc.fixturenames.append("ground")
        metafunc.parametrize("ground", ["sqlite", "postgres"], indirect=True)
