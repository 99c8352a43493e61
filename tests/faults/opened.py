"""Opens a log as the next process would, and lets the judge compare what is on disk with what penstock reads."""

from __future__ import annotations

from pathlib import Path

from penstock.log.folder_log import FolderLog
from tests.faults.checker import Verdict, judge
from tests.faults.history import Entry


def judge_opened(root: Path, entries: list[Entry]) -> Verdict:
    """Opens the log as the next process would, judges, and compares what penstock reads with what the judge reads."""
    with FolderLog(root, background=False) as log:
        for name in log.topics():
            log.topic(name).end()
        verdict = judge(root, entries)
        for (name, number), stored in verdict.partitions.items():
            topic = log.topic(name)
            start, stop = {number: topic.partitions[number].start_offset()}, {number: stored.end_offset}
            table = topic.slice(start, stop, columns=["writer", "number", "note"])
            expected = stored.records.select(["writer", "number", "note", "_offset"])
            if not table.select(expected.schema.names).combine_chunks().equals(expected.combine_chunks()):
                verdict.faults.append(f"{name}/{number}: penstock reads something else than what is on disk")
    return verdict
