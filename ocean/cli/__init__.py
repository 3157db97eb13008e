"""The command line: commands parse what is typed, call verbs of `Ocean`, and print the result as text or JSON.

`main` is the list of commands; read it first. `options` declares the options that commands share, `parsing` turns typed
text into values, and `runner` opens the Ocean that the settings name, runs the command and turns every error into an
exit code. `output` writes to the terminal, with `tables` for people and `json_output` for programs. `commands/` has a
module for each group of commands, and `demo/` is `ocean demo`. `command_group` reports wrong usage and finds the
commands of clogs. `server_errors` are for `ocean tail --url`, the one command that can read from a server instead of a
database.

Nothing here decides: the rules are in `ocean.state` and `ocean.kernel`. A command imports what it needs when it is
called, so that `ocean --help` is fast.
"""
