"""The Wycheproof vectors for signatures, keys and key sets: invalid ones are refused, valid ones accepted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.security.keys import ALGORITHMS, KeyRefused, KeySet
from ipf.security.tokens import TokenRefused, verify_signature
from tests.reference import REFERENCE, needs_reference

VECTORS = REFERENCE / "jose"
FILES = ("json_web_signature_test", "json_web_key_test", "json_web_crypto_test")

# Valid, and refused here on purpose: the key says that it is for another algorithm than the token is signed with.
CONTRADICTED = {346, 347, 350, 351}


def vectors() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(file, key or key set, test)."""
    for name in FILES:
        for group in json.loads((VECTORS / f"{name}.json").read_text())["testGroups"]:
            for test in group["tests"]:
                if "jws" in test:
                    yield name, group.get("public") or group["private"], test


def accepts(given: Any, token: Any) -> bool:
    """Whether the published key or key set verifies the token."""
    document = given if "keys" in given else {"keys": [given]}
    try:
        verify_signature(token if isinstance(token, str) else json.dumps(token), KeySet.parse(document))
    except (TokenRefused, KeyRefused):
        return False
    return True


@needs_reference
class VectorTests(TestCase):
    def test_invalid_vectors_are_refused(self) -> None:
        seen: Counter[str] = Counter()
        wrong = []
        for name, key, test in vectors():
            if test["result"] == "invalid":
                seen[name] += 1
                if accepts(key, test["jws"]):
                    wrong.append((name, test["tcId"], test["comment"]))
        self.assertEqual(wrong, [])
        self.assertGreater(seen["json_web_signature_test"], 350)
        self.assertGreater(seen.total(), 390)

    def test_valid_vectors_are_accepted(self) -> None:
        accepted: Counter[str] = Counter()
        for _, key, test in vectors():
            if test["result"] != "valid" or key.get("kty") not in ("RSA", "EC"):
                continue
            expected = test["tcId"] not in CONTRADICTED
            self.assertEqual(accepts(key, test["jws"]), expected, (test["tcId"], test["comment"]))
            accepted[key["alg"]] += expected
        self.assertEqual({one for one in accepted if accepted[one]} - set(ALGORITHMS), set())
        self.assertGreater(accepted.total(), 30)
