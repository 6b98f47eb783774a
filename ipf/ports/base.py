"""Types and constants that the other ports use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

Json = dict[str, Any]
DEFAULT_TENANT = "default"
Clock = Callable[[], datetime]
