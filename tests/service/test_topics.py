"""Events in and records out by HTTP: on disk before the answer, once however often they are sent, from any place on."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pyarrow as pa
import pytest

from penstock.service import bell
from penstock.service.records import read_page
from penstock.service.service import Service
from penstock.settings import ViewsSettings
from penstock.views.outbox import prepare, remembered_ids
from penstock.views.store import Store, open_store
from tests.eventually import eventually
from tests.service.site import Site

LINES = {"Content-Type": "application/x-ndjson"}


def ended(site: Site, topic: str) -> int:
    with site.log() as log:
        return sum(log.topic(topic).end().values())


def order(customer: str, amount: str = "1.50") -> dict[str, str]:
    return {"customer": customer, "amount": amount}


def lines(*events: dict[str, Any]) -> str:
    return "\n".join(json.dumps(event) for event in events) + "\n"


# --- in ---


def test_one_event_is_answered_with_its_offset(client: httpx.Client, site: Site) -> None:
    body = json.dumps({"time": "2026-01-01T13:00:00Z", "url": "/x\ny"}, indent=2)
    answer = client.post("/topics/access", content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert answer.json() == {
        "topic": "access", "stored": 1, "duplicates": 0, "offsets": [{"partition": 0, "start": 10, "stop": 11}],
    }  # fmt: skip
    assert ended(site, "access") == 11
    assert client.get("/topics/access?from=10").json()["records"][0]["event"]["url"] == "/x\ny"


def test_lines_are_answered_with_the_offsets_of_each_partition(client: httpx.Client) -> None:
    body = lines(*(order(f"c{number}", f"{number}.25") for number in range(20)))
    answer = client.post("/topics/orders", content=body, headers=LINES).json()
    assert answer["stored"] == sum(each["stop"] - each["start"] for each in answer["offsets"]) == 20
    assert {each["partition"] for each in answer["offsets"]} == {0, 1}
    records = client.get("/topics/orders").json()["records"]
    assert sorted(each["event"]["amount"] for each in records) == sorted(f"{number}.25" for number in range(20))


def test_a_retry_stores_nothing_twice_even_after_a_restart(site: Site) -> None:
    events: dict[str, dict[str, Any]] = {"orders": order("ada"), "loose": {"n": 1}, "access": {"url": "/"}}
    bodies = {topic: lines(*[event] * 7, {}) for topic, event in events.items()}
    before = {topic: ended(site, topic) for topic in events}

    def post(client: httpx.Client, topic: str) -> tuple[int, int]:
        headers = {**LINES, "Idempotency-Key": "4711"}
        answer = client.post(f"/topics/{topic}", content=bodies[topic], headers=headers).json()
        assert len(answer["offsets"]) == 0 or answer["stored"]
        return answer["stored"], answer["duplicates"]

    with site.serving() as client:
        for topic in events:
            assert [post(client, topic) for _ in range(2)] == [(8, 0), (0, 8)]
    with site.serving() as client:
        assert [post(client, topic) for topic in events] == [(0, 8)] * 3
    assert {topic: ended(site, topic) for topic in events} == {topic: end + 8 for topic, end in before.items()}


def test_a_retry_stores_the_rest_of_what_was_stored_in_part(client: httpx.Client, site: Site) -> None:
    from penstock.log.folder_partition import FolderPartition

    body, headers = lines(*(order(f"c{number}") for number in range(20))), {**LINES, "Idempotency-Key": "k"}
    real = FolderPartition.append

    def fails_for_the_second(self: FolderPartition, *given: Any, **named: Any) -> Any:
        if self.number == 1:
            raise OSError("as if the disk were gone")
        return real(self, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderPartition, "append", fails_for_the_second)
        assert client.post("/topics/orders", content=body, headers=headers).status_code == 500
    part = ended(site, "orders")
    answer = client.post("/topics/orders", content=body, headers=headers).json()
    assert 0 < part < 20
    assert (answer["duplicates"], answer["stored"]) == (part, 20 - part)


def test_the_same_key_at_the_same_moment_stores_once(client: httpx.Client, site: Site) -> None:
    body, headers = lines(*(order(f"c{number}") for number in range(50))), {**LINES, "Idempotency-Key": "k"}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.post("/topics/orders", content=body, headers=headers), range(8)))
    assert sum(answer.json()["stored"] for answer in answers) == ended(site, "orders") == 50


def test_a_key_that_belongs_to_other_events_is_refused(client: httpx.Client, site: Site) -> None:
    headers = {"Idempotency-Key": "k"}
    assert client.post("/topics/orders", json=order("ada"), headers=headers).status_code == 200
    for customer in ("bob", "carl", "dora", "emil"):  # To either partition.
        answer = client.post("/topics/orders", json=order(customer), headers=headers)
        assert answer.status_code == 409
        assert "choose a new key" in answer.json()["error"]["details"][0]
    assert ended(site, "orders") == 1


def test_keys_of_two_senders_are_two_keys(site: Site) -> None:
    from penstock.service.posting import post

    with site.log() as log:
        assert [post(log.topic("orders"), b"{}", key="k", sender=each).stored for each in ("a", "b", "a")] == [1, 1, 0]


def test_nothing_is_stored_if_one_event_does_not_fit(client: httpx.Client, site: Site) -> None:
    answer = client.post("/topics/orders", content=lines(order("a"), order("b", "lots")), headers=LINES)
    assert answer.status_code == 422
    [rejected] = answer.json()["error"]["rejected"]
    assert (rejected["index"], rejected["column"]) == (1, "amount")
    assert ended(site, "orders") == 0


@pytest.mark.parametrize("body", ["", "[]", "null", "{", "[" * 100_000, '{"n": 1}{"n": 2}', '{"n": NaN}', "\ud800"])
@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_a_body_that_is_no_event_is_refused(steady_client: httpx.Client, body: str, kind: str) -> None:
    content = body.encode("utf-8", "surrogatepass")
    assert steady_client.post("/topics/loose", content=content, headers={"Content-Type": kind}).status_code in (
        400,
        422,
    )


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_form_of_a_foreign_page_could_send_is_refused(steady_client: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = steady_client.post("/topics/loose", content=b'{"n": 1}', headers=headers)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["details"][0]


# --- out ---


@pytest.mark.parametrize(
    ("start", "offsets"),
    [("earliest", range(10)), ("latest", []), ("7", [7, 8, 9]), ("0=8", [8, 9]), ("2026-01-01T12:08:00Z", [8, 9])],
)
def test_records_are_read_from_any_place_on(steady_client: httpx.Client, start: str, offsets: Any) -> None:
    answer = steady_client.get("/topics/access", params={"from": start}).json()
    assert [each["offset"] for each in answer["records"]] == list(offsets)
    assert answer["next"] == "0=10"
    assert answer["as_of"] == {"clock": "2026-01-01T12:09:00Z", "offsets": {"0": 10}}


def test_pages_follow_one_another_over_all_partitions(client: httpx.Client) -> None:
    client.post("/topics/orders", content=lines(*(order(f"c{number}") for number in range(50))), headers=LINES)
    seen, start = [], "earliest"
    while True:
        page = client.get("/topics/orders", params={"from": start, "limit": 7}).json()
        if not page["records"]:
            break
        seen += [(each["partition"], each["offset"]) for each in page["records"]]
        assert page["records"][-1]["id"] == page["next"]
        start = page["next"]
    assert len(seen) == len(set(seen)) == 50


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("yesterday", 400),
        ("0=11", 410),
        ("7=0", 400),
        ("-1", 400),
        ("0=", 400),
        ("9" * 1000, 400),
        ("9" * 19, 200),
        ("0=1,0=2", 200),
    ],
)
def test_a_place_that_is_not_there_is_told_in_words(steady_client: httpx.Client, start: str, status: int) -> None:
    answer = steady_client.get("/topics/access", params={"from": start})
    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]["details"]


@pytest.mark.parametrize("name", ["nope", "..", "%2e%2e", "..%2f..%2fetc", "a%00b", "Access", "access%20", "."])
def test_a_name_that_no_topic_has_is_never_a_path(steady_client: httpx.Client, name: str) -> None:
    answer = steady_client.get(f"/topics/{name}")
    # Clients shorten the last ones themselves: to the list of topics, and to the address that leads to the dashboard.
    assert answer.status_code == {".": 200, "..": 307}.get(name, 404)
    assert "/log" not in answer.text


def test_what_retention_removed_is_an_error_and_no_gap(client: httpx.Client, site: Site) -> None:
    with site.log() as log:
        topic = log.topic("access")
        topic.alter(retention_age="1 day")
        topic.seal(active=True)
        topic.retain(log.clock() + 2 * 24 * 3600 * 1_000_000)
        start = topic.start()[0]
    assert start > 0
    answer = client.get("/topics/access?from=0")
    assert answer.status_code == 410
    assert "retention removed" in " ".join(answer.json()["error"]["details"])


def test_a_long_poll_is_woken_by_an_append_of_another_process(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the end of the poll nor the service's own look at the files comes before the test is over."""
    monkeypatch.setattr(bell, "LOOK_SECONDS", 3600)
    script = (
        "import sys; from penstock.log.folder_log import FolderLog\n"
        "log = FolderLog(sys.argv[1], background=False)\n"
        "with log.topic('loose').producer() as producer: producer.send({'n': 7})"
    )
    with site.serving() as client, ThreadPoolExecutor() as threads:
        answer = threads.submit(client.get, "/topics/loose", params={"wait": 3600})
        eventually(lambda: "\npenstock_http_streams 1.0\n" in client.get("/metrics").text)
        subprocess.run([sys.executable, "-c", script, site.settings.log.url], check=True)
        assert [each["event"] for each in answer.result().json()["records"]] == [{"n": 7}]


def test_a_long_poll_ends_empty_when_nothing_came(steady_client: httpx.Client) -> None:
    answer = steady_client.get("/topics/loose", params={"wait": 0.3})
    assert answer.json()["records"] == []
    assert answer.elapsed.total_seconds() >= 0.3


def test_large_records_come_in_several_pages(site: Site) -> None:
    with site.log() as log:
        topic = log.topic("access")
        with topic.producer() as producer:
            for number in range(12):
                producer.send({"url": str(number) * (1 << 20)})
        page = read_page(topic, {0: 10}, 1000)
    assert 1 <= len(page.records) < 12
    assert page.after == {0: 10 + len(page.records)}


def test_a_time_that_python_cannot_hold_stays_a_number(client: httpx.Client, site: Site) -> None:
    with site.log() as log:
        topic = log.create("far", "time timestamp, x double")
        beyond = pa.array([400_000_000_000_000_000]).cast(pa.timestamp("us", "UTC"))
        topic.partitions[0].append(pa.record_batch({"time": beyond, "x": [float("nan")]}, topic.schema))
    [record] = client.get("/topics/far").json()["records"]
    assert record["event"] == {"time": 400_000_000_000_000_000, "x": "nan"}


def test_many_small_posts_at_once_all_get_their_own_offsets(client: httpx.Client, site: Site) -> None:
    offsets: list[tuple[int, int]] = []
    lock = threading.Lock()

    def send(number: int) -> None:
        [found] = client.post("/topics/loose", json={"n": number}).json()["offsets"]
        with lock:
            offsets.append((found["partition"], found["start"]))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(60)))
    assert len(set(offsets)) == ended(site, "loose") == 60


def test_topics_that_pipelines_write_are_closed_to_clients(site: Site) -> None:
    with site.log() as log:
        log.create("alarms", "text string")
        with log.topic("access").producer() as producer:
            producer.send({"time": "no time"})
    with open_store(site.settings.views.url) as store, store.transaction(None) as tx, site.log() as log:
        prepare(tx.connection, "web", remembered_ids("web", [log.topic("alarms")]))
    with site.serving() as client:

        def post(topic: str, **headers: str) -> int:
            return client.post(f"/topics/{topic}", json={"text": "it burns"}, headers=headers).status_code

        eventually(lambda: post("alarms") == 403)  # The list is read in the background when the service starts.
        for topic in ("sales.changes", "access.dead", "alarms"):
            assert [post(topic), post(topic, **{"Idempotency-Key": "1"})] == [403, 403]
        assert client.post("/topics/loose", json={"n": 1}).status_code == 200


def test_events_are_stored_while_the_database_does_not_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Service] = []
    real = Service.store

    def store(service: Service) -> Store | None:
        waiting.append(service)
        return real(service)

    monkeypatch.setattr(Service, "store", store)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # Accepts connections and says nothing.
        views = ViewsSettings(url=f"postgresql://ada@127.0.0.1:{silent.getsockname()[1]}/views?connect_timeout=3600")
        away = replace(site, settings=replace(site.settings, views=views))
        with away.serving() as client, ThreadPoolExecutor(8) as threads:
            asking = [threads.submit(client.get, "/views") for _ in range(8)]
            eventually(lambda: len(waiting) >= 8)
            assert client.post("/topics/loose", json={"n": 1}).status_code == 200
            assert not any(each.done() for each in asking)
            silent.close()
            assert {each.result().status_code for each in asking} == {503}
