"""`python -m rl.training`: one rank of a node's worker group that trains a policy; started by the group only."""

import argparse
import sys
from typing import TYPE_CHECKING

from pydantic import ValidationError

from diloco.architecture import layout_of
from diloco.genesis import Genesis
from diloco.worker.program import serve
from protocol.errors import Code, NodeError
from rl.training.settings import ObjectiveSection

if TYPE_CHECKING:
    from rl.training.objective import PolicyObjective


class PolicyKind:
    """See `Kind`."""

    def prepare(self, genesis: Genesis, options: argparse.Namespace) -> None:
        """Check the settings."""
        _settings(options.settings)

    def objective(self, genesis: Genesis, options: argparse.Namespace) -> "PolicyObjective":
        """What the settings say."""
        from rl.training.objective import PolicyObjective

        model = genesis.sections.model
        return PolicyObjective(model, layout_of(model), _settings(options.settings))


def _settings(text: str) -> ObjectiveSection:
    try:
        return ObjectiveSection.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "whole"
        raise NodeError(Code.CFG_BAD_VALUE, f"The workers' setting {where}: {first['msg']}.") from None


if __name__ == "__main__":
    sys.exit(serve(PolicyKind()))
