"""Runs the image and the stack of compose.yaml with podman, in this network namespace (`bin/test-image`).

Prints a line for each check.  Exit status 1 with the reason, and the logs, when one fails.  What it started is removed.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.deployment.compose import Container, podman, remove_volumes
from tests.waiting import block_until

MOST_BYTES = 250_000_000
_PATIENCE = 300.0  # seconds for an expected event
_SAMPLE = Path(__file__).resolve().parent.parent / "corpus/a01_inpatient.hl7"

started: list[Container] = []


class Failed(Exception):
    """A check that did not pass."""


def check(is_so: bool, text: str) -> None:
    """Print a check that passes.  Failed if it does not."""
    if not is_so:
        raise Failed(text)
    print(f"ok  {text}", flush=True)


def eventually(what: str, look: Callable[[], Any]) -> float:
    """Poll until the result is true; the seconds it took."""
    began = time.monotonic()
    try:
        block_until(look, what, seconds=_PATIENCE)
    except AssertionError as missing:
        raise Failed(str(missing)) from None
    took = time.monotonic() - began
    print(f"ok  {what} ({took:.1f} s)", flush=True)
    return took


def start(service: str, *command: str, **environment: str) -> Container:
    """Start a service of compose.yaml."""
    made = Container(service, *command, **environment)
    for before in [one for one in started if one.name == made.name]:
        started.remove(before)
    made.remove()
    started.append(made)
    made.start()
    return made


def get(url: str, **headers: str) -> tuple[int, str]:
    """Status and body; status 0 when nobody answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def found(url: str) -> Any:
    """A JSON answer; None unless the status is 200."""
    status, body = get(url)
    return json.loads(body) if status == 200 else None


def listening() -> dict[int, set[str]]:
    """Ports of this network namespace, each with the IPv4 addresses on which it listens."""
    result: dict[int, set[str]] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        address, _, port = local.partition(":")
        if state == "0A":
            shown = socket.inet_ntoa(bytes.fromhex(address)[::-1])
            result.setdefault(int(port, 16), set()).add(shown)
    return result


def image() -> None:
    """What the image is, without a service."""
    (about,) = json.loads(podman("image", "inspect", "localhost/ipf-test/ipf").stdout)
    check(about["Size"] < MOST_BYTES, f"the image has {about['Size'] / 1e6:.0f} MB, less than {MOST_BYTES / 1e6:.0f}")
    check(about["Config"]["User"] == "10001:10001", "its user is 10001:10001")
    version = start("ipf", "ipfctl", "--version", name="once")
    check(version.wait() == 0 and "ipfctl, version" in version.log(), "ipfctl runs in it")
    script = "touch /var/lib/ipf/x /tmp/x && ! touch /opt/ipf/x && ! touch /etc/ipf/x && id -u"
    written = start("ipf", "sh", "-c", script, name="once")
    check(written.wait() == 0 and "10001" in written.log(), "only /var/lib/ipf and /tmp are writable")
    unset = dict.fromkeys(
        ("IPF_DB_URL_FILE", "IPF_FHIR_DB_URL_FILE", "IPF_METRICS_TOKEN_FILE", "IPF_SECRET_KEY_FILE"), ""
    )
    without = start("ipf", name="once", **unset)
    check(without.wait() == 1 and "IPF_DB_URL: set both" in without.log(), "without databases it ends and says why")


def databases() -> None:
    """Secrets and PostgreSQL."""
    secrets = start("secrets")
    check(secrets.wait() == 0 and secrets.log().count("made ") == 8, "make-secrets makes eight secrets")
    secrets = start("secrets")
    check(secrets.wait() == 0 and secrets.log() == "", "make-secrets keeps those that exist")
    postgres = start("postgres")
    eventually("postgres is healthy", postgres.is_healthy)


def without_tokens() -> None:
    """The image's own listeners."""
    ipf = start("ipf", IPF_HTTP_LISTEN="", IPF_MLLP_LISTEN="", name="ipf-plain")
    eventually("ipf without named interfaces is ready", ipf.is_healthy)
    ports = listening()
    check(ports[8090] == {"127.0.0.1"}, "without a token for /fhir HTTP listens on loopback only")
    check(ports[2575] == {"0.0.0.0"}, "MLLP listens on all interfaces")
    ipf.remove()


def stack() -> None:
    """The service with everything around it."""
    ipf = start("ipf")
    eventually("ipf is ready", ipf.is_healthy)
    check(listening()[8090] == listening()[2575] == {"0.0.0.0"}, "it listens where compose.yaml says")
    check(get("http://127.0.0.1:8090/admin/messages")[0] == 200, "/admin asks for no token, as the console needs it")
    check(get("http://127.0.0.1:8090/fhir/Patient", Host="evil.example")[0] == 421, "other hosts: 421")
    subscriber = start("subscriber")
    eventually("the subscriber is registered", lambda: "Subscription/" in subscriber.log())
    send(ipf)
    eventually("the subscriber prints the notification", lambda: "PUT /Patient/" in subscriber.log())
    feed = start("feed", "feed", "--to=ipf:2575", "--per-second=20", "--patients=50", "--messages=200")
    check(feed.wait() == 0 and feed.log().count(" AA\n") == 200, "200 messages of the feed are accepted")
    eventually("all are delivered", lambda: all_delivered(ipf))
    total = (found("http://127.0.0.1:8090/fhir/Observation?_summary=count") or {}).get("total", 0)
    check(total > 50, f"there are {total} Observations of them")
    feed = start("feed")
    console()
    prometheus()
    eventually("the feed goes on", lambda: feed.log().count(" AA\n") >= 3)
    stop(ipf, subscriber, feed)


def send(ipf: Container) -> None:
    """mllp_send of python-hl7, then FHIR."""
    sender = Path(sys.executable).with_name("mllp_send")
    command = [str(sender), "--loose", "--file", str(_SAMPLE), "--port", "2575", "127.0.0.1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "MSA|CA|" not in ended.stdout:  # the sample asks for a commit acknowledgement
        raise Failed(f"mllp_send: {ended.stdout}{ended.stderr}")
    print("ok  mllp_send gets CA", flush=True)
    url = "http://127.0.0.1:8090/fhir/Patient?_count=1"
    eventually("its Patient is served", lambda: (found(url) or {}).get("entry"))


def all_delivered(ipf: Container) -> bool:
    """Whether no message waits, and none has failed."""
    counted = ipf.execute("ipfctl", "--json", "messages", "--limit", "500")
    items = json.loads(counted.stdout)["items"]
    failed = [one for one in items if one["status"] in ("FAILED", "DEAD_LETTER")]
    if failed:
        raise Failed(f"a message was not converted: {failed[0]['last_error']}")
    return len(items) >= 201 and {one["status"] for one in items} == {"DELIVERED"}


def console() -> None:
    """The console, and the port in front of its sandbox."""
    console = start("console")
    eventually("the console is healthy", console.is_healthy)
    check(listening()[3000] == {"127.0.0.1"}, "the console listens on loopback")
    start("console-port")
    eventually("console-port leads to it", lambda: get("http://127.0.0.1:3001/signed-out")[0] == 200)
    cookies = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with cookies.open("http://127.0.0.1:3001/", timeout=30) as page:
        check(page.status == 200 and b"sandbox" in page.read().lower(), "its first page opens as a sandbox")


def prometheus() -> None:
    """Prometheus scrapes ipf with the token, and has the rules."""
    base = "http://127.0.0.1:9090/api/v1"
    running = start("prometheus", *Container("prometheus").command, "--web.listen-address=127.0.0.1:9090")
    eventually("prometheus is healthy", running.is_healthy)
    check(running.execute("promtool", "check", "config", "/etc/prometheus/prometheus.yml").returncode == 0, "promtool")

    def is_up() -> bool:
        targets = found(f"{base}/targets")["data"]["activeTargets"]
        return [one["health"] for one in targets] == ["up"]

    eventually("prometheus scrapes ipf", is_up)
    groups = found(f"{base}/rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    check(len(rules) > 20 and {rule["health"] for rule in rules} <= {"ok", "unknown"}, f"it has {len(rules)} alerts")


def stop(ipf: Container, subscriber: Container, feed: Container) -> None:
    """SIGTERM to each, while the feed sends."""
    for container, most in ((feed, 10.0), (subscriber, 10.0), (ipf, 10.0)):
        began = time.monotonic()
        container.stop(60)
        took = time.monotonic() - began
        status, code = container.state()
        check((status, code) == ("exited", 0) and took < most, f"{container.name} stops in {took:.1f} s with status 0")
    check("ipf has stopped" in ipf.log(), "ipf stopped in order")


def main() -> int:
    """All checks."""
    try:
        for part in (image, databases, without_tokens, stack):
            part()
    except (Failed, RuntimeError, KeyError, TypeError) as failed:
        for one in started:
            print(f"---- {one.name}\n{one.log()[-3000:]}", file=sys.stderr)
        print(f"FAILED: {failed!r}", file=sys.stderr)
        return 1
    finally:
        for one in started:
            one.remove()
        remove_volumes()
    print("OK")
    return 0


if __name__ == "__main__":
    sys.exit(main())
