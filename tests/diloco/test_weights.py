"""Weights as a safetensors file: what comes back, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save, save_file

from diloco.architecture import initial_parameters, layout_of
from diloco.config import ModelSection
from diloco.creation import create_genesis, initial_state
from diloco.data.corpus import corpus_of
from diloco.data.tokenizer import load_tokenizer
from diloco.genesis import Genesis
from diloco.weights import read_weights, write_weights
from protocol.errors import Code, NodeError
from tests.diloco.small_run import MODEL, OPERATOR, small_genesis, small_sections, write_text

SMALL = ModelSection.model_validate(MODEL)
LAYOUT = layout_of(SMALL)
PARAMS = initial_parameters(SMALL, 1)


def test_fp32_weights_come_back_bit_for_bit_and_other_tools_read_them(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, LAYOUT, PARAMS)
    assert np.array_equal(read_weights(path, LAYOUT), PARAMS)
    theirs = load_file(path)
    for name, values in LAYOUT.views(PARAMS):
        assert np.array_equal(theirs[name].numpy(), values), name


def test_bf16_weights_are_rounded_as_torch_rounds(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    params = PARAMS.copy()
    params[:4] = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF807FFF], np.uint32).view(np.float32)
    write_weights(path, LAYOUT, params, "BF16")
    wanted = torch.tensor(params).bfloat16()
    assert np.array_equal(read_weights(path, LAYOUT), wanted.float().numpy())
    assert all(tensor.dtype == torch.bfloat16 for tensor in load_file(path).values())


def test_a_file_of_another_tool_in_another_order_is_read(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    named = {name: torch.tensor(values) for name, values in LAYOUT.views(PARAMS)}
    save_file(dict(reversed(named.items())), path)
    assert np.array_equal(read_weights(path, LAYOUT), PARAMS)


def damaged(case: str) -> bytes:
    named = {name: torch.tensor(values) for name, values in LAYOUT.views(PARAMS)}
    first = next(iter(named))
    if case == "a tensor too many":
        named["more"] = torch.zeros(1)
    elif case == "a tensor missing":
        del named[first]
    elif case == "another shape":
        named[first] = named[first].T.contiguous()
    elif case == "another precision":
        named[first] = named[first].double()
    elif case == "not finite":
        named[first][0, 0] = torch.inf
    data: bytes = save(named)
    if case == "cut":
        return data[:-1]
    if case == "empty":
        return b""
    if case == "a header of an exabyte":
        return (2**60).to_bytes(8, "little") + data[8:]
    if case == "a shape that lies":
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        header[first]["shape"] = [2**40, 2**40]
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + data[8 + length :]
    return data


@pytest.mark.parametrize(
    "case",
    [
        "a tensor too many", "a tensor missing", "another shape", "another precision", "not finite", "cut", "empty",
        "a header of an exabyte", "a shape that lies",
    ],
)  # fmt: skip
def test_what_is_not_the_weights_of_the_model_is_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(damaged(case))
    with pytest.raises(NodeError) as caught:
        read_weights(path, LAYOUT)
    assert caught.value.code is Code.TRN_MODEL and str(path) in caught.value.sentence


def test_a_file_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(NodeError) as caught:
        read_weights(tmp_path / "none", LAYOUT)
    assert caught.value.code is Code.STO_UNWRITABLE


# ---- a run that begins with given weights


def given_run(folder: Path, **changes: dict[str, object]) -> Genesis:
    folder.mkdir(exist_ok=True)
    write_weights(folder / "first.safetensors", LAYOUT, PARAMS * np.float32(2))
    sections = small_sections(model={"weights": "first.safetensors"}, **changes)
    write_text(folder)
    return create_genesis(sections, OPERATOR, folder)


def test_a_run_begins_with_the_weights_of_a_file_and_not_with_drawn_ones(tmp_path: Path) -> None:
    genesis = Genesis.parse(given_run(tmp_path).to_bytes())
    assert genesis.weights is not None and genesis.weights.name == "first.safetensors"
    assert genesis.base != small_genesis(tmp_path).base
    state = initial_state(genesis, corpus_of(genesis, tmp_path / "node", tmp_path))
    assert np.array_equal(state.params, PARAMS * np.float32(2)) and not state.momentum.any()
    assert (state.round, state.sequence) == (0, 1)


def test_a_node_without_the_file_says_so_until_a_member_has_given_it(tmp_path: Path) -> None:
    genesis = given_run(tmp_path / "founder")
    assert genesis.weights is not None
    corpus = corpus_of(genesis, tmp_path / "node", None)
    assert genesis.weights in corpus.missing()
    for here in (corpus, None):
        with pytest.raises(NodeError) as caught:
            initial_state(genesis, here)
        assert caught.value.code is Code.TRN_DATA
    data = (tmp_path / "founder" / "first.safetensors").read_bytes()
    with pytest.raises(NodeError):
        corpus.accept(genesis.weights, data[:-1] + b"\x00")
    corpus.accept(genesis.weights, data)
    assert np.array_equal(initial_state(genesis, corpus).params, PARAMS * np.float32(2))


def test_a_file_that_was_changed_since_is_not_taken_but_the_copy_that_was_kept_is(tmp_path: Path) -> None:
    genesis = given_run(tmp_path)
    assert genesis.weights is not None
    corpus = corpus_of(genesis, tmp_path / "node", tmp_path)
    corpus.keep(genesis.weights)
    write_weights(tmp_path / "first.safetensors", LAYOUT, PARAMS)
    assert np.array_equal(initial_state(genesis, corpus).params, PARAMS * np.float32(2))
    with pytest.raises(NodeError, match="No file on this node"):
        initial_state(genesis, corpus_of(genesis, tmp_path / "other", tmp_path))


@pytest.mark.parametrize("name", ["../first.safetensors", "/first.safetensors", "none.safetensors"])
def test_weights_outside_of_the_run_files_folder_or_missing_are_refused(tmp_path: Path, name: str) -> None:
    sections = small_sections(model={"weights": name})
    write_text(tmp_path)
    with pytest.raises(NodeError) as caught:
        create_genesis(sections, OPERATOR, tmp_path)
    assert caught.value.code is Code.TRN_DATA


def test_weights_of_another_model_are_refused_when_the_run_is_made(tmp_path: Path) -> None:
    given_run(tmp_path)
    wider = small_sections(model={"weights": "first.safetensors", "hidden": 24})
    with pytest.raises(NodeError) as caught:
        create_genesis(wider, OPERATOR, tmp_path)
    assert caught.value.code is Code.TRN_MODEL


def test_a_run_without_a_corpus_has_bytes_for_tokens(tmp_path: Path) -> None:
    sections = small_sections(data={"source": "none", "paths": []})
    genesis = Genesis.parse(create_genesis(sections, OPERATOR, tmp_path).to_bytes())
    assert genesis.files == ()
    tokenizer = load_tokenizer(genesis.tokenizer, 301)
    text = "Grüße, <t>abc</t>\n"
    assert tokenizer.get_vocab_size() == 257
    assert (
        len(tokenizer.encode(text).ids) == len(text.encode())
        and tokenizer.decode(tokenizer.encode(text).ids) == text
    )


def test_a_genesis_whose_files_do_not_fit_its_sections_is_refused(tmp_path: Path) -> None:
    genesis = given_run(tmp_path)
    plain = small_genesis(tmp_path)
    for files in (genesis.files[:-1], plain.files[:1], (), (*plain.files, genesis.files[-1])):
        owner = plain if files[-1:] == genesis.files[-1:] else genesis
        with pytest.raises(ValidationError):
            Genesis.model_validate({**owner.model_dump(), "files": files})
