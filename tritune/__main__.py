"""tritune: `python -m tritune` is the command line."""

from tritune.cli import main

if __name__ == "__main__":
    main()
