"""Numbers, lists, long texts and failures of files in messages."""

from __future__ import annotations

from collections.abc import Sequence


def quantity(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> quantity(1, "rule"), quantity(2000, "rule"), quantity(0, "body", "bodies")
    ('1 rule', '2,000 rules', '0 bodies')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def byte_size(count: float) -> str:
    """Return a number of bytes as a person writes it.

    >>> byte_size(3.9e12)
    '3.9 TB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def listing(texts: Sequence[str], most: int = 3) -> str:
    """Return the first few texts, and how many more there are.

    >>> listing(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def shortened(text: str, most: int = 40) -> str:
    """Return a text of at most this many characters, with an ellipsis where it was cut.

    >>> shortened("a long name", 7)
    'a long…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def file_problem(error: Exception) -> str:
    """Return why a file could not be read or written.

    >>> file_problem(FileNotFoundError(2, "No such file or directory"))
    'there is no such file or folder'
    """
    if isinstance(error, FileNotFoundError):
        return "there is no such file or folder"
    if isinstance(error, IsADirectoryError):
        return "it is a folder, not a file"
    if isinstance(error, PermissionError):
        return "permission is denied"
    return getattr(error, "strerror", None) or str(error)


def aligned(rows: Sequence[Sequence[str]], right: int = 99) -> list[str]:
    """Return rows of cells as lines of text; columns from number `right` on are aligned to the right.

    >>> aligned([["rule", "rows"], ["a", "12"]], right=1)
    ['rule  rows', 'a       12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if n >= right else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
