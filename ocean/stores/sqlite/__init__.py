"""The SQLite store: a database, units of work, and one file per verb's business."""
