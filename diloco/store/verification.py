"""Verifying a ledger file with nothing but the genesis: every column, every link, every signature.

Somebody else's file is believed as little as a peer: sizes are checked before a row is read, nothing is written.
A ledger that was cut at its end is an older ledger; only the promise beside it may give that away.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from diloco.rounds.certificate import Certified
from diloco.rounds.evidence import Proof
from diloco.rounds.proofs import Proofs
from diloco.rounds.statements import Close, Evidence
from diloco.rounds.values import Decided
from diloco.store.ledger import DAMAGED, SCHEMA_VERSION, connect, from_message, to_message
from protocol.envelope import unseal
from protocol.errors import Code, NodeError
from protocol.messages import decode, encode, spec_of

MOST_PROBLEMS = 100
"""Problems after which verifying stops: the file is no ledger any more."""

_COLUMNS = {
    "meta": "key,value",
    "decided": "epoch,round,digest,decided,reset",
    "evidence": "accused,kind,evidence",
    "promise": "one,epoch,round,promised,voted_attempt,voted_value,voted_close",
    "life": "one,started",
    "rival": "one,epoch,digest,decided",
}
_ROWS = (
    "SELECT epoch, round, digest, reset, CASE WHEN "
    f"length(decided) <= {int(spec_of(Decided).max_bytes)} THEN decided END FROM decided ORDER BY epoch, round"
)
_RIVAL = (
    "SELECT epoch, digest, CASE WHEN "
    f"length(decided) <= {int(spec_of(Decided).max_bytes)} THEN decided END FROM rival"
)
_EVIDENCE = (
    "SELECT accused, kind, CASE WHEN "
    f"length(evidence) <= {int(spec_of(Evidence).max_bytes)} THEN evidence END FROM evidence ORDER BY accused"
)
_PROMISE = "SELECT epoch, round, voted_attempt, voted_value, voted_close FROM promise"


@dataclass(frozen=True)
class Problem:
    """Something in a ledger that does not hold.

    Attributes:
        epoch: Epoch of the row, -1 where it is about the file.
        round: Its round.
        code: The error code.
        sentence: What is wrong.
    """

    epoch: int
    round: int
    code: Code
    sentence: str


@dataclass(frozen=True)
class Report:
    """What verifying a ledger found.

    Attributes:
        values: Certified values in it, start record and resets included.
        tip: The newest one that holds, None where none does.
        problems: What does not hold, in the order of the chain, at most ``MOST_PROBLEMS``.
    """

    values: int
    tip: Certified | None
    problems: tuple[Problem, ...]


def verify_ledger(path: Path, proofs: Proofs) -> Report:
    """Check a whole ledger; a node may be writing it.

    Args:
        path: The SQLite file.
        proofs: Verifies links of the run's chain.
    """
    reading = _Reading(proofs)
    try:
        with closing(connect(path)) as database:
            reading.read(database)
    except DAMAGED as error:
        reading.problems.append(Problem(-1, -1, Code.STO_CORRUPT, f"The file is damaged: {error}."))
    except _Enough:
        pass
    return Report(reading.values, reading.tip, tuple(reading.problems))


class _Enough(Exception):
    """So much is wrong that the rest says nothing more."""


class _Reading:
    def __init__(self, proofs: Proofs) -> None:
        self._proofs = proofs
        self.problems: list[Problem] = []
        self.values = 0
        self.tip: Certified | None = None
        self._unproved: Certified | None = None

    def note(self, epoch: int, number: int, code: Code, sentence: str) -> None:
        self.problems.append(Problem(epoch, number, code, sentence))
        if len(self.problems) >= MOST_PROBLEMS:
            raise _Enough

    def read(self, database: sqlite3.Connection) -> None:
        if not self._is_ledger(database):
            return
        before: Certified | None = None
        for row in database.execute(_ROWS):
            self.values += 1
            before = self._row(database, before, *row) or before
        self._end(b"")
        if not self.values:
            self.note(-1, -1, Code.RND_CHAIN, "The ledger holds no value, not even the start record.")
        for row in database.execute(_PROMISE):
            self._promise(before, *row)
        for row in database.execute(_EVIDENCE):
            self._evidence(*row)
        for row in database.execute(_RIVAL):
            self._rival(database, *row)

    def _is_ledger(self, database: sqlite3.Connection) -> bool:
        for (sentence,) in database.execute("PRAGMA integrity_check(10)"):
            if sentence != "ok":
                self.note(-1, -1, Code.STO_CORRUPT, f"The file is damaged: {sentence}.")
        for table, columns in _COLUMNS.items():
            found = ",".join(row[1] for row in database.execute(f"PRAGMA table_info({table})"))
            if found != columns:
                self.note(
                    -1, -1, Code.STO_CORRUPT, f"The table {table} has the columns {found or 'of no table'}."
                )
                return False
        meta = database.execute("SELECT key, value FROM meta").fetchmany(8)
        if meta != [("schema", str(SCHEMA_VERSION))]:
            self.note(
                -1, -1, Code.STO_SCHEMA, f"The file is of schema {meta}; this package reads {SCHEMA_VERSION}."
            )
        return True

    def _row(
        self,
        database: sqlite3.Connection,
        before: Certified | None,
        epoch: object,
        number: object,
        digest: object,
        reset: object,
        data: object,
    ) -> Certified | None:
        """Check one row; returns what it holds, right or wrong, so that the next is judged by itself."""
        if not isinstance(epoch, int) or not isinstance(number, int) or not isinstance(data, bytes):
            self.note(-1, -1, Code.STO_CORRUPT, f"The row of epoch {epoch}, round {number} is no value.")
            return None
        try:
            decided = decode(Decided, data)
            held = from_message(decided)
        except (NodeError, ValueError) as error:
            self.note(epoch, number, Code.STO_CORRUPT, f"The value cannot be read: {error}.")
            return None
        value = held.value
        begins = bool(held.start)
        if not begins and not held.votes and self._unproved is None:
            self._unproved = held  # only the reset that comes next can make it stand
            return None
        if (epoch, number, digest, reset) != (
            value.epoch,
            value.round,
            held.digest,
            int(begins and value.epoch > 0),
        ):
            self.note(epoch, number, Code.STO_CORRUPT, "The columns of the row are not those of its value.")
        try:
            unproved = self._unproved
            proved = self._proofs.follow(
                before,
                decided,
                lambda wanted: (
                    link
                    for link in _links(database, wanted, value.epoch)
                    if unproved is None or link.digest != unproved.digest
                ),
            )
            self._end(proved.last)
            if encode(to_message(proved)) != data:
                self.note(
                    epoch, number, Code.STO_CORRUPT, "The row holds more or other than what proves its value."
                )
        except NodeError as error:
            self.note(epoch, number, error.code, error.sentence)
            return held
        self.tip = proved
        return proved

    def _end(self, last: bytes) -> None:
        """What came without votes has to be what the reset after it goes on from."""
        held, self._unproved = self._unproved, None
        if held is not None and held.data != last:
            sentence = f"Round {held.value.round} has no votes, and no reset goes on from it."
            self.note(held.value.epoch, held.value.round, Code.RND_CERTIFICATE, sentence)

    def _rival(self, database: sqlite3.Connection, epoch: object, digest: object, data: object) -> None:
        """Check that the other side of a fork is one: another certificate or reset for a place of this chain."""
        try:
            if not isinstance(data, bytes):
                raise ValueError("it is not bytes")
            decided = decode(Decided, data)
            held = from_message(decided)
            value = held.value
            if (epoch, digest) != (value.epoch, held.digest):
                raise ValueError("the columns of the row are not its own")
            mine = _stored(database, value.epoch, value.round)
            if mine is None:
                return  # a reset has gone back behind the fork
            before = _before(database, value.epoch, value.round)
            if self._proofs.rival(before, mine, decided) is None:
                raise ValueError("it is the value of this chain")
        except (NodeError, ValueError) as error:
            self.note(-1, -1, Code.STO_CORRUPT, f"The other side of the fork does not hold: {error}.")

    def _evidence(self, accused: object, kind: object, data: object) -> None:
        """Check that evidence shows what it says, against whom it says."""
        try:
            if not isinstance(data, bytes):
                raise ValueError("it is not bytes")
            evidence = decode(Evidence, data)
            if (evidence.accused, evidence.kind) != (accused, kind) or encode(evidence) != data:
                raise ValueError("the columns of the row are not its own")
            self._proofs.evidence(evidence)
        except (NodeError, ValueError) as error:
            self.note(-1, -1, Code.STO_CORRUPT, f"Evidence against {accused} does not hold: {error}.")

    def _promise(
        self,
        tip: Certified | None,
        epoch: object,
        number: object,
        attempt: object,
        value: object,
        close: object,
    ) -> None:
        """Check the promise of this node: of a round that the chain knows, its vote one that was asked for."""
        if not isinstance(epoch, int) or not isinstance(number, int) or not isinstance(attempt, int):
            self.note(-1, -1, Code.STO_CORRUPT, "The row of the promise is no promise.")
            return
        if tip is None or (epoch, number) > (tip.value.epoch, tip.value.round + 1):
            self.note(epoch, number, Code.RND_CHAIN, "The promise is of a later round: values are missing.")
        if not attempt:
            return
        try:
            if not isinstance(value, bytes) or not isinstance(close, bytes):
                raise ValueError("it is not bytes")
            voted = from_message(Decided(value=value)).value
            if (voted.epoch, voted.round) != (epoch, number):
                raise ValueError("it is of another round")
            if close:  # one's own attempt needs none
                asked = unseal(close, run=self._proofs.run, expect=Close, verifier=self._proofs.verifier)
                if asked.message != Close(epoch=epoch, round=number, attempt=attempt - 1, value=value):
                    raise ValueError("nobody asked for it")
        except (NodeError, ValueError) as error:
            self.note(epoch, number, Code.STO_CORRUPT, f"The vote beside the promise does not hold: {error}.")


def _stored(database: sqlite3.Connection, epoch: int, number: int) -> Certified | None:
    """What stands in a place of the chain."""
    row = database.execute(
        "SELECT decided FROM decided WHERE epoch = ? AND round = ?", (epoch, number)
    ).fetchone()
    return None if row is None else from_message(decode(Decided, row[0]))


def _before(database: sqlite3.Connection, epoch: int, number: int) -> Certified | None:
    """The link before a place of the chain."""
    row = database.execute(
        "SELECT decided FROM decided WHERE epoch < ? OR (epoch = ? AND round < ?) "
        "ORDER BY epoch DESC, round DESC LIMIT 1",
        (epoch, epoch, number),
    ).fetchone()
    return None if row is None else from_message(decode(Decided, row[0]))


def _links(database: sqlite3.Connection, number: int, epoch: int) -> Iterator[Certified]:
    """What names a round, of epochs before ``epoch``, as it is stored."""
    rows = database.execute(
        "SELECT decided FROM decided WHERE round = ? AND epoch < ?", (number, epoch)
    ).fetchall()
    for (data,) in rows:
        with suppress(NodeError, ValueError):
            yield from_message(decode(Decided, data))


def values(path: Path) -> Iterator[Certified]:
    """The values of a ledger in order, unverified.

    Raises:
        NodeError: ``STO_CORRUPT`` when the file or one of its rows cannot be read.
    """
    try:
        with closing(connect(path)) as database:
            for row in database.execute(_ROWS):
                yield from_message(decode(Decided, row[4]))
    except (*DAMAGED, ValueError, TypeError, NodeError) as error:
        raise NodeError(
            Code.STO_CORRUPT, f"The ledger {path} cannot be read: {error}.",
            fix="Say `intellect-node ledger verify` to see what is wrong with it.",
        ) from error  # fmt: skip


def proofs_in(path: Path, proofs: Proofs) -> list[Proof]:
    """Evidence in a ledger that holds, ordered by who is accused; what does not hold is left out.

    Raises:
        NodeError: ``STO_CORRUPT`` when the file cannot be read.
    """
    found: list[Proof] = []
    try:
        with closing(connect(path)) as database:
            for _, _, data in database.execute(_EVIDENCE):
                with suppress(NodeError, TypeError):
                    found.append(proofs.evidence(decode(Evidence, data)))
    except DAMAGED as error:
        raise NodeError(Code.STO_CORRUPT, f"The ledger {path} cannot be read: {error}.") from error
    return found
