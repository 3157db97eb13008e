"""Check the built documentation site: no internal link or anchor is broken, and nothing is loaded from other hosts.

    python -m tests.project.site_links FOLDER

lists what is wrong and exits with 1. `mkdocs build --strict` checks the links in the Markdown; this checks the built
HTML, with the navigation, the theme and what plugins and hooks have added.
"""

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
"""Tags whose attribute makes the browser load something; `link` is handled apart."""
NOT_LOADED = {"canonical", "prev", "next", "alternate", "edit"}
"""Values of `rel` with which a `link` loads nothing."""
IN_CSS = re.compile(r"""(?:url\(|@import\s+)\s*["']?(?P<target>[^"')\s;]+)""")


@dataclass
class Page(HTMLParser):
    """The anchors of a page, its links, and the addresses that it loads."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and not set(given.get("rel", "").split()) & NOT_LOADED:
            self.loaded.append(given.get("href", ""))
        elif tag in LOADED and "src" in given:
            self.loaded.append(given["src"])
        if "style" in given:
            self.loaded += IN_CSS.findall(given["style"])


def problems(site: Path) -> list[str]:
    """Return one line for each broken link, missing anchor and address on another host."""
    pages = {path: _parsed(path) for path in sorted(site.rglob("*.html"))}
    found = [f"{site}: no pages"] if not pages else []
    for path, page in pages.items():
        here = path.relative_to(site)
        if path.name != "404.html":  # its links begin at the root of the host
            found += [f"{here}: {link}: {why}" for link in page.links if (why := _broken(site, path, link, pages))]
            found += [f"{here}: {each}: no such file" for each in page.loaded if not _is_there(path, each)]
        found += [f"{here}: loads {each}" for each in page.loaded if _is_elsewhere(each)]
    for style in sorted(site.rglob("*.css")):
        urls = IN_CSS.findall(style.read_text())
        found += [f"{style.relative_to(site)}: loads {url}" for url in urls if _is_elsewhere(url)]
    return found


def _parsed(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text())
    return page


def _is_elsewhere(target: str) -> bool:
    return bool(urlsplit(target).netloc)


def _is_there(path: Path, target: str) -> bool:
    parts = urlsplit(target)
    return bool(parts.scheme or parts.netloc) or (path.parent / unquote(parts.path)).exists()


def _broken(site: Path, path: Path, link: str, pages: dict[Path, Page]) -> str | None:
    """Return why an internal link is broken; None if it is not, or leads to another host."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    address, anchor = urldefrag(unquote(link))
    target = (path.parent / urlsplit(address).path).resolve() if address else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_relative_to(site) or not target.exists():
        return "no such page"
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "no such anchor"
    return None


if __name__ == "__main__":
    found = problems(Path(sys.argv[1]).resolve())
    sys.stdout.write("".join(f"{each}\n" for each in found))
    sys.exit(bool(found))
