"""The options of format("penstock") are read strictly, and a mistake is told in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import LogUrlError, SourceOptionError, TimeRangeError
from penstock.log.folder_log import FolderLog
from penstock.spark.options import SourceOptions, as_options
from tests.log.rows import rows, small_topic


def test_a_relative_log_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SourceOptions.parse({"log": "dir:./data", "topic": "events"}).log == f"dir:{tmp_path / 'data'}"
    assert SourceOptions.parse({"log": "data", "topic": "events"}).log == f"dir:{tmp_path / 'data'}"


def test_names_of_options_have_no_case() -> None:
    found = SourceOptions.parse({"LOG": "dir:/x", "Topic": "a", "maxrowspertrigger": "5", "failondataloss": "False"})
    assert (found.topic, found.max_rows, found.fail_on_data_loss) == ("a", 5, False)


@pytest.mark.parametrize("text", ["time,url", " time , url ", '["time", "url"]'])
def test_columns_are_a_list_of_names(text: str) -> None:
    assert SourceOptions.parse({"log": "/x", "topic": "a", "columns": text}).columns == ("time", "url")


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"log": "", "topic": "a"}, "log"),
        ({"topic": "a"}, "log"),
        ({"log": "/x"}, "topic"),
        ({"log": "/x", "topic": "a", "maxRowsPerTriger": "5"}, "maxRowsPerTriger"),
        ({"log": "/x", "topic": "a", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger"),
        ({"log": "/x", "topic": "a", "maxBytesPerTrigger": "64m"}, "maxBytesPerTrigger"),
        ({"log": "/x", "topic": "a", "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"log": "/x", "topic": "a", "columns": "[1]"}, "columns"),
    ],
)
def test_what_is_missing_unknown_or_wrong_is_named(given: dict[str, str], option: str) -> None:
    with pytest.raises(SourceOptionError, match=rf'^format\("penstock"\): option {option!r}.*\n  expected: ') as caught:
        SourceOptions.parse(given)
    assert caught.value.option == option


def test_a_misspelt_option_gets_a_suggestion() -> None:
    with pytest.raises(SourceOptionError, match="did you mean 'maxRowsPerTrigger'"):
        SourceOptions.parse({"log": "/x", "topic": "a", "maxRowsPerTriger": "5"})


def test_ranges_and_addresses_have_errors_of_their_own() -> None:
    with pytest.raises(TimeRangeError, match="option 'eventTime'"):
        SourceOptions.parse({"log": "/x", "topic": "a", "eventTime": "noon"})
    with pytest.raises(LogUrlError):
        SourceOptions.parse({"log": "ftp:x", "topic": "a"})


def test_a_batch_and_a_stream_refuse_each_others_options() -> None:
    with pytest.raises(SourceOptionError, match="maxRowsPerTrigger"):
        SourceOptions.parse({"log": "/x", "topic": "a", "maxRowsPerTrigger": "5"}).for_batch()
    with pytest.raises(SourceOptionError, match="endingOffsets"):
        SourceOptions.parse({"log": "/x", "topic": "a", "endingOffsets": '{"0": 1}'}).for_stream()


def test_offsets_may_be_a_word_a_number_a_time_or_one_for_each_partition(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log, partitions=2)
        topic.partitions[0].append(rows(range(5)))
        topic.partitions[1].append(rows(range(3)))

        def offsets(text: str) -> dict[int, int]:
            options = SourceOptions.parse({"log": str(tmp_path), "topic": "events", "startingOffsets": text})
            return options.starting_offsets(topic)

        assert offsets("earliest") == {0: 0, 1: 0}
        assert offsets("latest") == {0: 5, 1: 3}
        assert offsets("4") == {0: 4, 1: 3}
        assert offsets("2000-01-01T00:00:00Z") == {0: 0, 1: 0}
        assert offsets("2999-01-01") == {0: 5, 1: 3}
        assert offsets(as_options({0: 1, 1: 2})) == {0: 1, 1: 2}
        for wrong in [
            "soon",
            '{"0": 1}',
            '{"0": 1, "1": -1}',
            '{"0": 1, "1": 1, "2": 1}',
            '{"a": 1}',
            "{",
            '{"0": 1, "1": "x"}',
        ]:
            with pytest.raises(SourceOptionError, match="startingOffsets"):
                offsets(wrong)
