"""kill -9 of the service while jobs run: what was accepted is done, and nothing is done twice."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import shutil
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, until

GROUP = "kills"

LINES = 2000
BUNDLES = 20
KILLED_AT = (1, 1500, 3000)
"""Patients that are there when the service is killed."""


class JobKillTests(TestCase):
    timeout = LIMIT

    def test_bundles_and_an_import(self) -> None:
        run(self._kills())

    async def _kills(self) -> None:
        folder = scratch()
        files = ThreadingHTTPServer(("127.0.0.1", 0), _Patients)
        Thread(target=files.serve_forever, daemon=True).start()
        service = ServiceProcess(folder / "service", IPF_IMPORT_ALLOW="127.0.0.1",
                                 SUBSCRIPTION_SERVICE_CHANNEL_SECURITY="permissive")  # fmt: skip
        try:
            service.start()
            service.wait_ready()
            url = f"http://127.0.0.1:{files.server_port}/Patient"
            inputs = [{"type": "Patient", "url": f"{url}{end}"} for end in (".ndjson", ".ndjson.gz")]
            status = [self._begin(service, "/fhir/$import", {"input": inputs})]
            status += [self._begin(service, "/fhir", _bundle(number)) for number in range(BUNDLES)]
            for wanted in KILLED_AT:
                await until(partial(asyncio.to_thread, _has, service, wanted), f"{wanted} patients")
                service.kill()
                service.start()
                await asyncio.to_thread(service.wait_ready)
            answers = [await self._end(service, one) for one in status]
            self._check(service, answers)
        finally:
            files.shutdown()
            files.server_close()
            service.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _begin(self, service: ServiceProcess, path: str, body: Any) -> str:
        """The path of the status of an accepted job."""
        status, headers = _post(service, path, body)
        self.assertEqual(status, 202)
        return str(headers["Content-Location"].partition(f":{service.http_port}")[2])

    async def _end(self, service: ServiceProcess, path: str) -> Any:

        def answer() -> tuple[int, Any] | None:
            found: tuple[int, Any] = service.get(path)
            return found if found[0] != 202 else None

        status, body = await until(lambda: asyncio.to_thread(answer), path, seconds=3 * PATIENCE)
        self.assertEqual(status, 200, body)
        return body

    def _check(self, service: ServiceProcess, answers: list[Any]) -> None:
        imported, *bundles = answers
        self.assertEqual(([one["count"] for one in imported["output"]], imported["error"]), ([LINES, LINES], []))
        for number, answer in enumerate(bundles):
            entry = answer["entry"][0]
            self.assertEqual(entry["response"]["status"], "200 OK")
            found = service.get(f"/fhir/Patient?identifier=urn:made%7C{number}")[1]
            self.assertEqual(found["total"], 1, number)
            location = entry["resource"]["entry"][0]["response"]["location"]
            self.assertIn(f"Patient/{found['entry'][0]['resource']['id']}/_history/1", location)
        found = service.get("/fhir/Patient?identifier=urn:imported%7C&_summary=count")[1]
        self.assertEqual(found["total"], 2 * LINES)
        for kind in ("plain", "packed"):
            last = service.get(f"/fhir/Patient/{kind}{LINES - 1}/_history")[1]
            self.assertEqual(last["total"], 1)


def _has(service: ServiceProcess, count: int) -> bool:
    """Whether it has so many patients."""
    return bool(service.get("/fhir/Patient?_summary=count")[1]["total"] >= count)


def _post(service: ServiceProcess, path: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", service.http_port, timeout=PATIENCE)
    headers = {"Content-Type": "application/fhir+json", "Prefer": "respond-async"}
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers


def _bundle(number: int) -> Any:
    """A transaction that creates a Patient, odd numbers as a batch."""
    kind = "batch" if number % 2 else "transaction"
    created = {"resourceType": "Patient", "identifier": [{"system": "urn:made", "value": str(number)}]}
    return {"resourceType": "Bundle", "type": kind,
            "entry": [{"request": {"method": "POST", "url": "Patient"}, "resource": created}]}  # fmt: skip


class _Patients(BaseHTTPRequestHandler):
    """A file, and one that is gzipped."""

    def do_GET(self) -> None:
        """http.server: a request."""
        is_packed = self.path.endswith(".gz")
        kind = "packed" if is_packed else "plain"
        lines = (
            {"resourceType": "Patient", "id": f"{kind}{n}", "identifier": [{"system": "urn:imported", "value": str(n)}]}
            for n in range(LINES)
        )
        body = "".join(json.dumps(one) + "\n" for one in lines).encode()
        body = gzip.compress(body) if is_packed else body
        self.send_response(200)
        if is_packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", "application/fhir+ndjson")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """http.server: nothing is logged."""
