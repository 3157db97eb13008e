"""The client of the payment service, used by both orders: the key of a request is that of the order."""

import json
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ocean import Abort

TIMEOUT_S = 10


class Payments(Protocol):
    """What the orders need. The functions are plain or async, as those of steps are."""

    def charge(self, key: str, order_id: str, amount: int) -> Any: ...

    def refund(self, key: str) -> Any: ...


def charge_key(run_id: str) -> str:
    """Return the key of an order's only charge.

    It depends on nothing but the order: also without the result of the charge, and without knowing whether it arrived,
    it can be refunded.
    """
    return f"{run_id}/charge"


class HttpPayments:
    """Requests to the service. Its plain functions run in threads, since they block."""

    def __init__(self, url: str) -> None:
        self._url = url

    def charge(self, key: str, order_id: str, amount: int) -> Any:
        """Charge. Repeated under the same key, it charges once."""
        return self._post("/charges", {"key": key, "order": order_id, "amount": amount})

    def refund(self, key: str) -> Any:
        """Refund the charge of this key. If it has not arrived, the service refuses it from now on."""
        return self._post("/refunds", {"key": key})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = Request(self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                if error.code >= 500:
                    raise
                # Another attempt would be refused, too.
                refusal = json.load(error)
            raise Abort(f"the payment service refused {path}: {refusal['error']}", code=refusal["error"]) from None
