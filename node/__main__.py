"""`intellect-node`, and the same as `python -m node`."""

import sys

from node import early


def main() -> int:
    """Run the command line; the exit status."""
    if sys.argv[1:2] and sys.argv[1] in early.STARTING:
        early.watch()
    from node.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
