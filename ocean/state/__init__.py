"""What Ocean's rules are about, pure: records, outcomes, and the functions that decide."""
