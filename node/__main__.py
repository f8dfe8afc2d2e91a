"""`python -m node`: the same as `intellect-node`."""

import sys

from node.cli import main

if __name__ == "__main__":
    sys.exit(main())
