"""The handlers of Ocean's own routes, one file per group, and the webhooks of clogs."""
