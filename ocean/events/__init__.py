"""Events tell: feeds over the append-only log, and its retention."""
