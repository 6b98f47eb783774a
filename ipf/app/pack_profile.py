"""`python -m ipf.app.pack_profile FOLDER`: writes the archive of a vendor profile's folder to standard output.

Exits with status 1 and an error message on standard error when the folder is not a profile.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ipf.errors import Problem
from ipf.vendor_profiles.archive import pack


def main() -> None:
    """Entry point."""
    try:
        sys.stdout.buffer.write(pack(Path(sys.argv[1])))
    except (Problem, OSError) as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
