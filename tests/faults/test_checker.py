"""The judge itself is judged: it finds nothing on a log that is whole, and every fault that is planted."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.faults import checker, history, stored
from tests.faults.checker import judge
from tests.faults.history import SCHEMA, Entry, History, read_history
from tests.faults.stored import read_document
from tests.faults.workers import events

Plant = Callable[["Scene"], None]


class Scene:
    """A small topic that two writers appended to, with its history: 60 records, the first 40 of them sealed."""

    def __init__(self, directory: Path, **options: object) -> None:
        directory.mkdir(exist_ok=True)
        self.root = directory / "log"
        self.history = History(directory / "history.jsonl")
        with FolderLog(self.root, background=False) as log:
            self.topic = log.create("t", SCHEMA, **options)
            for turn in range(2):
                for writer in ("a", "b"):
                    self.append(writer, 10 * turn, 10)
            self.topic.seal(active=True)
            self.append("a", 20, 10)
            self.append("b", 20, 10)
        self.partition = self.topic.partitions[0].directory

    def append(self, writer: str, first: int, count: int, *, is_told: bool = True) -> None:
        if is_told:
            self.note("send", writer, first, count)
        appended = self.topic.partitions[0].append(events(writer, first, count, self.topic.schema))
        if is_told:
            self.note("ack", writer, first, count, base=appended.base_offset)

    def note(self, do: str, writer: str, first: int, count: int, base: int | None = None) -> None:
        fields = {"topic": "t", "writer": writer, "partition": 0, "first": first, "count": count}
        self.history.add(do, **fields, **({} if base is None else {"base": base}))

    def reopened(self) -> FolderTopic:
        self.topic = FolderLog(self.root, background=False).topic("t")
        return self.topic

    def entries(self) -> list[Entry]:
        return list(read_history(self.history.path))


def remove_last_frame(scene: Scene) -> None:
    path = next(scene.partition.glob("*.log"))
    frames, _ = stored.read_segment(path)
    os.truncate(path, frames[-1].position)
    scene.reopened().end()


def remove_frame_in_the_middle(scene: Scene) -> None:
    path = next(scene.partition.glob("*.log"))
    frames, _ = stored.read_segment(path)
    content = path.read_bytes()
    path.write_bytes(content[: frames[-2].position] + content[frames[-1].position :])


def double_a_record(scene: Scene) -> None:
    scene.reopened()
    scene.append("a", 25, 1, is_told=False)


def swap_the_order(scene: Scene) -> None:
    scene.note("send", "c", 0, 10)
    scene.reopened()
    scene.append("c", 5, 5, is_told=False)
    scene.append("c", 0, 5, is_told=False)


def change_a_sealed_row(scene: Scene) -> None:
    _rewrite_sealed(scene, "note", pa.array(["changed"] * 40))


def let_arrival_decrease(scene: Scene) -> None:
    stamps = pa.array(list(range(40, 0, -1)), pa.timestamp("us", "UTC"))
    _rewrite_sealed(scene, "_arrived", stamps)


def leave_a_gap_in_the_offsets(scene: Scene) -> None:
    _rewrite_sealed(scene, "_offset", pa.array([*range(20), *range(21, 41)]))


def lose_a_sealed_file(scene: Scene) -> None:
    next(scene.partition.glob("*.parquet")).unlink()


def store_what_nobody_sent(scene: Scene) -> None:
    scene.reopened()
    scene.append("stranger", 0, 1, is_told=False)


def acknowledge_another_offset(scene: Scene) -> None:
    scene.note("ack", "a", 25, 1, base=7)


def acknowledge_what_was_not_stored(scene: Scene) -> None:
    scene.note("send", "a", 100, 1)
    scene.note("ack", "a", 100, 1)


def leave_a_torn_tail(scene: Scene) -> None:
    with next(scene.partition.glob("*.log")).open("ab") as file:
        file.write(b"PnFr")


def lose_the_topic(scene: Scene) -> None:
    (scene.root / "topics" / "t" / "topic.json").unlink()


def keep_a_deleted_topic(scene: Scene) -> None:
    scene.history.add("deleted", topic="t")


def damage_the_definition(scene: Scene) -> None:
    os.truncate(scene.root / "topics" / "t" / "topic.json", 100)


def lose_an_added_column(scene: Scene) -> None:
    scene.history.add("altered", topic="t", column="extra")


def begin_later_without_retention(scene: Scene) -> None:
    manifest = read_document(scene.partition / "manifest.json")
    _write_document(scene.partition / "manifest.json", {**manifest, "start_offset": 40, "segments": []})


def let_a_consumer_see_wrong_rows(scene: Scene) -> None:
    scene.history.add("received", topic="t", partition=0, start=0, stop=5, fingerprint=1, group="g")


def let_a_consumer_see_too_much(scene: Scene) -> None:
    scene.history.add("received", topic="t", partition=0, start=59, stop=61, fingerprint=1, group="g")


def lose_a_commit(scene: Scene) -> None:
    scene.history.add("committed", group="g", topic="t", partition=0, offset=17)


def let_a_commit_go_back(scene: Scene) -> None:
    scene.history.add("committed", group="g", topic="t", partition=0, offset=17)
    (scene.root / "groups" / "g" / "offsets").mkdir(parents=True)
    _write_document(scene.root / "groups" / "g" / "offsets" / "offsets-000000000001.json", {"t/0@x": [16, 0, "m"]})


PLANTED: dict[Plant, str] = {
    remove_last_frame: "ACKNOWLEDGED AND LOST (10): b:20",
    remove_frame_in_the_middle: "ACKNOWLEDGED AND LOST (20): a:20",
    double_a_record: "stored more than once (1): a:25",
    swap_the_order: "order of a writer is not kept",
    change_a_sealed_row: "wrong rows at offset (40): 0",
    let_arrival_decrease: "arrival decreases behind offset (39): 0",
    leave_a_gap_in_the_offsets: "offsets",
    lose_a_sealed_file: "it is not there",
    store_what_nobody_sent: "nobody sent what is at offset (1): 60",
    acknowledge_another_offset: "acknowledged at another offset (1): a:25",
    acknowledge_what_was_not_stored: "ACKNOWLEDGED AND LOST (1): a:100",
    leave_a_torn_tail: "4 bytes of a torn tail were left",
    lose_the_topic: "it was made, and is not there",
    keep_a_deleted_topic: "it was deleted, and is there",
    damage_the_definition: "the checksum of the document does not match",
    lose_an_added_column: "columns that were added are not there (1): extra",
    begin_later_without_retention: "has no retention",
    let_a_consumer_see_wrong_rows: "a consumer was given wrong rows",
    let_a_consumer_see_too_much: "a consumer was given offset 60, which is not there",
    lose_a_commit: "a committed offset went back (1)",
    let_a_commit_go_back: "a committed offset went back (1): ('t', 0): 17, now 16",
}


def test_judge_finds_nothing_on_a_log_that_is_whole(memory_path: Path) -> None:
    scene = Scene(memory_path)
    verdict = judge(scene.root, scene.entries())
    assert verdict.is_clean, str(verdict)
    assert (verdict.records, verdict.acknowledged) == (60, 60)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_judge_finds_a_planted_fault(plant: Plant, memory_path: Path) -> None:
    scene = Scene(memory_path)
    plant(scene)
    verdict = judge(scene.root, scene.entries())
    assert PLANTED[plant] in str(verdict)
    assert not verdict.is_clean


def test_judge_accepts_what_retention_and_compaction_removed(memory_path: Path) -> None:
    cases: list[dict[str, object]] = [{"retention_bytes": 1}, {"compact": True, "key": "writer"}]
    for number, options in enumerate(cases):
        scene = Scene(memory_path / str(number), **options)
        topic = scene.reopened()
        topic.retain()
        topic.compact()
        verdict = judge(scene.root, scene.entries())
        assert verdict.is_clean, str(verdict)
        assert verdict.records < 60


def test_judge_misses_the_newest_record_of_a_key(memory_path: Path) -> None:
    scene = Scene(memory_path, compact=True, key="writer")
    remove_last_frame(scene)
    assert "ACKNOWLEDGED AND LOST (1): b:29" in str(judge(scene.root, scene.entries()))


def test_judge_runs_as_a_command(memory_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(memory_path)
    assert checker.main([str(scene.root), str(scene.history.path)]) == 0
    remove_last_frame(scene)
    assert checker.main([str(scene.root), str(scene.history.path)]) == 1
    assert "60 acknowledged, 0 received: FAULTS" in capsys.readouterr().out


@pytest.mark.parametrize("module", [checker, history, stored], ids=lambda module: module.__name__)
def test_judge_imports_nothing_of_penstock(module: object) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = {"tests.faults.history", "tests.faults.stored"}
    assert [name for name in imported if name.split(".")[0] in ("penstock", "tests") and name not in ours] == []


def _rewrite_sealed(scene: Scene, column: str, values: pa.Array) -> None:
    """Replaces a column of the sealed file, with checksums as they should be."""
    path = next(scene.partition.glob("*.parquet"))
    table = pq.read_table(path)
    field = table.schema.get_field_index(column)
    pq.write_table(table.set_column(field, table.schema.field(column), values), path)
    manifest = read_document(scene.partition / "manifest.json")
    entry = manifest["segments"][0]
    entry["crc32c"], entry["bytes"] = google_crc32c.value(path.read_bytes()), path.stat().st_size
    _write_document(scene.partition / "manifest.json", manifest)


def _write_document(path: Path, document: Entry) -> None:
    body = json.dumps(document).encode()
    path.write_bytes(body + b"\ncrc32c %08x\n" % google_crc32c.value(body))
