"""Everything between the ASGI server and a handler: errors, keys, parsing, idempotency, routing, responses."""
