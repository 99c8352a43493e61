"""What can go wrong between the log and Spark."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors.base import PenstockError


class JavaMissing(PenstockError):
    """Spark runs on Java, and there is none here that is new enough. `found` is None where there is none at all."""

    def __init__(self, found: str | None, *, needed: int) -> None:
        self.found = found
        self.needed = needed
        super().__init__(
            f"Spark needs Java {needed} or newer, and {found or 'no java was found on PATH or in JAVA_HOME'}: "
            f"install it (Debian and Ubuntu: apt install openjdk-{needed}-jre-headless; "
            f"macOS: brew install openjdk@{needed}) or point JAVA_HOME at one."
        )


class ClusterError(PenstockError):
    """Something keeps a Spark cluster from being used. Nothing was computed and nothing changed."""


class ClusterUnreachable(ClusterError):
    """The master does not answer, or does not take this application."""

    is_retryable = True

    def __init__(self, master: str, found: str) -> None:
        self.master = master
        self.found = found
        super().__init__(
            f"spark: the cluster {master} cannot be used: {found}\n"
            "  expected: a master of the same version of Spark, with the same secret, and with encryption on\n"
            "  look at: the address (spark.master), spark.secret here and spark.authenticate.secret there,\n"
            "  spark.network.crypto.enabled there; step by step: docs/cluster.md"
        )


class ClusterSecretMissing(ClusterError):
    """A standalone cluster runs whatever anybody sends it, unless both sides have a secret."""

    def __init__(self, master: str) -> None:
        self.master = master
        super().__init__(
            f"spark: the cluster {master} needs a secret, and there is none\n"
            "  without one, everybody who reaches its ports can run code on it and read what is computed\n"
            "  here: PENSTOCK_SPARK_SECRET in the environment, or secret under [spark] in penstock.toml\n"
            "  there: spark.authenticate true, spark.authenticate.secret and spark.network.crypto.enabled true\n"
            '  in a network that you trust: "spark.authenticate" = "false" under [spark.conf]'
        )


class LogNotShared(ClusterError):
    """A log in a folder, and executors on other machines, which may not have that folder."""

    def __init__(self, url: str, master: str) -> None:
        self.url = url
        self.master = master
        super().__init__(
            f"spark: the log {url} is a folder, and the executors of {master} may run where it is not\n"
            "  they would read another folder of that name, or none\n"
            "  if all machines have it under that path (NFS, or all of it on this machine): shared = true under [log]\n"
            '  else keep the log in Kafka (log.url = "kafka://HOST:PORT"), or run here: spark.master = "local[*]"'
        )


class NoExecutors(ClusterError):
    """The cluster took the application, but gave it nothing to compute with."""

    is_retryable = True

    def __init__(self, master: str, seconds: float, memory: str, cores: str) -> None:
        self.master = master
        self.seconds = seconds
        super().__init__(
            f"spark: the cluster {master} has started no executor for {seconds:.0f} s\n"
            f"  asked for: executors with {memory} of memory and {cores} each\n"
            "  either other applications hold all cores (let them have fewer: spark.cores.max), or no worker is that\n"
            "  large (spark.executor.memory and spark.executor.cores under [spark.conf]), or executors end at once:\n"
            "  the page of the master lists them with what they printed"
        )


class ExecutorUnfit(ClusterError):
    """An executor cannot do its part: its machine lacks something that this one has."""

    def __init__(self, host: str, python: str, found: str, hint: str) -> None:
        self.host = host
        self.python = python
        self.found = found
        super().__init__(
            f"spark: the executors on {host} cannot run this pipeline: {found}\n"
            f"  their Python is {python}\n  {hint}\n"
            '  another Python for the executors: "spark.pyspark.python" under [spark.conf]'
        )


class SourceError(PenstockError):
    """Something is wrong with a topic as a Spark source."""


class SourceOptionError(SourceError):
    """An option of `format("penstock")` is missing, unknown, or has a value that it cannot have."""

    def __init__(self, option: str, expected: str, found: object = None, hint: str = "") -> None:
        self.option = option
        self.expected = expected
        self.found = found
        what = f"option {option!r} is missing" if found is None else f"option {option!r} cannot be {found!r}"
        super().__init__(f'format("penstock"): {what}\n  expected: {expected}{hint}')


class StreamDataLost(SourceError):
    """Retention removed records before the stream read them. `lost` maps partition to (next offset, first offset)."""

    def __init__(self, topic: str, lost: Mapping[int, tuple[int, int]]) -> None:
        self.topic = topic
        self.lost = dict(lost)
        total = sum(first - expected for expected, first in lost.values())
        places = "".join(
            f"\n  {topic}/{number}: offsets {expected} up to {first}, {first - expected} records"
            for number, (expected, first) in sorted(lost.items())
        )
        super().__init__(
            f"stream of topic {topic!r}: {total} records were removed by retention before they were read{places}\n"
            "  nothing was skipped: the stream stands where it stood\n"
            "  to go on with what is there: option failOnDataLoss=false; to keep more: penstock topic alter "
            f"{topic} --retention-age ..."
        )


class SchemaOutgrown(SourceError):
    """The topic's columns grew while a query was running, and it holds a value that the old ones have no place for."""

    is_retryable = True

    def __init__(self, topic: str, expected: str, found: str, why: str) -> None:
        self.topic = topic
        self.expected = expected
        self.found = found
        super().__init__(
            f"source: topic {topic!r} has grown since the query began, and holds what does not fit: {why}\n"
            f"  the query reads: {expected}\n  the topic has: {found}\n"
            "  start the query again; a stream goes on at its checkpoint"
        )
