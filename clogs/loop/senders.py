"""Who asks. The key is the authentication; the header says for whom, if the key may speak for them."""

from clogs.loop.refusals import refused
from ocean import Incoming

SUB = "x-afu9-sub"
ROLE = "sub:"
"""A key with the role `sub:ann` may speak for ann, one with `sub:*` for anybody."""
LONGEST = 256


def actor_of(incoming: Incoming) -> str:
    """Without keys, on the server's own machine, the header is all that is known, and so it is required."""
    named, own = incoming.headers.get(SUB), incoming.access.actor
    if named is None and own is not None:
        return own
    if named is None or not named.strip() or len(named) > LONGEST or not named.isprintable():
        raise refused("UNAUTHORIZED", f"the header {SUB} says who asks; it is missing, or no name")
    if own is not None and named != own and not {f"{ROLE}{named}", f"{ROLE}*"} & {*incoming.access.roles}:
        raise refused("UNAUTHORIZED", f"this key may not speak for the actor that {SUB} names")
    return named
