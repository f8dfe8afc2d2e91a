"""`python -m diloco.worker`: one rank of a node's worker group that learns text; started by the group only."""

import argparse
import sys
from typing import TYPE_CHECKING

from diloco.data.corpus import corpus_of
from diloco.data.samples import Samples, load_tokens
from diloco.genesis import Genesis
from diloco.worker.program import serve

if TYPE_CHECKING:
    from diloco.worker.text import Text


class TextKind:
    """See `Kind`."""

    def prepare(self, genesis: Genesis, options: argparse.Namespace) -> None:
        """Make the token cache; the other ranks find it when they have met."""
        load_tokens(genesis, corpus_of(genesis, options.folder, options.base), options.folder)

    def objective(self, genesis: Genesis, options: argparse.Namespace) -> "Text":
        """Samples from the token cache."""
        from diloco.worker.text import Text

        tokens = load_tokens(genesis, corpus_of(genesis, options.folder, options.base), options.folder)
        sections = genesis.sections
        return Text(sections, Samples(tokens, sections.model.context, sections.run.seed))


if __name__ == "__main__":
    sys.exit(serve(TextKind()))
