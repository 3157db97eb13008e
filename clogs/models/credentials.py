"""Keys are named, never given: `env:NAME` is looked up when a request is made, and nowhere else."""

import os
import re

from clogs.models.errors import ModelError

REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
PRINTABLE = re.compile(r"[\x21-\x7e]+")


def checked_reference(reference: str) -> str:
    if not REFERENCE.fullmatch(reference):
        raise ValueError("a key is given as env:NAME, the variable that holds it; what was given is not shown")
    return reference


def resolved(reference: str) -> str:
    name = reference.removeprefix("env:")
    secret = os.environ.get(name, "").strip()
    if not secret:
        raise ModelError("no_credential", f"the environment has no {name}: set it to the endpoint's key")
    if not PRINTABLE.fullmatch(secret):
        raise ModelError("no_credential", f"{name} holds spaces or other characters that no key has: set it again")
    return secret
