"""pytest fixtures for tests in memory.

A test suite names this module in its ``conftest.py``::

    pytest_plugins = ["protocol.testing.fixtures"]

A test that takes ``swarm`` is a coroutine marked with :func:`virtual`, and runs on the swarm's clock::

    @virtual
    async def test_an_answer_comes(swarm: Swarm) -> None:
        alice, bob = swarm.nodes(2)
        ...
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from protocol.testing.swarm import Swarm


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an asynchronous test on the clock of the swarm that it takes as an argument."""
    if "swarm" not in inspect.signature(test).parameters:
        raise TypeError(f"{test.__qualname__} is virtual but takes no swarm")

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        swarm: Swarm = kwargs["swarm"]
        swarm.run(test(*args, **kwargs))

    return run


@pytest.fixture
def swarm_seed(request: pytest.FixtureRequest) -> int:
    """The seed of ``swarm``: 0, or what the test is parametrized with (``indirect``)."""
    return int(getattr(request, "param", 0))


@pytest.fixture
def swarm(swarm_seed: int) -> Iterator[Swarm]:
    """A swarm that signs with a keyed hash; everything in it ends with the test."""
    with Swarm(seed=swarm_seed, keyed=True) as made:
        yield made


@pytest.fixture
def signed_swarm(swarm_seed: int) -> Iterator[Swarm]:
    """The same with Ed25519, for code that verifies signatures without the endpoint's verifier."""
    with Swarm(seed=swarm_seed) as made:
        yield made
