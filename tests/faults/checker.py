"""The judge: compares a history of what was acknowledged with what is on disk. Imports nothing of penstock.

    python -m tests.faults.checker LOG HISTORY...

Nothing acknowledged is lost, nothing is stored twice, nothing is there that nobody sent, every row reads as it was
written, offsets have no gaps, each writer's order is kept within a partition, arrival never decreases, a topic that was
made is there, and a committed offset of a consumer group never goes back.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.faults.history import Entry, read_history
from tests.faults.stored import Longs, NotWhole, StoredPartition, read_commits, read_partition, read_topic

EXAMPLES = 5
"""So many examples of each fault are shown."""


@dataclass
class Verdict:
    """What the judge found. It is clean if there are no faults."""

    faults: list[str] = field(default_factory=list)
    records: int = 0
    acknowledged: int = 0
    received: int = 0
    partitions: dict[tuple[str, int], StoredPartition] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        summary = f"{self.records} records on disk, {self.acknowledged} acknowledged, {self.received} received"
        return "\n".join([f"{summary}: {'clean' if self.is_clean else 'FAULTS'}", *self.faults])


def judge(root: Path, entries: Iterable[Entry], *, is_recovered: bool = True) -> Verdict:
    """Judges a log that nobody writes to. `is_recovered`: a torn tail would have been cut off, so none may be left."""
    verdict = Verdict()
    by_topic: dict[str, list[Entry]] = defaultdict(list)
    commits: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry["do"] in ("committing", "committed"):
            commits[entry["group"]].append(entry)
        elif "topic" in entry:
            by_topic[entry["topic"]].append(entry)
    for topic, mine in by_topic.items():
        try:
            definition = read_topic(root, topic)
        except FileNotFoundError:
            does = {entry["do"] for entry in mine}
            if does & {"created", "ack"} and "delete" not in does:
                verdict.faults.append(f"{topic}: it was made, and is not there")
            continue
        except NotWhole as error:
            verdict.faults.append(str(error))
            continue
        if any(entry["do"] == "deleted" for entry in mine):
            verdict.faults.append(f"{topic}: it was deleted, and is there")
        _judge_definition(verdict, topic, definition, mine)
        _judge_topic(verdict, root, topic, definition, mine, is_recovered=is_recovered)
    for group, mine in commits.items():
        _judge_commits(verdict, root, group, mine)
    return verdict


def _judge_definition(verdict: Verdict, topic: str, definition: Mapping[str, Any], entries: list[Entry]) -> None:
    columns = [column.split()[0] for column in definition["schemas"][-1].split(", ")]
    missing = [e["column"] for e in entries if e["do"] == "altered" and e["column"] not in columns]
    _complain(verdict, f"{topic}: columns that were added are not there", missing)


def _judge_topic(
    verdict: Verdict, root: Path, topic: str, definition: Mapping[str, Any], entries: list[Entry], *, is_recovered: bool
) -> None:
    has_retention = definition["retention_age"] is not None or definition["retention_bytes"] is not None
    names: dict[str, int] = {}
    codes: list[Longs] = []
    sent = _ranges(names, [entry for entry in entries if entry["do"] == "send"])
    for number in range(definition["partitions"]):
        place = f"{topic}/{number}"
        try:
            stored = read_partition(root, topic, number)
        except NotWhole as error:
            verdict.faults.append(f"{place}: {error}")
            continue
        verdict.partitions[topic, number] = stored
        verdict.records += stored.records.num_rows
        if is_recovered and stored.torn_bytes:
            verdict.faults.append(f"{place}: {stored.torn_bytes} bytes of a torn tail were left")
        if is_recovered and stored.hint_offset not in (None, stored.end_offset):
            verdict.faults.append(f"{place}: it ends at {stored.end_offset}, its file 'end' says {stored.hint_offset}")
        if stored.start_offset and not has_retention:
            verdict.faults.append(f"{place}: it begins at {stored.start_offset}, but has no retention")
        there = _codes(names, stored.records)
        codes.append(there)
        _judge_rows(verdict, place, stored, there, sent, allow_gaps=stored.is_compacted and definition["compact"])
        acks = [entry for entry in entries if entry["do"] == "ack" and entry["partition"] == number]
        _judge_acks(verdict, place, stored, there, names, acks, is_compacted=definition["compact"])
        received = [entry for entry in entries if entry["do"] == "received" and entry["partition"] == number]
        _judge_received(verdict, place, stored, received)
    everything = np.concatenate([np.empty(0, np.int64), *codes])
    anywhere = _ranges(names, [entry for entry in entries if entry["do"] == "ack" and entry["partition"] is None])
    verdict.acknowledged += len(anywhere)
    if not has_retention and not definition["compact"]:
        _complain(verdict, f"{topic}: ACKNOWLEDGED AND LOST", _named(names, np.setdiff1d(anywhere, everything)))
    values, counts = np.unique(everything, return_counts=True)
    _complain(verdict, f"{topic}: stored more than once", _named(names, values[counts > 1]))


def _judge_rows(
    verdict: Verdict, place: str, stored: StoredPartition, there: Longs, sent: Longs, *, allow_gaps: bool
) -> None:
    """What can be said of the stored rows alone."""
    records = stored.records
    offsets = records.column("_offset").to_numpy()
    if not allow_gaps and not np.array_equal(offsets, np.arange(stored.start_offset, stored.end_offset)):
        expected = np.setdiff1d(np.arange(stored.start_offset, stored.end_offset), offsets)
        verdict.faults.append(f"{place}: offsets have gaps or are out of order, such as {expected[:EXAMPLES].tolist()}")
    if (np.diff(offsets) <= 0).any():
        verdict.faults.append(f"{place}: offsets do not increase")
    arrived = records.column("_arrived").to_numpy()
    _complain(verdict, f"{place}: arrival decreases behind offset", offsets[:-1][np.diff(arrived) < 0])
    writer, number = records.column("writer"), records.column("number")
    count = pc.subtract(number, pc.multiply(pc.divide(number, 61), 61))
    filler = pa.array(["#" * length for length in range(61)]).take(count.combine_chunks())
    expected_note = pc.binary_join_element_wise(writer, number.cast(pa.string()), filler, ":")
    wrong = pc.fill_null(pc.not_equal(records.column("note"), expected_note), True)
    _complain(verdict, f"{place}: wrong rows at offset", records.filter(wrong).column("_offset").to_pylist())
    order = np.argsort(there >> 40, kind="stable")
    steps, same = np.diff(there[order]), np.diff(there[order] >> 40) == 0
    _complain(verdict, f"{place}: order of a writer is not kept behind offset", offsets[order][:-1][same & (steps < 0)])
    invented = ~np.isin(there, sent)
    _complain(verdict, f"{place}: nobody sent what is at offset", offsets[invented])


def _judge_acks(
    verdict: Verdict, place: str, stored: StoredPartition, there: Longs, names: dict[str, int], acks: list[Entry], *,
    is_compacted: bool,
) -> None:  # fmt: skip
    """Every acknowledged record is where it was said to be, unless retention or compaction removed it."""
    acknowledged = _ranges(names, acks)
    verdict.acknowledged += len(acknowledged)
    placed = [entry for entry in acks if entry.get("base") is not None]
    codes = _ranges(names, placed)
    offsets = np.concatenate([np.empty(0, np.int64), *(e["base"] + np.arange(e["count"]) for e in placed)])
    rows = stored.records.column("_offset").to_numpy()
    if is_compacted:  # Only the newest of each key (here: the writer) is sure to be there.
        newest = {code >> 40: code for code in np.sort(acknowledged).tolist()}
        later = {writer: there[there >> 40 == writer].max(initial=-1) for writer in newest}
        lost = np.array([code for writer, code in newest.items() if later[writer] < code], np.int64)
    else:
        removed = codes[offsets < stored.start_offset]
        lost = np.setdiff1d(np.setdiff1d(acknowledged, there), removed)
        if stored.start_offset:  # Where a retry was acknowledged no offset is known; what is older than the rest went.
            oldest = {writer: there[there >> 40 == writer].min(initial=1 << 62) for writer in np.unique(lost >> 40)}
            lost = np.array([code for code in lost.tolist() if code > oldest[code >> 40]], np.int64)
    _complain(verdict, f"{place}: ACKNOWLEDGED AND LOST", _named(names, lost))
    at = np.searchsorted(rows, offsets)
    is_right = at < len(rows)
    is_right[is_right] = (rows[at[is_right]] == offsets[is_right]) & (there[at[is_right]] == codes[is_right])
    elsewhere = codes[~is_right & np.isin(codes, there)]
    _complain(verdict, f"{place}: acknowledged at another offset", _named(names, elsewhere))


def _judge_received(verdict: Verdict, place: str, stored: StoredPartition, received: list[Entry]) -> None:
    """What consumers were given is what is there."""
    offsets = stored.records.column("_offset").to_numpy()
    notes = stored.records.column("note").to_pylist() if received else []
    for entry in received:
        verdict.received += entry["stop"] - entry["start"]
        if entry["stop"] > stored.end_offset:
            verdict.faults.append(f"{place}: a consumer was given offset {entry['stop'] - 1}, which is not there")
        elif entry["start"] >= stored.start_offset and not stored.is_compacted:
            first, last = np.searchsorted(offsets, (entry["start"], entry["stop"]))
            if fingerprint(notes[first:last]) != entry["fingerprint"]:
                verdict.faults.append(f"{place}: a consumer was given wrong rows: {entry}")


def fingerprint(notes: Iterable[str]) -> int:
    """Stands for some rows, in order."""
    return int(google_crc32c.value("\n".join(notes).encode()))


def _judge_commits(verdict: Verdict, root: Path, group: str, entries: list[Entry]) -> None:
    try:
        now = read_commits(root, group)
    except NotWhole as error:
        verdict.faults.append(f"group {group}: {error}")
        return
    farthest: dict[tuple[str, int], int] = {}
    for entry in entries:
        if entry["do"] == "committed":
            key = entry["topic"], entry["partition"]
            farthest[key] = max(farthest.get(key, 0), entry["offset"])
    back = [f"{key}: {offset}, now {now.get(key)}" for key, offset in farthest.items() if now.get(key, -1) < offset]
    _complain(verdict, f"group {group}: a committed offset went back", back)


def _ranges(names: dict[str, int], entries: list[Entry]) -> Longs:
    """One number for each record that the entries speak of: the writer's code in the upper bits, its count below."""
    parts = [
        (names.setdefault(entry["writer"], len(names)) << 40) + entry["first"] + np.arange(entry["count"])
        for entry in entries
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _codes(names: dict[str, int], records: pa.Table) -> Longs:
    encoded = records.column("writer").combine_chunks().dictionary_encode()
    known = np.array([names.setdefault(name, len(names)) for name in encoded.dictionary.to_pylist()] or [0], np.int64)
    codes: Longs = (known[encoded.indices.to_numpy()] << 40) + records.column("number").to_numpy()
    return codes


def _named(names: dict[str, int], codes: Iterable[int]) -> list[str]:
    by_code = {code: name for name, code in names.items()}
    return [f"{by_code[int(code) >> 40]}:{int(code) & ((1 << 40) - 1)}" for code in codes]


def _complain(verdict: Verdict, what: str, examples: Iterable[object]) -> None:
    found = [str(example) for example in examples]
    if found:
        verdict.faults.append(f"{what} ({len(found)}): {', '.join(found[:EXAMPLES])}")


def main(arguments: list[str]) -> int:
    verdict = judge(Path(arguments[0]), read_history(*map(Path, arguments[1:])), is_recovered=False)
    print(verdict)
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
