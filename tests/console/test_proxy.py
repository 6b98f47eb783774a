"""The paths that `/api/admin` sends on; `test_rights.py` has the roles."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import given
from hypothesis.strategies import lists, text
from twisted.trial.unittest import TestCase

from ipf.console.serving.proxy import admin_path
from ipf.errors import Problem


class AdminPathTests(TestCase):
    def test_paths_that_stay_below_admin(self) -> None:
        for segments, path in [
            (["messages"], "/admin/messages"),
            (["messages", "7", "retry"], "/admin/messages/7/retry"),
            (["subscriptions", "a b", "status"], "/admin/subscriptions/a%20b/status"),
            (["observe", "trace", "ü"], "/admin/observe/trace/%C3%BC"),
        ]:
            self.assertEqual(admin_path(segments), path)

    def test_paths_that_would_leave_it_are_refused(self) -> None:
        for segment in ["..", ".", "", "a/b", "..\\fhir", "%2e%2e", "a?b", "a#b", "a\nb", "a\0", ";x"]:
            self.assertRaises(Problem, admin_path, ["messages", segment])

    @given(lists(text(), min_size=1, max_size=4))
    def test_no_path_leaves_admin(self, segments: list[str]) -> None:
        """Decoded as often as any server might, a path that is sent has no dots and begins with /admin/."""
        try:
            path = admin_path(segments)
        except (Problem, UnicodeEncodeError):
            return
        for _ in range(3):
            self.assertTrue(path.startswith("/admin/"))
            self.assertTrue({"..", "."}.isdisjoint(path.split("/")))
            path = unquote(path)
