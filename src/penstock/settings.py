"""Every setting and its default, on one page.

A value is looked for in four places; the last one found wins: the default, `penstock.toml`, the environment, a flag.

    penstock.toml                 environment                       flag
    [spark]                       PENSTOCK_SPARK_MASTER=local[2]    load_settings({"spark.master": "local[2]"})
    master = "local[2]"

`penstock.toml` is the one that PENSTOCK_CONFIG names, else the one in the current folder or the nearest parent.
An unknown name is an error, never ignored, and so is a file that another user wrote or may change.
Reading settings starts no JVM and touches nothing but that file.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.durations import parse_duration
from penstock.errors import DurationError, SettingsFileError, SettingsFileUntrusted, SettingValueError, UnknownSetting
from penstock.redacted import redacted_url, shown_values

FILE_NAME = "penstock.toml"
FILE_VARIABLE = "PENSTOCK_CONFIG"


def _setting(default: Any, expected: str, is_allowed: Callable[[Any], bool] | None = None) -> Any:
    """A field whose values are checked: `expected` says in an error what would have been right."""
    return field(default=default, metadata={"expected": expected, "is_allowed": is_allowed})


def _is_duration(value: Any) -> bool:
    try:
        parse_duration(value)
    except DurationError:
        return False
    return True


def _is_limit(value: Any) -> bool:
    return _is_duration(value) and parse_duration(value) > timedelta()


def _networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(each.strip()) for each in text.split(",") if each.strip())


def _is_networks(text: str) -> bool:
    try:
        _networks(text)
    except ValueError:
        return False
    return True


def _matches(pattern: str) -> Callable[[Any], bool]:
    return lambda value: re.fullmatch(pattern, value) is not None


@dataclass(frozen=True)
class LogSettings:
    """Where events are kept."""

    url: str = _setting(
        "dir:./data/log", "dir:PATH, such as dir:./data/log, or kafka://HOST:PORT", _matches(r"[a-z]+:.+")
    )
    """Where the log is. A relative path counts from the folder of `penstock.toml`, if there is one."""

    shared: bool = _setting(False, "true or false")
    """Whether every machine of a Spark cluster has the log's folder, under the same path. A cluster needs that."""

    access: str = _setting("owner", "owner or group", lambda value: value in ("owner", "group"))
    """Who may use the files of a log in a folder: only their owner, or also the folder's group."""

    record_bytes_max: int = _setting(
        64 << 20, "a whole number from 1024 to 536870912, such as 67108864", lambda value: 1024 <= value <= 512 << 20
    )
    """The largest record that is stored, in bytes; a larger one is rejected. Kafka has limits of its own, too."""

    username: str = _setting("", "a name that Kafka knows")
    """Who we are to Kafka (SASL, over TLS). Without a name nobody is asked."""

    password: str = field(
        default="", repr=False, metadata={"expected": "a text", "is_allowed": None, "is_secret": True}
    )
    """The password of that name."""

    ca_file: str = _setting("", "a file of certificates, such as ./ca.pem")
    """The certificates that Kafka's own must be signed by, for TLS. Without it, those of the operating system."""

    conf: Mapping[str, str] = field(
        default_factory=dict,
        hash=False,
        repr=False,
        metadata={"expected": 'a table, such as { "security.protocol" = "SSL" }'},
    )
    """Any other setting of librdkafka, which speaks with Kafka; wins, but for what keeps the promises of the log."""

    def __post_init__(self) -> None:
        _check_section("log", self)

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def kafka(self) -> dict[str, str]:
        """What librdkafka is told: how to be let in, and what the user adds."""
        found: dict[str, str] = {}
        if self.username:
            found |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
            found |= {"sasl.username": self.username, "sasl.password": self.password}
        if self.ca_file:
            # The certificates themselves: Spark's tasks may run where there is no such file.
            found = {"security.protocol": "SSL", **found, "ssl.ca.pem": _certificates(self.ca_file)}
        return {**found, **self.conf}


@dataclass(frozen=True)
class ViewsSettings:
    """Where views are kept."""

    url: str = _setting(
        "sqlite:./data/views.db",
        "sqlite:PATH, such as sqlite:./data/views.db, or postgresql://USER@HOST/DATABASE",
        _matches(r"[a-z]+:.+"),
    )
    """Where the views are. A relative path counts from the folder of `penstock.toml`, if there is one."""

    password: str = field(
        default="", repr=False, metadata={"expected": "a text", "is_allowed": None, "is_secret": True}
    )
    """The password of the user in the address. Without it libpq looks for one (PGPASSWORD, ~/.pgpass)."""

    keep_old: str = _setting("1 day", "a length of time, such as 1 day, 12h or 0", _is_duration)
    """How long rows that were replaced, by changed code or a rebuild, are kept for `penstock rollback`."""

    def __post_init__(self) -> None:
        _check_section("views", self)

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def kept_old(self) -> timedelta:
        """`keep_old` as a length of time."""
        return parse_duration(self.keep_old)


@dataclass(frozen=True)
class SparkSettings:
    """How Spark is run."""

    master: str = _setting(
        "local[*]",
        "local, local[CORES], local[*], spark://HOST:PORT, yarn or k8s://URL",
        _matches(r"local(\[[^\]]+\])?|(spark|k8s)://.+|yarn"),
    )
    """Where jobs run: threads of this process (`local[*]`: all cores), or a cluster."""

    secret: str = field(
        default="",
        repr=False,
        metadata={
            "expected": "a long text without spaces, the same as spark.authenticate.secret of the cluster",
            "is_allowed": _matches(r"\S*"),
            "is_secret": True,
        },
    )
    """What a standalone cluster (`spark://`) lets its applications in by: the cluster's `spark.authenticate.secret`."""

    shuffle_partitions: int = _setting(4, "a whole number of at least 1, such as 4", lambda value: value >= 1)
    """Into how many pieces data is cut by a shuffle. Kept in streaming checkpoints, so it does not follow the cores."""

    driver_memory: str = _setting("2g", "a number and k, m, g or t, such as 2g", _matches(r"[1-9][0-9]*[kmgt]"))
    """The heap of the JVM; with a local master all work happens in it."""

    thread_stack: str = _setting("4m", "a number and k or m, such as 4m", _matches(r"[1-9][0-9]*[km]"))
    """The stack of each JVM thread (-Xss). Plans of long queries are deep."""

    checkpoints: str = _setting(
        "dir:./data/checkpoints",
        "dir:PATH, or a URL that Spark can write to, such as hdfs://...",
        _matches(r"[a-z0-9]+:.+"),
    )
    """Where runs record at a time note how far they are. On a cluster: a place that all of its machines have."""

    realtime_batch: str = _setting(
        "1 minute",
        "a length of time of at least 5s, such as 1 minute",
        lambda value: _is_duration(value) and parse_duration(value) >= timedelta(seconds=5),
    )
    """How often they do. After a crash, what came since is written again; each time costs a short pause."""

    small_plans: str = _setting("auto", "auto or off", lambda value: value in ("auto", "off"))
    """Whether small steps run in the driver, ten times as fast as by Spark's scheduler; `auto`: after a self-test."""

    ui: bool = _setting(False, "true or false")
    """Whether Spark's own web pages are served. With a local master they are bound to loopback."""

    log_level: str = _setting(
        "ERROR",
        "OFF, ERROR, WARN, INFO or DEBUG",
        lambda value: value in ("OFF", "ERROR", "WARN", "INFO", "DEBUG"),
    )
    """The least serious thing that Spark prints."""

    conf: Mapping[str, str] = field(
        default_factory=dict, hash=False, metadata={"expected": 'a table, such as { "spark.executor.cores" = "2" }'}
    )
    """Any other setting of Spark by its full name; wins over what Penstock would set."""

    def __post_init__(self) -> None:
        _check_section("spark", self)

    def __repr__(self) -> str:
        return _shown(self)


@dataclass(frozen=True)
class ServeSettings:
    """How `penstock serve` answers, and to whom."""

    host: str = _setting("127.0.0.1", "an address or a name, such as 127.0.0.1", _matches(r"[^\s/]+"))
    """The address that is listened on. Anything but this machine itself needs tokens."""

    port: int = _setting(8750, "a whole number from 0 to 65535, such as 8750", lambda value: 0 <= value <= 65535)
    """The port that is listened on; 0 is any that is free."""

    tokens: str = _setting("file:./data/tokens.json", "file:PATH, such as file:./data/tokens.json", _matches("file:.+"))
    """Where the hashes of tokens are. A relative path counts from the folder of `penstock.toml`, if there is one."""

    certificate: str = _setting("", "a file in PEM, such as ./tls.crt")
    """The certificate, with those that it was signed by, to serve over TLS. Read again when it was renewed."""

    key: str = _setting("", "a file in PEM, such as ./tls.key")
    """The key of that certificate, without a password."""

    allowed_hosts: str = _setting("", "names with commas between them, such as views.example.org")
    """The names that requests may be addressed to, beside this machine's own and `serve.host`."""

    trusted_proxies: str = _setting(
        "", "addresses or networks with commas between them, such as 127.0.0.1", _is_networks
    )
    """Proxies that are believed when they name their client (X-Forwarded-For): each client has a share of its own."""

    cors_origins: str = _setting(
        "", "origins with commas between them, such as https://app.example.org", _matches(r"(https?://[^\s,/]+[\s,]*)*")
    )
    """Pages of these origins may read answers in a browser; without any, none may."""

    body_bytes_max: int = _setting(8 << 20, "a whole number of at least 1, such as 8388608", lambda value: value >= 1)
    """The largest body of a request."""

    rows_max: int = _setting(10_000, "a whole number of at least 1, such as 10000", lambda value: value >= 1)
    """The most rows or records in one answer."""

    connections_max: int = _setting(256, "a whole number of at least 1, such as 256", lambda value: value >= 1)
    """The most connections at once. Beyond it, those without a complete request give way to new ones."""

    streams_max: int = _setting(64, "a whole number of at least 1, such as 64", lambda value: value >= 1)
    """The most of them that follow a topic or wait for one; more are told to come back."""

    streams_per_token: int = _setting(32, "a whole number of at least 1, such as 32", lambda value: value >= 1)
    """The most of those that one token may have."""

    threads: int = _setting(8, "a whole number of at least 1, such as 8", lambda value: value >= 1)
    """How many requests are worked on at the same time; others wait their turn."""

    header_timeout: str = _setting("10s", "a length of time above 0, such as 10s", _is_limit)
    """The longest that a client may take to send the head of a request."""

    body_timeout: str = _setting("30s", "a length of time above 0, such as 30s", _is_limit)
    """The longest that a client may take to send the body of a request."""

    request_timeout: str = _setting("30s", "a length of time above 0, such as 30s", _is_limit)
    """The longest that reading or appending may take, the wait for a thread included."""

    write_timeout: str = _setting("30s", "a length of time above 0, such as 30s", _is_limit)
    """The longest that a client may leave a piece of an answer (64 KiB) unread before it is cut off."""

    def __post_init__(self) -> None:
        _check_section("serve", self)

    @property
    def proxies(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """`trusted_proxies` as networks."""
        return _networks(self.trusted_proxies)

    @property
    def tokens_path(self) -> Path:
        """`tokens` as a path."""
        return Path(self.tokens.removeprefix("file:"))


@dataclass(frozen=True)
class AlertsSettings:
    """How people are told of alerts."""

    smtp: str = field(
        default="",
        repr=False,
        metadata={
            "expected": "smtp://USER:PASSWORD@HOST:587, smtps://USER:PASSWORD@HOST, or smtp://localhost",
            "is_allowed": _matches(r"(smtps?://[^\s/?#]+/?(\?tls=no)?)?"),
            "is_secret": True,
        },
    )
    """The mail server. `smtp:` turns to TLS before anything is said (unless it is this machine, or `?tls=no`)."""

    sender: str = _setting("", "an address, such as penstock@example.com", _matches(r"([^\s@<>]+@[^\s@<>]+)?"))
    """From whom mails come; without it `penstock@` and the name of this machine."""

    ca: str = _setting("", "file:PATH of certificates in PEM, such as file:./ca.pem", _matches("(file:.+)?"))
    """One's own authority for the certificates of mail servers and web hooks, instead of the system's."""

    timeout: str = _setting("30s", "a length of time above 0, such as 30s", _is_limit)
    """The longest that a mail server or a web hook may be silent before the attempt has failed."""

    give_up_after: str = _setting("1 day", "a length of time, such as 1 day or 2h", _is_duration)
    """How long after its first attempt a message is tried again; then it has failed."""

    keep: str = _setting("30 days", "a length of time above 0, such as 30 days", _is_limit)
    """How long it is remembered what was told, or could not be."""

    def __post_init__(self) -> None:
        _check_section("alerts", self)

    @property
    def ca_path(self) -> Path | None:
        """`ca` as a path; None for the system's authorities."""
        return Path(self.ca.removeprefix("file:")) if self.ca else None


@dataclass(frozen=True)
class Settings:
    """All settings, one object per concern."""

    log: LogSettings = field(default_factory=LogSettings)
    views: ViewsSettings = field(default_factory=ViewsSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    alerts: AlertsSettings = field(default_factory=AlertsSettings)
    file: Path | None = None
    """The `penstock.toml` that was read, or None where there was none."""


Section = LogSettings | ViewsSettings | SparkSettings | ServeSettings | AlertsSettings
SECTIONS: Mapping[str, type[Section]] = {
    "log": LogSettings,
    "views": ViewsSettings,
    "spark": SparkSettings,
    "serve": ServeSettings,
    "alerts": AlertsSettings,
}
PLACES = {
    "log.url": "dir:",
    "log.ca_file": "",
    "views.url": "sqlite:",
    "serve.tokens": "file:",
    "serve.certificate": "",
    "serve.key": "",
    "alerts.ca": "file:",
    "spark.checkpoints": "dir:",
}
"""Settings that name a place, and what comes before a path in them."""


TABLES = ("log.conf", "spark.conf")
"""Settings that are tables of other people's settings."""


def secret_files() -> dict[str, str]:
    """Settings that name a file with a secret, such as `views.password_file`, and the secret that each stands for."""
    secrets = (name for name, each in known_settings().items() if each.metadata.get("is_secret"))
    return {f"{name}_file": name for name in secrets}


def known_settings() -> dict[str, Field[Any]]:
    """Every setting by its full name, such as `log.url`."""
    return {f"{section}.{each.name}": each for section, kind in SECTIONS.items() for each in fields(kind)}


def variable_of(name: str) -> str:
    """The environment variable of a setting: `log.url` is PENSTOCK_LOG_URL."""
    return f"PENSTOCK_{name.replace('.', '_').upper()}"


def load_settings(
    overrides: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """The settings in force here: defaults, then `penstock.toml`, then the environment, then `overrides`.

    `overrides` are flags by full name (`{"log.url": "dir:/srv/log"}`); a None among them means "not given".
    Raises SettingsFileError, UnknownSetting or SettingValueError, each with the place where the culprit is written.
    """
    environment = os.environ if environment is None else environment
    file = find_file(environment, directory or Path.cwd())
    is_named = bool(environment.get(FILE_VARIABLE))
    found: dict[str, object] = {}
    if file is not None:
        found.update({name: known_settings()[name].default for name in PLACES})
        found.update(_with_secrets(_read_file(file, is_named=is_named), file.parent, str(file)))
        found.update({name: _beside(file, str(found[name]), scheme) for name, scheme in PLACES.items()})
    found.update(_with_secrets(_read_environment(environment), Path(), "in the environment"))
    found.update(_with_secrets(_read_overrides(overrides or {}), Path(), "given on the command line"))
    return Settings(
        log=LogSettings(**_section_of(found, "log")),
        views=ViewsSettings(**_section_of(found, "views")),
        spark=SparkSettings(**_section_of(found, "spark")),
        serve=ServeSettings(**_section_of(found, "serve")),
        alerts=AlertsSettings(**_section_of(found, "alerts")),
        file=file,
    )


def find_file(environment: Mapping[str, str], directory: Path) -> Path | None:
    """The `penstock.toml` that counts in `directory`, or None."""
    named = environment.get(FILE_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise SettingsFileError(Path(named), f"no such file (named by {FILE_VARIABLE})")
        return Path(named).absolute()
    directory = directory.absolute()
    places = (folder / FILE_NAME for folder in (directory, *directory.parents))
    return next((place for place in places if place.is_file()), None)


def _read_file(path: Path, *, is_named: bool) -> dict[str, object]:
    try:
        with path.open(encoding="utf-8") as file:
            _check_trust(path, os.fstat(file.fileno()), is_named=is_named)
            text = file.read()
        tree = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsFileError(path, str(error)) from error
    found: dict[str, object] = {}
    for section, values in tree.items():
        where = _place_in_file(path, text, section, None)
        if section not in SECTIONS:
            raise UnknownSetting(section, where, [*SECTIONS])
        if not isinstance(values, dict):
            raise SettingValueError(section, where, f"a section: [{section}] on a line of its own", values)
        for key, value in values.items():
            name = f"{section}.{key}"
            found[name] = _checked(name, value, _place_in_file(path, text, section, key))
    return found


def _check_trust(path: Path, status: os.stat_result, *, is_named: bool) -> None:
    """SettingsFileUntrusted if others decide what is in a file: it says where events go, and what Spark loads.

    One that is merely found, in a parent folder such as /tmp, must belong to us or root.
    """
    if not is_named and status.st_uid not in (os.geteuid(), 0):
        raise SettingsFileUntrusted(path, f"it belongs to {_user(status.st_uid)}, and you are {_user(os.geteuid())}")
    if status.st_mode & stat.S_IWOTH:
        found = f"every user of this machine may change it (mode {stat.S_IMODE(status.st_mode):04o})"
        raise SettingsFileUntrusted(path, found, f"chmod o-w {path}")


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


def _read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    names = {variable_of(name): name for name in (*known_settings(), *secret_files())}
    found: dict[str, object] = {}
    for variable, text in environment.items():
        if variable in names:
            where = f"environment variable {variable}"
            found[names[variable]] = _from_text(names[variable], text, where)
        elif variable.startswith(tuple(f"{variable_of(section)}_" for section in SECTIONS)):
            raise UnknownSetting(variable, "in the environment", [*names])
    return found


def _read_overrides(overrides: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    where = "given on the command line"
    for name, value in overrides.items():
        if name not in known_settings() and name not in secret_files():
            raise UnknownSetting(name, where, [*known_settings()])
        if value is not None:
            found[name] = _from_text(name, value, where) if isinstance(value, str) else _checked(name, value, where)
    return found


def _from_text(name: str, text: str, where: str) -> object:
    """A value from a place that only holds text; what is not a string there is written as in TOML."""
    setting = known_settings().get(name)
    if setting is None or isinstance(setting.default, str):
        return _checked(name, text, where)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    return _checked(name, value, where)


def _checked(name: str, value: object, where: str) -> object:
    """The value as the setting keeps it, if it has the setting's type and is allowed."""
    setting = known_settings().get(name)
    if name in secret_files():
        if isinstance(value, str) and value:
            return value
        raise SettingValueError(name, where, "a file that holds the secret and nothing else", value)
    if setting is None:
        raise UnknownSetting(name, where, [*known_settings()])
    expected = setting.metadata["expected"]
    if name in TABLES:
        flat = _flat(value) if isinstance(value, Mapping) else {}
        if not isinstance(value, Mapping) or not all(isinstance(each, str | int | float) for each in flat.values()):
            raise SettingValueError(name, where, expected, value)
        return {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in flat.items()}
    # type(), not isinstance: True is an int to Python, but nobody means it as a number of partitions.
    is_allowed = setting.metadata["is_allowed"] or (lambda _: True)
    if type(value) is not type(setting.default) or not is_allowed(value):
        raise SettingValueError(name, where, expected, "..." if setting.metadata.get("is_secret") else value)
    return value


def _with_secrets(found: dict[str, object], folder: Path, where: str) -> dict[str, object]:
    """The same settings, with the content of files that hold a secret."""
    for file_setting, name in secret_files().items():
        if file_setting not in found:
            continue
        path = folder / str(found.pop(file_setting))
        if name in found:
            raise SettingValueError(file_setting, where, f"either {name} or {file_setting}, and not both", str(path))
        try:
            secret = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
            raise SettingValueError(
                file_setting, f"it cannot be read: {why}", "a file with a secret", str(path)
            ) from None
        if not secret:
            raise SettingValueError(file_setting, "it is empty", "a file with a secret", str(path))
        found[name] = _checked(name, secret, str(path))
    return found


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """`{"spark.executor.cores": 2}` for the tables inside tables that TOML makes of a name without quotes."""
    flat: dict[str, object] = {}
    for key, value in table.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat


def _shown(settings: Section) -> str:
    """A `repr` without what is secret."""
    shown = []
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.repr:
            safe = shown_values(value) if isinstance(value, Mapping) else value
            shown.append(f"{each.name}={redacted_url(safe) if isinstance(safe, str) else safe!r}")
    return f"{type(settings).__name__}({', '.join(shown)})"


def _check_section(section: str, settings: Section) -> None:
    for each in fields(settings):
        _checked(f"{section}.{each.name}", getattr(settings, each.name), f"given to {type(settings).__name__}")


def _section_of(found: Mapping[str, object], section: str) -> dict[str, Any]:
    return {name.partition(".")[2]: value for name, value in found.items() if name.startswith(f"{section}.")}


def _beside(file: Path, url: str, scheme: str) -> str:
    """A relative path behind the scheme, counted from the folder of the file it is written in."""
    is_path = url != "" and url.startswith(scheme)
    return f"{scheme}{file.parent / url.removeprefix(scheme)}" if is_path else url


def _certificates(path: str) -> str:
    expected = "a file of certificates in PEM, with a line -----BEGIN CERTIFICATE-----"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingValueError("log.ca_file", f"it cannot be read: {error}", expected, path) from error
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise SettingValueError("log.ca_file", "there is no certificate in it", expected, path)
    return text


def _place_in_file(path: Path, text: str, section: str, key: str | None) -> str:
    """`file:line` of a section or of a key in it; only the file where the line is written in an unusual way."""
    current = None
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        if header:
            current = header[1].replace('"', "").replace(" ", "")
        is_section = current == section or re.match(rf"\s*{re.escape(section)}\s*[.=]", line) is not None
        if is_section and (key is None or re.match(rf"\s*(\w+\.)?\"?{re.escape(key)}\"?\s*[.=]", line)):
            return f"{path}:{number}"
        if header and key is not None and current == f"{section}.{key}":
            return f"{path}:{number}"
    return str(path)
