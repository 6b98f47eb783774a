"""Saved views: each person's own, kept across a restart, and never lost to a broken file."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.console.people.saved_views import FILE, MOST, SavedView, SavedViews
from ipf.errors import Problem

MINE = SavedView("messages", "Failed today", "status=FAILED")


class SavedViewTests(TestCase):
    def test_each_person_has_his_own(self) -> None:
        views = SavedViews(None)
        views.save("ada", MINE)
        views.save("ada", SavedView("messages", "all", ""))
        views.save("ada", SavedView("codes", "Failed today", "x=1"))
        self.assertEqual([one.name for one in views.of("ada", "messages")], ["all", "Failed today"])
        self.assertEqual(views.of("bob", "messages"), [])

    def test_the_same_name_replaces_and_removal_is_of_one_list(self) -> None:
        views = SavedViews(None)
        views.save("ada", MINE)
        views.save("ada", SavedView("messages", "Failed today", "status=DEAD_LETTER"))
        self.assertEqual([one.query for one in views.of("ada", "messages")], ["status=DEAD_LETTER"])
        views.remove("ada", "codes", "Failed today")
        self.assertEqual(len(views.of("ada", "messages")), 1)
        views.remove("ada", "messages", "Failed today")
        self.assertEqual(views.of("ada", "messages"), [])

    def test_they_survive_a_restart_and_are_private(self) -> None:
        folder = self.mktemp()
        SavedViews(folder).save("ada", MINE)
        self.assertEqual(SavedViews(folder).of("ada", "messages"), [MINE])
        self.assertEqual(Path(folder, FILE).stat().st_mode & 0o777, 0o600)

    def test_a_broken_file_is_named_and_kept(self) -> None:
        for content in ("{", "[]", '{"ada": [{"name": 1}]}'):
            folder = Path(self.mktemp())
            folder.mkdir()
            (folder / FILE).write_text(content)
            problem = self.assertRaises(Problem, SavedViews, str(folder))
            self.assertEqual(problem.place, "IPF_UI_DATA_DIR")
            self.assertEqual((folder / FILE).read_text(), content)

    def test_what_cannot_be_written_changes_nothing(self) -> None:
        blocked = Path(self.mktemp())
        views = SavedViews(str(blocked / "folder"))
        blocked.write_text("a file")
        self.assertRaises(Problem, views.save, "ada", MINE)
        self.assertEqual(views.of("ada", "messages"), [])

    def test_bounds(self) -> None:
        views = SavedViews(None)
        for view in (SavedView("m", "", ""), SavedView("m", "a\nb", ""), SavedView("m", "n" * 81, ""),
                     SavedView("m", "n", "q" * 2001)):  # fmt: skip
            self.assertRaises(Problem, views.save, "ada", view)
        for number in range(MOST):
            views.save("ada", SavedView("m", f"view {number}", ""))
        self.assertRaises(Problem, views.save, "ada", MINE)
        views.save("ada", SavedView("m", "view 1", "changed=1"))
