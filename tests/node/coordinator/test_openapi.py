"""The API keeps to its own OpenAPI document whatever it is asked: schemathesis, with a bounded number of examples."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.node.coordinator.sample import history
from tests.node.coordinator.site import TOKEN, Site, site


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("openapi")
    with site(f"sqlite:///{folder / 'c.sqlite'}", folder) as found:
        found.learn(history(3))
        yield found


@pytest.fixture(scope="module")
def document(here: Site) -> Any:
    found = schemathesis.openapi.from_url(f"{here.url}/api/v1/openapi.json")
    return found.exclude(path="/api/v1/deltas")  # it has no end


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_api_survives_what_its_document_allows_and_what_it_does_not(
    document: Any, mode: GenerationMode
) -> None:
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) > 10
    for operation in operations:
        try:
            strategy = operation.as_strategy(generation_mode=mode)
        except Unsatisfiable:
            continue

        @given(case=strategy)
        @settings(
            max_examples=5, deadline=None, derandomize=True, database=None, phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def ask(case: Any) -> None:
            known = [positive_data_acceptance] if case.method == "POST" else []  # a peer id has a check sum
            headers = {"Authorization": f"Bearer {TOKEN}"}
            case.call_and_validate(headers=headers, timeout=30, excluded_checks=known)

        try:
            ask()
        except Unsatisfiable:
            continue  # nothing that is wrong can be said to it


def test_the_document_names_every_route(here: Site) -> None:
    found = httpx.get(f"{here.url}/api/v1/openapi.json").json()
    paths = set(found["paths"])
    assert {"/api/v1/snapshot", "/api/v1/deltas", "/api/v1/actions", "/api/v1/credits/export.{form}"} <= paths
    assert all(path.startswith("/api/v1/") for path in paths)
