"""The recipes' page: three commands each, of things that are there."""

import re
import shlex

import pytest

from tests.cli.test_help import COMMANDS
from tests.deploy.kit import DEPLOY, ROOT

PAGE = (DEPLOY / "README.md").read_text()
RECIPES = ("A plain VM", "A container", "AWS Lambda")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def commands(title: str) -> list[str]:
    found = re.search(r"^```sh\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1].splitlines()


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_is_three_commands_of_files_that_are_there(title: str) -> None:
    assert len(commands(title)) == 3
    named = re.findall(r"wrangler-free-deploy/[\w./-]+", " ".join(commands(title)))
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []
    assert "smoke.py" in section(title)


@pytest.mark.parametrize("title", RECIPES[:2])
def test_a_recipe_that_others_may_reach_makes_a_key_before_it_starts(title: str) -> None:
    _, key, start = commands(title)
    assert key.startswith("export OCEAN_KEY=$(")
    assert " keys create --actor me --scope read --scope signal)" in key
    assert "systemctl enable --now" in start or " up " in start


def test_ocean_is_told_only_what_it_knows() -> None:
    """Keys are made by a command that the tests of keys look at."""
    told = re.findall(r"(?:bin/ocean|`ocean) ((?!keys|create`|serve`)[a-z][^`\n>]*)", PAGE)
    assert len(told) > 2
    for line in told:
        name, *rest = shlex.split(line)
        options = [word for word in rest if word.startswith("--")]
        assert set(options) <= set(COMMANDS[name]), line


def test_no_recipe_is_forgotten() -> None:
    folders = {path.name for path in DEPLOY.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert folders == {"vm", "container", "lambda"}
