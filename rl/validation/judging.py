"""From a file to a verdict: all the checks in the order of their cost, each only on what passed the one before."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from protocol.errors import Code, NodeError
from protocol.units import Digest, PeerId
from rl.environments.interface import Remote
from rl.environments.transcript import Renderer
from rl.rollouts.record import Group, Provenance
from rl.validation.audit import Audit, Policy, audit
from rl.validation.checks import check
from rl.validation.copies import Seen
from rl.validation.plausibility import check_plausibility
from rl.validation.rewards import check_rewards
from rl.validation.terms import Lease, Terms
from rl.validation.tolerances import Tolerances
from rl.validation.usual import Tally
from rl.validation.verdict import Finding, Outcome, Verdict, gravest_first

PolicyOf = Callable[[int], Awaitable[Policy]]
"""Brings a policy version, ready to read; raises a NodeError where it cannot be had."""


@dataclass(frozen=True)
class Patience:
    """How long a validator waits.

    Attributes:
        environment: For the environment, for each group.
        policy: For the weights of one version.
    """

    environment: timedelta = timedelta(seconds=30)
    policy: timedelta = timedelta(seconds=120)


class Judge:
    """Judges files, several at a time. What takes processor time runs in threads, so the event loop goes on."""

    def __init__(
        self,
        me: PeerId,
        terms: Terms,
        environment: Remote,
        renderer: Renderer,
        policy_of: PolicyOf,
        tolerances: Tolerances,
        patience: Patience = Patience(),
    ) -> None:
        self._me = me
        self._terms = terms
        self._environment = environment
        self._renderer = renderer
        self._policy_of = policy_of
        self._tolerances = tolerances
        self._patience = patience
        self._seen = Seen()
        self._tally = Tally()

    async def judge(
        self, file: Digest, provenance: Provenance, groups: Sequence[Group], lease: Lease, *, audited: bool
    ) -> Verdict:
        """The verdict on one file whose signature was checked.

        Args:
            file: Its digest.
            provenance: What it says of itself.
            groups: What it holds.
            lease: What it should answer.
            audited: Whether the model is run, too.
        """
        found = await self._cheap(file, provenance, groups, lease)
        ran: Audit | None = None
        if not found and audited:
            ran, found = await self._audit(groups, lease)
        doubts: list[Finding] = []
        if not found:
            self._seen.add(file, lease.worker, groups)
            self._tally.add(lease.worker, groups)
            doubts = self._tally.doubts(lease.worker)
        rollouts = sum(len(group.rollouts) for group in groups)
        return Verdict(
            file=file,
            worker=lease.worker,
            trainer=lease.trainer,
            counter=lease.counter,
            validator=self._me,
            outcome=_outcome(found),
            findings=gravest_first(found),
            doubts=tuple(doubts),
            rollouts=rollouts,
            audited=rollouts if ran else 0,
        )

    async def _cheap(
        self, file: Digest, provenance: Provenance, groups: Sequence[Group], lease: Lease
    ) -> list[Finding]:
        terms = self._terms
        found = await asyncio.to_thread(check, provenance, groups, terms, lease, self._renderer.text)
        if not found and terms.sampling.temperature > 0:
            found = await asyncio.to_thread(
                lambda: list(check_plausibility(groups, lease.beacon, lease.worker))
            )
        if not found:
            found = await check_rewards(
                groups, self._environment, self._renderer, terms, lease.beacon, self._patience.environment
            )
        return found or self._seen.check(file, lease.worker, groups)

    async def _audit(self, groups: Sequence[Group], lease: Lease) -> tuple[Audit | None, list[Finding]]:
        versions = {
            version for group in groups for rollout in group.rollouts for version in rollout.proof_versions
        }
        try:
            policies: dict[int, Policy] = {}
            for version in sorted(versions):
                async with asyncio.timeout(self._patience.policy.total_seconds()):
                    policies[version] = await self._policy_of(version)
            result = await asyncio.to_thread(
                audit,
                groups,
                policies,
                lease.beacon,
                lease.worker,
                self._terms.sampling,
                self._tolerances,
            )
        except (NodeError, ValueError, TimeoutError) as error:
            sentence = f"The file cannot be audited: {str(error) or 'a policy version does not come'}"
            return None, [Finding(Code.RL_UNJUDGED, sentence)]
        return result, result.findings


def _outcome(found: Sequence[Finding]) -> Outcome:
    """Refused for a fault; undecided where the validator's own trouble is all there is."""
    if any(finding.code is not Code.RL_UNJUDGED for finding in found):
        return Outcome.REFUSED
    return Outcome.UNDECIDED if found else Outcome.ACCEPTED
