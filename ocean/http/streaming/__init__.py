"""Server-Sent Events: `sse` is one stream, `frames` encodes events, `direct_write` bypasses ASGI for many readers."""
