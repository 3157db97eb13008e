"""A process that has imported everything once, and forks a victim on request.

Otherwise a victim would spend most of its time importing. The process has no threads and no open database, so a fork
of it equals a new process. It ends when the test process closes its end of the socket.
"""

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from importlib import import_module

Live = Callable[[list[str]], None]


def serve(ears: socket.socket, live: Live) -> None:
    while True:
        message, fds, _, _ = socket.recv_fds(ears, 65_536, 3)
        if not message:
            return
        request = json.loads(message)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], request["options"])
            ears.send(json.dumps(status).encode())
            continue
        pid = os.fork()
        if not pid:
            ears.close()
            _become_victim(live, request["args"], fds)
        for fd in fds:
            os.close(fd)
        ears.send(json.dumps(pid).encode())


def _become_victim(live: Live, args: list[str], fds: list[int]) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    try:
        live(args)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), import_module(sys.argv[2]).live)
