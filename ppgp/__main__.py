"""``python -m ppgp``."""

from .interfaces.cli import main

if __name__ == "__main__":
    main()
