"""A de-identified export of the real service over HTTP: nothing that was planted gets out, and a kill loses nothing.

The resources are those that the maps make of the corpus.  A mark stands in each text, identifier, code, URL, id and
extension of them, wherever a client can write one; each date is on a marked day.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from twisted.trial.unittest import TestCase

from ipf.fhir.model.definitions import Element, definitions
from ipf.fhir.structure.required_codes import required_codes
from ipf.security.deident.profile import built_in
from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.waiting import PATIENCE, until

GROUP = "flows"
MARK = "Zyxomark"
DAY = "2021-03-07"
CORPUS = Path(__file__).parent.parent / "corpus"
ASK = {"Accept": "application/fhir+json", "Prefer": "respond-async"}
ROUNDS = 1
"""How often each Bundle of the corpus is stored, under other ids."""
_DATES = {"date": DAY, "dateTime": f"{DAY}T10:11:12Z", "instant": f"{DAY}T10:11:12Z"}
_URLS = frozenset({"uri", "url", "canonical"})
_TEXTS = frozenset({"string", "markdown"})

Json = dict[str, Any]


def bundles(number: int) -> Iterator[Json]:
    """The corpus as transactions with marked resources."""
    for path in sorted(CORPUS.glob("*.json")):
        entries = json.loads(path.read_bytes()).get("entry", [])
        names = {one["fullUrl"]: f"{one['resource']['resourceType']}/{MARK}-{path.stem.replace('_', '-')}-{number}-{n}"
                 for n, one in enumerate(entries)}  # fmt: skip
        sent = [marked_resource(one["resource"], names, names[one["fullUrl"]]) for one in entries]
        if sent:
            yield {"resourceType": "Bundle", "type": "transaction", "entry": [
                {"resource": one, "request": {"method": "PUT", "url": f"{one['resourceType']}/{one['id']}"}}
                for one in sent
            ]}  # fmt: skip


def marked_resource(resource: Json, names: dict[str, str], name: str) -> Json:
    """A resource of the corpus with marks; `names`: of the others in the Bundle."""
    kind, _, id = name.partition("/")
    found = {**marked(resource, kind, names), "resourceType": kind, "id": id}
    div = f'<div xmlns="http://www.w3.org/1999/xhtml">{MARK}</div>'
    contained = {"resourceType": "Basic", "id": "in", "code": {"text": MARK}}
    note = {"url": f"http://{MARK}", "valueReference": {"reference": "#in"}}
    return {**found, "text": {"status": "generated", "div": div}, "contained": [contained],
            "extension": [*found.get("extension", []), note], "language": MARK}  # fmt: skip


def marked(node: Json, type_path: str, names: dict[str, str]) -> Json:
    """An object with marks in all that it has, and an extension."""
    found: Json = {}
    for name, value in node.items():
        element = definitions().element(type_path, name)
        many = value if isinstance(value, list) else [value]
        if element is None or None in many:  # a null stands for a member `_name`, which is none of the definitions
            continue
        new = [marked_value(one, element, names) for one in many]
        found[name] = new if isinstance(value, list) else new[0]
    if type_path == "Coding":
        found["display"] = MARK
    if type_path != "Extension":
        extension = {"url": f"http://{MARK}", "valueString": MARK}
        found["extension"] = [*found.get("extension", []), extension]
    return found


def marked_value(value: Any, element: Element, names: dict[str, str]) -> Any:
    """A value with marks: texts and codes as they may be, dates on the marked day, references to the renamed."""
    type_name = element.types[0]
    if isinstance(value, dict):
        return marked(value, type_name, names)
    if type_name in _DATES:
        return _DATES[type_name]
    if element.path == "Reference.reference":
        return names.get(value, f"Organization/{MARK}")
    if element.path in ("Coding.system", "Extension.url"):
        return value
    if type_name in _TEXTS:
        return MARK
    if type_name in _URLS:
        return f"urn:{MARK}"
    return MARK if type_name == "code" and required_codes(element.path) is None else value


class DeidentFlow(TestCase):
    """Runs over a real service."""

    timeout = LIMIT  # an export through kills of the service

    def test_nothing_planted_gets_out(self) -> None:
        """Marks of all kinds; a kill -9 in the middle of the job."""
        run(self._flow())

    async def _flow(self) -> None:
        async with Scenario(IPF_SECRET_KEY="key-of-the-installation") as scenario:
            self.scenario = scenario
            sent: Counter[str] = Counter()
            for number in range(ROUNDS):
                for bundle in bundles(number):
                    self.assertIn(MARK, json.dumps(bundle))
                    status, answer = await self._ask("POST", "/fhir", bundle)
                    self.assertEqual(status, 200, answer)
                    sent.update(one["resource"]["resourceType"] for one in bundle["entry"])
            _, first = await self._exported(kill=True)
            manifest, second = await self._exported()
            self.assertEqual(sorted(first), sorted(second))
            self.assertTrue(manifest["extension"]["deidentified"].startswith(built_in().title))
            self._check(first, sent)
            plain = "".join((await self._exported("/fhir/$export"))[1])
            self.assertGreater(plain.count(MARK), 10_000, "the walk planted marks")
            self.assertIn(DAY, plain)

    def _check(self, lines: list[str], sent: Counter[str]) -> None:
        """Every resource once, no mark, no marked day, and references that resolve."""
        text = "\n".join(lines)
        self.assertNotIn(MARK.lower(), text.lower())
        self.assertNotIn(DAY, text)
        found = [json.loads(line) for line in lines]
        names = Counter(f"{one['resourceType']}/{one['id']}" for one in found)
        self.assertEqual(set(names.values()), {1})
        kinds = Counter(one["resourceType"] for one in found)
        self.assertEqual(kinds, {kind: count for kind, count in sent.items() if kind in built_in().resources})
        references = re.findall(r'"reference":"([^"]*)"', text)
        self.assertGreater(len(references), 100)
        self.assertEqual([one for one in references if one not in names], [])

    async def _exported(self, path: str = "/fhir/$export?_deident=true", kill: bool = False) -> tuple[Json, list[str]]:
        """The manifest of an export, and its lines.  `kill`: the service while it writes them."""
        service, scenario = self.scenario.service, self.scenario
        status, answer = await self._ask("GET", path, headers={**ASK})
        self.assertEqual(status, 202, answer)
        ((job,),) = scenario.sql("fhir", "SELECT id FROM export_jobs ORDER BY transaction_time DESC LIMIT 1")
        if kill:
            await self._until(f"SELECT count(*) > 0 FROM export_parts WHERE job_id = '{job}'", "t")
            service.kill()
            service.start()
            await scenario.ready()
        await self._until(f"SELECT status FROM export_jobs WHERE id = '{job}'", "done")
        _, manifest = await self._ask("GET", f"/fhir/$export-status/{job}")
        lines: list[str] = []
        for output in manifest["output"]:
            url = f"{service.base_url}/fhir/{output['url'].partition('/fhir/')[2]}"
            text = await asyncio.to_thread(lambda url=url: urlopen(url).read().decode())
            self.assertEqual(text.count("\n"), output["count"])
            lines += text.splitlines()
        return manifest, lines

    async def _ask(self, method: str, path: str, body: object = None, headers: Any = None) -> tuple[int, Any]:
        return await asyncio.to_thread(self.scenario.service.request, method, path, body, headers)

    async def _until(self, query: str, wanted: str) -> None:

        async def reached() -> bool:
            return bool((await asyncio.to_thread(self.scenario.psql, query, "fhir")).strip() == wanted)

        await until(reached, seconds=3 * PATIENCE)
