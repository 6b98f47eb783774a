"""Polling items of a manifest: what is read of them, and each mistake with its place."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.ports.messages.sources import FHIR_REST, NATIVE_API, AuthKind, Feed, Paging, PolledSource, SourceAuth
from tests.vendor_profiles.test_manifest import HEAD, read

SEARCH = "sources: [{id: obs, search: 'Observation?_lastUpdated=gt{{lastRun}}'}]"
QUERY = "resources: [{sourceType: pats, query: patients, idField: id, versionField: v, items: list%s}]"
FHIR = "{id: a, type: fhir-r4-polling, baseUrl: 'https://h/fhir/', since: '2026-01-01T00:00:00Z', %s}"
REST = "{id: a, type: rest-polling, baseUrl: 'http://h', since: '2026-01-01T00:00:00Z', %s}"
SECRET = (
    "auth: {type: oauth2-client-credentials, tokenUrl: 'https://h/t', clientId: 'x-${EHR_ID}',"
    " clientSecretEnv: EHR_SECRET, scope: s}"
)
KEY = "auth: {type: oauth2-private-key-jwt, tokenUrl: 'https://h/t', clientId: c, privateKeyEnv: EHR_KEY, keyId: k}"


class PollingTests(TestCase):
    def source(self, item: str) -> PolledSource:
        made, findings = read(HEAD + f"ingest: [{item}]")
        assert made is not None
        self.assertEqual([str(one) for one in findings.items if one.pointer.startswith("/ingest")], [])
        self.assertEqual([one.reason for one in made.served], [""])
        (source,) = made.polled
        return source

    def test_a_fhir_server(self) -> None:
        source = self.source(FHIR % f"{SEARCH}, {SECRET}, stripExtensions: ['https://h/x'], overlapSeconds: 7")
        self.assertEqual(
            (source.base_url, source.protocol, source.interval, source.overlap, source.strip, source.identifier_base),
            ("https://h/fhir", FHIR_REST, 300.0, 7.0, ("https://h/x",), "https://h/fhir"),
        )
        self.assertEqual(source.feeds, (Feed("obs", "Observation?_lastUpdated=gt{{lastRun}}"),))
        self.assertEqual(source.auth, SourceAuth(AuthKind.SECRET, "https://h/t", "x-${EHR_ID}", "EHR_SECRET", "s"))
        self.assertEqual(source.source_system, source.profile)

    def test_a_rest_api(self) -> None:
        source = self.source(REST % f"{QUERY % ', nextField: next'}, {KEY}")
        feed = Feed("pats", "patients", "pats", "list", "id", "v", Paging.FIELD, "next")
        self.assertEqual((source.protocol, source.feeds), (NATIVE_API, (feed,)))
        self.assertEqual((source.auth.kind, source.auth.key_id, source.auth.algorithm), (AuthKind.SIGNED, "k", "RS384"))
        for more, paging in ((", drain: true", Paging.DRAIN), (", offsetParameter: o, pageSize: 5", Paging.OFFSET)):
            self.assertEqual(self.source(REST % QUERY % more).feeds[0].paging, paging)

    def test_athena(self) -> None:
        source = self.source("{id: a, type: athena-native-rest, baseUrl: 'http://h', since: '2026-01-01T00:00:00Z',"
                             " resources: [acme-changed-patients]}")  # fmt: skip
        self.assertEqual((source.time_zone, source.time_format), ("America/New_York", "%m/%d/%Y %H:%M:%S"))
        (feed,) = source.feeds
        self.assertEqual((feed.message_type, feed.query, feed.id_field, feed.next_field),
                         ("acme-changed-patients", "patients/changed", "patientid", "next"))  # fmt: skip
        self.assertIn("showprocessedstartdatetime={{lastRun}}", feed.after_failure)

    def test_mistakes(self) -> None:
        for item, place, text in (
            (FHIR % "sources: [{id: a, search: Nonsense}]", "sources/0/search", "resource type"),
            (FHIR % "sources: [{id: a, search: 'Patient?a={{x}}'}]", "sources/0/search", "placeholder"),
            (FHIR % "sources: [{id: a, search: Patient}, {id: a, search: Patient}]", "sources/1", "two of this id"),
            (FHIR % f"{SEARCH}, pollIntervalSeconds: soon", "pollIntervalSeconds", "number"),
            (FHIR % f"{SEARCH}, pollIntervalSeconds: -1", "pollIntervalSeconds", "number"),
            (FHIR % f"{SEARCH}, timeZone: Mars/Base", "timeZone", "time zone"),
            (FHIR % f"{SEARCH}, headers: {{'X Y': a}}", "headers/X Y", "header"),
            (FHIR % f"{SEARCH}, auth: {{type: magic}}", "auth/type", "none of"),
            (FHIR % f"{SEARCH}, auth: {{type: bearer}}", "auth/tokenEnv", "missing"),
            (FHIR % f"{SEARCH}, auth: {{type: bearer, tokenEnv: IPF_DB_URL}}", "auth/tokenEnv", "may not read"),
            (FHIR % f"{SEARCH}, headers: {{X-Key: '${{PGPASSWORD}}'}}", "headers/X-Key", "may not read"),
            (FHIR % f"{SEARCH}, {KEY.replace('keyId: k', 'algorithm: HS256')}", "auth/algorithm", "none of"),
            (FHIR % f"{SEARCH}, {SECRET.replace('https://h/t', 'ftp://h')}", "auth/tokenUrl", "http or https"),
            (REST % QUERY % ", drain: true, nextField: n", "resources/0", "more than one"),
            (REST % QUERY % ", offsetParameter: o", "resources/0", "pageSize"),
            (REST % QUERY % ", drain: true, afterFailure: a=1", "resources/0/afterFailure", "drain"),
            ("{id: a, type: fhir-r4-polling, baseUrl: 'https://u:p@h', " + SEARCH + "}", "baseUrl", "http or https"),
            ("{id: a, type: fhir-r4-polling, baseUrl: h, since: soon, " + SEARCH + "}", "since", "must be a time"),
        ):
            _, findings = read(HEAD + f"ingest: [{item}]")
            found = [(one.pointer, one.message) for one in findings.errors]
            self.assertTrue(any(at == f"/ingest/0/{place}" and text in why for at, why in found), (item, found))

    def test_warnings(self) -> None:
        for item, text in (
            (FHIR % "sources: [{id: a, search: Patient}]", "has no {{lastRun}}"),
            (REST % QUERY.replace("versionField: v, ", "") % "", "has no versionField"),
            (FHIR % f"{SEARCH}, colour: red", "colour is not read"),
            ("{id: a, type: fhir-r4-polling, baseUrl: 'http://h', " + SEARCH + "}", "has no since"),
        ):
            made, findings = read(HEAD + f"ingest: [{item}]")
            self.assertEqual((findings.errors, len(made.polled) if made else 0), ([], 1))
            self.assertTrue(any(text in one.message for one in findings.items), item)
