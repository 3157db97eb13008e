"""The page of the recipes: three commands each, with files that exist."""

import re
import shlex

import pytest

from tests.cli.test_help import COMMANDS
from tests.deploy.kit import DEPLOY, ROOT, recipe, section

PAGE = (DEPLOY / "README.md").read_text()
RECIPES = ("A plain VM", "A container", "AWS Lambda")


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_is_three_commands_of_files_that_are_there(title: str) -> None:
    assert len(recipe(title)) == 3
    named = re.findall(r"wrangler-free-deploy/[\w./-]+", " ".join(recipe(title)))
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []
    assert "smoke.py" in section(title)


@pytest.mark.parametrize("title", RECIPES[:2])
def test_a_recipe_that_others_may_reach_makes_a_key_before_it_starts(title: str) -> None:
    _, key, start = recipe(title)
    assert key.startswith("export OCEAN_KEY=$(")
    assert " keys create --actor me --scope read --scope signal)" in key
    assert "systemctl enable --now" in start or " up " in start


def test_recipes_set_only_variables_that_ocean_reads() -> None:
    details = re.findall(r"(?:bin/ocean|-T ocean|`ocean) ([a-z][^`\n>)]*)", PAGE)
    assert {line.split()[0] for line in details} >= {"keys", "ps", "advance", "serve"}
    for line in details:
        words = shlex.split(line)
        name = " ".join(words[:2]) if words[0] == "keys" else words[0]
        assert {word for word in words if word.startswith("--")} <= set(COMMANDS[name]), line


def test_no_recipe_is_forgotten() -> None:
    folders = {path.name for path in DEPLOY.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert folders == {"vm", "container", "lambda"}
