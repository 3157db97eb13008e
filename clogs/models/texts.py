"""PURE: a model's text as Ocean can store it."""


def clean(text: str) -> str:
    """Without NUL; halves of a character that belong together are joined, and lone ones replaced."""
    if text.isascii():
        return text.replace("\x00", "")
    return text.replace("\x00", "").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def ends_in_half(text: str) -> bool:
    """Endpoints may cut an answer within a character, and send its second half with the next chunk."""
    return "\ud800" <= text[-1:] <= "\udbff"
