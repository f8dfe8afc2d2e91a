"""What all tests share: threads that fit a small machine, chosen before any library counts the cores, and how a run
ends whose process died: what has not run then is not taken for passed.
"""

import gc
import os
from pathlib import Path

import pytest

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

_CUT_SHORT = 3

FIRST = (
    "e2e/test_swarm.py", "sim/test_seeds.py", "chaos/test_chaos.py", "diloco/worker/test_group.py",
    "diloco/member/test_audits.py", "rl/orchestration/test_trainer.py", "shardcast/http/test_faults.py",
    "rl/engine/test_client.py", "rl/orchestration/test_properties.py", "rl/environments/test_hosting.py",
    "diloco/member/test_aggregation.py", "diloco/member/test_restarts.py", "e2e/test_coordinator.py",
    "diloco/test_golden.py", "protocol/directory/test_client.py", "diloco/member/test_member.py",
    "diloco/member/test_refusals.py", "diloco/member/test_outer.py", "diloco/member/test_deaths.py",
    "e2e/test_dashboard.py", "e2e/test_bad_starts.py",
)  # fmt: skip
"""Files that take long, in the order in which two processes begin them: neither has a long one left at the end, and one
of them runs swarms of daemons while the other one computes."""

_DIED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; else the order stays."""
    place = {Path(__file__).parent / name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """One of the processes that run the tests ended; of itself, if there is an error."""
    if error:
        node.config.stash[_DIED] = True  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell a run that was cut short from one in which tests failed."""
    if session.config.stash.get(_DIED, False):
        session.exitstatus = _CUT_SHORT


@pytest.fixture
def own_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log of one test alone: what others left to the collector has been said before it begins."""
    gc.collect()
    caplog.clear()
    return caplog
