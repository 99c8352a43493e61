"""What Prometheus reads: requests, streams and events of this service, and how far each view is behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one service. Requests are counted by route, never by what a client put into its address."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "penstock_http_requests", "Answers given", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "penstock_http_seconds", "Time to the end of an answer", ["route"], buckets=SECONDS, registry=self._registry
        )
        self._streams = Gauge("penstock_http_streams", "Streams and long polls that are open", registry=self._registry)
        self._events = Counter("penstock_events_posted", "Events stored", ["topic"], registry=self._registry)
        self._duplicates = Counter(
            "penstock_events_duplicate", "Events that had been stored before", ["topic"], registry=self._registry
        )
        self.streams_open = 0

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request has its answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def posted(self, topic: str, stored: int, duplicates: int) -> None:
        """Events came in."""
        self._events.labels(topic).inc(stored)
        self._duplicates.labels(topic).inc(duplicates)

    def stream_opened(self) -> None:
        self.streams_open += 1
        self._streams.set(self.streams_open)

    def stream_closed(self) -> None:
        self.streams_open -= 1
        self._streams.set(self.streams_open)

    def text(self, views: Iterable[Mapping[str, object]]) -> bytes:
        """Everything, with the views as they are now."""
        of_views = CollectorRegistry()
        of_views.register(_Views(views))
        return generate_latest(self._registry) + generate_latest(of_views)


class _Views(Collector):
    """The views of one moment: rows, late, corrected, records behind, clock."""

    _MEANINGS: ClassVar = {
        "rows": "Rows of the view",
        "late": "Late events seen",
        "corrected": "Rows that changed after their window was closed",
        "behind": "Records of the log that are not in the view yet",
        "clock_seconds": "The arrival clock of the view, in seconds since 1970",
    }

    def __init__(self, views: Iterable[Mapping[str, object]]) -> None:
        self._views = list(views)

    def collect(self) -> Iterable[Metric]:
        for name, meaning in self._MEANINGS.items():
            family = GaugeMetricFamily(f"penstock_view_{name}", meaning, labels=["pipeline", "view"])
            for view in self._views:
                value = view[name]
                if isinstance(value, int | float):
                    family.add_metric([str(view["pipeline"]), str(view["view"])], value)
            yield family
