"""`python -m node.demo_rl.measure RUN.toml FILE…`: how many held-out tasks each policy solves, as lines of JSON.

The share is exact: the chance that a task's solution is sampled is the product of its tokens' probabilities, which one
forward pass gives, and the mean over tasks is what sampling without end would come to.
"""

import json
import sys
from pathlib import Path

import torch

from diloco.architecture import layout_of
from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from diloco.model import model_with
from diloco.weights import read_weights
from node.children import die_with_parent_if_asked
from node.runfile import load
from rl.environments.registry import load as load_environment
from rl.environments.transcript import Renderer
from rl.training.warmstart import solve_rate, solved_task

TASKS = 256
_FIRST = 1 << 62  # seeds of a run's own tasks are hashes, and those of the warm start, too


def main(run_file: Path, weights: list[Path]) -> int:
    """Measure each file."""
    torch.set_num_threads(1)
    runfile = load(run_file)
    model = runfile.model
    renderer = Renderer(load_tokenizer(train_tokenizer([], model.vocab), model.vocab))
    environment = load_environment(runfile.rl.environment, runfile.rl.config)
    tasks = [solved_task(environment.task(_FIRST + number), renderer) for number in range(TASKS)]
    for path in weights:
        module = model_with(model, read_weights(path, layout_of(model)))
        solved = solve_rate(module, tasks, runfile.rl.temperature)
        print(json.dumps({"file": path.name, "solved": solved}), flush=True)
    return 0


if __name__ == "__main__":
    die_with_parent_if_asked()
    sys.exit(main(Path(sys.argv[1]), list(map(Path, sys.argv[2:]))))
