"""Transactions on SQLite."""
