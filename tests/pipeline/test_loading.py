from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import (
    DefinitionError,
    NoPipeline,
    PipelineFileMissing,
    PipelineImportFailed,
    SeveralPipelines,
)
from penstock.pipeline.loading import load_pipeline
from tests.conftest import DRIVERS

ONE = 'from penstock import Pipeline\nassert __name__ != "__main__"\napp = Pipeline("one")\nsame = app\n'
TWO = ONE + 'other = Pipeline("two")\n'


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test in a folder of its own, with what it imports forgotten at its end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "app", raising=False)  # Of a test before, in the same process.
    before = set(sys.modules)
    yield
    for name, module in list(sys.modules.items()):
        if name not in before and str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def write(name: str, code: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(code)


def test_the_one_pipeline_of_a_file_is_found_also_under_two_names() -> None:
    write("my-app.py", ONE)
    write("deep/app.py", ONE)
    assert load_pipeline("my-app.py").name == "one"
    assert load_pipeline("deep/app.py").name == "one"
    assert load_pipeline("deep/app.py:same").name == "one"


def test_the_folder_of_the_file_is_on_the_path() -> None:
    write("shop/helpers_of_shop.py", 'NAME = "helped"\n')
    write("shop/app.py", "from penstock import Pipeline\nfrom helpers_of_shop import NAME\napp = Pipeline(NAME)\n")
    assert load_pipeline("shop/app.py").name == "helped"


def test_a_file_named_as_a_module_of_pythons_own_does_no_harm() -> None:
    import queue

    write("queue.py", ONE)
    assert load_pipeline("queue.py").name == "one"
    assert sys.modules["queue"] is queue


def test_a_file_is_read_anew_each_time() -> None:
    write("app.py", ONE)
    assert load_pipeline("app.py").name == "one"
    write("app.py", ONE.replace('"one"', '"three"'))
    assert load_pipeline("app.py").name == "three"


def test_a_module_is_found_by_its_name() -> None:
    write("package_of_shops/__init__.py", "")
    write("package_of_shops/shop.py", TWO)
    assert load_pipeline("package_of_shops.shop:other").name == "two"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("ap.py", "did you mean 'app.py'?"),
        ("folder.py", "a folder at"),
        ("deep/app", "did you mean 'app.py'?"),
        ("no.such.module:app", "no module named 'no.such.module'"),
    ],
)
def test_a_missing_file_is_told_with_the_nearest(target: str, text: str) -> None:
    Path("folder.py").mkdir()
    write("app.py", ONE)
    write("deep/app.py", ONE)
    with pytest.raises(PipelineFileMissing) as caught:
        load_pipeline(target)
    assert caught.value.target == target
    assert text in str(caught.value)


def test_an_error_in_the_file_is_told_at_the_users_own_line() -> None:
    write("helpers_that_fail.py", "import json\n\ndef fail():\n    json.loads('{')\n")
    write("app.py", "import helpers_that_fail\n\n\nhelpers_that_fail.fail()\n")
    with pytest.raises(PipelineImportFailed) as caught:
        load_pipeline("app.py")
    assert str(caught.value.place) == "helpers_that_fail.py:4"
    assert "json.loads('{')" in str(caught.value)
    assert "JSONDecodeError: Expecting property name" in str(caught.value)
    assert "app" not in sys.modules


@pytest.mark.parametrize(
    ("code", "place", "text"),
    [
        ("x = 1\nx = = 2\n", "app.py:2", "SyntaxError: invalid syntax"),
        ("import nothing_of_that_name\n", "app.py:1", "ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", "app.py:2", "if __name__ == '__main__':"),
        ("raise ValueError\n", "app.py:1", "ValueError\n"),
    ],
)
def test_whatever_the_file_raises_has_its_line(code: str, place: str, text: str) -> None:
    write("app.py", code)
    with pytest.raises(PipelineImportFailed) as caught:
        load_pipeline("app.py")
    assert str(caught.value.place) == place
    assert text in str(caught.value)


def test_our_own_errors_are_passed_on_as_they_are() -> None:
    write("app.py", ONE + 'app.topic("access", "ip strng")\n')
    with pytest.raises(DefinitionError, match=r"app.py:5   app.topic\("):
        load_pipeline("app.py")


def test_a_file_without_a_pipeline_is_told_what_is_in_it() -> None:
    write("app.py", "import os\nvalue = 5\n")
    with pytest.raises(NoPipeline, match="found os, value"):
        load_pipeline("app.py")


def test_a_name_that_is_no_pipeline_is_told_with_the_nearest() -> None:
    write("app.py", TWO + "value = 5\n")
    with pytest.raises(NoPipeline, match="did you mean 'other'") as caught:
        load_pipeline("app.py:othr")
    assert caught.value.known == ("app", "same", "other")
    with pytest.raises(NoPipeline, match="found a int"):
        load_pipeline("app.py:value")


def test_several_pipelines_are_named() -> None:
    write("app.py", TWO)
    with pytest.raises(SeveralPipelines, match=r"say which: app.py:app") as caught:
        load_pipeline("app.py")
    assert caught.value.names == ("app", "other")


@pytest.mark.spark
@DRIVERS
def test_functions_of_the_file_reach_sparks_workers() -> None:
    """In a process of its own: this one has the file's folder as its current one, as workers do."""
    write("shop/helpers_of_udf.py", "def twice(n):\n    return 2 * n\n")
    write(
        "shop/app.py",
        "from pyspark.sql import functions as F\nfrom penstock import Pipeline\nfrom helpers_of_udf import twice\n"
        'app = Pipeline("app")\n\ndef more(n):\n    return twice(n) + 1\n\n'
        '@app.view\ndef v(access):\n    return access.select(F.udf(more, "long")("id").alias("n"))\n',
    )
    code = (
        "from penstock.pipeline.loading import load_pipeline\nfrom penstock.spark import session\n"
        "from penstock.settings import SparkSettings\n"
        "app = load_pipeline('shop/app.py')\nspark = session(SparkSettings(master='local[1]'))\n"
        "print(app.views['v'].build({'access': spark.range(3)}).collect())\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "[Row(n=1), Row(n=3), Row(n=5)]" in answer.stdout, answer.stderr
