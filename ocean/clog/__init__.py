"""What a clog is: its handlers, its routes, its webhooks."""
