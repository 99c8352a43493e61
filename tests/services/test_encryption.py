"""Traffic within a Spark cluster, captured: an eavesdropper reads neither the data nor the secret."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log.folder_log import FolderLog
from penstock.modes.topics import make_topics
from penstock.pipeline.loading import load_pipeline
from penstock.views.store import open_store
from tests.services.driver import Driver
from tests.services.listening import listening, reserved_range
from tests.services.shop import settings
from tests.services.spark_cluster import SparkCluster

pytestmark = [
    pytest.mark.services,
    pytest.mark.spark,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may capture packets: run as root"),
]
NOTES = 300
EXECUTORS = 16
"""How many ports above its own an executor tries if that is taken."""
APP = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from penstock import Pipeline

app = Pipeline("notes")
app.topic("notes", "text string")


@F.udf(StringType())
def same(text):  # A function of one's own is never computed in the driver, as few rows are otherwise.
    return text


@app.view(key="text")
def texts(notes):
    return notes.groupBy(same("text").alias("text")).count()
"""


def run(folder: Path, cluster: SparkCluster, marker: str, ports: range, **conf: str) -> None:
    """A run whose events and rows hold the marker: they go from the driver to executors, between them, and back."""
    (folder / "app.py").write_text(APP)
    with FolderLog(folder / "log", background=False) as log:
        make_topics(load_pipeline(str(folder / "app.py")), log)
        log.topic("notes").append(pa.table({"text": [f"{marker} {number}" for number in range(NOTES)]}))
    places = {
        "spark.driver.port": str(ports[0]),
        "spark.driver.blockManager.port": str(ports[1]),
        "spark.blockManager.port": str(ports[2]),
        # What is compressed cannot be read either, by this simple listener.
        "spark.shuffle.compress": "false",
        "spark.broadcast.compress": "false",
    }
    written = settings(f"dir:{folder / 'log'}", f"sqlite:{folder / 'views.db'}", cluster.master, **places, **conf)
    (folder / "penstock.toml").write_text(written)
    driver = Driver(folder, cluster.secret)
    try:
        driver.do(folder, "run", "app.py", "--mode", "batch")
    finally:
        driver.kill()
    with open_store(f"sqlite:{folder / 'views.db'}") as store:
        assert store.query("SELECT count(*) FROM texts")[1][0][0] == NOTES


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
def test_only_encryption_hides_data_and_secret_on_the_wire(
    tmp_path: Path, spark_cluster: SparkCluster, is_encrypted: bool
) -> None:
    marker = f"a-marker-{os.urandom(8).hex()}"
    conf = {} if is_encrypted else {"spark.network.crypto.enabled": "false"}
    with reserved_range(3 + EXECUTORS) as ports, listening(ports) as heard:
        run(tmp_path, spark_cluster, marker, ports, **conf)
    assert heard.size > 100_000
    assert heard.has(marker) == (not is_encrypted)
    assert heard.has(spark_cluster.secret) == (not is_encrypted)
