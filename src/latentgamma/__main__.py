"""`python -m latentgamma`: the command line."""

from __future__ import annotations

from latentgamma.cli.main import script

if __name__ == "__main__":
    script()
