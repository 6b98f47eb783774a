"""MLLP framing: a stream cut at any byte, and invalid streams."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from ipf.hl7.framing import KEPT_HEAD, Event, Framer, Junk, Oversize, Unfinished, frame

ONE = b"MSH|^~\\&|A|||||\rPID|1\r"
TWO = b"MSH|^~\\&|B|||||\r"

# stream -> what comes of it
STREAMS: dict[str, tuple[bytes, list[Event]]] = {
    "one": (frame(ONE), [ONE]),
    "two at once": (frame(ONE) + frame(TWO), [ONE, TWO]),
    "line ends between": (b"\r\n" + frame(ONE) + b"\r\n \t\x00" + frame(TWO) + b"\n", [ONE, TWO]),
    "empty": (frame(b""), [b""]),
    "junk before": (b"hello" + frame(ONE), [Junk(b"hello", 5), ONE]),
    "junk between": (frame(ONE) + b"a\rb\n" + frame(TWO), [ONE, Junk(b"ab", 2), TWO]),
    "FS is content": (frame(b"MSH\x1c|\x1c\x1c"), [b"MSH\x1c|\x1c\x1c"]),
    "FS LF is content": (b"\x0ba\x1c\nb\x1c\r", [b"a\x1c\nb"]),
    "VT is content": (frame(b"MSH|\x0b|\x0b"), [b"MSH|\x0b|\x0b"]),
    "a frame given up": (b"\x0b" + ONE[:9] + frame(TWO), [Unfinished(ONE[:9], 9), TWO]),
    "two frames given up": (b"\x0b" + ONE + b"\x0b" + ONE + frame(TWO), [Unfinished(ONE + b"\x0b" + ONE, 45), TWO]),
    "end block alone": (b"\x1c\r" + frame(ONE), [Junk(b"\x1c", 1), ONE]),
    "not ended": (b"\x0b" + ONE, []),
    "fragments of end blocks": (frame(b"\x1c\x1c"), [b"\x1c\x1c"]),
}


def feed(stream: bytes, *cuts: int, limit: int = 1000) -> list[Event]:
    framer = Framer(limit)
    events: list[Event] = []
    for start, stop in zip((0, *cuts), (*cuts, len(stream)), strict=True):
        events += framer.feed(stream[start:stop])
    return events


class CutTests(TestCase):
    def test_streams(self) -> None:
        for name, (stream, expected) in STREAMS.items():
            self.assertEqual(feed(stream), expected, name)

    def test_every_pair_of_cuts(self) -> None:
        for name, (stream, expected) in STREAMS.items():
            for first in range(len(stream) + 1):
                for second in (first, min(first + 1, len(stream)), min(first + 2, len(stream)), len(stream)):
                    self.assertEqual(feed(stream, first, second), expected, f"{name} cut at {first}, {second}")

    def test_byte_by_byte(self) -> None:
        for name, (stream, expected) in STREAMS.items():
            self.assertEqual(feed(stream, *range(1, len(stream))), expected, name)

    def test_end_of_stream(self) -> None:
        framer = Framer()
        framer.feed(b"\x0bMSH|")
        self.assertTrue(framer.inside)
        self.assertEqual(framer.finish(), [Unfinished(b"MSH|", 4)])
        self.assertEqual(framer.finish(), [])
        framer.feed(b"GET / HTTP/1.1\r\n")
        self.assertEqual(framer.finish(), [Junk(b"GET/HTTP/1.1", 12)])


class BoundTests(TestCase):
    def test_limit_is_exact_at_every_cut(self) -> None:
        for size, fits in ((10, True), (11, False)):
            message = b"x" * size
            stream = frame(message) + frame(ONE[:10])
            expected: list[Event] = [message] if fits else [Oversize(message, size)]
            for cut in range(len(stream)):
                self.assertEqual(feed(stream, cut, limit=10), [*expected, ONE[:10]], f"{size} cut at {cut}")

    def test_oversize_keeps_its_head_and_counts_the_rest(self) -> None:
        size = 5 * KEPT_HEAD
        stream = frame(b"MSH|" + b"x" * (size - 4)) + frame(ONE)
        for step in (1000, KEPT_HEAD, 77_777):
            framer = Framer(2 * KEPT_HEAD)
            events: list[Event] = []
            most = 0
            for at in range(0, len(stream), step):
                events += framer.feed(stream[at : at + step])
                most = max(most, framer.held)
            oversize, after = events
            assert isinstance(oversize, Oversize)
            self.assertEqual((len(oversize.head), oversize.size, oversize.head[:4]), (KEPT_HEAD, size, b"MSH|"))
            self.assertEqual(after, ONE)
            self.assertLessEqual(most, 2 * KEPT_HEAD + 1)

    def test_endless_frame_is_counted_in_bounded_memory(self) -> None:
        framer = Framer(100_000)
        framer.feed(b"\x0b")
        chunk = b"y" * 65_536
        for _ in range(200):
            self.assertEqual(framer.feed(chunk), [])
            self.assertLessEqual(framer.held, 100_001)
        self.assertEqual(framer.pending, 200 * 65_536)

    def test_endless_junk_is_counted_in_bounded_memory(self) -> None:
        framer = Framer()
        for _ in range(100):
            self.assertEqual(framer.feed(b"z" * 65_536), [])
        self.assertEqual(framer.junk_size, 100 * 65_536)
        (junk,) = framer.finish()
        assert isinstance(junk, Junk)
        self.assertEqual((len(junk.head), junk.size), (KEPT_HEAD, 100 * 65_536))

    def test_a_chunk_is_searched_once(self) -> None:
        """Linear: earlier chunks are not searched again, however small the chunks are."""

        class Counting(bytes):
            searched = 0

            def find(self, wanted: bytes, start: int = 0, *rest: int) -> int:  # type: ignore[override]  # narrower
                Counting.searched += len(self) - start
                return bytes.find(self, wanted, start, *rest)

        framer = Framer()
        stream = b"\x0b" + b"x" * 20_000
        for at in range(len(stream)):
            framer.feed(Counting(stream[at : at + 1]))
        self.assertLessEqual(Counting.searched, 3 * len(stream))


class FuzzTests(TestCase):
    @settings(max_examples=150, deadline=None)
    @given(
        st.lists(
            st.sampled_from([b"\x0b", b"\x1c", b"\r", b"\x1c\r", b"\n", b"MSH|", b"a", b"\x0bMSH", b" "]), max_size=40
        ),
        st.lists(st.integers(0, 120), max_size=6),
    )
    def test_cuts_never_change_what_is_found(self, parts: list[bytes], cuts: list[int]) -> None:
        stream = b"".join(parts)
        at = sorted(min(cut, len(stream)) for cut in cuts)
        self.assertEqual(feed(stream, *at, limit=12), feed(stream, limit=12))
