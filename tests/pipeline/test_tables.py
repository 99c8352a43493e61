from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Pipeline
from penstock.errors import TableUnreadable
from penstock.pipeline.database_rows import read_database
from penstock.pipeline.definition import TableSpec
from penstock.pipeline.place import Place
from penstock.pipeline.tables import read_table, table_fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table(folder: Path, location: str, **options: Any) -> TableSpec:
    return TableSpec("people", location, None, (), options, Place("app.py", 3, "app.table("), base=str(folder))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "crm.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (id INTEGER, name TEXT, price NUMERIC(10,2), born DATE, at TIMESTAMP)")
        connection.execute("INSERT INTO people VALUES (1, 'Ada', 1.5, '1815-12-10', '2026-01-01 00:00:00.000000')")
        connection.execute("INSERT INTO people VALUES (5000000000, NULL, NULL, NULL, NULL)")
    connection.close()
    return path


# --- fingerprints ---


def test_the_fingerprint_of_a_file_is_its_content_and_how_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("id,name\n1,Ada\n")
    before = table_fingerprint(table(tmp_path, "people.csv"))
    os.utime(file, (1, 1))
    assert table_fingerprint(table(tmp_path, "people.csv")) == before
    assert table_fingerprint(table(tmp_path, str(file))) == before
    assert table_fingerprint(table(tmp_path, "people.csv", header=False)) != before
    file.write_text("id,name\n1,Adam\n")
    assert table_fingerprint(table(tmp_path, "people.csv")) != before


def test_the_fingerprint_of_a_folder_counts_every_file(tmp_path: Path) -> None:
    for name in ("a=1/x.csv", "a=2/y.csv", "_SUCCESS", ".hidden"):
        (tmp_path / "people" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "people" / name).write_text(f"id\n{name}\n")
    before = table_fingerprint(table(tmp_path, "people"))
    (tmp_path / "people" / "_SUCCESS").write_text("other")
    assert table_fingerprint(table(tmp_path, "people")) == before
    (tmp_path / "people" / "a=2").rename(tmp_path / "people" / "a=3")
    assert table_fingerprint(table(tmp_path, "people")) != before


def test_the_fingerprint_of_a_database_is_its_rows_in_any_order(database: Path) -> None:
    spec = table(database.parent, "sqlite:crm.db", query="SELECT id, name FROM people ORDER BY id")
    backwards = table(database.parent, "sqlite:crm.db", query="SELECT id, name FROM people ORDER BY id DESC")
    assert read_database(spec).to_pylist() == read_database(backwards).to_pylist()[::-1]
    whole = table(database.parent, "sqlite:crm.db")
    before = table_fingerprint(whole)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE people SET rowid = 7 - rowid")
    assert table_fingerprint(whole) == before
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE people SET name = 'Eve' WHERE id > 1")
    connection.close()
    assert table_fingerprint(whole) != before


# --- databases ---


@pytest.mark.parametrize("url", ["sqlite:crm.db", "sqlite:./crm.db", "sqlite:///crm.db"])
def test_a_database_gives_the_types_that_it_declares(database: Path, url: str) -> None:
    found = read_database(table(database.parent, url))
    assert [str(field.type) for field in found.schema] == [
        "int64",
        "string",
        "decimal128(10, 2)",
        "date32[day]",
        "timestamp[us]",
    ]
    assert [row["id"] for row in found.to_pylist()] == [1, 5000000000]


def test_a_schema_says_otherwise(database: Path) -> None:
    found = read_database(table(database.parent, "sqlite:crm.db", schema="name string, id double"))
    assert found.schema.names == ["name", "id"]
    assert found.column("id").type == pa.float64()


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("sqlite:crm.db", {"table": "pepole"}, "did you mean 'people'?"),
        ("sqlite:crm.db", {"schema": "nmae string"}, "did you mean 'name'?"),
        ("sqlite:crm.db", {"schema": "name int"}, "column 'name' holds values that do not fit int32"),
        ("sqlite:crm.db", {"query": "SELECT * FORM people"}, "syntax error"),
        ("sqlite:none.db", {}, "unable to open database file"),
        ("postgresql://me:secret@127.0.0.1:1/x", {}, "me:***@127.0.0.1:1/x"),
    ],
)
def test_a_database_that_cannot_be_read_is_told(database: Path, url: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(TableUnreadable) as caught:
        read_database(table(database.parent, url, **options))
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "app.py:3" in str(caught.value)
    assert not (database.parent / "none.db").exists()


# --- reading ---


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["csv", "tsv", "semicolons", "json", "parquet", "folder", "database"])
def test_every_kind_of_table_is_read(kind: str, tmp_path: Path, spark: SparkSession) -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "name": 'Ada, "Countess"\nof Lovelace'}, {"id": 2, "name": None}]
    text = 'id{0}name\n1{0}"Ada, ""Countess""\nof Lovelace"\n2{0}\n'
    location, options = {
        "csv": ("people.csv", {}),
        "tsv": ("people.tsv", {}),
        "semicolons": ("people.txt", {"format": "csv", "delimiter": ";", "schema": "id int, name string"}),
        "json": ("people.jsonl", {}),
        "parquet": ("people.parquet", {}),
        "folder": ("people", {}),
        "database": ("sqlite:people.db", {}),
    }[kind]
    (tmp_path / "people.csv").write_text(text.format(","))
    (tmp_path / "people.tsv").write_text(text.format("\t"))
    (tmp_path / "people.txt").write_text(text.format(";"))
    (tmp_path / "people.jsonl").write_text('{"id": 1, "name": "Ada, \\"Countess\\"\\nof Lovelace"}\n{"id": 2}\n')
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "people.parquet")
    (tmp_path / "people").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "people" / "a.parquet")
    with sqlite3.connect(tmp_path / "people.db") as connection:
        connection.execute("CREATE TABLE people (id INTEGER, name TEXT)")
        connection.executemany("INSERT INTO people VALUES (:id, :name)", rows)
    connection.close()
    frame = read_table(table(tmp_path, location, **options), spark)
    assert [row.asDict() for row in frame.orderBy("id").collect()] == rows
    assert frame.schema["id"].dataType.typeName() in ("integer", "long")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("poeple.csv", "beside it are: empty, mixed, people.csv"),
        ("none/people.csv", "there is no folder"),
        ("mixed", "not of one known format, but csv, json"),
        ("empty", "holds no files"),
    ],
)
def test_files_that_cannot_be_read_are_told(location: str, text: str, tmp_path: Path, spark: SparkSession) -> None:
    for name in ("people.csv", "mixed/a.csv", "mixed/b.json", "empty/_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id\n1\n")
    with pytest.raises(TableUnreadable) as caught:
        read_table(table(tmp_path, location), spark)
    assert text in str(caught.value)
    assert (caught.value.table, str(caught.value.place)) == ("people", "app.py:3")


@pytest.mark.spark
def test_a_row_that_does_not_fit_is_an_error_not_a_null(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "people.csv").write_text("id,name\nx,Ada\n")
    with pytest.raises(TableUnreadable, match=r"Malformed records.*\[null,Ada\]"):
        read_table(table(tmp_path, "people.csv", schema="id int, name string"), spark)


@pytest.mark.spark
def test_a_small_file_is_read_once_a_large_one_when_it_is_needed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, file = table(tmp_path, "people.csv", schema="id int"), tmp_path / "people.csv"
    file.write_text("id\n1\n")
    small = read_table(spec, spark)
    monkeypatch.setattr("penstock.pipeline.tables.SNAPSHOT_BYTES_MAX", 3)
    large = read_table(spec, spark)
    file.write_text("id\n2\n")
    assert (small.collect(), large.collect()) == ([(1,)], [(2,)])
    assert small.schema == large.schema


def test_relative_paths_count_from_the_file_that_defines_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    spec = Pipeline("app").table("people", "test_tables.py", format="csv")
    assert spec.base == str(Path(__file__).parent)
    assert table_fingerprint(spec)
