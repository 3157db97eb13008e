"""MCP: agents use Ocean through the same routes as HTTP clients. A tool is one or more routes with a name.

Each tool call becomes a request that the HTTP application handles inside this process, with the sender's own key. So
permissions, verbs that a clog does not allow, size limits, idempotency and pokes are all decided there.

Read in this order:

- `tools`: the tools, the routes behind each, and the methods of clogs as tools.
- `schemas`: what a tool takes and returns, from the OpenAPI document.
- `server`: the SDK's server: lists tools and resources, and passes each call to the application.
- `in_process`: sends a request to the application without a socket.
- `transport`: standard input and output, or `POST /mcp` of the application.
"""
