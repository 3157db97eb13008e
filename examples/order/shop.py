"""Both orders for `ocean serve --clogs shop:clogs`; PAYMENTS_URL names the payment service."""

import os

from ocean import Clog
from order_flow import order_flow
from order_handler import order_handler
from payment_client import HttpPayments


def clogs() -> list[Clog]:
    payments = HttpPayments(os.environ.get("PAYMENTS_URL", "http://127.0.0.1:8090"))
    return [order_handler(payments), order_flow(payments)]
