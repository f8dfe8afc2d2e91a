"""Messages that a test declares are forgotten after it."""

from collections.abc import Iterator

import pytest

from protocol.messages import REGISTRY


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with REGISTRY.isolated():
        yield
