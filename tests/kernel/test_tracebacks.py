"""Where an exception was raised: the author's line, in a bounded and redacted form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import Abort, InvalidValue, NotRead
from ocean.state.outcomes import ErrorInfo, Failed, Retry, error_info, note_of, sentence_of
from ocean.state.tracebacks import MOST_BYTES, without_traceback
from ocean.state.values import encode
from tests import failing
from tests.failing import NAME, line_of, place_in


def raised(fn: Callable[[], Any]) -> dict[str, Any]:
    """Return the stored error of an exception that the function raises."""
    try:
        fn()
    except Exception as error:
        found = error_info(error).as_json()
        encode(found)
        assert len(found["where"]["traceback"].encode()) <= MOST_BYTES
        return found
    raise AssertionError("nothing was raised")


def test_the_place_is_the_line_that_raised() -> None:
    error = raised(failing.charge)
    assert error["message"] == "ValueError: no such card 4711"
    assert error["where"]["type"] == "ValueError"
    assert place_in(error) == (NAME, line_of("charge"), "charge")
    assert error["where"]["traceback"].endswith(
        f'  File "{NAME}", line {line_of("charge")}, in charge\n'
        '    raise ValueError(f"no such card {card}")  # charge\n'
        "ValueError: no such card 4711"
    )
    assert sentence_of(error) == f"ValueError: no such card 4711, at {NAME}:{line_of('charge')} in charge"


def test_a_line_of_a_library_is_not_the_place_but_the_authors_call_of_it() -> None:
    assert place_in(raised(failing.copy_deeply))[1:] == (line_of("charge"), "charge")
    error = raised(lambda: Path("\x00").stat())
    assert place_in(error)[0] == "tests/kernel/test_tracebacks.py"


def test_an_exception_that_was_never_raised_has_no_place() -> None:
    assert error_info(ValueError("no")).where is None
    assert "where" not in error_info("no").as_json()
    assert "where" not in error_info({"code": "a", "message": "b"}).as_json()


def test_an_error_that_ocean_alone_has_raised_has_no_place() -> None:
    error = InvalidValue("no")
    scope: dict[str, Any] = {"error": error}
    code = compile("raise error", str(Path(encode.__code__.co_filename).with_name("made.py")), "exec")
    with pytest.raises(InvalidValue) as info:
        exec(code, scope)
    error.__traceback__ = info.tb.tb_next
    assert error_info(error).where is None


@pytest.mark.parametrize("fn", [failing.recurse, failing.ping, failing.copy_deeply])
def test_a_deep_traceback_is_bounded_and_keeps_the_authors_frames(fn: Callable[[], Any]) -> None:
    text = raised(fn)["where"]["traceback"]
    assert f", in {fn.__name__}\n" in text
    assert text.startswith('Traceback (most recent call last):\n  File "tests/kernel/test_tracebacks.py"')
    if fn is failing.recurse:
        assert "more times]" in text
        assert len(text) < 1_000
    else:
        assert "  […]\n" in text
        assert len(text) > 7_000
    if fn is failing.copy_deeply:
        assert text.index("# copy") < text.index("  […]\n") < text.index("# charge")
        assert text.index('File "copy.py"') > 0
    else:
        assert text.splitlines()[-1].startswith("RecursionError: ")


def test_secrets_in_messages_and_in_source_lines_are_redacted() -> None:
    error = raised(failing.leak)
    for text in (error["message"], error["where"]["traceback"], sentence_of(error)):
        assert "[redacted]" in text
        assert "hunter22" not in text
        assert "abcdef123" not in text
    error = raised(failing.name_a_secret)
    assert place_in(error)[1] == line_of("secret argument")
    assert "sk-0123456789" not in str(error)


def test_text_that_cannot_be_stored_is_replaced() -> None:
    error = raised(lambda: failing.loud("a\x00b\ud800c"))
    assert error["message"] == "ValueError: a\\0b?c"
    assert "a\\0b?c" in error["where"]["traceback"]


def test_an_exception_whose_text_raises_is_stored_all_the_same() -> None:
    def speechless() -> None:
        raise failing.Speechless

    error = raised(speechless)
    assert (error["code"], error["message"]) == ("exception", "Speechless: (its text raised RuntimeError)")
    assert error["where"]["function"] == "speechless"


def test_a_message_of_a_megabyte_is_cut() -> None:
    error = raised(lambda: failing.loud("ä" * 1_000_000))
    assert len(error["message"]) < 4_100
    assert len(error["where"]["traceback"].encode()) < 2_000
    assert len(sentence_of(error)) < 700


def test_causes_are_shown_before_what_they_caused() -> None:
    error = raised(failing.chain)
    assert place_in(error)[1] == line_of("chain")
    text = error["where"]["traceback"]
    assert text.index("ValueError: no such card") < text.index("direct cause") < text.index("LookupError: the order")


def test_a_long_chain_is_bounded_and_a_circular_one_ends() -> None:
    def endless() -> None:
        error = ValueError("x" * 10_000)
        for _ in range(100):
            try:
                raise error
            except ValueError as last:
                error = ValueError("x" * 10_000)
                error.__cause__ = last
                for _ in range(10):
                    error.add_note("y" * 10_000)
        raise error

    def circular() -> None:
        error = ValueError("round")
        error.__cause__ = LookupError("and round")
        error.__cause__.__cause__ = error
        raise error

    text = raised(endless)["where"]["traceback"]
    assert "in endless" in text
    assert raised(circular)["where"]["traceback"].count("and round") == 1


def test_a_group_has_the_place_and_the_message_of_its_first_exception() -> None:
    error = raised(lambda: anyio.run(failing.group))
    assert error["message"].endswith("(1 sub-exception); ValueError: no such card 4711")
    assert error["where"]["type"] == "ValueError"
    assert place_in(error) == (NAME, line_of("charge"), "charge")
    text = error["where"]["traceback"]
    assert "ExceptionGroup: unhandled errors" in text
    assert text.endswith("ValueError: no such card 4711")


def test_a_large_group_is_bounded() -> None:
    def many() -> None:
        raise ExceptionGroup("many", [ValueError(str(n) * 5_000) for n in range(1, 1_000)])

    error = raised(many)
    assert len(error["message"]) < 1_000
    assert "more exceptions of the group]" in error["where"]["traceback"]


def test_an_installed_author_is_told_apart_from_the_libraries(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "site-packages"
    (site / "till_shop").mkdir(parents=True)
    (site / "till_bank.py").write_text("def pay():\n    raise OSError('no line')\n", encoding="utf-8")
    (site / "till_shop" / "__init__.py").write_text(
        "import till_bank\n\n\ndef order():\n    till_bank.pay()\n", encoding="utf-8"
    )
    shop = failing.imported(site, "till_shop")
    try:
        shop.order()
    except OSError as caught:
        # As the kernel sees it: the outermost frame is the handler's.
        caught.__traceback__ = caught.__traceback__ and caught.__traceback__.tb_next
        error = error_info(caught).as_json()
    assert place_in(error) == ("till_shop/__init__.py", 5, "order")
    assert 'File "till_bank.py", line 2, in pay' in error["where"]["traceback"]
    assert str(tmp_path) not in str(error)


def test_no_absolute_path_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "till.py").write_text("def pay():\n    raise OSError('no line')\n", encoding="utf-8")
    till = failing.imported(tmp_path, "till")
    assert place_in(raised(till.pay))[0] == f"…/{tmp_path.name}/till.py"
    monkeypatch.chdir(tmp_path)
    assert place_in(raised(till.pay)) == ("till.py", 2, "pay")
    assert str(tmp_path) not in str(raised(till.pay))


def test_an_error_of_an_operation_is_placed_at_the_authors_line() -> None:
    def write() -> None:
        raise NotRead("the run row must be read first")

    error = raised(write)
    assert (error["code"], error["where"]["type"], error["where"]["function"]) == ("not_read", "NotRead", "write")
    assert sentence_of(error).startswith("NotRead: the run row must be read first, at ")


def test_a_place_that_is_passed_on_is_kept_and_checked() -> None:
    error = raised(failing.leak)
    for outcome in (Failed(error), Retry(error)):
        assert error_info(outcome.error).as_json() == error
    short = without_traceback(error)
    assert short is not None
    assert set(short["where"]) == {"type", "file", "line", "function"}
    odd = error | {"where": {"type": "E", "file": "f" * 10_000, "line": 1, "function": "g", "traceback": "t" * 99_999}}
    found = error_info(odd).as_json()
    assert len(encode(found)) < MOST_BYTES + 1_000
    for nonsense in ("here", {"file": 7}, ["x"], {"type": "E", "file": "f", "line": "1", "function": "g"}):
        assert error_info({"code": "a", "message": "b", "where": nonsense}).where is None


def test_a_note_has_the_place_and_the_traceback() -> None:
    error = raised(failing.charge)
    note = note_of(error)
    assert note == f"raised at {NAME}:{line_of('charge')} in charge:\n{error['where']['traceback']}"
    assert note_of(ErrorInfo("a", "b").as_json()) is None
    assert note_of(None) is None


def test_a_sentence_is_one_line_without_control_characters() -> None:
    error = raised(lambda: failing.loud("one\ntwo\x1b[31m\u2028three"))
    assert sentence_of(error).startswith("ValueError: one two\\x1b[31m three, at ")
    assert sentence_of({"code": "evil\ncode", "message": "m"}) == "other: m"
    assert sentence_of(error_info(Abort("no", code="no_card")).as_json()) == "no_card: Abort: no"
