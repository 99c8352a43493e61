"""Settings come from defaults, penstock.toml, the environment and flags, in that order, and nothing is ignored."""

from __future__ import annotations

import ast
import inspect
import os
import re
from dataclasses import MISSING
from pathlib import Path

import pytest

from penstock import settings as settings_module
from penstock.errors import SettingsFileError, SettingsFileUntrusted, SettingValueError, UnknownSetting
from penstock.settings import LogSettings, Settings, SparkSettings, known_settings, load_settings, variable_of

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"


def load(folder: Path, toml: str | None = None, flags: dict[str, object] | None = None, **environment: str) -> Settings:
    if toml is not None:
        (folder / "penstock.toml").write_text(toml)
    return load_settings(flags, environment=environment, directory=folder)


def test_without_any_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings(log=LogSettings(url="dir:./data/log"), spark=SparkSettings(master="local[*]"))


def test_environment_wins_over_the_file_and_a_flag_over_both(tmp_path: Path) -> None:
    toml = '[spark]\nmaster = "local[1]"\ndriver_memory = "3g"\nshuffle_partitions = 7\n'
    found = load(
        tmp_path,
        toml,
        {"spark.master": "local[3]", "spark.ui": None},
        PENSTOCK_SPARK_MASTER="local[2]",
        PENSTOCK_SPARK_DRIVER_MEMORY="4g",
    )
    assert (found.spark.master, found.spark.driver_memory, found.spark.shuffle_partitions) == ("local[3]", "4g", 7)


def test_text_from_the_environment_becomes_the_type_of_the_setting(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        PENSTOCK_SPARK_SHUFFLE_PARTITIONS="12",
        PENSTOCK_SPARK_UI="true",
        PENSTOCK_SPARK_CONF='{ "spark.executor.cores" = 2, "spark.speculation" = false }',
    )
    assert (found.spark.shuffle_partitions, found.spark.ui) == (12, True)
    assert found.spark.conf == {"spark.executor.cores": "2", "spark.speculation": "false"}


def test_file_is_found_in_a_parent_and_its_paths_count_from_there(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[log]\nurl = "dir:./kept"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    found = load(below)
    assert found.file == tmp_path / "penstock.toml"
    assert found.log.url == f"dir:{tmp_path}/kept"
    assert load(below, PENSTOCK_LOG_URL="dir:./here").log.url == "dir:./here"


def test_certificates_lie_beside_the_file_and_are_told_by_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "penstock.toml").write_text('[log]\nurl = "kafka://broker:9093"\nca_file = "./ca.pem"\n')
    (tmp_path / "ca.pem").write_text(certificates := "-----BEGIN CERTIFICATE-----\nof an authority\n")
    log = load(tmp_path / "deep").log
    assert log.kafka == {"security.protocol": "SSL", "ssl.ca.pem": certificates}
    (tmp_path / "ca.pem").write_text("a key, by mistake")
    with pytest.raises(SettingValueError, match="no certificate in it"):
        _ = log.kafka
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(SettingValueError, match=r"log.ca_file cannot be .*ca.pem(.|\n)*it cannot be read"):
        _ = log.kafka


def test_default_log_counts_from_the_folder_of_the_file_too(tmp_path: Path) -> None:
    assert load(tmp_path, "[spark]\nui = true\n").log.url == f"dir:{tmp_path}/data/log"


def test_views_count_from_the_folder_of_the_file_unless_a_server_keeps_them(tmp_path: Path) -> None:
    assert load(tmp_path).views.url == "sqlite:./data/views.db"
    assert load(tmp_path, "[spark]\nui = true\n").views.url == f"sqlite:{tmp_path}/data/views.db"
    assert load(tmp_path, '[views]\nurl = "sqlite:kept.db"\n').views.url == f"sqlite:{tmp_path}/kept.db"
    server = "postgresql://penstock@database/views"
    assert load(tmp_path, f'[views]\nurl = "{server}"\n').views.url == server


def test_an_absolute_log_stays_where_it_is(tmp_path: Path) -> None:
    assert load(tmp_path, '[log]\nurl = "dir:/srv/log"\n').log.url == "dir:/srv/log"


def test_penstock_config_names_the_file(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[spark]\nmaster = "local[5]"\n')
    assert load(tmp_path, "[spark]\n", PENSTOCK_CONFIG=str(other)).spark.master == "local[5]"


def test_penstock_config_that_names_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsFileError, match="no such file") as caught:
        load(tmp_path, PENSTOCK_CONFIG=str(tmp_path / "gone.toml"))
    assert caught.value.path == tmp_path / "gone.toml"


def test_file_that_is_not_toml_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsFileError, match="line 2"):
        load(tmp_path, "[spark]\nmaster local\n")


@pytest.mark.parametrize(
    ("toml", "name", "line", "near"),
    [
        ('[log]\n\n[spark]\nmastr = "local"\n', "spark.mastr", 4, "spark.master"),
        ('[sparc]\nmaster = "local"\n', "sparc", 1, "spark"),
        ('spark.mastr = "local"\n', "spark.mastr", 1, "spark.master"),
        ('[log]\nurl = "dir:a"\nurl2 = "dir:b"\n', "log.url2", 3, "log.url"),
    ],
)
def test_unknown_key_in_the_file_is_named_with_file_line_and_nearest(
    tmp_path: Path, toml: str, name: str, line: int, near: str
) -> None:
    with pytest.raises(UnknownSetting) as caught:
        load(tmp_path, toml)
    assert (caught.value.name, caught.value.where) == (name, f"{tmp_path / 'penstock.toml'}:{line}")
    assert f"did you mean '{near}'?" in str(caught.value)


def test_unknown_variable_of_a_known_section_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownSetting, match="did you mean 'PENSTOCK_SPARK_MASTER'"):
        load(tmp_path, PENSTOCK_SPARK_MASTR="local")
    load(tmp_path, PENSTOCK_SOMETHING_ELSE="is nobody's business")


def test_unknown_flag_is_an_error_even_if_not_given(tmp_path: Path) -> None:
    with pytest.raises(UnknownSetting):
        load(tmp_path, flags={"log.ulr": None})


@pytest.mark.parametrize(
    ("toml", "name", "line"),
    [
        ("[spark]\nshuffle_partitions = 0\n", "spark.shuffle_partitions", 2),
        ('[spark]\n\nshuffle_partitions = "4"\n', "spark.shuffle_partitions", 3),
        ("[spark]\nshuffle_partitions = true\n", "spark.shuffle_partitions", 2),
        ('[spark]\nmaster = "lokal"\n', "spark.master", 2),
        ('[spark]\ndriver_memory = "2 gigabytes"\n', "spark.driver_memory", 2),
        ('[spark]\nlog_level = "LOUD"\n', "spark.log_level", 2),
        ('[spark]\nui = "yes"\n', "spark.ui", 2),
        ('[spark]\nconf = "spark.x=1"\n', "spark.conf", 2),
        ('[spark]\nui = true\n[spark.conf]\n"spark.x" = [1]\n', "spark.conf", 3),
        ('[log]\nurl = ""\n', "log.url", 2),
        ('log = "dir:./data"\n', "log", 1),
    ],
)
def test_value_that_cannot_be_is_an_error_with_its_line(tmp_path: Path, toml: str, name: str, line: int) -> None:
    with pytest.raises(SettingValueError) as caught:
        load(tmp_path, toml)
    assert (caught.value.name, caught.value.where) == (name, f"{tmp_path / 'penstock.toml'}:{line}")
    assert caught.value.expected


def test_bad_value_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(SettingValueError) as caught:
        load(tmp_path, PENSTOCK_SPARK_SHUFFLE_PARTITIONS="many")
    assert caught.value.where == "environment variable PENSTOCK_SPARK_SHUFFLE_PARTITIONS"
    assert caught.value.found == "many"


def test_a_settings_object_made_by_hand_is_checked_too() -> None:
    with pytest.raises(SettingValueError, match="given to SparkSettings"):
        SparkSettings(shuffle_partitions=0)


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_refused_unless_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[log]\nurl = "dir:./stolen"\n')
    os.chown(file, 12345, -1)
    below = tmp_path / "mine"
    below.mkdir()
    with pytest.raises(SettingsFileUntrusted, match=r"uid 12345.*you are root \(uid 0\)") as raised:
        load(below)
    assert raised.value.path == file
    assert f"chown $(id -u) {file}" in str(raised.value)
    assert load(below, PENSTOCK_CONFIG=str(file)).log.url == f"dir:{tmp_path}/stolen"


def test_file_of_root_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "penstock.toml").write_text('[log]\nurl = "dir:./log"\n')
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result((0o100644, 0, 0, 1, 0, 0, 0, 0, 0, 0)))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert load(tmp_path).log.url == f"dir:{tmp_path}/log"


@pytest.mark.parametrize("is_named", [False, True])
def test_file_that_every_user_may_change_is_refused(tmp_path: Path, is_named: bool) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("")
    file.chmod(0o646)
    folder = tmp_path / "elsewhere" if is_named else tmp_path
    with pytest.raises(SettingsFileUntrusted, match=f"mode 0646.*\n.*\n.*chmod o-w {file}"):
        load(folder, PENSTOCK_CONFIG=str(file) if is_named else "")
    file.chmod(0o664)  # As the umask of many systems makes it.
    load(folder, PENSTOCK_CONFIG=str(file) if is_named else "")


def test_names_of_spark_need_no_quotes_in_the_file(tmp_path: Path) -> None:
    found = load(tmp_path, "[spark.conf]\nspark.executor.cores = 2\n")
    assert found.spark.conf == {"spark.executor.cores": "2"}


def test_page_lists_every_setting_with_its_default_and_meaning() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)`.*$", PAGE.read_text(), flags=re.MULTILINE)
    written = [line for line in PAGE.read_text().splitlines() if re.match(r"\| `\w+\.\w+`", line)]
    meanings = meaning_of_each_setting()
    expected = []
    for name, setting in known_settings().items():
        default = "{}" if setting.default is MISSING else f'"{setting.default}"'
        if isinstance(setting.default, bool | int):
            default = str(setting.default).lower()
        expected.append(f"| `{name}` | `{default}` | `{variable_of(name)}` | {meanings[name]} |")
    assert rows == [*known_settings()]
    assert written == expected


def meaning_of_each_setting() -> dict[str, str]:
    """The line under each field, which Python itself does not keep."""
    found: dict[str, str] = {}
    for kind in ast.parse(inspect.getsource(settings_module)).body:
        if not isinstance(kind, ast.ClassDef) or not kind.name.endswith("Settings"):
            continue
        section = kind.name.removesuffix("Settings").lower()
        for before, after in zip(kind.body, kind.body[1:], strict=False):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
            ):
                assert isinstance(after.value, ast.Constant)
                found[f"{section}.{before.target.id}"] = str(after.value.value)
    return found
