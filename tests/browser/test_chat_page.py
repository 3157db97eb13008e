"""The chat page in a real browser: what its user sees, over reloads, interruptions and a killed server."""

import urllib.request
from dataclasses import asdict
from typing import Literal

import pytest
from playwright.sync_api import Page, Route, expect

from ocean import Event, kept_events
from tests.browser.chat_server import ChatServer

pytestmark = pytest.mark.xdist_group("browser")

SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
GREETING = "Hello! I am the offline model. I need no network, and I repeat what you write."


def send(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def shown(page: Page) -> list[str]:
    """Return everything that the conversation shows, from top to bottom."""
    return [each.inner_text() for each in page.locator("#log > li").all() if each.is_visible()]


def until_idle(page: Page, replies: int) -> None:
    expect(page.locator(".answer")).to_have_count(replies)
    expect(page.locator(".streaming, .sending")).to_have_count(0)


def test_words_appear_one_after_another_until_the_reply_is_complete(page: Page) -> None:
    send(page, "hello")
    seen = page.evaluate(
        """() => new Promise((resolve) => {
            const lengths = [];
            const look = () => {
                const answer = document.querySelector(".answer");
                if (answer && lengths.at(-1) !== answer.textContent.length) lengths.push(answer.textContent.length);
                if (answer && !answer.classList.contains("streaming") && !answer.hidden) resolve(lengths);
                else requestAnimationFrame(look);
            };
            look();
        })"""
    )
    assert len(seen) > 5, "the reply came in one piece"
    assert seen == sorted(seen)
    assert shown(page) == ["hello", GREETING]
    expect(page.get_by_role("status")).to_have_text("live")
    expect(page.get_by_text("offline", exact=True)).to_be_visible()


def test_a_reload_shows_the_same_conversation_and_continues_it(page: Page) -> None:
    send(page, "hello")
    until_idle(page, 1)
    page.get_by_label("Message").press_sequentially("tea")
    page.get_by_label("Message").press("Enter")
    until_idle(page, 2)
    before = shown(page)
    page.reload()
    until_idle(page, 2)
    assert shown(page) == before
    send(page, "and cake")
    until_idle(page, 3)
    assert shown(page) == [*before, "and cake", "You wrote: and cake I remember 2 earlier messages from you."]


def test_a_new_message_interrupts_the_reply(page: Page) -> None:
    send(page, "a story, please")
    expect(page.locator(".answer")).to_contain_text("wave number 1")
    send(page, "something shorter")
    until_idle(page, 2)
    question, story, mark, again, reply = shown(page)
    assert (question, mark, again) == ("a story, please", "Interrupted", "something shorter")
    assert story.startswith("Once upon a time")
    assert "wave number 60" not in story
    assert reply == "You wrote: something shorter I remember 1 earlier message from you."


def test_stop_ends_the_reply(page: Page) -> None:
    send(page, "a story, please")
    expect(page.locator(".answer")).to_contain_text("sea")
    page.get_by_role("button", name="Stop").click()
    until_idle(page, 1)
    assert shown(page)[2] == "Interrupted"
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()


def test_a_server_killed_during_a_reply_and_restarted_repeats_nothing(
    own_page: Page, own_server: ChatServer, complaints: list[str]
) -> None:
    page, server = own_page, own_server
    send(page, "a story, please")
    expect(page.locator(".answer")).to_contain_text("wave number 2")
    server.kill()
    expect(page.get_by_role("status")).to_have_text("reconnecting")
    server.start()  # the reply starts again from its beginning
    expect(page.locator(".answer")).to_contain_text("wave number 6")
    assert shown(page)[1].count("Once upon a time") == 1
    page.get_by_role("button", name="Stop").click()
    until_idle(page, 1)
    story = shown(page)[1]
    assert (story.count("Once upon a time"), story.count("wave number 2 ")) == (1, 1)

    server.kill()
    send(page, "are you there?")  # the page is not ready: the message is kept and sent later
    expect(page.locator(".sending")).to_have_count(1)
    server.start()
    until_idle(page, 2)
    expect(page.get_by_role("status")).to_have_text("live")
    conversation = shown(page)
    reply = "You wrote: are you there? I remember 1 earlier message from you."
    assert conversation == ["a story, please", story, "Interrupted", "are you there?", reply]
    page.reload()
    until_idle(page, 2)
    assert shown(page) == conversation
    assert all("net::ERR_" in text for text in complaints), complaints
    complaints.clear()


def test_an_invalid_message_is_shown_as_refused_and_the_conversation_continues(page: Page, server: ChatServer) -> None:
    send(page, "hello")
    until_idle(page, 1)
    run_id = page.url.rpartition("#")[2]
    request = urllib.request.Request(
        f"{server.url}/v1/runs/{run_id}/signal", b'{"input": {"txt": "odd"}}', {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 202
    expect(page.locator(".note.bad:visible")).to_have_text("Not accepted: txt: Extra inputs are not permitted")
    send(page, "tea")
    expect(page.locator(".answer").last).to_contain_text("You wrote: tea")


def test_the_page_keeps_what_stored_steps_have_streamed(page: Page) -> None:
    def event(call: int, text: str | None = None, step: str | None = "1:chat/answer") -> Event:
        type, payload = ("tick.step_stored", {"step": "answer"}) if text is None else ("chat.token", {"text": text})
        return Event(1, 1, type, payload, "s", "r", 1, 1, call, "chat", step=step)

    kept, plain = event(1, "kept"), event(1, "plain", None)
    histories = {
        "kept": [kept, event(1)],
        "kept then": [kept, event(1), event(2, " then", None)],
        "again": [event(1, "lost"), event(2, "again"), event(2)],
        "x": [plain, event(2, "x", None), event(2, "y"), event(3, "x", None)],
        "keptall": [plain, kept, event(1), event(2, "z", "1:chat/other"), event(3, "all", None)],
    }
    replayed = """(events) => {
        const conversation = { turns: new Map() };
        for (const event of events) take(conversation, event.type, event);
        return conversation.turns.get(1).answer;
    }"""
    for expected, history in histories.items():
        tokens = [each.payload["text"] for each in kept_events(history) if each.type == "chat.token"]
        assert "".join(tokens) == expected
        assert page.evaluate(replayed, [asdict(each) for each in history]) == expected


def test_a_message_sent_before_the_page_is_ready_is_not_lost(page: Page) -> None:
    held: list[Route] = []
    page.route("**/v1/session", lambda route: held.append(route))
    page.reload()
    send(page, "hello")
    expect(page.locator(".sending")).to_have_text("hello")
    assert len(held) == 1
    held[0].continue_()
    until_idle(page, 1)
    assert shown(page) == ["hello", GREETING]


def test_html_in_a_message_is_shown_as_text(page: Page) -> None:
    for text in ("<img src=x onerror=alert(1)>", "<script>document.title = 'mine'</script>", "<b>bold</b> & &amp;"):
        send(page, text)
        expect(page.locator(".streaming, .sending")).to_have_count(0)
        expect(page.locator(".user").last).to_have_text(text)
        expect(page.locator(".answer").last).to_contain_text(text)
    assert page.locator("#log :is(img, script, b)").count() == 0
    assert page.title() == "Ocean chat"


def test_the_page_works_with_a_keyboard_and_a_screen_reader(page: Page) -> None:
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.type("first line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    until_idle(page, 1)
    assert shown(page)[0] == "first line\nsecond line"
    conversation = page.get_by_role("log", name="Conversation")
    expect(conversation).to_have_attribute("aria-live", "polite")
    expect(conversation.locator(".answer")).to_have_attribute("aria-busy", "false")


def test_the_page_fits_a_small_screen_in_light_and_dark(page: Page) -> None:
    page.set_viewport_size({"width": 320, "height": 560})
    send(page, "w" * 200)
    until_idle(page, 1)
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    box = page.get_by_role("button", name="Send").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 320
    backgrounds = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds == ["rgb(246, 248, 250)", "rgb(14, 21, 27)"]


def test_a_new_conversation_is_empty_and_back_returns_to_the_last(page: Page) -> None:
    send(page, "hello")
    until_idle(page, 1)
    page.get_by_role("button", name="New").click()
    assert shown(page) == []
    send(page, "tea")
    until_idle(page, 1)
    assert shown(page) == ["tea", "You wrote: tea"]
    page.go_back()
    expect(page.locator(".answer")).to_have_text(GREETING)


def test_a_missing_conversation_is_reported(page: Page, server: ChatServer, complaints: list[str]) -> None:
    page.goto(f"{server.url}/chat#missing")
    page.reload()
    expect(page.get_by_role("status")).to_have_text("There is no such conversation here.")
    expect(page.get_by_label("Message")).to_be_disabled()
    assert all("404" in text for text in complaints), complaints
    complaints.clear()


def test_a_server_with_keys_asks_for_one(own_page: Page, own_server: ChatServer, complaints: list[str]) -> None:
    page, server = own_page, own_server
    key = server.new_key()
    page.reload()
    page.get_by_label("API key").fill("ocean_wrong_key")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    send(page, "hello")
    until_idle(page, 1)
    page.reload()
    until_idle(page, 1)
    assert shown(page) == ["hello", GREETING]
    assert all("401" in text for text in complaints), complaints
    complaints.clear()
