"""Virtual time, links with latency and bandwidth, and the processes of a simulated run."""

import heapq
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from diloco.rounds import founding, routing
from diloco.rounds.certificate import Certified, certify
from diloco.rounds.delta import encode_delta
from diloco.rounds.proofs import Proofs
from diloco.rounds.records import Start
from diloco.rounds.statements import Vote
from diloco.rounds.values import Decided, Value, value_digest
from protocol.messages import encode
from tests.sim.disk import Crash
from tests.sim.operator import Coordinator, Operator
from tests.sim.process import Process
from tests.sim.setting import OPERATOR, RUN, Opened, Shape, keyed_verify, rules_of, says

if TYPE_CHECKING:
    from tests.sim.judge import Judge

_ENVELOPE = 150  # header and signature of a statement
_CIRCLES = 8  # for so many tips, who watches whom is kept

INITIAL = blake3(b"initial").digest()


class Links:
    """What happens to messages between two names.

    Attributes:
        blocked: Directed pairs of names between which nothing gets through.
        loss: Share of messages that are lost.
        duplication: Share that come twice.
        late: Share that come late.
        late_by: Most seconds that a late one is late.
        latency: Mean seconds of every message.
    """

    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.calm()

    def calm(self) -> None:
        """No faults."""
        self.blocked: set[tuple[str, str]] = set()
        self.cuts: list[set[tuple[str, str]]] = []
        self.loss = self.duplication = self.late = 0.0
        self.late_by = 2.0

    def cut(self, pairs: set[tuple[str, str]]) -> None:
        """Block pairs, on top of what is blocked."""
        self.cuts.append(pairs)
        self.blocked = set().union(*self.cuts)

    def mend(self, pairs: set[tuple[str, str]]) -> None:
        """Take one ``cut`` back."""
        if pairs in self.cuts:
            self.cuts.remove(pairs)
        self.blocked = set().union(*self.cuts)


class World:
    """A simulated run.

    Args:
        shape: Its size.
        seed: Of everything random in it.
        judge: Sees every event; None for nobody.
    """

    def __init__(self, shape: Shape, seed: int = 0, judge: "Judge | None" = None) -> None:
        self.shape, self.judge = shape, judge
        self.random = random.Random(seed)
        self.opened = Opened()
        self.rules = rules_of(shape, self.opened)
        self.open_vote = self.opened.open(Vote)
        self.links = Links(shape.latency)
        self.now = 0.0
        self.events = 0
        self.bytes_said: dict[str, int] = {}
        self.statements = 0
        self.troubled = self.wiped = False
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._counter = 0
        self.processes: list[Process] = []
        self.named: dict[str, list[Process]] = {}
        self.newest = (0, -1)
        self._sizes: dict[tuple[bytes, bool], int] = {}
        self._values: dict[bytes, Value] = {}
        self._spreads: dict[bytes, routing.Spread] = {}
        self._circles: dict[tuple[bytes, int], dict[str, set[str]]] = {}
        self._verified: dict[tuple[bytes, int, tuple[bytes, ...]], Certified] = {}
        self.repeat_after = max(2.0, shape.timing.attempt.total_seconds() / 8)
        self.proofs = Proofs(RUN, OPERATOR, INITIAL, keyed_verify)
        self.operator = Operator(self)
        self.delegates = (Operator(self, 1), Operator(self, 2))
        self.coordinators = [Coordinator(self, f"v{i:02}", i + 1) for i in range(shape.coordinators)]
        seated = {f"v{i:02}": True for i in range(shape.voters)}
        loose = {f"w{i:03}": False for i in range(shape.others)}
        boots = {name: self.random.randbytes(16) for name in seated}
        start = founding.make_start(self.rules, INITIAL, seated | loose, boots, b"\7" * 32)
        data = encode(start)
        self.start = Certified(start, data, value_digest(data), start=says(OPERATOR, Start(value=data)).raw)
        if judge is not None:
            judge.began(self)
        for name, seat in (seated | loose).items():
            self.add(name, seat, boot=boots.get(name, b""))

    def add(self, name: str, seated: bool, *, boot: bytes = b"") -> Process:
        """A process of a member; one that is not of the start record finds the chain by itself."""
        process = Process(self, name, seated, [self.start])
        self.processes.append(process)
        self.named.setdefault(name, []).append(process)
        process.boot_up(boot)
        return process

    def living(self) -> list[Process]:
        """Processes that run, stopped ones too."""
        return [process for process in self.processes if process.alive]

    def process(self, name: str) -> Process:
        """The first process of a name."""
        return self.named[name][0]

    # ---- who tells whom

    def tick_of(self, process: Process) -> float:
        """Seconds between two ticks of a process."""
        return self.shape.tick if process.seated else self.shape.slow_tick

    def size_of(self, certified: Certified, *, as_delta: bool) -> int:
        """Encoded bytes of a decided value, as it travels to one who has, or has not, the value before."""
        key = (certified.digest, as_delta)
        size = self._sizes.get(key)
        if size is None:
            before = self._values.get(certified.value.previous)
            body = certified.data
            if as_delta and before is not None and not certified.start:
                body = min(body, encode_delta(self.rules, before, certified.value), key=len)
            message = Decided(value=body, attempt=certified.attempt, votes=certified.votes)
            size = self._sizes[key] = len(encode(message)) + _ENVELOPE
        return size

    def verified(self, tip: Certified, shown: Certified) -> Certified:
        """The certificate that a process was shown, verified after ``tip``. The same one is not verified twice.

        Raises:
            NodeError: As ``certify``.
        """
        key = (shown.digest, shown.attempt, shown.votes)
        known = self._verified.get(key)
        if known is None or known.value.previous != tip.digest:
            votes = [self.open_vote(raw) for raw in shown.votes]
            known = certify(tip.value, tip.digest, shown.data, shown.attempt, votes)
            self._verified[key] = known
        return known

    def spread_of(self, before: Certified, certified: Certified) -> routing.Spread:
        """The tree of a decided value."""
        self._values[before.digest] = before.value
        self._values[certified.digest] = certified.value
        spread = self._spreads.get(certified.digest)
        if spread is None:
            spread = routing.Spread(before.value, certified.value, certified.digest)
            self._spreads[certified.digest] = spread
        return spread

    def circle_of(self, tip: Certified, name: str) -> frozenset[str]:
        """With whom a member exchanges signs of life: whom it watches, and who watches it."""
        key = (tip.digest, len(self.named))
        circles = self._circles.get(key)
        if circles is None:
            watched = {peer: routing.watchers(tip.value, peer) for peer in self.named}
            circles = {peer: set(watched[peer]) for peer in self.named}
            for peer, watchers in watched.items():
                for watcher in watchers:
                    circles.setdefault(watcher, set()).add(peer)
            if len(self._circles) >= _CIRCLES:
                self._circles.clear()
            self._circles[key] = circles
        return frozenset(circles[name])

    # ---- time

    def at(self, when: float, action: Callable[..., None], *args: Any) -> None:
        """Do something at a time."""
        self._counter += 1
        heapq.heappush(self._queue, (when, self._counter, action, args))

    def run(self, until: float, when: Callable[[], bool] | None = None) -> bool:
        """Let time pass up to ``until``, or until ``when``; whether the latter came."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, action, args = heapq.heappop(queue)
            action(*args)
            if when is not None and when():
                return True
        self.now = max(self.now, until)
        return False

    # ---- links

    def linked(self, one: Process, other: Process) -> bool:
        """Whether two processes run and reach each other, both ways."""
        if not (other.alive and one.alive) or other.paused or one.paused:
            return False
        blocked = self.links.blocked
        return not blocked or (
            (one.name, other.name) not in blocked and (other.name, one.name) not in blocked
        )

    def hears(self, one: Process, name: str) -> bool:
        """Whether heartbeats of a name reach a process."""
        if (name, one.name) in self.links.blocked:
            return False
        return any(p.alive and not p.paused and p.state is not None for p in self.named[name])

    def reached_by_anyone_from(self, process: Process) -> set[str]:
        """Names of the processes whose directory record comes to one: over whichever others there are between."""
        found, fresh = [process], [process]
        while fresh:
            here = fresh.pop()
            new = [p for p in self.living() if p not in found and self.linked(here, p)]
            found += new
            fresh += new
        return {p.name for p in found}

    def send(self, sender: Process, to: Process, size: int, action: Callable[..., None], *args: Any) -> None:
        """Carry a message: ``size`` bytes over the sender's link, then the latency of the way."""
        links, random = self.links, self.random.random
        self.statements += 1
        sender.sent += size
        begin = max(self.now, sender.sending_until)
        sender.sending_until = begin = begin + size / self.shape.bandwidth
        if links.blocked and (sender.name, to.name) in links.blocked:
            return
        if links.loss and random() < links.loss:
            return
        arrives = begin + links.latency * (0.5 + random())
        if links.late and random() < links.late:
            arrives += links.late_by * random()
        to.later(arrives - self.now, action, *args)
        if links.duplication and random() < links.duplication:
            to.later(arrives - self.now + links.latency * random(), action, *args)

    def crashed(self, process: Process, crash: Crash) -> None:
        """A process comes to where it was to die."""
        process.kill()
        if crash.down is not None:
            self.at(self.now + crash.down, self._revive, process, process.life)

    def _revive(self, process: Process, life: int) -> None:
        if not process.alive and process.life == life and not process.left:
            process.boot_up()

    def hopeless(self) -> bool:
        """Whether those that are up can decide no round: too many of the electorate are gone or lost their record."""
        up = [p for p in self.living() if p.state is not None]
        if not up:
            return False
        first = max(up, key=lambda p: (p.state.epoch, p.state.round) if p.state else (0, 0))
        assert first.state is not None
        return not first.state.is_quorum({p.name for p in up if p.state is not None and not p.state.abstains})

    def mend(self) -> None:
        """All faults end: links are whole, disks have room, clones are off, who is down or stopped goes on."""
        self.links.calm()
        for process in self.processes:
            if process is not self.named[process.name][0]:
                process.kill()
                process.left = True
        for process in self.processes:
            process.crash = None
            process.disk.slow, process.disk.full = 0.0, False
            process.habits.pace = 1.0
            if not process.alive and not process.left:
                process.boot_up()
            process.resume()
