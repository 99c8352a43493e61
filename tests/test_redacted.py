"""A password in an address is in no message, no `repr` and on no command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Pipeline
from penstock.alerts.smtp import MailServer
from penstock.errors import LogUrlError, PenstockError, StoreUnavailable, StoreUrlError, TableUnreadable
from penstock.log.log import Log
from penstock.pipeline.database_rows import read_database, safe_url
from penstock.pipeline.definition import TableSpec
from penstock.pipeline.place import place_of_caller
from penstock.pipeline.receivers import parse_receiver
from penstock.redacted import database_url, redacted, redacted_url
from penstock.settings import (
    AlertsSettings,
    LogSettings,
    ServeSettings,
    Settings,
    SparkSettings,
    ViewsSettings,
    load_settings,
)
from penstock.views.store import open_store

SECRET = "hush4711"
NOWHERE = "127.0.0.1:1"
ADDRESSES = [
    f"postgresql://shop:{SECRET}@{NOWHERE}/views",
    f"postgresql://shop:a@{SECRET}@{NOWHERE}/views",
    f"postgresql://shop:a/{SECRET}@{NOWHERE}/views",
    f"postgresql://shop:a@b:{SECRET}@{NOWHERE}/views",
    f"postgresql://shop@{NOWHERE}/views?password={SECRET}",
    f"postgresql://shop@{NOWHERE}/views?sslpassword={SECRET}&sslmode=nonsense",
    f"postgresql:/shop:{SECRET}@{NOWHERE}/views",
    f"postgresql:shop:{SECRET}@{NOWHERE}/views",
    f"Postgresql://shop:{SECRET}@{NOWHERE}/views",
    f"mysql://shop:{SECRET}@{NOWHERE}/views",
    f"kafka://shop:{SECRET}@{NOWHERE}",
]


def table(address: str) -> TableSpec:
    return TableSpec("people", address, None, (), {}, place_of_caller())


def assert_silent(error: BaseException) -> None:
    """Neither the message, nor the fields, nor what caused it."""
    shown: BaseException | None = error
    while shown is not None:
        fields = vars(shown) if isinstance(shown, PenstockError) else ""
        assert SECRET not in f"{shown} {shown!r} {fields}"
        shown = shown.__cause__


def test_addresses_stay_legible() -> None:
    assert redacted_url(f"postgresql://shop:{SECRET}@db:5432/views?sslmode=require") == (
        "postgresql://shop:***@db:5432/views?sslmode=require"
    )
    for plain in ("kafka://one:9092,two:9092", "dir:/a:b@c/log", "postgresql://shop@db/views", "spark://head:7077"):
        assert redacted_url(plain) == redacted(plain) == plain


@pytest.mark.parametrize("address", ADDRESSES)
def test_address_in_a_message_has_no_password(address: str) -> None:
    assert SECRET not in redacted_url(address)
    assert SECRET not in repr(table(address))
    assert SECRET not in safe_url(table(address))
    if "://" in address:
        assert SECRET not in str(PenstockError(f"the database {address} is away"))


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "use",
    [
        open_store,
        Log,
        lambda address: read_database(table(address)),
        lambda address: ViewsSettings(url=address),
        lambda address: LogSettings(url=address),
        lambda address: load_settings({"views.url": address}),
        lambda address: load_settings(environment={"PENSTOCK_LOG_URL": address}),
        lambda address: AlertsSettings(smtp=address),
        lambda address: Pipeline("p").table("people", address, format="postgres", key="id"),
        lambda address: Pipeline("p").table("people", address, topic="people", key="id"),
        lambda address: SparkSettings(master=address),
        lambda address: SparkSettings(conf={"spark.url": [address]}),  # type: ignore[dict-item]
    ],
)
def test_error_about_an_address_has_no_password(use: Callable[[str], object], address: str) -> None:
    try:
        made = use(address)
    except PenstockError as error:
        assert_silent(error)
    else:  # Some are valid in some places.
        assert SECRET not in repr(made)


def test_source_line_in_an_error_has_no_password() -> None:
    with pytest.raises(PenstockError) as raised:
        Pipeline("p").table("people", "postgresql://shop:hush4711@db/views", fromat="x", key="id")
    assert "people" in str(raised.value)
    assert_silent(raised.value)


def test_settings_and_receivers_show_no_secret() -> None:
    settings = Settings(
        log=LogSettings(username="me", password=SECRET, conf={"sasl.password": SECRET}),
        views=ViewsSettings(url=f"postgresql://shop:{SECRET}@db/views", password=SECRET),
        spark=SparkSettings(
            secret=SECRET,
            conf={"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.jars.repositories": f"https://me:{SECRET}@jars/"},
        ),
        serve=ServeSettings(),
        alerts=AlertsSettings(smtp=f"smtp://me:{SECRET}@mail:587"),
    )
    assert SECRET not in repr(settings)
    assert "shop:***@db" in repr(settings)
    assert SECRET not in repr(MailServer.of(settings.alerts))
    assert SECRET not in repr(parse_receiver(f"https://hooks.example.com/services/{SECRET}"))


@pytest.mark.parametrize("address", ["postgresql://a:b@c@d/x", "postgresql://a:b@c:d@e/x", "postgresql//a"])
def test_address_that_is_misread_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"it is not of the form|there is a second @"):
        database_url(address)
    with pytest.raises((StoreUrlError, TableUnreadable)):
        read_database(table(address)) if "//a:" in address else open_store(address)


def test_address_of_kafka_takes_no_password() -> None:
    with pytest.raises(LogUrlError, match=r"set log\.username and log.password"):
        Log(f"kafka://me:{SECRET}@{NOWHERE}")


def test_database_that_is_away_is_named_without_the_password() -> None:
    with pytest.raises(StoreUnavailable, match=r"postgresql://shop:\*\*\*@127.0.0.1:1/views") as raised:
        open_store(f"postgresql://shop:{SECRET}@{NOWHERE}/views")
    assert_silent(raised.value)


@pytest.mark.parametrize(
    ("flags", "instead"),
    [
        (["view", "list", "--views", f"postgresql://shop:{SECRET}@{NOWHERE}/v"], "PENSTOCK_VIEWS_PASSWORD"),
        (["--log", f"kafka://shop:{SECRET}@{NOWHERE}", "topic", "list"], "PENSTOCK_LOG_PASSWORD"),
    ],
)
def test_password_on_the_command_line_is_refused(flags: list[str], instead: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *flags], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert ended.returncode != 0
    assert "has a password in it" in ended.stderr
    assert instead in ended.stderr
    assert SECRET not in ended.stdout + ended.stderr


# --- secrets in files ---


def test_secrets_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(SECRET + "\n")
    (tmp_path / "penstock.toml").write_text('[views]\npassword_file = "password"\n')
    environment = {
        "PENSTOCK_LOG_PASSWORD_FILE": f"{tmp_path}/password",
        "PENSTOCK_SPARK_SECRET_FILE": f"{tmp_path}/password",
    }
    found = load_settings(environment=environment, directory=tmp_path)
    assert (found.views.password, found.log.password, found.spark.secret) == (SECRET, SECRET, SECRET)
    environment = {"PENSTOCK_VIEWS_PASSWORD": "another"}
    assert load_settings(environment=environment, directory=tmp_path).views.password == "another"


@pytest.mark.parametrize(
    ("content", "toml", "expected"),
    [
        (None, 'password_file = "password"', "it cannot be read: No such file"),
        ("", 'password_file = "password"', "it is empty"),
        ("x", 'password_file = ""', "a file that holds the secret"),
        ("x", 'password_file = "password"\npassword = "y"', "either views.password or views.password_file"),
    ],
)
def test_secret_file_that_is_no_good_is_refused(tmp_path: Path, content: str | None, toml: str, expected: str) -> None:
    if content is not None:
        (tmp_path / "password").write_text(content)
    (tmp_path / "penstock.toml").write_text(f"[views]\n{toml}\n")
    with pytest.raises(PenstockError, match=expected):
        load_settings(environment={}, directory=tmp_path)
