"""The coordinator of 256 members: a day replayed, admissions, the API with 10 viewers, processor time.

Rounds of five minutes, as over the internet: a day is 288 of them, and each member tells ten events in each. The day is
made of rounds as tests have them. The server is the real one, in this process; 10 clients in another hold the stream of
changes while the day's last rounds are learned at 100 times their pace. 10,000 rounds of history are in its database.
"""

import json
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO

from diloco.member.admission import seats
from diloco.member.setting import rules_of
from node.coordinator import tables
from node.coordinator.facts import Decided
from node.coordinator.fold import replay
from node.coordinator.reading import point
from node.coordinator.view_json import encoded
from node.roles.coordinator import Coordinator
from protocol.identity import Identity
from tests.bench.measurement import Measurement
from tests.diloco.member.fleet import OPERATOR, tiny_genesis
from tests.node.coordinator.sample import history, one_round
from tests.node.coordinator.site import Site, site

MEMBERS = 256
ROUNDS = 288
HISTORY = 10_000
VIEWERS = 10
ASKED = 120
ADMITTED = 500
_DAY = 86_400.0


def run() -> Measurement:
    """Measure; takes about three minutes."""
    figures = {"admissions_per_minute": admissions(), **replayed()}
    with tempfile.TemporaryDirectory() as folder:
        figures |= served(Path(folder))
    return Measurement(figures=figures)


def replayed() -> dict[str, float]:
    """How much faster than it happened a day is folded."""
    facts = history(24, MEMBERS)
    began = time.perf_counter()
    replay(facts)
    seconds = time.perf_counter() - began
    day = seconds * ROUNDS / 24
    return {"facts_per_s": len(facts) / seconds, "replay_of_a_day_times_faster": _DAY / day}


def admissions() -> float:
    """Admissions by invitation a minute, each signed and each kept on disk."""
    genesis = tiny_genesis()
    sections = genesis.sections.model_copy(
        update={"admission": genesis.sections.admission.model_copy(update={"policy": "invite"})}
    )
    genesis = genesis.model_copy(update={"sections": sections})
    rules = rules_of(genesis, seats(genesis.run_id, genesis.operator))
    network = SimpleNamespace(banned=frozenset(), members={}, newcomers={}, me=OPERATOR.peer_id, roles=())
    with tempfile.TemporaryDirectory() as folder:
        office = Coordinator(
            OPERATOR, genesis, rules, network, lambda: None, lambda kind, **fields: None, time.time,  # type: ignore[arg-type]
            Path(folder) / "invited.json",
        )  # fmt: skip
        _, token = office.tokens.make(time.time(), uses=ADMITTED, seconds=3600)
        peers = [Identity.ephemeral(secrets.token_bytes(32)).peer_id for _ in range(ADMITTED)]
        began = time.perf_counter()
        for peer in peers:
            office.admit(peer, ("trainer",), b"", token)
        return 60 * ADMITTED / (time.perf_counter() - began)


def served(folder: Path) -> dict[str, float]:
    """What the API takes with a long history, viewers, and changes that come."""
    with site(f"sqlite:///{folder / 'c.sqlite'}", folder) as here:
        here.learn(history(3, MEMBERS))
        fill(here)
        stop = threading.Event()
        feeding = threading.Thread(target=feed, args=(here, stop), daemon=True)
        with viewing(here, VIEWERS, 0), viewing(here, 0, ASKED) as client:
            before, began = processor(), time.perf_counter()
            feeding.start()
            times: dict[str, list[float]] = json.loads(client.readline())
            spent, lasted = processor() - before, time.perf_counter() - began
        stop.set()
        feeding.join()
    slowest = max(statistics.quantiles(each, n=100)[98] for each in times.values())
    return {
        "api_p99_ms": 1000 * slowest, "snapshot_median_ms": 1000 * statistics.median(times["snapshot"]),
        "process_cores_while_asked_without_pause": spent / lasted,
    } | quiet(folder)  # fmt: skip


def quiet(folder: Path) -> dict[str, float]:
    """The share of a core with 10 viewers, while a round of five minutes is learned in 30 s."""
    with site(f"sqlite:///{folder / 'c.sqlite'}", folder) as here, viewing(here, VIEWERS, 0):
        facts = list(one_round(HISTORY + 500, MEMBERS))
        before, began = processor(), time.perf_counter()
        for place in range(60):
            for fact in facts[place * len(facts) // 60 : (place + 1) * len(facts) // 60]:
                here.service.take(fact)
            time.sleep(0.5)
        spent, lasted = processor() - before, time.perf_counter() - began
    return {"percent_of_a_core_at_10_times_the_pace": 100 * spent / lasted}


@contextmanager
def viewing(here: Site, viewers: int, asked: int) -> Iterator[IO[str]]:
    """Clients in a process of their own, all of them there; its standard output."""
    words = [sys.executable, "-m", "tests.bench.viewing", here.url, str(viewers), str(asked)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
        assert clients.stdin is not None and clients.stdout is not None
        assert clients.stdout.readline() == "ready\n"
        yield clients.stdout
        clients.stdin.close()


def fill(here: Site) -> None:
    """10,000 rounds of history in the database; of each body only the number differs, so it is encoded once."""
    made = replace(replay(history(2, MEMBERS)).rounds["1"], round=-1)
    body, values = encoded(made).decode(), asdict(point(made))
    with here.service.store._engine.begin() as connection:
        for table in (tables.rounds, tables.time_lines):
            connection.execute(table.delete())
        for number in range(HISTORY):
            text = body.replace('"round":-1', f'"round":{number}', 1)
            connection.execute(tables.rounds.insert(), {**values, "round": number})
            connection.execute(tables.time_lines.insert(), {"round": number, "body": text})


def feed(here: Site, stop: threading.Event) -> None:
    """Rounds of five minutes, learned in three seconds each."""
    number = 3
    while not stop.is_set():
        facts = list(one_round(number, MEMBERS))
        for place in range(30):
            for fact in facts[place * len(facts) // 30 : (place + 1) * len(facts) // 30]:
                here.service.take(fact)
            if stop.wait(0.1):
                return
        assert isinstance(facts[-2 * MEMBERS - 1], Decided)
        number += 1


def processor() -> float:
    """Processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
