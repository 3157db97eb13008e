"""MkDocs hooks: adapt what GitHub shows as it is to Python-Markdown, and link to files outside docs/ in the repository.

- A link to a file outside docs/ (`../bench/README.md`) becomes a link to that file in the repository. A link to a file
  that does not exist is a warning, which `--strict` turns into an error.
- A fence like "```python fragment", which the tests of the documents use, becomes "```python".
- `decisions/*.md` in the navigation becomes the list of all decisions.
- Long names in tables may wrap after an underscore, a dot or a slash. Short ones never wrap, so `--db` stays whole.
"""

import logging
import re
from pathlib import Path
from typing import Any

BRANCH = "main"
LINK = re.compile(r"(?<!\!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^( *```\w+) [^\n`]*$", re.MULTILINE)
CODE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"<td.*?</td>", re.DOTALL)
LONG_NAME = re.compile(r"<code>[^<]{25,}</code>")
SHORT_NAME = re.compile(r"<code>([^<\s]{1,24})</code>")
log = logging.getLogger("mkdocs.hooks.site")


def on_config(config: Any) -> Any:
    """List all decisions in the navigation, by number and title."""
    docs = Path(config["docs_dir"])
    for section in config["nav"] or []:
        for title, pages in section.items():
            if isinstance(pages, list):
                section[title] = [page for entry in pages for page in _expanded(docs, entry)]
    return config


def _expanded(docs: Path, entry: Any) -> list[Any]:
    if not isinstance(entry, str) or "*" not in entry:
        return [entry]
    files = sorted(file for file in docs.glob(entry) if file.name != "README.md")
    return [
        {f"{int(file.name[:4])}. {file.read_text().splitlines()[0].removeprefix('# ')}": str(file.relative_to(docs))}
        for file in files
    ]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links to files outside docs/, and the info strings of fences."""
    docs = Path(config["docs_dir"]).resolve()
    root = docs.parent
    here = (docs / page.file.src_uri).parent

    def rewritten(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z]+:|/", target):
            return match[0]
        there = (here / target).resolve()
        if there.is_relative_to(docs) and not there.is_dir():
            return match[0]
        if not there.exists() or not there.is_relative_to(root):
            log.warning("%s links to %s, which does not exist", page.file.src_uri, target)
            return match[0]
        if there.is_relative_to(docs) and (there / "README.md").exists():
            return f"[{match['text']}]({target.rstrip('/')}/README.md{match['anchor'] or ''})"
        kind = "tree" if there.is_dir() else "blob"
        url = f"{config['repo_url']}/{kind}/{BRANCH}/{there.relative_to(root)}"
        return f"[{match['text']}]({url}{match['anchor'] or ''})"

    parts, at = [], 0
    for block in CODE.finditer(markdown):
        parts += [LINK.sub(rewritten, markdown[at : block.start()]), FENCE.sub(r"\1", block[0])]
        at = block.end()
    return "".join([*parts, LINK.sub(rewritten, markdown[at:])])


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Let long names in the cells of tables wrap, and keep short ones on one line."""

    def breakable(name: re.Match[str]) -> str:
        return re.sub(r"(?<=\w)([_/.]|::)(?=\w)", r"\1<wbr>", name[0])

    html = CELL.sub(lambda cell: LONG_NAME.sub(breakable, cell[0]), html)
    return SHORT_NAME.sub(r'<code class="short">\1</code>', html)
