"""HTTP: translates, decides nothing. JSON in camelCase outside, the kernel's verbs and records inside.

Routes are closed unless the table says that they are open; `access` finds out who asks.
The id of a lease is a secret and part of a path: keep access logs off, or keep paths out of them.
"""
