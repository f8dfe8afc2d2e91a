"""``python -m rl.rollouts.reader``: decodes rollout files that may be hostile, in little memory.

One JSON line in, with a path and bounds; one out: ``{}``, or a code and a sentence. See ``rl/rollouts/reading.py``.
"""

import json
import resource
import sys
from pathlib import Path

from protocol.errors import Code, NodeError
from protocol.parent import die_with_parent
from rl.rollouts.limits import Limits
from rl.rollouts.parquet import unfold


def main() -> None:
    """Answers lines until there are no more."""
    parent, memory = (int(text) for text in sys.argv[1:])
    die_with_parent(parent)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        asked = json.loads(line)
        path = Path(asked.pop("path"))
        limits = Limits(**asked)
        answer = {}
        try:
            with path.open("rb") as file:
                unfold(file.read(limits.file_bytes + 1), limits)
        except NodeError as error:
            answer = {"code": error.code.value, "sentence": error.sentence}
        except MemoryError:
            answer = {
                "code": Code.RL_FILE_TOO_LARGE.value,
                "sentence": "Reading a rollout file needs more memory than it may.",
            }
            line = ""  # what is left of the memory may not be enough for the next file
        print(json.dumps(answer), flush=True)
        if not line:
            return


if __name__ == "__main__":
    main()
