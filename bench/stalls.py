"""The largest input that each route accepts, and larger ones that it refuses: reactor time, thread time, memory.

Processor time of the reactor's thread and of all others is that of the kernel; a stall is a turn of the reactor of
0.1 s and more, as `ipf_reactor_stall_seconds` counts it.  Memory is the peak above that before the request.
"""

from __future__ import annotations

import http.client
import re
from pathlib import Path

from bench.receive import service
from bench.report import line
from tests.service_process import ServiceProcess
from tests.traffic.largest_inputs import Body, Input, inputs, stored

_SUM = re.compile(r'^ipf_reactor_stall_seconds_sum\{process="main"\} ([0-9.e+-]+)', re.MULTILINE)


def stalls(folder: Path) -> None:
    """The largest accepted input of every route: reactor time, thread time, memory."""
    with service(folder, IPF_LOG_LEVEL="WARN", IPF_WORKER_PROCESSES="1") as one:
        for needed in stored():
            _send(one, needed)
        for asked in inputs():
            _measured(one, asked)


def _measured(one: ServiceProcess, asked: Input) -> None:
    body = asked.body()
    _reset_peak(one.pid)
    before, memory, stalled = _spent(one.pid), _status(one.pid, "VmRSS"), _stalled(one)
    status = _send(one, asked, body)
    reactor, others = (after - earlier for after, earlier in zip(_spent(one.pid), before, strict=True))
    line(
        asked.name,
        f"reactor {reactor * 1000:.0f} ms",
        f"in stalls {(_stalled(one) - stalled) * 1000:.0f} ms; threads {others * 1000:.0f} ms; "
        f"+{max(_status(one.pid, 'VmHWM') - memory, 0):.0f} MiB; answer {status}",
    )


def _send(one: ServiceProcess, asked: Input, body: Body = None) -> int:
    """The status of the answer; 0: the connection was closed."""
    connection = http.client.HTTPConnection("127.0.0.1", one.http_port, timeout=300)
    sent = asked.body() if body is None else body
    try:
        connection.request(asked.method, asked.path, sent, {"Content-Type": asked.kind} if sent else {})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except OSError:
        return 0
    finally:
        connection.close()


def _stalled(one: ServiceProcess) -> float:
    found = _SUM.search(one.request("GET", "/actuator/prometheus")[1])
    return float(found[1]) if found else 0.0


def _spent(pid: int) -> tuple[float, float]:
    """Processor seconds of the first thread, which is the reactor's, and of all others that live."""
    threads = {int(one.name): _seconds(one / "schedstat") for one in Path(f"/proc/{pid}/task").iterdir()}
    reactor = threads.pop(pid)
    return reactor, sum(threads.values())


def _seconds(file: Path) -> float:
    return int(file.read_text(encoding="ascii").split()[0]) / 1e9


def _reset_peak(pid: int) -> None:
    """Linux: VmHWM begins anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def _status(pid: int, name: str) -> float:
    """MiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition(f"{name}:")[2].split()[0]) / 1024
