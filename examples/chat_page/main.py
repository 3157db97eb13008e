"""Serve a chat page: one HTML file that follows the events of a run. Open /chat."""

import base64
import hashlib
import os
import re
import sys
from pathlib import Path

import anyio

from clogs.chat import make_chat
from clogs.models import EnvironmentModels, ModelReply, Models, OfflineModel, Rule, by_rules
from ocean import Clog, Incoming, Reply

PAGE = Path(__file__).with_name("page.html").read_text()
PAUSE_S = float(os.environ.get("CHAT_PAGE_PAUSE_S", "0.08"))
WAVES = " ".join(f"And then wave number {n} came in, and went out again." for n in range(1, 61))


async def pause() -> None:
    await anyio.sleep(PAUSE_S)


story = Rule(r"\bstory\b", ModelReply(f"Once upon a time there was a sea. {WAVES}"))
offline = Models([OfflineModel(by_rules(story), pause=pause)])
chat = make_chat(EnvironmentModels() if "OCEAN_MODEL_URL" in os.environ else offline, lock_ms=3_000)
page = Clog("page")


def hash_of(tag: str) -> str:
    """Return the hash by which the browser accepts the page's own script or style, and no other."""
    inline = PAGE.split(f"<{tag}>", 1)[1].split(f"</{tag}>", 1)[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


POLICY = f"""default-src 'none'; script-src {hash_of("script")}; style-src {hash_of("style")}; connect-src 'self';
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"""
HEADERS = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": re.sub(r"\s+", " ", POLICY)}


@page.route("GET", "/chat", access="open")
async def show(incoming: Incoming) -> Reply:
    return Reply(PAGE.encode(), headers=HEADERS)


if __name__ == "__main__":
    from ocean.cli.main import app

    app(["serve", "--clogs", "main:chat,main:page", *sys.argv[1:]])
