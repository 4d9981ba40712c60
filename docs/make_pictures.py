"""Draws the picture of the README with lg.plot: `python docs/make_pictures.py`."""

from __future__ import annotations

from pathlib import Path

import latentgamma as lg

DOCS = Path(__file__).parent


def main() -> None:
    """Write docs/pictures/animals.svg."""
    program = lg.load(DOCS.parent / "examples" / "animals.lp")
    facts = ["has_feathers", "swims", "black_and_white"]
    closed = lg.closure(program, facts)
    lg.plot.program(program, DOCS / "pictures" / "animals.svg", highlight=closed)


if __name__ == "__main__":
    main()
