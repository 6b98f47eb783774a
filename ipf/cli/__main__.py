"""`python -m ipf.cli`: `ipfctl` where it is not installed as a command."""

from __future__ import annotations

from ipf.cli.main import main

main()
