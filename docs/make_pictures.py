"""Draws the pictures of the README and of the tutorials: `python docs/make_pictures.py`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import latentgamma as lg

DOCS = Path(__file__).parent


def main() -> None:
    """Write the pictures into docs/pictures; a tutorial draws its own."""
    program = lg.load(DOCS.parent / "examples" / "animals.lp")
    facts = ["has_feathers", "swims", "black_and_white"]
    os.chdir(DOCS / "pictures")
    lg.plot.program(program, "animals.svg", highlight=lg.closure(program, facts))
    for page in sorted((DOCS / "tutorials").glob("*.md")):
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        exec(compile("\n".join(blocks), page.name, "exec"), {})
    for written in ("policy.lp", "patients.csv"):
        Path(written).unlink()


if __name__ == "__main__":
    main()
