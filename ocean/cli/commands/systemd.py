"""Tells systemd that the server listens, if it wants to know (`Type=notify`): who waits for the unit waits for that."""

import logging
import socket
from collections.abc import Mapping

log = logging.getLogger("ocean.serving")


def tell_systemd(environ: Mapping[str, str]) -> None:
    address = environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # A name with @ is one without a file; the kernel spells that with a zero byte.
    address = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.connect(address)
            sending.sendall(b"READY=1")
    except OSError as error:
        log.warning("cannot tell systemd that the server is ready: %s", error)
