"""Schedules: a schedule is a run that creates runs, or signals one, at the times of a cron expression or an interval.

`add` makes one. Its timer is its next intended time, and each firing is committed together with the new timer: an
intended time fires once, even if processes die and however many of them poke. `docs/schedules.md` is the guide.

Read `spec` first (what callers send), then `cron` and `times` (which times there are, and which fire now), `state` (the
run's row), `clog` (the ticks) and `api` (the methods).
"""

import clogs.schedule.api  # noqa: F401, registers the methods
from clogs.schedule.clog import schedule

__all__ = ["schedule"]
