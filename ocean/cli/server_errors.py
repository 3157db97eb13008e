"""Errors of a server that `ocean tail --url` reads from."""

from typing import Any

from ocean import OceanError


class ServerAway(OceanError):
    """The server did not respond, or its response broke off."""

    code = "server_away"
    http_status = 503
    retryable = True


class ServerBusy(ServerAway):
    """The server responded with a status that means: try again later."""

    code = "server_busy"


class ServerRefused(OceanError):
    """The server refused the request. `envelope` is its error, as it was sent."""

    def __init__(self, envelope: dict[str, Any]) -> None:
        error = envelope["error"]
        super().__init__(error["message"])
        self.envelope = envelope
        self.code = error["code"]  # type: ignore[misc]
        self.http_status = error["httpStatus"]  # type: ignore[misc]


class NoOcean(OceanError):
    """What responds at the address is not an Ocean server."""

    code = "no_ocean"
    http_status = 502


class NoStream(NoOcean):
    """The response is not an event stream: it is something else, or was cut off in its headers."""
