"""The service over a log in Kafka, while its broker is there, away, and back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from penstock.log.log import Log
from penstock.settings import LogSettings
from tests.eventually import eventually
from tests.service.conftest import loop_guard
from tests.service.site import MINUTE, NOON, Site, make_site
from tests.services.kafka import JARS, KafkaCluster

__all__ = ["loop_guard"]
pytestmark = [pytest.mark.services, pytest.mark.skipif(not JARS.is_dir(), reason="Kafka's jars: make service-tools")]
QUICK = {"socket.timeout.ms": "3000", "delivery.timeout.ms": "5000", "transaction.timeout.ms": "5000"}
KEY = {"key": ["2026-01-01T12:01:00Z", "/1"]}


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker of this test's own: it goes away."""
    folder = tmp_path / "kafka"
    folder.mkdir()
    cluster = KafkaCluster(folder)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def kafka_site(tmp_path: Path, own_kafka: KafkaCluster) -> Site:
    """Ten records in Kafka, and views that have seen eight of them."""
    site = make_site(tmp_path, f"sqlite:{tmp_path}/views.db")
    settings = LogSettings(url=f"kafka://{own_kafka.bootstrap}", conf=QUICK)
    with Log(settings.url) as log:
        topic = log.create("access", "time timestamp, url string", event_time="time", lateness="2 minutes")
        rows = [{"time": NOON + number * MINUTE, "url": "/"} for number in range(10)]
        topic.append(pa.Table.from_pylist(rows, schema=topic.schema))
        log.create("clicks", "n bigint")
    return replace(site, settings=replace(site.settings, log=settings))


def behind(client: httpx.Client) -> set[int | None]:
    """How far the view is behind, by each way to its rows."""
    answers = [client.get("/views/sales", params=KEY), client.get("/views/sales")]
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    assert answers[0].json()["rows"]
    return {answer.json()["as_of"]["behind"] for answer in answers}


def post(client: httpx.Client) -> httpx.Response:
    return client.post("/topics/clicks", json={"n": 1})


def test_rows_go_on_and_posts_are_sent_back_while_the_broker_is_away(own_kafka: KafkaCluster, kafka_site: Site) -> None:
    with kafka_site.serving() as client, ThreadPoolExecutor() as others:
        eventually(lambda: behind(client) == {2})
        assert post(client).status_code == 200
        own_kafka.stop()
        posts = [others.submit(post, client) for _ in range(2)]
        eventually(lambda: behind(client) == {None})
        assert client.get("/health").status_code == 200
        page = client.get("/dashboard/views")
        assert page.status_code == 200
        assert "sales" in page.text
        for each in posts:
            assert (each.result().status_code, each.result().headers["retry-after"]) == (503, "1")
        own_kafka.restart(1)
        eventually(lambda: behind(client) == {2})
        eventually(lambda: post(client).status_code == 200)
