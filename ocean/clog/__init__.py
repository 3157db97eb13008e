"""A clog: `clog` has its handlers and methods, `routes` its HTTP routes and commands, `webhooks` signed deliveries."""
