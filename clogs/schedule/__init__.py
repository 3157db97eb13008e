"""Schedules: a run that creates runs, or signals one, at the times of a cron expression or an interval.

`add` makes one. Its timer is its next intended time, and each firing is one commit with the new timer: whoever dies,
and however many instances poke, an intended time fires once. `docs/schedules.md` has the rest.
"""

import clogs.schedule.api  # noqa: F401, what may be asked is registered there
from clogs.schedule.clog import schedule

__all__ = ["schedule"]
