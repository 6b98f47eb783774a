"""Secrets of Subscriptions in answers: in clear for who has just sent them, else masked (`router.hidden`)."""

from __future__ import annotations

from dataclasses import replace

from ipf.ports import Answer, Json
from ipf.rest.repository import Repository


def in_clear(answer: Answer, sent: Json, repository: Repository) -> Answer:
    """The answer to a create or update, with the headers that came with it as they came."""
    if sent["resourceType"] != "Subscription" or not answer.body:
        return answer
    return replace(answer, body=repository.vault.shown(answer.body, sent))
