"""MCP: agents ask as others do over HTTP. A tool is one or more routes of the table, called by its name.

Each call is a request that the application answers inside this process, with the sender's own key: what a key may do,
what a clog keeps to itself, what a request may weigh, how it is repeated and what it moves on are decided there.
"""
