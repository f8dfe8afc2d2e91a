"""What all tests share: threads that fit a small machine, chosen before any library counts the cores, and how a run
ends whose process died: what has not run then is not taken for passed.
"""

import gc
import os

import pytest

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

_CUT_SHORT = 3
_DIED = pytest.StashKey[bool]()


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
