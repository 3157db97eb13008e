"""Every benchmark has a file, a command that repeats it, and a line in the README of the bench."""

import importlib
from pathlib import Path

import pytest

from bench import picture
from bench.__main__ import BENCHMARKS
from bench.contest import Contest

BENCH = Path(__file__).parents[2] / "bench"


def test_every_benchmark_is_in_the_list() -> None:
    found = {path.stem for path in BENCH.glob("*.py") if "contest.main()" in path.read_text()}
    assert found == set(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_begins_with_its_question_and_has_its_command(name: str) -> None:
    module = importlib.import_module(f"bench.{name}")
    assert isinstance(module.contest, Contest)
    assert module.__doc__ is not None
    assert module.__doc__.splitlines()[0].endswith("?")
    assert f"    python -m bench.{name}\n" in module.__doc__
    assert f"`{name}.py`" in (BENCH / "README.md").read_text()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_contestants_have_unique_names_and_existing_modules(name: str) -> None:
    contest: Contest = importlib.import_module(f"bench.{name}").contest
    names = [each.name for each in contest.contestants]
    assert len(names) == len(set(names))
    assert [
        each.module for each in contest.contestants if not (BENCH / "contestants" / f"{each.module}.py").exists()
    ] == []


def test_the_picture_and_the_tables_are_made_from_the_published_figures() -> None:
    again = "run `python -m bench.picture`"
    assert picture.PICTURE.read_text() == picture.picture(), again
    assert picture.PAGE.read_text() == picture.page(), again
    assert {each.bench for each in picture.figures()} <= set(BENCHMARKS)


def test_every_published_figure_is_in_the_text() -> None:
    page = picture.PAGE.read_text()
    ratios = [
        ratio for figure in picture.figures() for of_store in figure.ratios.values() for ratio in of_store.values()
    ]
    assert len(ratios) > 30
    assert [ratio for ratio in ratios if isinstance(ratio, int | float) and f"{ratio:g} ×" not in page] == []
