"""Weights as a safetensors file: what comes back, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from diloco.architecture import initial_parameters, layout_of
from diloco.config import ModelSection
from diloco.weights import read_weights, write_weights
from protocol.errors import Code, NodeError
from tests.diloco.small_run import MODEL

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
    from safetensors.torch import save

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
