"""Draws the pictures of the README and of the tutorials: `python docs/make_pictures.py`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import latentgamma as lg

DOCS = Path(__file__).parent


def main() -> None:
    """Write the pictures into docs/pictures: of the first program in index.md, and of the tutorials."""
    os.chdir(DOCS / "pictures")
    first: dict[str, Any] = {}
    exec(_python_blocks(DOCS / "index.md")[0], first)
    closed = lg.closure(first["program"], first["facts"])
    lg.plot.program(first["program"], "birds.svg", highlight=closed)
    for page in sorted((DOCS / "tutorials").glob("*.md")):  # each draws its own
        exec(compile("\n".join(_python_blocks(page)), page.name, "exec"), {})
    for written in ("policy.lp", "patients.csv"):
        Path(written).unlink()


def _python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


if __name__ == "__main__":
    main()
