"""``gpt2np`` and ``python -m gpt2np``: the command line, from its first import on."""

import sys


def main() -> int:
    """Run `gpt2np.cli.main`; Ctrl-C ends the imports as quietly as the command itself."""
    try:
        from gpt2np import cli

        return cli.main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
