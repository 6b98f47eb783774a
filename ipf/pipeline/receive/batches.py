"""A batch from a sender: each message is received as if it came alone, and one acknowledgement answers for all.

Input: the bytes of one frame or request that begins with FHS or BHS.  Output: the rows of its messages, and a batch of
their acknowledgements, sent when the last of them is durable.  Crash: no acknowledgement was sent, the sender repeats
the batch, and messages that were stored are recognised.  A batch that is cut off is kept among the rejects as a whole.

Source: HL7 v2.9 section 2.10.3; docs/how-to/receive-messages.md "Batches".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ipf.hl7.batches import Content, acknowledgement

Answers = list[bytes | None]
Take = Callable[[bytes, Callable[[bytes | None], None]], None]
"""Receives one message, and calls back with its acknowledgement."""


def take_all(content: Content, take: Take, done: Callable[[Answers], None]) -> None:
    """Receive all messages in their order; `done` gets all acknowledgements in the same order."""
    messages = content.messages
    answers: Answers = [None] * len(messages)
    waiting = set(range(len(messages)))

    def answered(number: int, answer: bytes | None) -> None:
        answers[number] = answer
        waiting.discard(number)
        if not waiting:
            done(answers)

    for number, message in enumerate(messages):
        take(message, partial(answered, number))


def answer_to(content: Content, answers: Answers, time: str, control_id: str) -> bytes | None:
    """The acknowledgement of the batch; None when no sender of its messages wants one."""
    if not any(answers):
        return None
    return acknowledgement(content, answers, time, control_id)
