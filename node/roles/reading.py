"""Policy versions as a validator reads them."""

import asyncio
from collections import OrderedDict
from datetime import timedelta

from diloco.genesis import Genesis
from node.roles.policies import PolicyFollower
from rl.config import kind_of, rl_of
from rl.engine.prefill import ReadPolicy, load_policy

_KEPT = 4
_PATIENCE = timedelta(seconds=30)


class PolicyReader:
    """Loads versions when they are needed, and keeps the last few."""

    def __init__(self, genesis: Genesis, policies: PolicyFollower) -> None:
        self._model, self._policies = genesis.sections.model, policies
        self._kind = kind_of(rl_of(genesis.sections))
        self._loaded: OrderedDict[int, ReadPolicy] = OrderedDict()
        self._alone = asyncio.Lock()

    async def policy(self, version: int) -> ReadPolicy:
        """A version.

        Raises:
            NodeError: It cannot be had.
        """
        async with self._alone:
            if version not in self._loaded:
                known = await self._policies.told(version, _PATIENCE)
                path = await self._policies.bring(known)
                self._loaded[version] = await asyncio.to_thread(
                    load_policy, self._model, path, known.weights, self._kind
                )
                while len(self._loaded) > _KEPT:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end(version)
            return self._loaded[version]
