"""The command line: it translates, and decides nothing."""
