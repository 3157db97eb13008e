"""Access: `api_keys` has the verbs of API keys and web sessions, `guard` checks what a caller may do with runs."""
