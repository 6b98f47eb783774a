"""Runs the code blocks of a page against a started engine.

A comment before a block says what it is; each block of a tutorial or a how-to guide has one (`test_snippets`):

    <!-- run -->                  a command; it must succeed
    <!-- run: fails -->           a command; it must end with an exit status other than 0
    <!-- run: until -->           a command that only looks; it is repeated until the output that follows comes
    <!-- run: engine -->          the settings of `bin/run`: the engine is started with them
    <!-- run: background -->      a command that goes on until the page ends
    <!-- file: NAME -->           the content of a file
    <!-- output -->               what the command before printed; `...` stands for anything
    <!-- output: background -->   what the background command prints, now or later
    <!-- not run: REASON -->      a command for another machine

Ports of the page are replaced by free ones, and `bin/` by the folder of this checkout.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.service_process import ROOT, ServiceProcess
from tests.waiting import PATIENCE, block_until, free_port

_BLOCK = re.compile(r"^( *)(?:<!-- ([^\n]*?) -->\n(?: *\n)?\1)?```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_PORTS = ("8000", "6661", "2580", "2576")
_BIN = re.compile(r"(?<![\w/.-])bin/(?=[a-z])")


@dataclass(frozen=True, slots=True)
class Snippet:
    """One code block: what its comment says, its language, its text, and its line on the page."""

    kind: str
    argument: str
    language: str
    text: str
    line: int


def snippets(page: str) -> list[Snippet]:
    """The code blocks of a page; `kind` is empty where no comment stands before one."""
    found = []
    for block in _BLOCK.finditer(page):
        kind, _, argument = (block[2] or "").partition(":")
        line = page.count("\n", 0, block.start()) + 1
        found.append(Snippet(kind.strip(), argument.strip(), block[3].strip(), textwrap.dedent(block[4]), line))
    return found


class Page:
    """One page, run from top to bottom in the folder of an engine."""

    def __init__(self, path: Path, engine: PageEngine, changed: tuple[str, str] = ("", "")) -> None:
        self._name, self._blocks = path.name, snippets(path.read_text().replace(*changed))
        self._engine = engine
        self._ports = {one: str(free_port()) for one in _PORTS}
        self._ports |= {"8090": str(engine.http_port), "2575": str(engine.mllp_port)}
        self._background: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._printed = ""

    def run(self) -> None:
        """Run all blocks.  AssertionError with page and line at the first that does not do what the page says."""
        try:
            for block, following in zip(self._blocks, [*self._blocks[1:], None], strict=True):
                with self._placed(block):
                    self._run(block, following)
        finally:
            self._end()

    @contextlib.contextmanager
    def _placed(self, block: Snippet) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise AssertionError(f"{self._name}:{block.line}: {error}") from error

    def _run(self, block: Snippet, following: Snippet | None) -> None:
        text = self._here(block.text)
        match block.kind, block.argument:
            case "run", ("" | "fails"):
                status, self._printed = self._command(text)
                assert (status != 0) == (block.argument == "fails"), f"{text}\nends with {status}: {self._printed}"
            case "run", "until":
                assert following is not None and following.kind == "output", "no output follows"
                wanted = expected(self._here(following.text))
                try:
                    block_until(lambda: self._looked(text, wanted))
                except AssertionError:
                    self._compare(self._here(following.text), self._printed)
            case "run", "engine":
                self._engine.use(settings(text))
            case "run", "background":
                self._go_on(text)
            case "file", name:
                path = self._engine.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            case "output", "":
                self._compare(text, self._printed)
            case "output", "background":
                seen = self._background[-1][1]
                block_until(lambda: expected(text).search(seen.read_text()), f"{text!r} in the output of the program")

    def _here(self, text: str) -> str:
        """The text with the ports and the folder of this run."""
        ports = "|".join(self._ports)
        text = re.sub(rf"(?<![\w.])({ports})(?!\d)", lambda port: self._ports[port[1]], text)
        return _BIN.sub(f"{ROOT}/bin/", text)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPF_", "SUBSCRIPTION_"))}
        path = f"{ROOT}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return kept | {"PATH": path, "IPFCTL_URL": self._engine.base_url, "COLUMNS": "120"}

    def _command(self, text: str) -> tuple[int, str]:
        """The exit status of a shell that runs the text, and what it printed."""
        command = ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(
            command,
            cwd=self._engine.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        return done.returncode, done.stdout

    def _looked(self, text: str, wanted: re.Pattern[str]) -> bool:
        self._printed = self._command(text)[1]
        return wanted.search(self._printed) is not None

    def _go_on(self, text: str) -> None:
        """Start a command that runs until the page ends."""
        output = self._engine.folder / f"background-{len(self._background)}"
        with output.open("wb") as written:
            environment = self._environment() | {"PYTHONUNBUFFERED": "1"}
            command = ["bash", "-c", f"exec {text.strip()}"]
            started = subprocess.Popen(
                command, cwd=self._engine.folder, env=environment, stdout=written, stderr=subprocess.STDOUT
            )
        self._background.append((started, output))

    def _compare(self, text: str, printed: str) -> None:
        assert expected(text).search(printed), f"expected\n{text}\nprinted\n{printed}"

    def _end(self) -> None:
        for process, _ in self._background:
            process.terminate()
            process.wait(PATIENCE)


def settings(text: str) -> dict[str, str]:
    """The variables before `bin/run`."""
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    assert words and words[-1].endswith("bin/run"), text
    return dict(word.split("=", 1) for word in words[:-1])


def expected(text: str) -> re.Pattern[str]:
    """Output that has these lines, in which `...` is anything; blanks at line ends do not count."""
    lines = [re.escape(line.rstrip()).replace(r"\.\.\.", r"[^\n]*") for line in text.strip().splitlines()]
    lines = [r"(?:[^\n]*\n)*?[^\n]*" if line == r"[^\n]*" else line + r"[ \t]*" for line in lines]
    return re.compile(r"^" + r"\n".join(lines) + r"$", re.MULTILINE)


class PageEngine(ServiceProcess):
    """An engine that pages start with settings of their own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, IPF_WORKER_PROCESSES="0", IPF_BACKOFF_BASE_MS="50")
        self._first, self._values, self._is_started = dict(self.environment), dict[str, str](), False

    def use(self, values: dict[str, str]) -> None:
        """Run with these settings; a start or a restart where they are others than before."""
        if self._is_started and values == self._values:
            return
        if self._is_started:
            self.stop()
        self.environment = self._first | values
        self._values, self._is_started = values, True
        self.start()
        self.wait_ready()

    def close(self) -> None:
        """End it, if it was started."""
        if self._is_started:
            self.stop()
