"""The same suite on SQLite and on PostgreSQL."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from node.coordinator.store import Store
from tests.node.coordinator.databases import postgresql

_names = itertools.count()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'coordinator.sqlite'}"
    url: str = request.getfixturevalue("postgresql_server")
    name = f"test{next(_names)}"
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.replace("/postgres?", f"/{name}?")


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = Store(database)
    yield store
    store.close()
