"""The service on sockets that were opened before it, passed as systemd passes those of `.socket` units.

The opener keeps them, so they stay open while a process is stopped and started again, and two processes may have the
same one.  As under the units of etc/systemd (`MemoryDenyWriteExecute=`), no page of the process and its children is
writable and executable; Linux before 6.3 cannot do it this way.

Sources: https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html;
https://man7.org/linux/man-pages/man2/PR_SET_MDWE.2const.html
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests.service_process import ServiceProcess

# Descriptors from 3 on, and the variables of the process that is then executed.
_EXEC = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)
names, numbers, command = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
held = [os.dup(int(one)) for one in numbers]
for place, one in enumerate(held, 3):
    os.dup2(one, place)
    os.set_inheritable(place, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(held)), "LISTEN_FDNAMES": names}
os.execv(command[0], command)
"""


def listening(port: int, backlog: int = 1024) -> socket.socket:
    """A socket that listens on loopback."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind(("127.0.0.1", port))
    opened.listen(backlog)
    return opened


class Activated(ServiceProcess):
    """`sockets`: by the name that the settings give them: `systemd:domain=INET:name=mllp`."""

    def __init__(self, folder: Path, sockets: dict[str, socket.socket], **environment: str) -> None:
        super().__init__(folder, **environment)
        self._sockets = sockets

    def start(self) -> None:
        """Start it without waiting until it is ready."""
        self.prepare()
        self._log = self.log_path.open("ab")
        numbers = [one.fileno() for one in self._sockets.values()]
        command = [sys.executable, "-c", _EXEC, ":".join(self._sockets), ",".join(map(str, numbers))]
        command += self.command()
        self._process = subprocess.Popen(
            command, env=self.environment, cwd=self.folder, stdout=self._log, stderr=subprocess.STDOUT, pass_fds=numbers
        )
