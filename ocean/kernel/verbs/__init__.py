"""The verbs of `Ocean`, one file for each group.

| file | verbs |
|---|---|
| `runs` | create, signal, cancel, retry, pause, resume and delete one run |
| `advance` | poke: do what is due; wait for commits |
| `queries` | read runs, ticks, inputs; explain why a run is not moving |
| `calls` | call a method of a clog, store an answer under a request key, fetch |
| `webhooks` | receive a signed delivery |
| `leases` | claim, renew, release and complete work of external clogs |
| `bulk` | cancel, signal, retry or delete all runs that a query selects |
| `keys` | concurrency keys and counters |
| `admin` | clogs, tools and sessions |

The verbs of API keys are in `ocean.access.api_keys`, those of the log in `ocean.compose`. Each class is a part of
`Kernel`; a verb checks its arguments and calls one verb of the store, or runs the loop.
"""
