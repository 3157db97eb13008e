"""Virtual time and simulated processes, for Ocean's own tests."""
