"""The tools of ticks: Ocean's own, and those that authors write."""
