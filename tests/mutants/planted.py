"""Defects of the kind that people make, each with a test that has to notice it.

A defect is a piece of text of one file of the product, and what stands there instead. If the text is no longer there,
the test says so: write the defect anew for the code as it is now.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Defect(NamedTuple):
    """One planted defect."""

    name: str
    file: str
    """In src/penstock."""
    right: str
    """Stands there exactly once."""
    wrong: str
    caught_by: str
    """A test, or options of pytest that choose one."""

    def plant(self, source: Path) -> None:
        """Write it into a copy of src."""
        path = source / "penstock" / self.file
        text = path.read_text()
        found = text.count(self.right)
        assert found == 1, f"{self.file} has {found} times what {self.name!r} replaces: {self.right!r}"
        path.write_text(text.replace(self.right, self.wrong))


DEFECTS = (
    Defect(
        "records are acknowledged before they are on disk",
        "log/tail.py",
        "            if is_synced:\n                sync_data(file.fileno())\n",
        "",
        "tests/faults/test_power_cuts.py::test_everything_acknowledged_survives_power_cuts",
    ),
    Defect(
        "idempotency keys are not synced",
        "log/keys.py",
        "[_block(file.id, end.position, base, keys)], end.position)\n        sync_data(fd)\n",
        "[_block(file.id, end.position, base, keys)], end.position)\n",
        "tests/faults/test_power_cuts.py::test_idempotency_keys_survive_a_cut",
    ),
    Defect(
        "the folder of a replaced file is not synced",
        "log/files.py",
        "            os.unlink(temporary)\n        raise\n    sync_directory(path.parent)\n",
        "            os.unlink(temporary)\n        raise\n",
        "tests/log/test_files.py",
    ),
    Defect(
        "a torn frame is left behind the end",
        "log/recovery.py",
        "        os.ftruncate(file.fileno(), scan.position)\n",
        "        pass\n",
        "tests/log/test_recovery.py",
    ),
    Defect(
        "the checksum of a frame is not compared",
        "log/frame.py",
        "    return bool(google_crc32c.extend(seed, content.slice(_UNCHECKED)) == frame.crc)",
        "    return bool(google_crc32c.extend(seed, content.slice(_UNCHECKED)))",
        "tests/check/test_checking.py",
    ),
    Defect(
        "the last record of a retry is stored twice",
        "log/tail.py",
        'side="right"))',
        'side="left"))',
        "tests/log/test_partition.py",
    ),
    Defect(
        "idempotency keys are forgotten when a segment is closed",
        "log/keys.py",
        "    if producers.keys:\n",
        "    if not producers:\n",
        "tests/log/test_keys.py",
    ),
    Defect(
        "what a producer spilled goes out under an id that a restart forgets",
        "log/producers.py",
        "producer if is_remembered(producer) else bytes([producer[0] | _SPILLED]) + producer[1:]",
        "producer",
        "tests/log/test_partition.py",
    ),
    Defect(
        "a batch is stamped with a schema that it was not fitted to",
        "log/folder_partition.py",
        "schema_version=definition.schema_version",
        "schema_version=self.topic.definition.schema_version",
        "tests/log/test_partition.py",
    ),
    Defect(
        "retention counts only the first of the segments that it removes",
        "log/retention.py",
        "start_offset=gone[-1].stop",
        "start_offset=gone[0].stop",
        "tests/log/test_retention.py",
    ),
    Defect(
        "compaction keeps the oldest record of a key",
        "log/compaction.py",
        "for batch in read(partition, partition.start_offset(), columns=key):",
        "for batch in reversed(list(read(partition, partition.start_offset(), columns=key))):",
        "tests/log/test_compaction.py",
    ),
    Defect(
        "a record that came exactly at the limit is late",
        "log/reading.py",
        "is_late = pc.greater(",
        "is_late = pc.greater_equal(",
        "tests/log/test_partition.py",
    ),
    Defect(
        "a slice leaves out pieces that end with its first moment",
        "log/reading.py",
        "piece.arrived_max >= low",
        "piece.arrived_max > low",
        "tests/log/test_reading.py",
    ),
    Defect(
        "the fence lies one record before what was read",
        "modes/running.py",
        "fence = Fence(stop, clock,",
        "fence = Fence({t: {n: max(o - 1, 0) for n, o in p.items()} for t, p in stop.items()}, clock,",
        "tests/modes/agreement/test_property.py -k after_every_step",
    ),
    Defect(
        "a transaction does not claim the pipeline",
        "views/store.py",
        "                claim(connection, owner)\n",
        "                _ = claim\n",
        "tests/views/test_store.py -k owner_that_was_replaced",
    ),
    Defect(
        "two runs may own one pipeline after a switch",
        "views/catalog.py",
        'self._update(each, state="old", retired_us=moment)',
        "_ = each",
        "tests/views/test_catalog.py",
    ),
    Defect(
        "a wrong merge rule",
        "upkeep/rules.py",
        'Rule("max", _greatest)',
        'Rule("max", _least)',
        "tests/upkeep/test_merge.py",
    ),
    Defect(
        "NULL on one side makes a merged value NULL",
        "upkeep/rules.py",
        "return pc.coalesce(both, kept, new) if both.null_count else both",
        "return both",
        "tests/upkeep/test_merge.py",
    ),
    Defect(
        "a group that nothing is left of keeps its row",
        "upkeep/merge.py",
        "return Unmerged(left, pc.equal(rows, 0))",
        "return Unmerged(left, pc.less(rows, 0))",
        "tests/upkeep/test_merge.py",
    ),
    Defect(
        "the group that a row has left is not computed again",
        "upkeep/redo.py",
        "for part in (new.groups, new.gone_groups)",
        "for part in (new.groups,)",
        "tests/modes/agreement/test_property.py -k after_every_step",
    ),
    Defect(
        "an event touches one sliding window too few",
        "upkeep/kept_windows.py",
        "back = np.arange(-(-length_us // self.slide_us))",
        "back = np.arange(max(1, -(-length_us // self.slide_us) - 1))",
        "tests/upkeep/test_kept_windows.py",
    ),
    Defect(
        "of two rows with one key the earlier record wins",
        "upkeep/fold_rows.py",
        "newer |= equal & (ours > theirs)",
        "newer |= equal & (ours < theirs)",
        "tests/modes/agreement/test_property.py -k after_every_step",
    ),
    Defect(
        "a log that was replaced is gone on with",
        "modes/origin.py",
        "        if why is not None:\n            raise",
        "        if why == name:\n            raise",
        "tests/modes/test_log_replaced.py",
    ),
    Defect(
        "constants of a query do not count as its code",
        "plans/fingerprint.py",
        'if each.kind == "Literal" and',
        'if each.kind == "Constant" and',
        "tests/plans/test_fingerprint.py",
    ),
    Defect(
        "small plans are trusted whatever they give",
        "spark/private/canary.py",
        'if found is None or not found.sort_by("id").equals(expected):',
        "if found is None:",
        "tests/plans/test_canary.py",
    ),
    Defect(
        "an exception of the relay is swallowed",
        "views/outbox.py",
        "                failure = failure or error\n",
        "                del error\n",
        "tests/views/test_outbox.py -k 'gone_holds_up or do_not_fit_stay'",
    ),
    Defect(
        "the outbox of a restored database uses ids again",
        "views/outbox.py",
        "found[topic.name] = max((each.last_sequence(producer) or 0 for each in topic.partitions), default=0)",
        "found[topic.name] = 0 if producer else 1",
        "tests/views/test_outbox.py -k ids_of_another_database",
    ),
    Defect(
        "a member that lost a partition may commit there",
        "consume/seat.py",
        "lost = [key for key in offsets if key not in known or known[key].member != self.id]",
        "lost = [key for key in offsets if key not in known]",
        "tests/consume/test_group.py",
    ),
    Defect(
        "the rights of a token are not looked at",
        "service/guard.py",
        "        if not token.may(right):\n",
        "        if token.name == right:\n",
        "tests/service/test_guard.py",
    ),
    Defect(
        "formulas reach a spreadsheet",
        "views/csv_rows.py",
        "return _without_formulas(array) if guards else array",
        "return array",
        "tests/views/test_csv_rows.py",
    ),
)
