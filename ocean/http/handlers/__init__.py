"""The handlers of Ocean's own routes."""
