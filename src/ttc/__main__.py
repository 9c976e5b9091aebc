"""``python -m ttc``: the command line."""

from ttc.cli.app import main

if __name__ == "__main__":
    main()
