"""`python -m ipf.ctl`: ipfctl where it is not installed as a command."""

from __future__ import annotations

from ipf.ctl.main import main

main()
