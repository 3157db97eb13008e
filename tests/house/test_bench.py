"""The bench says what it asks: every question has a file, a command that repeats it, and a line in its README."""

import importlib
from pathlib import Path

import pytest

from bench import picture
from bench.__main__ import QUESTIONS
from bench.contest import Contest

BENCH = Path(__file__).parents[2] / "bench"


def test_every_question_is_among_all_of_them() -> None:
    asking = {path.stem for path in BENCH.glob("*.py") if "contest.main()" in path.read_text()}
    assert asking == set(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_says_what_it_asks_and_how_to_repeat_it(name: str) -> None:
    module = importlib.import_module(f"bench.{name}")
    assert isinstance(module.contest, Contest)
    assert module.__doc__ is not None
    assert module.__doc__.splitlines()[0].endswith("?")
    assert f"    python -m bench.{name}\n" in module.__doc__
    assert f"`{name}.py`" in (BENCH / "README.md").read_text()


@pytest.mark.parametrize("name", QUESTIONS)
def test_contestants_have_names_of_their_own_and_modules(name: str) -> None:
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
    assert {each.bench for each in picture.figures()} <= set(QUESTIONS)


def test_every_published_figure_is_in_the_text() -> None:
    page = picture.PAGE.read_text()
    ratios = [
        ratio for figure in picture.figures() for of_store in figure.ratios.values() for ratio in of_store.values()
    ]
    assert len(ratios) > 30
    assert [ratio for ratio in ratios if isinstance(ratio, int | float) and f"{ratio:g} ×" not in page] == []
