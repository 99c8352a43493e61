"""Whole runs: what a step reports is in a mailbox when the run is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Pipeline
from penstock.alerts.entries import recent
from penstock.log.folder_log import FolderLog
from penstock.settings import AlertsSettings, LogSettings, Settings, SparkSettings, ViewsSettings
from penstock.upkeep.checked import check_pipeline
from penstock.views.store import open_store
from tests.alerts.mail_server import MailServer

pytestmark = pytest.mark.spark

MAIL = "mailto:ops@example.com"


def shop() -> Pipeline:
    app = Pipeline("shop")
    app.topic("access", "time timestamp, url string", event_time="time")
    app.view(
        "hits",
        key=["window", "url"],
        sql="SELECT window(time, '1 minute') AS window, url, count(*) AS hits FROM access GROUP BY 1, 2",
    )
    return app


def settings_of(folder: Path, server: MailServer) -> Settings:
    return Settings(
        log=LogSettings(f"dir:{folder}/log"),
        views=ViewsSettings(f"sqlite:{folder}/views.db"),
        spark=SparkSettings(master="local[2]", shuffle_partitions=2),
        alerts=AlertsSettings(smtp=server.url, sender="penstock@example.com"),
    )


@pytest.mark.parametrize("mode", ["stream", "lambda", "kappa"])
def test_a_run_sends_its_mails_before_it_ends(
    tmp_path: Path, spark: SparkSession, mode: penstock.modes.run.Mode
) -> None:
    app = shop()
    app.alert("hits", to=[MAIL, "topic:alarms"], when="hits > 1")
    with MailServer() as server:
        settings = settings_of(tmp_path, server)
        with FolderLog(settings.log.url) as log:
            if mode == "lambda":  # Its first step is a batch, which tells nobody.
                penstock.run(app, mode, once=True, settings=settings)
            else:
                log.create("access", "time timestamp, url string", event_time="time")
            with log.producer("access") as producer:
                for second in (1, 2, 3):
                    producer.send({"time": f"2026-01-01T12:00:0{second}Z", "url": "/<pay>"})
            penstock.run(app, mode, once=True, settings=settings)
            [alarm] = log.topic("alarms").slice().to_pylist()
    [mail] = server.mails
    body = mail.get_body(("html",))
    assert body is not None
    assert "/&lt;pay&gt;" in body.get_content()
    assert [each.get_content_type() for each in mail.iter_attachments()] == ["text/csv", "image/png"]
    assert alarm["alert"] == "hits"
    with open_store(settings.views.url) as store, store.snapshot() as snapshot:
        assert [each.state for each in recent(snapshot.connection)] == ["sent", "sent"]


def test_check_names_what_is_wrong_with_alerts_and_goes_on(spark: SparkSession) -> None:
    app = shop()
    app.alert("hits", to=MAIL, when="hits > 1", name="sound")
    app.alert("hits", to=MAIL, when="hitz > 1", name="misspelt")
    app.alert("hit", to=MAIL, name="nowhere")
    compiled, problems = check_pipeline(app, spark)
    assert [view.name for view in compiled] == ["hits"]
    assert [(type(each).__name__, each.place) for each in problems] == [
        ("BindingError", app.alerts["nowhere"].place),
        ("AlertConditionError", app.alerts["misspelt"].place),
    ]
