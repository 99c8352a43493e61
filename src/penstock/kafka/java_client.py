"""Settings of librdkafka in the words of Kafka's Java client, which Spark speaks with Kafka by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import KafkaSettingUnknown
from penstock.kafka.connection import RECORD_BYTES_MAX, Connection

_SAME = frozenset(
    {
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "sasl.kerberos.service.name",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "metadata.max.age.ms",
        "connections.max.idle.ms",
        "client.dns.lookup",
    }
)
_NAMED = {"socket.timeout.ms": "request.timeout.ms", "socket.connection.setup.timeout.ms": ""}
_WRITING = frozenset({"delivery.timeout.ms", "message.timeout.ms", "transaction.timeout.ms"})
"""They are about what Penstock writes itself; Spark's sink has its own patience."""
_SILENT = frozenset({"debug", "log_level", "socket.nagle.disable", "socket.keepalive.enable", "client.id"})
"""They change nothing of what is promised."""
_LOGIN = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})
_PEM = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
_AS_TEXT = frozenset({"ssl.certificate.location", "ssl.key.location"})
"""The Java client wants both in one file, or as texts."""
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """What the Java client is told. KafkaSettingUnknown names everything that it cannot be told."""
    known = _SAME | _NAMED.keys() | _WRITING | _SILENT | _LOGIN | _PEM.keys()
    mechanism = conf.get("sasl.mechanism", conf.get("sasl.mechanisms", "")).upper()
    strange = sorted(conf.keys() - known)
    if strange or (mechanism and mechanism not in _LOGIN_MODULES):
        raise KafkaSettingUnknown(strange or [f"sasl.mechanism={mechanism}"])
    found = {name: conf[name] for name in conf if name in _SAME}
    found |= {_NAMED[name]: conf[name] for name in conf if _NAMED.get(name)}
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    if "security.protocol" in found:
        found["security.protocol"] = found["security.protocol"].upper()
    for name in conf.keys() & _PEM.keys():
        found["ssl.truststore.type" if "truststore" in _PEM[name] else "ssl.keystore.type"] = "PEM"
        found[_PEM[name]] = Path(conf[name]).read_text(encoding="ascii") if name in _AS_TEXT else conf[name]
    if mechanism:
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = _login(mechanism, conf.get("sasl.username", ""), conf.get("sasl.password", ""))
    return found


def reader_options(connection: Connection) -> dict[str, str]:
    """Options of Spark's Kafka source: what is committed, and nothing else. A topic that is gone stays gone."""
    return _options(connection, {"isolation.level": "read_committed", "allow.auto.create.topics": "false"})


def writer_options(connection: Connection) -> dict[str, str]:
    """Options of Spark's Kafka sink: each record goes at once, and counts when all replicas have it."""
    return _options(connection, {"acks": "all", "linger.ms": "0", "max.request.size": str(RECORD_BYTES_MAX)})


def _options(connection: Connection, own: Mapping[str, str]) -> dict[str, str]:
    settings = {"bootstrap.servers": connection.brokers, **java_settings(connection.conf), **own}
    return {f"kafka.{name}": value for name, value in settings.items()}


def _login(mechanism: str, username: str, password: str) -> str:
    """The line by which the Java client logs in; JSON quotes as it does."""
    return f"{_LOGIN_MODULES[mechanism]} required username={_quoted(username)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
