"""The operator console in front of an engine with 1,000,000 messages: pages, their weight, the live overview, its cost.

The messages are those of the bench `admin`.  IPF_BENCH_MESSAGES changes their number.  The first byte of a page stands
beside the engine's own answer to the list that it shows, and beside a file that the console has in memory.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench import admin, observe
from bench.receive import service
from bench.report import line
from bench.senders import run as run_load
from tests.console.crawl import Client, assets_of, crawl
from tests.console.data import Engine, admission
from tests.console.process import ConsoleProcess
from tests.service_process import ServiceProcess

MESSAGES = int(os.environ.get("IPF_BENCH_MESSAGES", "1000000"))
TIMES, CONSOLES, SECONDS, EVENTS = 30, 50, 20, 20
LISTS = (
    "/messages?status=DELIVERED", "/messages?status=DEAD_LETTER", "/messages?source_system=SYS3",
    "/messages?source_system=SYS3&message_type=ADT_A01", "/messages?source_id=FILL77", "/messages?patient=MRN77",
    "/messages?text=ORD77", "/messages?text=Family77", "/messages?error=field%203", "/messages?offset=1000",
)  # fmt: skip
_pause = getattr(time, "sleep")  # noqa: B009  # blocks on purpose: there is no reactor here


def console(folder: Path) -> None:
    """First byte of each page under 50 ms on 1,000,000 messages; weight; the overview; the cost of 50 open consoles."""
    with service(folder, IPF_LOG_LEVEL="WARN") as one, _console(folder, one) as shown:
        run_load(admin.sample(one))
        began = time.perf_counter()
        admin.fill(one, MESSAGES)
        line(f"{MESSAGES:,} messages inserted", f"{time.perf_counter() - began:.0f} s")
        admin.index(one)
        observe.count_again(one)
        client = Client(shown.port)
        client.sign_in()
        _pages(one, client)
        _follows(one, client)
        _costs(one, shown)


@contextmanager
def _console(folder: Path, one: ServiceProcess) -> Iterator[ConsoleProcess]:
    shown = ConsoleProcess(folder / "console", one.base_url)
    shown.start()
    try:
        yield shown
    finally:
        shown.stop()


def _pages(one: ServiceProcess, client: Client) -> None:
    """First byte of every page that links lead to, and of lists with filters; the heaviest page."""
    _first_byte("limit: GET /admin/messages of the engine", one.http_port, "/admin/messages?limit=50", {})
    _first_byte("limit: GET /admin/observe/system of the engine", one.http_port, "/admin/observe/system", {})
    pages = crawl(client)
    if broken := [(page.url, page.status, page.body[:200]) for page in pages if page.status != 200]:
        raise SystemExit(str(broken))
    found = {page.pattern: page for page in reversed(pages) if page.kind == "text/html"}
    weights = {}
    for page in reversed(found.values()):
        _first_byte(page.pattern, client.port, page.url, client.headers, target=50)
        weights[page.pattern] = len(page.body.encode()) + sum(_size(client, url) for url in assets_of(page.body))
    for url in LISTS:
        _first_byte(url, client.port, url, client.headers, target=50)
    (style,) = [url for url in assets_of(found["/"].body) if "/console." in url and url.endswith(".css")]
    _first_byte("limit: a style sheet of the console", client.port, style, client.headers)
    heaviest = max(weights, key=lambda pattern: weights[pattern])
    line(f"heaviest page: {heaviest}", f"{weights[heaviest] / 1000:.0f} kB", "target 200 kB")
    line("overview", f"{weights['/'] / 1000:.0f} kB")


def _size(client: Client, url: str) -> int:
    """Bytes of a file as a browser gets it."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    connection.request("GET", url, headers={"Accept-Encoding": "gzip"})
    content = connection.getresponse().read()
    connection.close()
    return len(content)


def _first_byte(what: str, port: int, url: str, headers: dict[str, str], target: int = 0) -> None:
    """Milliseconds until the first byte of sequential requests on one connection."""
    connection, waits = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    for _ in range(TIMES):
        began = time.perf_counter()
        connection.request("GET", url, headers=headers)
        answer = connection.getresponse()
        waits.append((time.perf_counter() - began) * 1000)
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{url}: {answer.status}")
    connection.close()
    waits.sort()
    figures = f"p50 {statistics.median(waits):.1f} p95 {waits[int(0.95 * len(waits))]:.1f} ms"
    line(what, figures, f"target {target} ms" if target else "")


class Stream:
    """One open console: the stream of live events."""

    def __init__(self, client: Client) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        self._connection.request("GET", "/live/state", headers=client.headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.status

    def state(self) -> dict[str, int]:
        """The queue of the next event that has one."""
        while True:
            text = self._answer.readline()
            if text.startswith(b"data: ") and "queue" in (found := json.loads(text[6:])):
                return dict(found["queue"])

    def close(self) -> None:
        """As a closed tab."""
        self._connection.close()


def _follows(one: ServiceProcess, client: Client) -> None:
    """Milliseconds from the acknowledgement of a message until an open overview shows it."""
    engine, stream, waits = Engine(one), Stream(client), []
    before = stream.state()
    for number in range(EVENTS):
        engine.send(admission(f"E{number}-{time.monotonic_ns()}", f"99{number}", "Hansen", "Kari"))
        began = time.perf_counter()
        while (now := stream.state()) == before:
            pass
        waits.append((time.perf_counter() - began) * 1000)
        before = now
        _pause(0.1 * (number % 10))
        while engine.must("GET", "/admin/observe/system")["queue"] != before:
            before = stream.state()
    stream.close()
    waits.sort()
    line("the overview shows a message after", f"p50 {statistics.median(waits):.0f} max {waits[-1]:.0f} ms",
         "target 1000 ms")  # fmt: skip


def _costs(one: ServiceProcess, shown: ConsoleProcess) -> None:
    """Shares of a core that the engine, its PostgreSQL and the console use with no, one and 50 open consoles."""
    for count in (0, 1, CONSOLES):
        clients = [Client(shown.port) for _ in range(count)]
        for client in clients:
            client.sign_in()
        streams = [Stream(client) for client in clients]
        _pause(3)
        before = _used(one, shown)
        _pause(SECONDS)
        engine, postgres, pages = ((now - then) / SECONDS * 100
                                   for now, then in zip(_used(one, shown), before, strict=True))  # fmt: skip
        for stream in streams:
            stream.close()
        figures = f"engine {engine:.1f} %, PostgreSQL {postgres:.1f} %, console {pages:.1f} %"
        line(f"{count} open consoles, of a core", figures, "target engine 5 %" if count == CONSOLES else "")


def _used(one: ServiceProcess, shown: ConsoleProcess) -> tuple[float, float, float]:
    """Processor seconds of the engine with its converters, of its PostgreSQL, of the console."""
    main = psutil.Process(one.pid)
    processes = [main, *main.children(recursive=True)]
    seconds = [0.0, 0.0]
    for process in processes:
        times = process.cpu_times()
        seconds["postgres" in process.name()] += times.user + times.system
    times = psutil.Process(shown.pid).cpu_times()
    return seconds[0], seconds[1], times.user + times.system
