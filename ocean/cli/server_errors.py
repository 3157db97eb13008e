"""What a server says no to, as the command line passes it on."""

from typing import Any

from ocean import OceanError


class ServerAway(OceanError):
    """No answer, or half of one."""

    code = "server_away"
    http_status = 503
    retryable = True


class ServerBusy(ServerAway):
    """An answer which says that it can be had later."""

    code = "server_busy"


class ServerRefused(OceanError):
    """The server's own refusal, with its envelope as it was sent."""

    def __init__(self, envelope: dict[str, Any]) -> None:
        said = envelope["error"]
        super().__init__(said["message"])
        self.envelope = envelope
        self.code = said["code"]  # type: ignore[misc]
        self.http_status = said["httpStatus"]  # type: ignore[misc]


class NoOcean(OceanError):
    """Whatever answers under the address does not speak as Ocean does."""

    code = "no_ocean"
    http_status = 502


class NoStream(NoOcean):
    """An answer that is no stream: of something else, or cut off in its headers."""
