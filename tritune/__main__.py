"""tritune: `python -m tritune` is the command line."""

import os
import sys

# `-m` puts the current folder first on the path, where a user's `numbers.py` would be found
# before the standard library's. A checkout that runs itself is left alone.
try:
    here = os.getcwd()  # noqa: PTH109  # pathlib would import what may be the user's
except FileNotFoundError:
    here = ""  # it has been removed: the command line says so
if here and sys.path[:1] == [here] and not __file__.startswith(here):
    del sys.path[0]

from tritune.cli import main

if __name__ == "__main__":
    main()
