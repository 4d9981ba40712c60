"""Shows the doctests of docstrings as code blocks in the API reference."""

from __future__ import annotations

import re
from typing import Any

import griffe


class DoctestBlocks(griffe.Extension):
    """Puts a fence around every doctest, which Markdown would take for a quotation."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return the text with a fence around every doctest."""

    def block(found: re.Match[str]) -> str:
        indent = found[1]
        return f"{indent}```pycon\n{found[0].rstrip()}\n{indent}```"

    return re.sub(r"^([ \t]*)>>> .*(?:\n[ \t]*\S.*)*", block, text, flags=re.MULTILINE)
