"""HTTP: translates requests to verbs of the kernel and records to JSON; it makes no decisions of its own.

The path of a request, in reading order:

    uvicorn ──> app ──> framework/middleware ──> framework/routing ──> handlers/… ──> the kernel
                                                                          └──> streaming/sse, for an event stream

- `routes`: the route table. One line per operation: scope, body, query, responses. Start here.
- `app`: builds the ASGI application from the table and the routes of clogs.
- `framework/middleware`: the request id, the access log, and the response for every error.
- `framework/routing`: matches the path, then calls in turn
  `authorization` (keys, cookies, scopes), `idempotency` (the Idempotency-Key), `parsing` (query string and body),
  and at last the handler with a `HandlerCall` of `call`. After the response `poker` advances due runs.
- `handlers/`: one file per group of routes. A handler calls one verb and returns a `JsonResponse` of `responses`.
- `streaming/`: Server-Sent Events. `sse` follows a feed of `ocean.events`, `frames` encodes events, and writes
  them to many connections without the cost of ASGI.
- `framework/clog_routes` and `handlers/webhooks`: the same path for the routes and webhooks that clogs mount.
- `openapi`: the OpenAPI document, from the same table.

Every route needs a key unless the table marks it as `open`. The id of a lease is a secret and part of a path: keep the
access log of the server and of proxies off, or keep paths out of it.
"""
