"""In-memory implementations of the ports.  `tests/contracts` checks them."""

from tests.fakes.conflicts import MemoryIdentityConflicts
from tests.fakes.deliveries import MemoryDeliveryQueue
from tests.fakes.inbox import MemoryInbox
from tests.fakes.message_admin import MemoryMessageAdmin
from tests.fakes.resources import MemoryFhirStore
from tests.fakes.unmapped_codes import MemoryUnmappedCodes
from tests.fakes.unread_fields import MemoryUnreadFields

__all__ = [
    "MemoryDeliveryQueue",
    "MemoryFhirStore",
    "MemoryIdentityConflicts",
    "MemoryInbox",
    "MemoryMessageAdmin",
    "MemoryUnmappedCodes",
    "MemoryUnreadFields",
]
