"""Bodies stored together: each with its own answer, whole or not at all, whatever the others are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest

from penstock.errors import EventsRefused, RequestRefused, TooManyKeys
from penstock.log import keys
from penstock.log.folder_partition import FolderPartition
from penstock.service import posting
from penstock.service.posting import Posted, post, post_together
from penstock.service.problems import headers_of, problem_of
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import Site


def lines(*numbers: object) -> bytes:
    return b"\n".join(json.dumps({"n": number}).encode() for number in numbers)


def stored(site: Site, topic: str, column: str) -> list[Any]:
    with site.log() as log:
        found: list[Any] = log.topic(topic).slice().column(column).to_pylist()
        return found


def test_each_body_gets_the_offsets_of_its_own_events(site: Site) -> None:
    bodies = [lines(0, 1), lines(2), b"  " + lines(3, 4, 5) + b"\r\n\n", lines(6)]
    with site.log() as log:
        topic = log.topic("loose")
        for outcome, numbers in zip(post_together(topic, bodies), [{0, 1}, {2}, {3, 4, 5}, {6}], strict=True):
            assert isinstance(outcome, Posted)
            there = [
                topic.slice({number: start}, {number: stop}).column("n").to_pylist()
                for number, start, stop in outcome.ranges
            ]
            assert {n for each in there for n in each} == numbers
            assert outcome.stored == len(numbers)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (b'{"n": "many"}', EventsRefused),
        (lines(1) + b"\n" + b'{"m": 1}', EventsRefused),
        (b"", RequestRefused),
        (b" \n ", RequestRefused),
        (b"{", EventsRefused),
        (b"null", EventsRefused),
        (b'{"n": 1}{"n": 2}', EventsRefused),
        (b"\x0c" + lines(1), EventsRefused),
        (b"\xff", EventsRefused),
    ],
    ids=repr,
)
def test_a_body_that_does_not_fit_is_refused_and_its_neighbours_are_stored(
    site: Site, bad: bytes, kind: type[Exception]
) -> None:
    with site.log() as log:
        first, second, third = post_together(log.topic("loose"), [lines(10), bad, lines(20, 21)])
    assert isinstance(second, kind)
    assert [each.stored for each in (first, third) if isinstance(each, Posted)] == [1, 2]
    assert sorted(stored(site, "loose", "n")) == [10, 20, 21]


@pytest.mark.parametrize(
    ("left", "right"), [(b'{"url":"}', b'{"}'), (b'{"url":', b'"/"}'), (b"{", b"}"), (b'{"url":"a', b'","url":"b"}')]
)
def test_two_halves_in_two_bodies_are_no_event(site: Site, left: bytes, right: bytes) -> None:
    before = stored(site, "access", "url")
    with site.log() as log:
        assert all(isinstance(each, EventsRefused) for each in post_together(log.topic("access"), [left, right]))
    assert stored(site, "access", "url") == before


def test_a_partition_that_fails_fails_only_those_who_have_events_there(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FolderPartition.append

    def fails_for_the_second(self: FolderPartition, *given: Any, **named: Any) -> Any:
        if self.number == 1:
            raise OSError("as if the disk were gone")
        return real(self, *given, **named)

    monkeypatch.setattr(FolderPartition, "append", fails_for_the_second)
    bodies = [json.dumps({"customer": f"c{number}"}).encode() for number in range(20)]
    with site.log() as log:
        outcomes = post_together(log.topic("orders"), bodies)
    good = [f"c{number}" for number, each in enumerate(outcomes) if isinstance(each, Posted)]
    assert 0 < len(good) < 20
    assert sum(isinstance(each, OSError) for each in outcomes) == 20 - len(good)
    assert sorted(stored(site, "orders", "customer")) == sorted(good)


def test_a_record_that_is_too_large_refuses_its_body_alone(site: Site) -> None:
    large = b"\n".join([b'{"url": "/"}', b'{"url": "%s"}' % (b"x" * 5000)])
    with site.log() as log:
        log.record_bytes_max = 1024
        first, second, third = post_together(log.topic("access"), [b'{"url": "/1"}', large, b'{"url": "/2"}'])
        with pytest.raises(EventsRefused):
            post(log.topic("access"), large, key="a")
    assert [each.stored for each in (first, third) if isinstance(each, Posted)] == [1, 1]
    assert isinstance(second, EventsRefused)
    [(index, column, reason)] = second.rejected
    assert (index, column) == (1, None)
    assert "expected at most 1,024 bytes, found 5," in reason
    assert problem_of(second)[0] == 422


def test_a_key_too_many_is_told_to_come_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "KEYS_MAX", 3)
    with site.log() as log:
        topic = log.topic("access")
        for number in range(3):
            post(topic, b'{"url": "/%d"}' % number, key=f"key {number}")
        refused = []
        for number in range(3, 12):
            try:
                post(topic, b'{"url": "/%d"}' % number, key=f"key {number}")
            except TooManyKeys as error:
                refused.append(error)
        status, problem = problem_of(refused[0])
        assert (status, problem["kind"], problem["is_retryable"]) == (503, "TooManyKeys", True)
        assert "retry-after" in headers_of(status)
        assert post(topic, b'{"url": "/0"}', key="key 0").duplicates == 1


@pytest.mark.parametrize("is_odd", [False, True])
def test_a_body_is_never_cut_by_the_end_of_a_frame(site: Site, monkeypatch: pytest.MonkeyPatch, is_odd: bool) -> None:
    frames: list[int] = []
    real = FolderPartition.append

    def counted(self: FolderPartition, batch: Any, **named: Any) -> Any:
        frames.append(batch.num_rows)
        return real(self, batch, **named)

    monkeypatch.setattr(FolderPartition, "append", counted)
    monkeypatch.setattr(posting, "FRAME_BYTES_MAX", 2000)
    bodies = [b"\n".join([b'{"url": "%s"}' % (b"x" * 100)] * 3) for _ in range(10)] + ([b"{"] if is_odd else [])
    with site.log() as log:
        outcomes = post_together(log.topic("access"), bodies)
    assert [each.stored for each in outcomes if isinstance(each, Posted)] == [3] * 10
    assert len(frames) > 1
    assert all(rows % 3 == 0 for rows in frames)


@pytest.mark.parametrize(
    "count", [pytest.param(1, marks=pytest.mark.long), 30, pytest.param(200, marks=pytest.mark.long)]
)
def test_a_kill_loses_no_answered_body_and_splits_none(site: Site, count: int) -> None:
    command = [sys.executable, "-m", "penstock.cli", "serve", "--port", "0", "--log", site.settings.log.url]
    answered: set[str] = set()
    sent = iter(range(1_000_000))
    headers = {"Content-Type": "application/x-ndjson"}

    def send(url: str) -> None:
        with httpx.Client(base_url=url, headers=headers, timeout=LIMIT_SECONDS) as client:
            while True:
                name = f"body-{next(sent)}"
                body = "\n".join([json.dumps({"url": name})] * 3)
                try:
                    if client.post("/topics/access", content=body).is_success:
                        answered.add(name)
                except httpx.HTTPError:
                    return

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=site.folder) as server:
        assert server.stdout is not None
        found = re.search(r"http://[^/\s]+", server.stdout.readline())
        assert found is not None
        clients = [threading.Thread(target=send, args=[found[0]]) for _ in range(8)]
        for each in clients:
            each.start()
        try:
            eventually(lambda: len(answered) >= count or not any(each.is_alive() for each in clients))
        finally:
            server.kill()
        for each in clients:
            each.join()
    names = [each for each in stored(site, "access", "url") if each.startswith("body-")]
    assert len(answered) >= count
    assert answered <= set(names)
    assert all(names.count(name) == 3 for name in set(names))
