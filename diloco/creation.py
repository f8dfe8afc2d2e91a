"""Making a run: the genesis from its sections, and the state that its first round starts from."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from diloco.architecture import initial_parameters, layout_of
from diloco.config import RunSections
from diloco.data.corpus import Corpus, choose_files, weights_file
from diloco.data.tokenizer import train_tokenizer
from diloco.digest import state_digest
from diloco.genesis import Genesis
from diloco.layout import Grid
from diloco.outer_state import OuterState
from diloco.weights import parse_weights
from protocol.errors import Code, NodeError
from protocol.units import Digest, PeerId

MOST_CHUNKS = 8192
"""Chunks of a run's grid: a value names each of them, and a proposal holds each one's norm for every member."""


def create_genesis(sections: RunSections, operator_root: PeerId, base: Path) -> Genesis:
    """Choose the corpus, train the tokenizer, draw or read the initial weights; about a second for the defaults.

    Args:
        sections: The run as its run file describes it.
        operator_root: Peer id of the operator's key.
        base: The run file's folder, which `data.paths` are relative to.

    Raises:
        NodeError: TRN_DATA when the corpus is too small or cannot be read; TRN_MODEL when the weights are not those of
            the model; CFG_BAD_VALUE when the chunks are too small
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
    if sections.model.weights:
        files = (*files, weights_file(sections.model.weights, base))
    corpus = Corpus(files, sections.data, folder=base, base=base)
    tokenizer = train_tokenizer(corpus.documents("train"), sections.model.vocab)
    return Genesis(
        sections=sections,
        operator_root=operator_root,
        parameters=layout.size,
        layout_digest=layout.digest.hex(),
        initial_digest=_digest(sections, _parameters(sections, corpus)).hex(),
        tokenizer=tokenizer,
        files=files,
    )


def grid_of(genesis: Genesis) -> Grid:
    """The chunk grid that the genesis fixes."""
    return Grid(genesis.parameters, genesis.sections.round.chunk)


def initial_parameters_of(genesis: Genesis, corpus: Corpus | None = None) -> npt.NDArray[np.float32]:
    """The parameters that round 0 starts from, drawn or read, float32[parameters].

    Args:
        genesis: The run.
        corpus: Its files on this node; needed where one of them holds the weights.

    Raises:
        NodeError: TRN_DATA when the file of the weights is not on this node; TRN_GOLDEN when this machine draws other
            bits than the one that made the run.
    """
    params = _parameters(genesis.sections, corpus)
    if _digest(genesis.sections, params) != genesis.base:
        raise NodeError(Code.TRN_GOLDEN, "The initial weights drawn here are not those of the genesis.")
    return params


def empty_state(genesis: Genesis) -> OuterState:
    """An outer state in shared memory that nothing has been put into.

    Raises:
        NodeError: CFG_GENESIS_INVALID when the model does not have the genesis' layout.
    """
    layout = layout_of(genesis.sections.model)
    if layout.size != genesis.parameters or layout.digest.hex() != genesis.layout_digest:
        raise NodeError(Code.CFG_GENESIS_INVALID, "The genesis' model and its layout digest do not agree.")
    return OuterState.create(layout)


def initial_state(genesis: Genesis, corpus: Corpus | None = None) -> OuterState:
    """The outer state of round 0 in shared memory: initial parameters, zero momentum.

    Raises:
        NodeError: As `empty_state` and `initial_parameters_of`.
    """
    state = empty_state(genesis)
    begin_state(state, initial_parameters_of(genesis, corpus))
    return state


def begin_state(state: OuterState, params: npt.NDArray[np.float32]) -> None:
    """Make an outer state that of round 0."""
    back_params, back_momentum = state.back()
    back_params[:] = params
    back_momentum[:] = 0.0
    state.flip(0)


def _parameters(sections: RunSections, corpus: Corpus | None) -> npt.NDArray[np.float32]:
    weights = (
        None if corpus is None else next((file for file in corpus.files if file.part == "weights"), None)
    )
    if not sections.model.weights:
        return initial_parameters(sections.model, sections.run.seed)
    if corpus is None or weights is None:
        raise NodeError(Code.TRN_DATA, f"The initial weights {sections.model.weights} are not on this node.")
    data = np.frombuffer(corpus.read(weights), np.uint8)
    return parse_weights(data, layout_of(sections.model), weights.name)


def _digest(sections: RunSections, params: npt.NDArray[np.float32]) -> Digest:
    return state_digest(0, params, np.zeros_like(params), Grid(len(params), sections.round.chunk))
