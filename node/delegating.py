"""Leaving the root key's daily work to a key of the coordinator, offline (docs/rounds.md, trust of newcomers)."""

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from diloco.genesis import Genesis
from node.joining import GENESIS_FILE, read_genesis
from protocol.delegation import SCOPES, Delegation, authority
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.files import read_whole, write_whole
from protocol.identity import Identity
from protocol.units import duration

ROOT_FILE = "operator.key"
DELEGATE_FILE = "coordinator.key"
DELEGATION_FILE = "delegation.bin"


@dataclass(frozen=True)
class Key:
    """A key that may sign for the run's operator.

    Attributes:
        identity: The key.
        delegation: What it may do (envelope bytes); empty for the root key.
    """

    identity: Identity
    delegation: bytes = b""


def key_in(folder: Path, genesis: Genesis) -> Key | None:
    """The operator's key in a data directory: the root key, else a delegate's with its delegation; None without one."""
    if (folder / ROOT_FILE).exists():
        root = Identity.load(folder / ROOT_FILE)
        if root.peer_id == genesis.operator:
            return Key(root)
    if not (folder / DELEGATE_FILE).exists() or not (folder / DELEGATION_FILE).exists():
        return None
    key, delegation = Identity.load(folder / DELEGATE_FILE), read_whole(folder / DELEGATION_FILE)
    right = [
        authority(key.peer_id, delegation, scope, root=genesis.operator, run=genesis.run_id)
        for scope in SCOPES
    ]
    return Key(key, delegation) if any(right) else None


def delegate_in(folder: Path, lasts: str, scopes: tuple[str, ...]) -> str:
    """Make a coordinator's key in a data directory, and a delegation for it signed with the root key there.

    Returns:
        What was done, in a sentence or two.

    Raises:
        NodeError: ``CFG_USAGE``; those of the key files.
    """
    if not (folder / GENESIS_FILE).exists() or not (folder / ROOT_FILE).exists():
        raise NodeError(
            Code.CFG_USAGE, f"{folder} does not hold a run's genesis and its root key.",
            fix=f"Name the data directory that `intellect-node init` made, with {ROOT_FILE} in it.",
        )  # fmt: skip
    genesis, root = read_genesis(folder), Identity.load(folder / ROOT_FILE)
    if root.peer_id != genesis.operator:
        raise NodeError(Code.CFG_USAGE, f"{folder / ROOT_FILE} is not the root key of this run.")
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise NodeError(
            Code.CFG_USAGE,
            f"There is no scope {', '.join(unknown) or 'named'}.",
            fix=f"Use {', '.join(SCOPES)}.",
        )
    try:
        span: timedelta = duration(lasts)
    except ValueError as error:
        raise NodeError(
            Code.CFG_USAGE, f"--for: {error}.", fix='Write a time such as --for "90 d".'
        ) from None
    key = Identity.load_or_create(folder / DELEGATE_FILE)
    now = int(time.time())
    said = Delegation(
        delegate=key.peer_id,
        scopes=tuple(sorted(set(scopes))),
        number=now,
        expires_at=now + int(span.total_seconds()),
    )
    write_whole(folder / DELEGATION_FILE, [seal(root, genesis.run_id, said).raw])
    return (
        f"Delegation {said.number}: {key.peer_id} may sign for the operator ({', '.join(said.scopes)}) for {lasts}.\n"
        f"Once the run has begun, {folder / ROOT_FILE} can be kept elsewhere; delegating again and revoking need it."
    )
