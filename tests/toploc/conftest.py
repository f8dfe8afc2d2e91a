"""Shared test data: the compatibility vectors and their activations."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    return json.loads((VECTORS / "vectors.json").read_text())


@pytest.fixture(scope="session")
def activations() -> dict[str, torch.Tensor]:
    return load_file(VECTORS / "activations.safetensors")
