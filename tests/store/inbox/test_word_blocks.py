"""Blocks of words: what is written is read back."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.store.inbox.word_blocks import BITS, CHUNK, Part, beginning_with, bits_of, plain, posting, united


async def nothing() -> None:
    """A pause that does not wait."""


class PostingTest(TestCase):
    def test_few_are_a_list_and_many_are_bits(self) -> None:
        some = [0], [1023], [5, 5, 7], range(84), range(85), range(0, CHUNK, 3), range(CHUNK)
        for numbers in map(list, some):
            stored = posting(numbers)
            self.assertEqual(bits_of(stored), sum(1 << number for number in set(numbers)), numbers)
            self.assertLessEqual(len(stored.encode()), max(2 * 84, 1 + (BITS + 2) // 3 * 4))

    def test_nothing(self) -> None:
        self.assertEqual(bits_of(""), 0)


class PartTest(TestCase):
    async def test_words_are_in_order_and_in_one_block(self) -> None:
        """Of runs, of their parts, and of words taken as they are; the first word of a block says where to look."""
        part, held = Part(), dict[str, set[int]]()
        for number in range(300):
            runs = {f"run{number:03}", "12-345", "kari.hansen@example.org", "hansen"}
            part.add(number, runs, ["\x01pgen|12"])
            for word in (f"run{number:03}", "12-345", "12", "345", "hansen", "kari", "org", "\x01pgen|12"):
                held.setdefault(word, set()).add(number)
        blocks = await part.blocks(nothing)
        firsts = [first for first, _ in blocks]
        self.assertGreater(len(blocks), 3)
        self.assertEqual(firsts, sorted(firsts))
        for word, numbers in held.items():
            (words,) = [each for first, each in blocks if first == max(first for first in firsts if first <= word)]
            (line,) = [line for line in words.splitlines() if line.startswith(word + "\t")]
            self.assertEqual(bits_of(line.partition("\t")[2]), sum(1 << number for number in numbers), word)
            self.assertIn(line.partition("\t")[2], beginning_with(word, words))

    def test_beginnings(self) -> None:
        words = "\n" + "".join(f"{word}\t{posting([n])}\n" for n, word in enumerate(("a", "ab", "abc", "b", "xab"), 1))
        for start, numbers in (("a", [1, 2, 3]), ("ab", [2, 3]), ("b", [4]), ("x", [5]), ("c", []), ("abcd", [])):
            self.assertEqual([bits_of(each) for each in beginning_with(start, words)], [1 << n for n in numbers], start)

    def test_united_postings_are_the_same_messages(self) -> None:
        numbers = [1], [1, 2], range(100), [900], range(0, CHUNK, 2)
        many = [posting(list(each)) for each in numbers]
        for postings in ([], many, many[:2], many[2:3]):
            bits = 0
            for one in united(postings):
                bits |= bits_of(one)
            wanted = 0
            for one in postings:
                wanted |= bits_of(one)
            self.assertEqual(bits, wanted)
        self.assertEqual(len(united(many)), 3)

    def test_what_ends_a_line_is_in_no_word(self) -> None:
        self.assertEqual(plain("a\tb\nc\x1f\x00"), "a b c  ")
