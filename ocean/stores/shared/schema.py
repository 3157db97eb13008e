"""What to do about a database that a newer version has migrated."""

from ocean.state.errors import StoreUnusable


def refuse_newer_schema(version: int, newest: int) -> None:
    """Refuse a schema that is newer than the newest migration of this version, before anything is written."""
    if version > newest:
        raise StoreUnusable(
            f"the database has schema {version}, this Ocean supports up to {newest}; upgrade ocean-runtime to the "
            "version that migrated the database, or a newer one. The database was not changed"
        )
