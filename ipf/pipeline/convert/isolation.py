"""One message of a batch must not fail the others: what is done for a batch is done for each message when it fails.

Batches are stored and settled at once because that is faster.  When this raises what nobody foresaw, each message is
tried alone, so that the failure is that of the message at fault.  A Problem is not repeated: it is an answer, and that
the store cannot be reached concerns all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.equal_failures import reason_of
from ipf.ports import Settlement, Status
from ipf.rest.write.unit import Submit, Unit, UnitResult

log = Logger(namespace="ipf.convert")

Settle = Callable[[Sequence[Settlement]], Awaitable[Sequence[bool]]]
UNWRITABLE = "its end could not be written: "
"""Begins `last_error` of a message whose settlement the store refused."""


async def submitted(
    submit: Submit, units: Sequence[Unit], problem_of: Callable[[Exception, str], Problem]
) -> list[UnitResult | Problem]:
    """The result of each unit.  `problem_of`: an exception as a Problem; raises CancelledError when the stage stops."""
    try:
        return await submit(units)
    except Exception as error:
        if len(units) == 1 or isinstance(error, Problem | CancelledError):
            return [problem_of(error, units[0].correlation_id)] * len(units)
    return [(await submitted(submit, (unit,), problem_of))[0] for unit in units]


async def settled(settle: Settle, settlements: Sequence[Settlement]) -> list[bool]:
    """Whether each row was still leased.  StoreUnreachable.

    A settlement that the store refuses twice is written without what it says of codes and identity; a failure is then a
    dead letter with the reason.  When that is refused too, the row is left to stale recovery: a failed attempt.
    """
    try:
        return list(await settle(settlements))
    except (StoreUnreachable, CancelledError):
        raise
    except Exception:
        return [await _settled_alone(settle, one) for one in settlements]


async def _settled_alone(settle: Settle, one: Settlement) -> bool:
    settlement = one
    for _ in range(2):
        try:
            return (await settle((settlement,)))[0]
        except (StoreUnreachable, CancelledError):
            raise
        except Exception as error:
            log.failure("event=settlement_refused message_id={id}", event="settlement_refused", id=one.id)
            settlement = _plain(one, error)
    return False


def _plain(one: Settlement, error: Exception) -> Settlement:
    """The settlement with nothing but what every row has."""
    if one.status not in (Status.FAILED, Status.DEAD_LETTER):
        return replace(one, unmapped=(), conflict=None)
    text = UNWRITABLE + reason_of(error)
    return Settlement(one.id, one.fence, Status.DEAD_LETTER, one.attempt_count, text)
