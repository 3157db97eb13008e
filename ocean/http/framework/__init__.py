"""Requests and responses around the handlers."""
