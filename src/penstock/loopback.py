"""Whether an address is this machine itself: what goes there cannot be read by others on the way.

Where it is not, and nothing is encrypted, people are told: of Kafka, PostgreSQL and Spark with the same words.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger("penstock")

_warned: set[tuple[str, str]] = set()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself. A name other than localhost is not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def warn_of_plain(stage: str, other: str, how: str, expected: str) -> None:
    """Says that others can read along what goes to `other`; once for each in a process."""
    if (stage, other) in _warned:
        return
    _warned.add((stage, other))
    logger.warning(
        "%s: what is said to %s leaves this machine %s: anybody on the way can read it\n  expected: %s",
        stage, other, how, expected,
    )  # fmt: skip


def warn_of_plain_database(stage: str, place: str, driver: psycopg.Connection[Any]) -> None:
    """The same of a connection to PostgreSQL, which is encrypted if the server can, unless its address says more."""
    is_here = driver.info.host.startswith(("/", "@")) or is_loopback(driver.info.hostaddr)
    if not is_here and not driver.pgconn.ssl_in_use:
        expected = "TLS; ssl = on in the server, ?sslmode=verify-full&sslrootcert=FILE at the end of its address"
        warn_of_plain(stage, f"the database {place}", "without encryption", expected)
