"""The life of a simulated process: started, killed, stopped, and what it does later if it still runs then."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from diloco.member.promising import Promising
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Contribution, Effect, Event, Persist
from diloco.rounds.state import State
from diloco.rounds.values import Lease
from protocol.envelope import Sealed
from tests.sim.disk import Crash, Disk, Habits, Share

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.reducing import Reducing
    from tests.sim.world import World


class Running:
    """A process that runs, or does not.

    Args:
        world: Where it runs.
        name: Its peer id.
        seated: Whether its admission has a seat.
        chain: What is on its disk.
    """

    def __init__(self, world: "World", name: str, seated: bool, chain: list[Certified]) -> None:
        self.world, self.name, self.seated = world, name, seated
        self.disk = Disk(list(chain), chain[0].value.base)
        self.disk.reach(0, self.disk.base)
        self.habits = Habits()
        self.state: State | None = None
        self.alive = self.paused = self.refuses = False
        self.silent = False
        self.life = 0
        self.sent = 0
        self.sending_until = 0.0
        self.busy_until = 0.0
        self.unfinished: list[Effect] = []
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.said: dict[type[Any], Sealed[Any]] = {}
        self.told: dict[str, dict[type[Any], tuple[float, float]]] = {}
        self.places: dict[str, tuple[int, int, int] | None] = {}
        self.promising = Promising(self._save, self._say, lambda error: None)
        self.known: dict[str, float] = {}
        self.dead: set[str] = set()
        self.share: Share | None = None
        self.gives: tuple[int, Contribution] | None = None
        self.reducing: Reducing | None = None
        self.draining = self.left = False
        self.drain_until = 0.0
        self.crash: Crash | None = None
        self.disturbed = float("-inf")
        self._asked = self._looked = -1.0
        self.started = 0
        self.trained: tuple[Lease, int] | None = None
        self._answered: dict[str, float] = {}
        self._repeat_at = 0.0
        self._inbox: list[Event] = []
        self._working = False
        self._applying = False

    # ---- life

    def boot_up(self, boot: bytes = b"") -> None:
        """Start: find chain and state, then take part."""
        self.boot = boot or self.world.random.randbytes(16)
        self.alive, self.paused, self.refuses = True, False, False
        self.life += 1
        self.state, self.share, self.gives, self.reducing = None, None, None, None
        self.said, self.known, self.dead, self.backlog = {}, {}, set(), []
        self.trained = None
        self.promising = Promising(self._save, self._say, lambda error: None)
        self.unfinished = []
        self.told, self.places = {}, {}
        self._answered, self._inbox, self._working, self._applying = {}, [], False, False
        self.draining = False
        self.busy_until = self.sending_until = self.world.now
        self.later(0.01 + 0.05 * self.world.random.random(), self._begin)

    def kill(self, *, refuses: bool = True) -> None:
        """As ``kill -9``; with ``refuses`` its port refuses connections from then on, else its machine is silent."""
        self.alive, self.refuses = False, refuses
        self.life += 1
        self.state, self.reducing = None, None
        self.disturbed = self.world.now
        self.world.troubled = True

    def wipe(self) -> None:
        """Lose everything on disk."""
        self.world.wiped = True
        self.disk = Disk([self.world.start], self.world.start.value.base, forgot=True)
        self.disk.reach(0, self.disk.base)

    def pause(self) -> None:
        """As ``kill -STOP``."""
        self.paused = self.world.troubled = True
        self.disturbed = self.world.now

    def resume(self) -> None:
        """As ``kill -CONT``: what came meanwhile is there at once."""
        if not self.paused:
            return
        self.paused = False
        self.disturbed = self.world.now
        unfinished, self.unfinished = self.unfinished, []
        for effect in unfinished:
            self._go_on(self.life, effect)
        backlog, self.backlog = self.backlog, []
        for action, args in backlog:
            self.later(0.0, action, *args)

    def later(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        """Let this process do something, if it still runs then."""
        self.world.at(self.world.now + delay, self._fire, self.life, action, args)

    def _fire(self, life: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.life != life or not self.alive:
            return
        if self.paused:
            self.backlog.append((action, args))
        elif self.busy_until > self.world.now:
            self.world.at(self.busy_until, self._fire, life, action, args)
        else:
            action(*args)

    def _go_on(self, life: int, effect: Effect) -> None:
        """Carry out an effect that had to wait for the disk."""
        if self.life == life and self.alive:
            if self.paused:
                self.unfinished.append(effect)
            else:
                self._carry_out(effect)

    @property
    def clock(self) -> float:
        """Its monotonic clock."""
        return self.world.now * self.habits.rate + self.habits.offset

    @property
    def tip(self) -> Certified:
        """The last certified value on its disk."""
        return self.disk.chain[-1]

    def _near(self) -> "Iterator[Process]":
        """Processes in reach."""
        return (p for p in self.world.processes if p is not self and self.world.linked(self, p))

    # ---- what the rest of it does

    def feed(self, event: Event) -> None:
        """Give the machine an event, and carry out what it asks for."""
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _save(self, promise: Persist) -> None:
        raise NotImplementedError

    def _say(self, body: Any) -> None:
        raise NotImplementedError

    def _carry_out(self, effect: Effect) -> None:
        raise NotImplementedError
