"""Connections to PostgreSQL, and batches over them."""
