"""``python -m tests.eval.toploc [--report]``: compute what is missing, judge, write the tables of docs/toploc.md."""

import sys

from tests.eval.toploc.report import write
from tests.eval.toploc.work import produce, spent


def main() -> None:
    """Run the whole evaluation; with ``--report``, judge what was computed so far."""
    write(spent() if "--report" in sys.argv[1:] else produce())


if __name__ == "__main__":
    main()
