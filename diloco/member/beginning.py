"""How a member begins: the chain of decided rounds, the state after its tip, and what it had promised before."""

import asyncio
from contextlib import suppress

from blake3 import blake3

from diloco.member.applying import Applied
from diloco.member.chain import Chain
from diloco.member.restoring import Restoring
from diloco.member.setting import Setting
from diloco.member.telling import Telling
from diloco.reduce.contribution import Frozen
from diloco.rounds.certificate import Certified
from diloco.rounds.moves import persist
from diloco.rounds.recovery import recover
from diloco.rounds.state import State
from diloco.rounds.waiting import Waiting
from diloco.store.contribution import ContributionStore
from protocol.errors import Code, NodeError

_LOOK = 0.5  # seconds between questions
_PAUSE = 1.0  # seconds after a failure
_BEACON_KEY = b"intellect-node beacon key 1\0"  # its signature is secret, and the same at each start
_BAN_PATIENCE = 10.0  # seconds in which a banned node that starts asks whether it still is


async def begin(
    setting: Setting, chain: Chain, restoring: Restoring, contributions: ContributionStore, telling: Telling
) -> tuple[State, Applied, Frozen | None]:
    """Find chain and state, however long it takes.

    Returns:
        The round machine's first state, the outer state that was restored for it, and the contribution that was frozen
        before and still counts.

    Raises:
        NodeError: ``RND_BANNED``; others when the state cannot be restored, and asking again is of no use.
    """
    tip = await _find_chain(setting, chain, telling)
    _check_not_banned(setting, tip)
    telling.phase(Waiting("joining", "state", "Restoring the outer state."), tip.value.round + 1, 0)
    while True:
        try:
            applied = await restoring.restore(tip.value, list(setting.peers()))
            break
        except NodeError as error:
            setting.emit("restore.waits", code=str(error.code), reason=error.sentence)
            if not error.retriable and error.code != Code.STO_CORRUPT:
                raise
            await asyncio.sleep(_PAUSE)
            await chain.extend(setting.peers())
            tip = chain.tip or tip
            _check_not_banned(setting, tip)
    if tip.value.round >= 0:
        await asyncio.to_thread(restoring.offer, tip.value)
    promise = chain.ledger.promise()
    kept = await asyncio.to_thread(contributions.read)
    state = recover(
        setting.me, setting.rules, setting.timing, boot=setting.endpoint.boot, tip=tip,
        beacon_key=blake3(setting.endpoint.identity.sign(_BEACON_KEY)).digest(),
        admission=setting.admission, promise=promise, now=setting.clock(),
        started=chain.ledger.start(int(setting.wall() * 1000)), rival=chain.ledger.rival(),
        frozen=kept[0] if kept is not None else None,
        since=chain.ledger.since(promise.epoch, promise.round) if promise is not None else (),
    )  # fmt: skip
    if promise is None and not state.abstains:
        with suppress(
            NodeError
        ):  # a full disk; before its first promise is written a member says nothing anyway
            chain.ledger.save_promise(
                persist(state)
            )  # the vote record begins: from now on its loss is noticed
    frozen = kept[1] if kept is not None and state.contribution is not None else None
    if frozen is not None:
        setting.emit("contribution.kept", round=state.round, tokens=frozen.facts.tokens)
    return state, applied, frozen


async def _find_chain(setting: Setting, chain: Chain, telling: Telling) -> Certified:
    await chain.extend(setting.peers())
    while (tip := chain.tip) is None or not chain.anchored:
        anchor = chain.anchor
        if anchor is None:
            sentence = "Waiting for the start record: the first node writes it when enough members are there."
            telling.phase(Waiting("joining", "start", sentence), -1, 0)
        else:
            sentence = (
                f"Waiting for a member whose chain holds what this node's admission names: epoch {anchor.epoch}, "
                f"round {anchor.round}, value {anchor.digest.hex()[:16]}."
            )
            telling.phase(Waiting("joining", "anchor", sentence), -1, 0)
        await asyncio.sleep(_LOOK)
        await chain.extend(setting.peers())
    end = setting.clock() + _BAN_PATIENCE
    while setting.me in tip.value.banned and setting.clock() < end:
        await asyncio.sleep(_LOOK)  # the ban may have been lifted since: one's own tip may be old
        await chain.extend(setting.peers())
        tip = chain.tip or tip
    return tip


def _check_not_banned(setting: Setting, tip: Certified) -> None:
    """End here: nobody gives a banned node what its state lacks."""
    if setting.me in tip.value.banned:
        raise NodeError(Code.RND_BANNED, f"The run's operator banned this node ({setting.me}).")
