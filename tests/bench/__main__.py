"""``python -m tests.bench [NAME or AREA]``."""

import sys

from tests.bench.runner import main

sys.exit(main(sys.argv[1:]))
