"""Tools: what a clog may do, built in or written by authors.

`builtin` and `inputs` are Ocean's own tools, `author` is for writing tools, `registry` has all tools of an instance,
`invoke` calls one by name, `call` is one call of an author's tool. `credentials` keeps secrets out of what is stored,
`fetch` and `addresses` are the outbound HTTP client, and `outside` is where tests replace what is outside.
"""
