"""Server-assigned ids."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import TestCase

from ipf.fhir.structure.primitives import is_id
from ipf.rest.write.ids import new_id

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
FORM = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class NewIds(TestCase):
    """UUID version 7, RFC 9562."""

    def test_form_time_and_difference(self) -> None:
        ids = [new_id(NOW) for _ in range(1000)]
        found = [FORM.fullmatch(one) for one in ids]
        self.assertEqual({one and int(one[1] + one[2], 16) for one in found}, {int(NOW.timestamp() * 1000)})
        self.assertEqual(len({one[15:] for one in ids}), 1000)
        self.assertEqual({one[19] for one in ids}, set("89ab"))
        self.assertTrue(all(map(is_id, ids)))

    def test_later_ones_sort_later(self) -> None:
        later = [new_id(NOW + timedelta(milliseconds=n)) for n in range(50)]
        self.assertEqual(later, sorted(later))
