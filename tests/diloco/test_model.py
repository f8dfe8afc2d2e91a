"""Layout and initial values against what `transformers` builds, creation of a run, the exported folder."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from diloco.architecture import INITIAL_DEVIATION, initial_parameters, layout_of
from diloco.config import ModelSection
from diloco.creation import initial_state
from diloco.digest import state_digest
from diloco.export import export
from diloco.genesis import Genesis
from diloco.layout import Grid
from diloco.model import empty_model, layout_of_module, model_with
from protocol.errors import Code, NodeError
from tests.diloco.small_run import MODEL, OPERATOR, small_genesis

SMALL = ModelSection.model_validate(MODEL)


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("layers", [1, 3])
def test_the_layout_is_what_transformers_declares_tied_once(tie: bool, layers: int) -> None:
    model = ModelSection.model_validate({**MODEL, "layers": layers, "tie": tie})
    assert layout_of_module(empty_model(model)) == layout_of(model)


def test_the_default_model_has_the_size_of_the_demonstration() -> None:
    assert 1_800_000 < layout_of(ModelSection()).size < 2_400_000


def test_initial_values_are_bell_shaped_and_norms_are_one() -> None:
    values = dict(layout_of(ModelSection()).views(initial_parameters(ModelSection(), 1)))
    embedding = values["model.embed_tokens.weight"]
    assert abs(embedding.std() / INITIAL_DEVIATION - 1) < 0.01
    assert abs(embedding.mean()) < 1e-3
    assert np.abs(embedding).max() < 5 * INITIAL_DEVIATION
    assert (values["model.norm.weight"] == 1).all()
    writes, reads = (values[f"model.layers.0.mlp.{name}_proj.weight"].std() for name in ("down", "up"))
    assert 0.3 < writes / reads < 0.4


def test_initial_values_are_the_same_bits_for_ever_and_others_for_another_seed() -> None:
    values = initial_parameters(SMALL, 1)
    assert values.dtype == np.float32
    assert hashlib.sha256(values.astype("<f4").tobytes()).hexdigest() == INITIAL_BITS
    assert (initial_parameters(SMALL, 2) != values).mean() > 0.9


def test_a_run_begins_from_the_digest_in_its_genesis(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path)
    state = initial_state(Genesis.parse(genesis.to_bytes()))
    grid = Grid(genesis.parameters, genesis.sections.round.chunk)
    assert state_digest(0, state.params, state.momentum, grid) == genesis.base
    assert state.round == 0 and not state.momentum.any()
    assert genesis.operator == OPERATOR


def test_a_machine_that_draws_other_bits_or_a_genesis_of_another_layout_is_refused(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path)
    with pytest.raises(NodeError) as caught:
        initial_state(genesis.model_copy(update={"initial_digest": "0" * 64}))
    assert caught.value.code is Code.TRN_GOLDEN
    with pytest.raises(NodeError) as caught:
        initial_state(genesis.model_copy(update={"layout_digest": "0" * 64}))
    assert caught.value.code is Code.CFG_GENESIS_INVALID


def test_the_exported_folder_loads_as_the_same_model_and_tokenizer(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path)
    params = initial_parameters(genesis.sections.model, 1)
    export(tmp_path / "out", genesis, params)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "1 and 2 are 3.\n"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    assert tokenizer.decode(ids[0]) == text
    with torch.no_grad():
        expected = model_with(genesis.sections.model, params)(ids).logits
        assert torch.equal(loaded(ids).logits, expected)


def test_parameters_of_another_model_are_not_exported(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path)
    with pytest.raises(NodeError) as caught:
        export(tmp_path / "out", genesis, np.zeros(3, np.float32))
    assert caught.value.code is Code.TRN_MODEL
    assert not (tmp_path / "out").exists()


INITIAL_BITS = "b0a2b78cc5d423d8f24050f195b15a7f3c8f5808b11d50622d59025de159654b"
