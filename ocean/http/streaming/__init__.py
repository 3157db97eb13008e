"""Server-Sent Events."""
