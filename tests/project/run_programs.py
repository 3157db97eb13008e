"""Runs each program named on the command line in a fork of one process that has imported Ocean.

Importing would otherwise take most of the time. `name.out`, `name.err` and `name.code` next to a program contain its
output and its exit code.
"""

import logging
import os
import runpy
import sys
import traceback
from pathlib import Path

import anyio  # noqa: F401

import ocean  # noqa: F401


def run(script: Path) -> None:
    folder = script.with_suffix("")
    folder.mkdir()
    os.chdir(folder)
    for fd, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(script.with_suffix(suffix), os.O_WRONLY | os.O_CREAT), fd)
    # A document shows what its program prints; attempts that fail on purpose are reported on standard error too.
    logging.getLogger("ocean.tick").addHandler(logging.NullHandler())
    code = 0
    try:
        runpy.run_path(str(script), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


for name in sys.argv[1:]:
    pid = os.fork()
    if not pid:
        run(Path(name))
    _, status = os.waitpid(pid, 0)
    Path(name).with_suffix(".code").write_text(str(os.waitstatus_to_exitcode(status)))
