"""``gpt2np`` and ``python -m gpt2np``: the command line, from its first import on."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """End the process as `gpt2np.cli.main` says; Ctrl-C ends its imports as quietly as itself."""
    try:
        from gpt2np import cli

        code = cli.main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
