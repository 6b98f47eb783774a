"""HL7 v2 messages from a seed: every separator, escape sequence, empty and null part, in every place."""

from __future__ import annotations

from random import Random

ENCODINGS = ("|^~\\&", "|^~\\&", "|^~\\&#", "#!*?@")
SEGMENTS = ("EVN", "PID", "PD1", "NK1", "PV1", "OBR", "OBX", "NTE", "AL1", "DG1", "IN1", "ZPI", "ZZZ")
TYPES = ("ST", "TX", "FT", "NM", "CWE", "CE", "XPN", "ED", "")
WORDS = ("A", "Ann", "Müller", "李", "O'Hara", "12.5", "20240115", "1.2.3", "F", "x y", "+", "a.b@c", "0")
ESCAPES = ("F", "S", "T", "R", "E", ".br", ".sp2", ".in4", ".ti", ".fi", ".nf", ".ce", ".sk3", "H", "N", "X41", "XC3A9",
           "Zlocal", "C2842", "M2442")  # fmt: skip
LINE_ENDS = ("\r", "\r\n", "\n")


class Generator:
    """Writes one message; `separators`: field, component, repetition, escape, subcomponent."""

    def __init__(self, choice: Random) -> None:
        self.choice = choice
        self.separators = choice.choice(ENCODINGS)

    def message(self, number: int) -> str:
        """A message with the control id `G` and the number."""
        field = self.separators[0]
        head = ["MSH", self.separators[1:], "SYS", self._field(), "IPF", self._field(), "20240115", "",
                self.separators[1].join(("ADT", "A08")), f"G{number}", "P", "2.5.1"]  # fmt: skip
        lines = [field.join(head)]
        lines += [self._segment(self.choice.choice(SEGMENTS)) for _ in range(self.choice.randint(0, 8))]
        end = self.choice.choice(LINE_ENDS)
        return end.join(lines) + self.choice.choice(("", end))

    def _segment(self, name: str) -> str:
        fields = [name, *(self._field() for _ in range(self.choice.randint(0, 12)))]
        if name == "OBX" and len(fields) > 5:
            fields[2] = self.choice.choice(TYPES)
        if name in ("OBX", "NTE") and self.choice.random() < 0.5:  # text whose sender does not escape
            place = 5 if name == "OBX" else 3
            component, repetition, escape, subcomponent = self.separators[1:5]
            fields[place : place + 1] = [f"R{subcomponent}D {component} x{repetition}more{escape}F{escape}"]
        return self.separators[0].join(fields)

    def _field(self) -> str:
        return self._parts(self.separators[2], 2, lambda: self._parts(self.separators[1], 4, self._component))

    def _component(self) -> str:
        return self._parts(self.separators[4], 2, self._leaf)

    def _parts(self, separator: str, most: int, part: object) -> str:
        assert callable(part)
        chance = self.choice.random()
        if chance < 0.15:
            return ""
        if chance < 0.2:
            return '""'
        return separator.join(part() for _ in range(self.choice.randint(1, most)))

    def _leaf(self) -> str:
        chance = self.choice.random()
        if chance < 0.15:
            return ""
        if chance < 0.2:
            return '""'
        text = self.choice.choice(WORDS)
        if chance < 0.4:
            mark = self.separators[3]
            text += f"{mark}{self.choice.choice(ESCAPES)}{mark}{self.choice.choice(WORDS)}"
        elif chance < 0.42:
            text += self.separators[3]  # an escape character that begins nothing
        return text


def generated_messages(count: int) -> list[str]:
    """The same messages each time."""
    return [Generator(Random(number)).message(number) for number in range(count)]
