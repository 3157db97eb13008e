"""HTTP: translates, decides nothing. JSON in camelCase outside, the kernel's verbs and records inside.

There are no keys yet, so whoever reaches these routes may use them: a server that mounts them binds loopback only.
The id of a lease is a secret and part of a path: keep access logs off, or keep paths out of them.
"""
