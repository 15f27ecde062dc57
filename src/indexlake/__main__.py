"""``python -m indexlake``: the command line."""

from indexlake.cli.main import main

if __name__ == "__main__":
    main()
