"""``python -m gpt2np`` is the command ``gpt2np``."""

import sys

from gpt2np.cli import main

if __name__ == "__main__":
    sys.exit(main())
