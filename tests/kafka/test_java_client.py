"""What librdkafka is told, the Java client is told too, or it is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import KafkaSettingUnknown
from penstock.kafka.connection import Connection
from penstock.kafka.java_client import java_settings, reader_options, writer_options
from penstock.settings import LogSettings


def test_a_name_and_a_file_of_certificates_are_translated(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(certificates := "-----BEGIN CERTIFICATE-----\nthose of an authority\n")
    conf = {"socket.timeout.ms": "9000"}
    settings = LogSettings(username="me", password='a"b\\c;', ca_file=str(ca_file), conf=conf)
    assert java_settings(settings.kafka) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a\\"b\\\\c;";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates,
        "request.timeout.ms": "9000",
    }


def test_a_certificate_of_ones_own_is_translated(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text(f"the {name}")
    conf = {"security.protocol": "ssl", "ssl.certificate.location": str(tmp_path / "cert"),
            "ssl.key.location": str(tmp_path / "key"), "ssl.endpoint.identification.algorithm": "none"}  # fmt: skip
    assert java_settings(conf) == {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "the cert",
        "ssl.keystore.key": "the key",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("conf", "names"),
    [
        ({"enable.ssl.certificate.verification": "false", "debug": "all"}, ("enable.ssl.certificate.verification",)),
        ({"sasl.mechanism": "GSSAPI"}, ("sasl.mechanism=GSSAPI",)),
        ({"sasl.kerberos.keytab": "x", "broker.version.fallback": "y"},
         ("broker.version.fallback", "sasl.kerberos.keytab")),
    ],
)  # fmt: skip
def test_what_the_java_client_has_no_word_for_is_refused(conf: dict[str, str], names: tuple[str, ...]) -> None:
    with pytest.raises(KafkaSettingUnknown) as refused:
        java_settings(conf)
    assert refused.value.names == names


def test_only_what_is_committed_is_read_and_all_replicas_have_what_is_written() -> None:
    connection = Connection("a:1,b:2", {"security.protocol": "PLAINTEXT"})
    reading, writing = reader_options(connection), writer_options(connection)
    assert reading["kafka.bootstrap.servers"] == writing["kafka.bootstrap.servers"] == "a:1,b:2"
    assert reading["kafka.isolation.level"] == "read_committed"
    assert reading["kafka.allow.auto.create.topics"] == "false"
    assert writing["kafka.acks"] == "all"
