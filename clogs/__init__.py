"""The clogs that ship with Ocean, one system per folder. They import Ocean's public names only, no submodule."""
