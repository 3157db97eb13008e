"""The commands, a module for each group of them. `ocean.cli.main` registers them."""
