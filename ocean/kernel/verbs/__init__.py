"""What `Ocean` offers, a file for each group of verbs."""
