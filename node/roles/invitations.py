"""Invitations: tokens that let peers in. Kept as hashes in one file; the token itself is shown once and is nowhere."""

import hmac
import json
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.files import write_whole

MAX_USES = 10_000
MAX_OPEN = 1_000
"""Invitations that are open at once."""

_DOMAIN = b"intellect.invitation\0"


@dataclass(frozen=True)
class Invitation:
    """One invitation.

    Attributes:
        number: Of the invitation; grows.
        token_hash: BLAKE3 of its token, hex.
        uses: How many peers it lets in.
        expires_at: Until when, Unix seconds.
        note: For whom, in the operator's words.
        used: Whom it let in.
    """

    number: int
    token_hash: str
    uses: int
    expires_at: float
    note: str = ""
    used: tuple[str, ...] = ()

    def is_open(self, now: float) -> bool:
        """Whether it lets somebody else in."""
        return now < self.expires_at and len(self.used) < self.uses


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return blake3(_DOMAIN + token.encode("utf-8", "surrogatepass")).hexdigest()


class Invitations:
    """The invitations of a run, in a file that is whole at any time.

    Args:
        path: The file; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._all = _read(path)

    def all(self) -> tuple[Invitation, ...]:
        """All invitations, oldest first."""
        return self._all

    def make(self, now: float, *, uses: int, seconds: float, note: str = "") -> tuple[Invitation, str]:
        """A new invitation.

        Args:
            now: Unix seconds.
            uses: How many peers it lets in.
            seconds: How long.
            note: For whom.

        Returns:
            The invitation and its token.

        Raises:
            NodeError: ``CFG_USAGE``; ``STO_FULL`` where it cannot be kept.
        """
        if not 1 <= uses <= MAX_USES or not 0 < seconds <= 366 * 86400:
            raise NodeError(
                Code.CFG_USAGE, f"An invitation lets in 1 to {MAX_USES} peers and lasts a year at most.",
                fix='Write for example --uses 5 --for "7 d".',
            )  # fmt: skip
        if sum(each.is_open(now) for each in self._all) >= MAX_OPEN:
            raise NodeError(
                Code.CFG_USAGE, f"{MAX_OPEN} invitations are open.", fix="End some: admin uninvite NUMBER."
            )
        token = secrets.token_urlsafe(24)
        number = max((each.number for each in self._all), default=0) + 1
        made = Invitation(number, hash_of(token), uses, now + seconds, note[:200])
        self._keep((*self._all, made))
        return made, token

    def end(self, number: int, now: float) -> Invitation:
        """End an invitation; whom it let in stays.

        Raises:
            NodeError: ``CFG_USAGE``: there is none of that number.
        """
        found = next((each for each in self._all if each.number == number), None)
        if found is None:
            raise NodeError(Code.CFG_USAGE, f"There is no invitation {number}.")
        ended = replace(found, expires_at=min(found.expires_at, now))
        self._keep(tuple(ended if each is found else each for each in self._all))
        return ended

    def redeem(self, token: str, peer: str, now: float) -> Invitation:
        """Let a peer in by a token; kept when this returns. The same peer may come again.

        Every invitation is compared, each in constant time, so that the time says nothing about any.

        Raises:
            NodeError: ``RND_NOT_ADMITTED``; ``STO_FULL`` where it cannot be kept.
        """
        wanted = hash_of(token)
        found = None
        for each in self._all:
            if hmac.compare_digest(each.token_hash, wanted):
                found = each
        if found is not None and peer in found.used:
            return found
        if found is None or not found.is_open(now):
            why = (
                "is none of this run"
                if found is None
                else "has expired"
                if now >= found.expires_at
                else "is used up"
            )
            raise NodeError(
                Code.RND_NOT_ADMITTED, f"The invitation {why}.", fix="Ask the run's operator for another.", peer=peer
            )  # fmt: skip
        used = replace(found, used=(*found.used, peer))
        self._keep(tuple(used if each is found else each for each in self._all))
        return used

    def invited(self, peer: str) -> bool:
        """Whether an invitation has let this peer in before."""
        return any(peer in each.used for each in self._all)

    def _keep(self, invitations: tuple[Invitation, ...]) -> None:
        write_whole(self._path, [json.dumps([asdict(each) for each in invitations]).encode()])
        self._all = invitations


def _read(path: Path) -> tuple[Invitation, ...]:
    """What is kept.

    Raises:
        NodeError: ``STO_CORRUPT``: it is damaged; nobody is let in by guess.
    """
    try:
        content = json.loads(path.read_bytes())
        return tuple(Invitation(**{**each, "used": tuple(each["used"])}) for each in content)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise NodeError(
            Code.STO_CORRUPT, f"{path} cannot be read: {error}.", fix="Move it away; then no invitation is known."
        ) from error  # fmt: skip
