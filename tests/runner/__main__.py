"""See `bin/test`."""

from tests.runner.command import main

main(prog_name="bin/test")
