"""`python -m node.demo_rl.cheat run …`: a rollout worker that claims the newest policy and samples with an older one.

It is `intellect-node` with one lie: its engine is given the weights of four versions ago as the newest ones. All that
it hands in is right but for that: seeds, prompts, rewards, lengths, and proofs, which are those of the weights it used.
"""

import sys
from dataclasses import replace
from pathlib import Path

from node.cli import main
from node.roles import outside
from node.roles.policies import Known, PolicyFollower

LAG = 4
"""Versions between what it claims and what it uses."""


class LaggingFollower(PolicyFollower):
    """Takes the weights of `LAG` versions ago for those of a version."""

    def _older(self, version: int) -> Known:
        return self._known.get(version - LAG) or self._known[min(self._known)]

    async def after(self, version: int) -> Known:
        """The newest version, with older weights under its number."""
        newest = await super().after(version)
        return replace(newest, weights=self._older(newest.version).weights)

    async def bring(self, known: Known) -> Path:
        """The file of the older weights."""
        return await super().bring(self._older(known.version))


if __name__ == "__main__":
    outside.PolicyFollower = LaggingFollower  # type: ignore[attr-defined, misc]
    sys.exit(main())
