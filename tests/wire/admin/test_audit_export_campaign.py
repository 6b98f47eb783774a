"""One flipped bit in a hundred thousand records."""

from __future__ import annotations

from tests.wire.admin import test_audit_export

GROUP = "campaigns"


class ManyRecordsCampaign(test_audit_export.ExportTests):
    many = 100_000
