"""`python -m node.demo_rl.warm RUN.toml FILE`: the supervised warm start, as weights for a run to begin with.

It prints one line of JSON for each evaluation and one at its end.
"""

import json
import sys
from pathlib import Path

from diloco.architecture import layout_of
from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from diloco.weights import write_weights
from node.children import die_with_parent_if_asked
from node.runfile import load
from rl.environments.registry import load as load_environment
from rl.environments.transcript import Renderer
from rl.training.warmstart import Evaluation, Plan, warm_start

HIGH = 0.14
"""Share of held-out tasks solved, at most: from more on it takes longer to double it than a demo should."""


def main(run_file: Path, to: Path) -> int:
    """Train until a few tasks in a hundred are solved, and write the weights."""
    runfile = load(run_file)
    model = runfile.model
    renderer = Renderer(load_tokenizer(train_tokenizer([], model.vocab), model.vocab))

    def told(evaluation: Evaluation) -> None:
        print(
            json.dumps({"step": evaluation.step, "loss": evaluation.loss, "solved": evaluation.solved}),
            flush=True,
        )

    started = warm_start(
        model, load_environment(runfile.rl.environment, runfile.rl.config), renderer, runfile.run.seed,
        Plan(high=HIGH, temperature=runfile.rl.temperature), threads=1, told=told,
    )  # fmt: skip
    write_weights(to, layout_of(model), started.params)
    print(
        json.dumps({"steps": started.steps, "solved": started.solved, "parameters": len(started.params)}),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    die_with_parent_if_asked()
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
