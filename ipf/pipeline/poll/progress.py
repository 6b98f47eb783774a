"""The state of a feed after a page, at the end of a pass, and after a failure.

A pass reads every page from `{{lastRun}}` on.  Its beginning becomes the new mark when nothing can be missing.  Most
servers count items to find a page: while a pass reads, an item that was read may change and move to the end, or leave
the result, and the rest moves up by one, behind the reader.  So a pass in which an item came again with another
version, or the total became smaller, or whose reading was interrupted, is repeated from the same mark; what is stored
is recognised.  A source that never rests is given MOST_TRIES: then the beginning of the first of these passes counts.

A page that the source no longer has (its paging ended) begins the pass again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ipf.ports.messages.feeds import FeedState
from ipf.ports.messages.sources import Feed, Paging

MOST_TRIES = 8


def started(state: FeedState, feed: Feed, now: datetime) -> FeedState:
    """The state with which a poll goes on.  `now`: by the source's clock, as far as it is known."""
    if state.began is None:
        return replace(state, began=now, next_page="", pages=0, moved=False, repeats=False)
    if feed.after_failure and not state.repeats:
        return replace(state, next_page="", pages=0, repeats=True)
    return replace(state, moved=state.moved or state.pages > 0)


def answered(state: FeedState, source_time: datetime | None) -> FeedState:
    """The state when the first page was answered.  `source_time`: when the source began to answer, by its own clock.

    The earlier of both clocks counts: to read something twice does no harm.
    """
    if state.pages or source_time is None or state.began is None:
        return state
    return replace(state, began=min(state.began, source_time))


def after_page(state: FeedState, feed: Feed, next_page: str, *, moved: bool, is_empty: bool) -> FeedState:
    """The state after a page.  `moved`: an item of the pass changed its place."""
    state = replace(state, pages=state.pages + 1, moved=state.moved or moved)
    if next_page and not (feed.paging is Paging.DRAIN and is_empty):
        return replace(state, next_page=next_page)
    return _ended(state, feed)


def is_complete(state: FeedState) -> bool:
    """Whether the pass is complete."""
    return state.began is None


def restarted(state: FeedState) -> FeedState:
    """The pass from its first page, because the source does not know the next one any more."""
    return replace(state, next_page="", pages=0, moved=False)


def _ended(state: FeedState, feed: Feed) -> FeedState:
    if state.repeats:  # what an unfinished pass may have lost is here; now what is new
        return replace(state, next_page="", pages=0, repeats=False)
    if not state.moved or state.pages == 1 or feed.paging is Paging.DRAIN:
        return FeedState(state.began)
    candidate, tries = state.candidate or state.began, state.tries + 1
    if tries >= MOST_TRIES:
        return FeedState(candidate)
    return FeedState(state.mark, candidate=candidate, tries=tries)
