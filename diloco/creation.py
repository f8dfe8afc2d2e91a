"""Making a run: the genesis from its sections, and the state that its first round starts from."""

from pathlib import Path

import numpy as np

from diloco.architecture import initial_parameters, layout_of
from diloco.config import RunSections
from diloco.data.corpus import Corpus, choose_files
from diloco.data.tokenizer import train_tokenizer
from diloco.digest import state_digest
from diloco.genesis import Genesis
from diloco.layout import Grid
from diloco.outer_state import OuterState
from protocol.errors import Code, NodeError
from protocol.units import Digest, PeerId

MOST_CHUNKS = 8192
"""Chunks of a run's grid: a value names each of them, and a proposal holds each one's norm for every member."""


def create_genesis(sections: RunSections, operator_root: PeerId, base: Path) -> Genesis:
    """Choose the corpus, train the tokenizer, draw the initial weights; about a second for the defaults.

    Args:
        sections: The run as its run file describes it.
        operator_root: Peer id of the operator's key.
        base: The run file's folder, which `data.paths` are relative to.

    Raises:
        NodeError: TRN_DATA when the corpus is too small or cannot be read; CFG_BAD_VALUE when the chunks are too small
            for the model.
    """
    layout, chunk = layout_of(sections.model), sections.round.chunk
    count = Grid(layout.size, chunk).count
    if count > MOST_CHUNKS:
        least = next(chunk * 2**n for n in range(32) if Grid(layout.size, chunk * 2**n).count <= MOST_CHUNKS)
        raise NodeError(
            Code.CFG_BAD_VALUE,
            f"`round.chunk` cuts the model's {layout.size:,} values into {count:,} chunks, "
            f"of which {MOST_CHUNKS:,} are allowed.",
            fix=f"Set round.chunk to {least} or more.",
        )
    files = choose_files(sections.data, sections.run.seed, base)
    corpus = Corpus(files, sections.data, folder=base, base=base)
    tokenizer = train_tokenizer(corpus.documents("train"), sections.model.vocab)
    return Genesis(
        sections=sections,
        operator_root=operator_root,
        parameters=layout.size,
        layout_digest=layout.digest.hex(),
        initial_digest=_initial(sections)[1].hex(),
        tokenizer=tokenizer,
        files=files,
    )


def grid_of(genesis: Genesis) -> Grid:
    """The chunk grid that the genesis fixes."""
    return Grid(genesis.parameters, genesis.sections.round.chunk)


def initial_state(genesis: Genesis) -> OuterState:
    """The outer state of round 0 in shared memory: drawn parameters, zero momentum.

    Raises:
        NodeError: CFG_GENESIS_INVALID when the model does not have the genesis' layout; TRN_GOLDEN when this
            machine draws other bits than the one that made the run.
    """
    layout = layout_of(genesis.sections.model)
    if layout.size != genesis.parameters or layout.digest.hex() != genesis.layout_digest:
        raise NodeError(Code.CFG_GENESIS_INVALID, "The genesis' model and its layout digest do not agree.")
    params, digest = _initial(genesis.sections)
    if digest != genesis.base:
        raise NodeError(Code.TRN_GOLDEN, "The initial weights drawn here are not those of the genesis.")
    state = OuterState.create(layout)
    back_params, back_momentum = state.back()
    back_params[:] = params
    back_momentum[:] = 0.0
    state.flip(0)
    return state


def _initial(sections: RunSections) -> tuple[np.ndarray, Digest]:
    params = initial_parameters(sections.model, sections.run.seed)
    grid = Grid(len(params), sections.round.chunk)
    return params, state_digest(0, params, np.zeros_like(params), grid)
