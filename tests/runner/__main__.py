"""See `bin/test`."""

import sys

from tests.runner.command import main

sys.exit(main(sys.argv[1:]))
