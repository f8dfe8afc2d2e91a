"""Webhooks: each alert is told to the operator's addresses once when it begins, signed, and again until it is taken."""

import asyncio
import hashlib
import hmac
import json
import random
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp

from node.coordinator.alerts import Alert, alerts
from node.coordinator.service import Service
from protocol.errors import Code, NodeError

FILE = "webhooks.json"
SIGNATURE = "X-Intellect-Signature"
"""``t=UNIX SECONDS,v1=HEX``: HMAC-SHA256 over the time, a point and the body, under the webhook's secret."""

IDENTITY = "X-Intellect-Id"
"""The same at each try of one delivery."""

MAX_HOOKS = 16
_LOOK = 1.0  # seconds between looks at the alerts
_TRIES = 12
_FIRST_AGAIN = 2.0  # seconds until the second try; each further one waits twice as long, an hour at most
_MOST_AGAIN = 3600.0
_TIMEOUT = timedelta(seconds=10)
_WAITING = 1000  # deliveries that wait at most; then the oldest is given up
_TOLD = 4096


@dataclass(frozen=True)
class Hook:
    """One address.

    Attributes:
        url: Where to; https, or http for this machine and private networks at the operator's risk.
        secret: What signatures are made with.
        alerts: Names of alerts that it wants; empty for all.
    """

    url: str
    secret: str
    alerts: tuple[str, ...] = ()


def load_hooks(path: Path) -> tuple[Hook, ...]:
    """Webhooks from a file: a JSON array of objects with ``url``, ``secret`` and, if wanted, ``alerts``.

    Raises:
        NodeError: ``CFG_BAD_VALUE``: it is something else.
    """
    try:
        content = json.loads(path.read_bytes())
        hooks = tuple(Hook(**{**each, "alerts": tuple(each.get("alerts", ()))}) for each in content)
        right = all(
            re.fullmatch(r"https?://[!-~]{1,500}", hook.url) and len(hook.secret) >= 16 for hook in hooks
        )
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, AttributeError):
        right, hooks = False, ()
    if not right or len(hooks) > MAX_HOOKS:
        raise NodeError(
            Code.CFG_BAD_VALUE, f"{path} is no list of webhooks.",
            fix='Write [{"url": "https://…", "secret": "at least 16 characters"}].',
        )  # fmt: skip
    return hooks


def sign(secret: str, at: int, body: bytes) -> str:
    """The signature header of a body."""
    made = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={made}"


@dataclass(frozen=True)
class _Delivery:
    hook: Hook
    body: bytes
    identity: str


class Webhooks:
    """Tells alerts of a service to addresses. ``run`` it in the service's loop.

    Args:
        service: Whose alerts.
        hooks: To whom.
        failed: Told of a delivery that was given up.
        first_again: Seconds until a delivery is tried a second time.
    """

    def __init__(
        self,
        service: Service,
        hooks: tuple[Hook, ...],
        failed: Callable[[str, str], None] = lambda url, why: None,
        first_again: float = _FIRST_AGAIN,
    ) -> None:
        self._service, self._hooks, self._failed, self._first_again = service, hooks, failed, first_again
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Look and tell until cancelled."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT.total_seconds())
        async with aiohttp.ClientSession(timeout=timeout) as session:
            try:
                while True:
                    self.look(session)
                    await asyncio.sleep(_LOOK)
            finally:
                for task in self._under_way:
                    task.cancel()
                await asyncio.gather(*self._under_way, return_exceptions=True)

    def look(self, session: aiohttp.ClientSession) -> None:
        """Begin to tell the alerts that hold now and were not told since they began."""
        now = self._service.clock()
        firing = {
            (each.name, each.about): each for each in alerts(self._service.view, now, self._service.trouble)
        }
        for key in [key for key in self._told if key not in firing]:
            del self._told[key]
        for key, alert in firing.items():
            if key in self._told or len(self._told) >= _TOLD:
                continue
            self._told[key] = None
            for hook in self._hooks:
                if not hook.alerts or alert.name in hook.alerts:
                    self._begin(session, self._delivery(hook, alert, now))

    def _delivery(self, hook: Hook, alert: Alert, now: float) -> _Delivery:
        identity = secrets.token_hex(16)
        run = self._service.view.run
        content = {"id": identity, "at": now, "run": run.id, "run_name": run.name, "alert": asdict(alert)}
        return _Delivery(hook, json.dumps(content).encode(), identity)

    def _begin(self, session: aiohttp.ClientSession, delivery: _Delivery) -> None:
        if len(self._under_way) >= _WAITING:
            self._failed(delivery.hook.url, "too many deliveries wait")
            return
        task = asyncio.ensure_future(self._deliver(session, delivery))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _deliver(self, session: aiohttp.ClientSession, delivery: _Delivery) -> None:
        """Try until it is taken, or too often."""
        why = ""
        for tried in range(_TRIES):
            if tried:
                wait = min(_MOST_AGAIN, self._first_again * 2 ** (tried - 1))
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            try:
                signature = sign(delivery.hook.secret, int(self._service.clock()), delivery.body)
                headers = {
                    "Content-Type": "application/json",
                    SIGNATURE: signature,
                    "X-Intellect-Id": delivery.identity,
                }
                async with session.post(
                    delivery.hook.url, data=delivery.body, headers=headers, allow_redirects=False
                ) as answer:
                    if 200 <= answer.status < 300:
                        return
                    why = f"it answered {answer.status}"
                    if 400 <= answer.status < 500 and answer.status not in (408, 425, 429):
                        break  # it will not take it later either
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                why = f"{type(error).__name__}"
        self._failed(delivery.hook.url, why)
