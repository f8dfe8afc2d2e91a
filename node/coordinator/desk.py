"""A coordinator's desk on a node: store, service, actions, web server and collecting, started and stopped together."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from diloco.genesis import Genesis
from diloco.member.setting import Emit
from diloco.store.ledger import Ledger
from node.coordinator.actions import Actions, CarryOut, Listed, load_token
from node.coordinator.api.app import make_app
from node.coordinator.collecting import Collecting
from node.coordinator.database import database_url
from node.coordinator.pages.all import mounted
from node.coordinator.service import Service
from node.coordinator.store import Store
from node.coordinator.web import Web
from node.coordinator.webhooks import FILE, Webhooks, load_hooks
from node.network import Network
from node.reporting import Reporting
from node.roles.wish import Done, Wish
from protocol.errors import Code, NodeError
from protocol.units import Address

FOLDER = "coordinator"


@dataclass(frozen=True)
class DeskOptions:
    """What the command line says of it.

    Attributes:
        listen: Where the web server listens.
        database: The database's URL; empty for a SQLite file in the data directory.
        public: Whether reading needs no token.
    """

    listen: Address
    database: str = ""
    public: bool = True


def parse_listen(text: str, option: str = "--dashboard") -> Address:
    """An address of the command line, such as ``127.0.0.1:8080`` or ``:8080``.

    Raises:
        NodeError: ``CFG_USAGE``.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise NodeError(
            Code.CFG_USAGE, f"{option} {text[:80]!r} is not an address.", fix=f"Write {option} 127.0.0.1:8080."
        )  # fmt: skip
    return Address(host.strip("[]") or "127.0.0.1", int(port))


class Desk:
    """Everything of a coordinator but the key and the way to members.

    Args:
        options: Where and on what.
        folder: The node's data directory.
        emit: The event log.
        carry_out: Does what the operator wishes, in this node's loop; None where the key is elsewhere.
        listed: Gives invitations and orders that wait.

    Raises:
        NodeError: ``CFG_USAGE``: it is not to be public, and there is no operator's token here.
    """

    def __init__(
        self,
        options: DeskOptions,
        folder: Path,
        emit: Emit,
        carry_out: Callable[[Wish], Done] | None,
        listed: Listed,
    ) -> None:
        if carry_out is None and not options.public:
            raise NodeError(
                Code.CFG_USAGE, "The dashboard can be private only on the node with the operator's key.",
                fix="Leave out --private, or serve the dashboard there.",
            )  # fmt: skip
        self._emit = emit
        home = folder / FOLDER
        home.mkdir(mode=0o700, exist_ok=True)
        self.service = Service(Store(database_url(options.database, home)), home)
        self.actions: Actions | None = None
        if carry_out is not None:
            self.actions = Actions(
                self.service, load_token(home), across(asyncio.get_running_loop(), carry_out), listed
            )
        self._webhooks = Webhooks(self.service, load_hooks(home / FILE), self._not_told)
        app = make_app(
            self.service, self.actions, public=options.public, beside=(self._webhooks.run,),
            more=mounted(self.service, self.actions, public=options.public),
        )  # fmt: skip
        self._web = Web(app, options.listen)
        self._collecting: asyncio.Task[None] | None = None

    def _not_told(self, url: str, why: str) -> None:
        """A webhook did not take an alert; its address may hold secrets, so only its host is written."""
        self._emit("webhook.failed", host=urlsplit(url).hostname or "", reason=why)

    async def open(self) -> str:
        """Read what is stored, begin to serve; the address to open in a browser.

        Raises:
            NodeError: ``NET_PORT_IN_USE``, ``STO_SCHEMA``.
        """
        await asyncio.to_thread(self.service.begin)
        address = self._web.start()
        host = f"[{address.host}]" if ":" in address.host else address.host
        url = f"http://{host}:{address.port}"
        self._emit("dashboard.ready", url=url, database=self.service.trouble or "ready")
        return url

    def collect(
        self, genesis: Genesis, network: Network, ledger: Callable[[], Ledger | None], reporting: Reporting
    ) -> None:
        """Begin to collect."""

        def failed(error: BaseException) -> None:
            self._emit("task.failed", task="coordinator", reason=f"{type(error).__name__}: {error}")

        collecting = Collecting(genesis, network, ledger, reporting, self.service, failed)
        self._collecting = asyncio.ensure_future(collecting.run())

    async def close(self) -> None:
        """Stop serving; what waits is written first."""
        if self._collecting is not None:
            self._collecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._collecting
        self.service.release()
        await asyncio.to_thread(self._web.stop)
        await asyncio.to_thread(self.service.end)


def across(loop: asyncio.AbstractEventLoop, carry_out: Callable[[Wish], Done]) -> CarryOut:
    """Does in one loop what is asked for in another."""

    async def there(wish: Wish) -> Done:
        async def here() -> Done:
            return carry_out(wish)

        waiting: Awaitable[Done] = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(here(), loop))
        return await waiting

    return there
