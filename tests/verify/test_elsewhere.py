"""A view whose answer depends on the machine's environment is found, with the line that does it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.log.folder_log import FolderLog
from penstock.modes.topics import make_topics, recorded_topics
from penstock.pipeline.loading import load_pipeline
from penstock.upkeep.compare import compare
from penstock.upkeep.compiled import try_compile
from penstock.verify.causes import Seen, cause_of
from penstock.verify.cuts import Recorded
from penstock.verify.elsewhere import elsewhere, other_environment
from penstock.verify.processes import child_settings
from penstock.verify.report import Report
from penstock.verify.runs import Runner
from penstock.verify.verify import ELSEWHERE, verify
from tests.cli.commands import run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

APP = """
import locale
import os
import time

from pyspark.sql import functions as F
from penstock import Pipeline

app = Pipeline("web")
app.topic("access", "url string, n bigint")


def hour(n):
    return time.localtime(n * 3600).tm_hour  # plant: hours


def language(n):
    return str(locale.getlocale()) + str(n)  # plant: languages


def shard(url):
    return hash(url) % 1000  # plant: shards


def words(url):
    return ",".join({each for each in url.split("/")})  # plant: word_lists


def port(url):
    if "PYTHONHASHSEED" in os.environ and os.environ["PYTHONHASHSEED"] == "4711":  # plant: ports
        raise ValueError("no port here")
    return 1


ORDER = ",".join({"a", "b", "c", "d", "e", "f", "g", "h"})


@app.view
def hours(access):
    return access.select("n", F.udf(hour, "int")("n").alias("hour"))


@app.view
def languages(access):
    return access.select("n", F.udf(language)("n").alias("language"))


@app.view
def shards(access):
    return access.select("url", F.udf(shard, "int")("url").alias("shard"))


@app.view
def word_lists(access):
    return access.select("url", F.udf(words)("url").alias("words"))


@app.view(on_error="stop")
def ports(access):
    return access.select("url", F.udf(port, "int")("url").alias("port"))


@app.view
def imported(access):  # plant: imported
    return access.select("url", F.lit(ORDER).alias("order"))


@app.view(key="day")
def days(access):
    at = F.timestamp_seconds(F.col("n") * 3600)
    return access.groupBy(F.date_trunc("day", at).alias("day"), ).agg(F.count("*").alias("hits"), F.max("url"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with FolderLog(tmp_path / "log", background=False) as log:
        urls = [f"/a/bü/c/{number}" for number in range(3)]
        log.create("access", "url string, n bigint").append(pa.table({"url": urls, "n": list(range(3))}))
    return tmp_path


def test_what_depends_on_the_environment_is_found_with_its_line(folder: Path, spark: SparkSession) -> None:
    file = folder / "elsewhere_app.py"
    file.write_text(APP)
    pipeline = load_pipeline(str(file))
    compiled, problems = try_compile(pipeline, spark)
    assert not problems
    with FolderLog(folder / "log", background=False) as log:
        recorded = Recorded.of(recorded_topics(pipeline, log), None)
        runner = Runner(pipeline, log, spark, recorded, folder, compiled)
        batch = runner.batch("batch")
        found = elsewhere(runner, ELSEWHERE, [recorded.end], str(file))
    views = {view.name: view for view in compiled}
    differing = {
        name
        for name, view in views.items()
        if name in found.errors or not compare(batch.rows[name], found.rows[name], view.spec.key).agrees
    }
    other_locale = {"languages"} if "LC_ALL=" in found.note else set()
    assert differing == {"hours", "shards", "word_lists", "ports", "imported"} | other_locale
    assert "no port here" in str(found.errors["ports"])
    lines = APP.splitlines()
    only_there = Seen(
        repeats=True, one_step=True, only_plain=False, only_after_restart=False, only_elsewhere=True,
        only_by_scheduler=False, upstream=(),
    )  # fmt: skip
    for name in differing:
        cause = cause_of(views[name], only_there, str)
        assert "the answer depends on the environment of the machine" in cause.text
        assert lines[cause.place.line - 1].endswith(f"plant: {name}"), (name, cause)


def in_memory(caught: Any) -> Pipeline:
    app = Pipeline("memory")
    app.topic("access", "url string, n bigint")

    def hour(n: int) -> int:
        return time.localtime(n).tm_hour  # plant

    @app.view
    def hours(access: DataFrame) -> DataFrame:
        assert caught is not None
        return access.select("n", sf.udf(hour, "int")("n").alias("hour"))

    return app


def verified(app: Pipeline, folder: Path, spark: SparkSession) -> Report:
    with FolderLog(folder / "log", background=False) as log:
        make_topics(app, log)
        scratch = folder / "a scratch folder"
        scratch.mkdir()
        return verify(app, log, spark, cuts=0, seed=1, singles=1, scratch=scratch)


@pytest.mark.long
def test_a_pipeline_of_no_file_is_sent_as_code(folder: Path, spark: SparkSession) -> None:
    found = verified(in_memory("anything"), folder, spark)
    [failure] = found.failures
    assert "hour() uses the machine's time zone (localtime)" in failure.cause
    assert failure.cause_place is not None
    assert failure.cause_place.text.endswith("# plant")


def test_what_cannot_be_sent_is_left_out_and_the_report_says_so(folder: Path, spark: SparkSession) -> None:
    found = verified(in_memory((folder / "open").open("w")), folder, spark)
    assert found.agrees, found.text()
    [note] = [each for each in found.notes if each.startswith(ELSEWHERE)]
    assert "left out: the pipeline was built in memory and cannot be sent to another process" in note
    assert ELSEWHERE not in {line.run for line in found.lines}


def test_a_process_that_dies_is_a_failure_of_each_view(folder: Path) -> None:
    file = folder / "dying_app.py"
    file.write_text(
        "import os\n"
        "if os.environ.get('PYTHONHASHSEED') == '4711':\n"
        "    raise SystemExit('not on this machine')\n" + APP.partition("def hour")[0] + APP.rpartition("\n\n\n")[2]
    )
    text = run("verify", str(file), "--log", str(folder / "log"), "--cuts", "0", "--seed", "1", code=1)
    assert "1 of 1 view failed: days" in text
    assert "not on this machine" in text
    assert "TZ=" in text


def test_a_child_of_a_cluster_has_the_settings_that_change_answers_only() -> None:
    kept = {"spark.sql.ansi.enabled": "false", "spark.sql.shuffle.partitions": "7", "spark.jars": "a.jar"}
    left = {
        "spark.master": "spark://host:7077",
        "spark.authenticate": "true",
        "spark.authenticate.secret": "s",
        "spark.network.crypto.enabled": "true",
        "spark.driver.port": "4040",
        "spark.executorEnv.PYTHONHASHSEED": "0",
    }
    found = child_settings({**kept, **left, "spark.driver.extraJavaOptions": "-Xss4m"}, Path("/a folder"))
    assert found == {
        **kept,
        "spark.driver.extraJavaOptions": '-Xss4m "-Djava.io.tmpdir=/a folder"',
        "spark.local.dir": "/a folder",
    }


@pytest.mark.parametrize(
    ("here", "locales", "is_ascii", "expected"),
    [
        ({"LANG": "en_US.UTF-8"}, {"C", "C.utf8", "en_US.utf8", "de_DE.utf8"}, True, "de_DE.utf8"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "de_DE.UTF-8"}, {"en_US.utf8", "de_DE.utf8", "C.utf8"}, True, "en_US.utf8"),
        ({"LANG": "en_US.UTF-8"}, {"C", "C.utf8", "en_US.utf8", "ja_JP.eucjp"}, True, "C.utf8"),
        ({"LANG": "C.UTF-8"}, {"C", "C.utf8", "POSIX"}, True, "C"),
        ({"LANG": "C.UTF-8"}, {"C", "C.utf8", "POSIX"}, False, None),
        ({}, {"C", "C.utf8", "POSIX"}, False, "C.utf8"),
        ({}, set(), True, None),
    ],
)
def test_the_other_locale_is_an_installed_one_that_opens_every_file(
    here: dict[str, str], locales: set[str], is_ascii: bool, expected: str | None
) -> None:
    assert other_environment(here, locales, is_ascii=is_ascii).get("LC_ALL") == expected


def test_the_other_zone_and_seed_are_never_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for zone in ("Pacific/Chatham", "America/St_Johns", "UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        other = other_environment({"PYTHONHASHSEED": "4711"}, set(), is_ascii=True)
        assert other["PYTHONHASHSEED"] == "4712"
        assert other["TZ"] != zone
        found.add(other["TZ"])
    monkeypatch.undo()
    time.tzset()
    assert found == {"America/St_Johns", "Pacific/Chatham"}
