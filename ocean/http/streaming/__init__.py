"""Server-Sent Events: `sse` is one stream, `frames` encodes events, and writes them past ASGI for many readers."""
