"""What both stores use: rows to records, refusals, plans of claims."""
