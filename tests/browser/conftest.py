"""A real browser, and the chat page's server as a separate process that a test may kill."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect, sync_playwright

from tests.browser.chat_server import ChatServer, running

TIMEOUT_MS = 60_000
expect.set_options(timeout=TIMEOUT_MS)


def a_browser() -> str:
    """Return the path of a browser; without one the tests explain how to install one, and CI fails."""
    named = os.environ.get("OCEAN_CHROMIUM")
    found = named or shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if found:
        return found
    hint = "there is no browser: `apt-get install chromium`, or set OCEAN_CHROMIUM to the path of one"
    if os.environ.get("CI") == "true":
        pytest.fail(hint)
    pytest.skip(hint)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start one per module: Playwright keeps an event loop in this thread, where other tests run theirs."""
    path = a_browser()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, headless=True)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[ChatServer]:
    """One server for all tests that do not stop it: each has its own conversation."""
    with running(tmp_path_factory.mktemp("chat") / "chat.db") as served:
        yield served


@pytest.fixture
def own_server(tmp_path: Path, browser: Browser) -> Iterator[ChatServer]:
    with running(tmp_path / "chat.db") as served:
        yield served


@pytest.fixture
def complaints() -> list[str]:
    """The errors on the browser's console; a test that expects some removes them."""
    return []


@pytest.fixture
def page(browser: Browser, server: ChatServer, complaints: list[str]) -> Iterator[Page]:
    with opened(browser, server, complaints) as shown:
        yield shown


@pytest.fixture
def own_page(browser: Browser, own_server: ChatServer, complaints: list[str]) -> Iterator[Page]:
    with opened(browser, own_server, complaints) as shown:
        yield shown


@contextmanager
def opened(browser: Browser, server: ChatServer, complaints: list[str]) -> Iterator[Page]:
    """Open the chat page in a new browser context; at the end there must be no errors."""

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def on_error(error: Error) -> None:
        complaints.append(str(error))

    def on_request(request: Request) -> None:
        if not request.url.startswith((server.url, "data:")):
            complaints.append(f"request to {request.url}")

    with browser.new_context() as context:
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.on("console", on_console)
        page.on("pageerror", on_error)
        page.on("request", on_request)
        page.goto(f"{server.url}/chat")
        yield page
    assert complaints == []
