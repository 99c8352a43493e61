"""A Spark cluster: what has to be true before it is used, and how others are kept out of it.

Everything here is decided before anything is started. A local master needs none of it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from penstock.errors import ClusterSecretMissing, ClusterUnreachable, LogNotShared
from penstock.loopback import is_loopback, warn_of_plain
from penstock.settings import Settings, SparkSettings

ANSWERS_WITHIN_SECONDS = 10
AUTHENTICATE = "spark.authenticate"
SECRET = "spark.authenticate.secret"
ENCRYPT = "spark.network.crypto.enabled"


def is_local(master: str) -> bool:
    """Whether all work happens in this process's own JVM."""
    return master.startswith("local")


def is_standalone(master: str) -> bool:
    """Whether it is a cluster of Spark's own kind, whose daemons were given their secret by hand."""
    return master.startswith("spark://")


def is_on_this_machine(master: str) -> bool:
    """Whether nothing that is said to the cluster leaves this machine."""
    return is_local(master) or (is_standalone(master) and all(is_loopback(host) for host, _ in _addresses(master)))


def security(settings: SparkSettings) -> dict[str, str]:
    """What keeps others out of a cluster. YARN and Kubernetes make a secret for each application by themselves."""
    found = {AUTHENTICATE: "true", ENCRYPT: "true"}
    if is_standalone(settings.master):
        # Else a master that knows no encryption is talked to without any.
        found["spark.network.crypto.saslFallback"] = "false"
        if settings.secret:
            found[SECRET] = settings.secret
    return found


def check_cluster(settings: SparkSettings, configuration: Mapping[str, str]) -> None:
    """Raises ClusterSecretMissing or ClusterUnreachable; warns where what is said can be listened to."""
    if is_local(settings.master):
        return
    is_authenticated = configuration.get(AUTHENTICATE) == "true"
    if is_standalone(settings.master):
        if is_authenticated and SECRET not in configuration:
            raise ClusterSecretMissing(settings.master)
        _check_answers(settings.master)
    is_encrypted = is_authenticated and configuration.get(ENCRYPT) == "true"
    if not is_encrypted and not is_on_this_machine(settings.master):
        how = "without encryption" if is_authenticated else "without a secret and without encryption"
        asked = ENCRYPT if is_authenticated else AUTHENTICATE
        expected = f"spark.secret, and {asked} not turned off under [spark.conf]"
        warn_of_plain("spark", f"the cluster {settings.master}", how, expected)


def check_log(settings: Settings) -> None:
    """Raises LogNotShared for a log in a folder that the cluster's machines may not have."""
    is_folder = settings.log.url.startswith("dir:")
    if is_folder and not settings.log.shared and not is_local(settings.spark.master):
        raise LogNotShared(settings.log.url, settings.spark.master)


def _check_answers(master: str) -> None:
    """That one of the masters listens: Spark itself would try for a minute, and then not say what was wrong."""
    found = ""
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), timeout=ANSWERS_WITHIN_SECONDS).close()
        except OSError as error:
            found = f"nothing answers at {host}:{port} ({error.strerror or error})"
        else:
            return
    raise ClusterUnreachable(master, found)


def _addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of each master: `spark://one:7077,two:7077` has two, of which one leads."""
    found = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ClusterUnreachable(master, f"{address!r} is not of the form HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found
