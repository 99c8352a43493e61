"""Every operation of the service, tried with generated requests that fit its description and that do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tests.eventually import LIMIT_SECONDS
from tests.service.site import make_site

ROUTES = [
    ("GET", "/views"), ("GET", "/views/{name}"), ("GET", "/views/{name}/changes"), ("GET", "/topics"),
    ("GET", "/topics/{name}"), ("POST", "/topics/{name}"), ("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics"),
]  # fmt: skip


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service, and what it says of itself."""
    folder = tmp_path_factory.mktemp("site")
    with make_site(folder, f"sqlite:{folder}/views.db").serving() as client:
        yield schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")


@pytest.mark.parametrize("examples", [5, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        *((*route, GenerationMode.POSITIVE) for route in ROUTES),
        *((*route, GenerationMode.NEGATIVE) for route in ROUTES if "{" in route[1]),  # Others have no parameters.
    ],
)
def test_no_request_makes_the_service_fail(
    described: Any, method: str, path: str, mode: GenerationMode, examples: int
) -> None:
    operation = described[path][method]

    # Few examples are the same every time.
    @settings(
        max_examples=examples, derandomize=examples < 40, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if "name" in (case.path_parameters or {}) and mode is GenerationMode.POSITIVE:
            case.path_parameters["name"] = {"views": "sales", "topics": "loose"}[path.split("/")[1]]
        if "wait" in (case.query or {}):
            case.query["wait"] = "0"
        answer = case.call(timeout=LIMIT_SECONDS)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        assert answer.status_code == 200 or answer.json()["error"]["message"]

    ask()


def test_the_description_names_every_route(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in paths.items() for method in methods} == {*ROUTES}
    page = client.get("/docs").text
    assert all(path in page for path in paths)
    assert "<script" not in page


def test_metrics_tell_requests_by_route_and_views_by_name(client: httpx.Client) -> None:
    client.get("/views/sales", params={"where": "url=hush-hush"})
    client.get("/views/nope")
    client.get("/what/ever")
    client.post("/topics/loose", json={"n": 1}, headers={"Idempotency-Key": "k"})
    client.post("/topics/loose", json={"n": 1}, headers={"Idempotency-Key": "k"})
    text = client.get("/metrics").text
    for line in (
        'penstock_http_requests_total{method="GET",route="/views/{name}",status="200"} 1.0',
        'penstock_http_requests_total{method="GET",route="/views/{name}",status="404"} 1.0',
        'penstock_http_requests_total{method="GET",route="other",status="404"} 1.0',
        'penstock_events_posted_total{topic="loose"} 1.0',
        'penstock_events_duplicate_total{topic="loose"} 1.0',
        'penstock_view_rows{pipeline="web",view="sales"} 8.0',
        'penstock_view_behind{pipeline="web",view="sales"} 2.0',
    ):
        assert line in text
    assert "hush-hush" not in text
