"""Programs as files: rule text (.lp .pl .dl), DIMACS (.cnf) and JSON, each also as .gz."""

from __future__ import annotations

import gzip
import os
import zlib

from latentgamma._arguments import one_of
from latentgamma._atomic_write import write_bytes
from latentgamma._text import file_problem
from latentgamma.errors import ParseError, ProgramError
from latentgamma.program.dimacs import read_dimacs, write_dimacs
from latentgamma.program.json import read_json, write_json
from latentgamma.program.program import Program, require_program
from latentgamma.program.rule_text import decode_text

#: The suffixes of rule text.
RULE_TEXT = (".lp", ".pl", ".dl")
#: The suffixes a program's file can have; each may be followed by .gz.
SUFFIXES = (*RULE_TEXT, ".cnf", ".json")
#: The names of the formats: a suffix without its dot, for a compressed file with .gz.
FORMATS = (*(s[1:] for s in SUFFIXES), *(f"{s[1:]}.gz" for s in SUFFIXES))


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the prepared text in a file of rules, which may be compressed."""
    return decode_rules(*content(path, None))


def decode_rules(data: bytes, suffix: str, path: str) -> str:
    """Return the prepared text of rules in these bytes, which the suffix says to be rule text."""
    if suffix.removesuffix(".gz") not in RULE_TEXT:
        raise ProgramError(f"{path!r} is not rule text; its name must end in .lp, .pl or .dl")
    return unpacked(data, suffix, path)[0]


def unpacked(data: bytes, suffix: str, path: str) -> tuple[str, str]:
    """Return the prepared text in these bytes, and the suffix without .gz."""
    if not isinstance(data, bytes):
        raise ProgramError(f"read takes bytes, not {type(data).__name__}; use parse for text")
    suffix = _find_suffix(suffix if suffix.startswith(".") else f".{suffix}")
    packed = suffix.endswith(".gz")
    return decode_text(decompress(data, path) if packed else data, path), suffix.removesuffix(".gz")


def content(path: str | os.PathLike[str], format: str | None) -> tuple[bytes, str, str]:  # noqa: A002
    """Return the bytes of a file, its suffix or that of a format, and its name in errors."""
    shown = _path_text(path, "load")
    named = None if format is None else f".{one_of('format', format, FORMATS)}"
    return read_bytes(path), named or _find_suffix(shown), shown


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file; a ProgramError says why it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ProgramError(f"cannot read {os.fsdecode(path)!r}: {file_problem(error)}") from None


def read_program(text: str, suffix: str, path: str) -> Program:
    """Return the program in a text of another format than rule text, read as the suffix says.

    Raises:
        ParseError: if it is not a program.
        NotStratifiedError: if an atom depends on its own negation.
    """
    if not text.strip():
        return Program.from_rules([])
    if suffix == ".json":
        return read_json(text, path)
    if suffix == ".cnf":
        return read_dimacs(text, path)
    raise ProgramError(f"no reader for {suffix}")


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write a program to a file that `latentgamma.load` reads back as the same program.

    >>> import tempfile
    >>> from pathlib import Path
    >>> program = Program.from_rules([("bird", ["penguin"])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "birds.lp")
    ...     save(program, path)
    ...     print(path.read_text(), end="")
    bird :- penguin.

    Args:
        program: any program.
        path: the file to write; its suffix gives the format, as in `load`.

    Raises:
        ProgramError: if the file cannot be written, its suffix is not that of a format, or the
            format cannot represent the program: DIMACS has no negation as failure.
    """
    require_program(program, "save")
    shown = _path_text(path, "save")
    suffix = _find_suffix(shown, reading=False)
    data = dumps(program, suffix.removesuffix(".gz")).encode()
    if suffix.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # the same program gives the same file
    try:
        write_bytes(path, data)
    except (OSError, ValueError) as error:
        raise ProgramError(f"cannot write {shown!r}: {file_problem(error)}") from None


def dumps(program: Program, suffix: str = ".lp") -> str:
    """Return the text of a program as a file with this suffix has it.

    >>> print(dumps(Program.from_rules([("bird", ["penguin"])]), ".cnf"), end="")
    c 1 bird
    c 2 penguin
    p cnf 2 1
    1 -2 0
    """
    suffix = _find_suffix(suffix if suffix.startswith(".") else f".{suffix}", reading=False)
    if suffix in RULE_TEXT:
        text = str(program)
        return f"{text}\n" if text else ""
    if suffix == ".json":
        return write_json(program)
    if suffix == ".cnf":
        if not program.definite:
            raise ProgramError("DIMACS has no negation as failure; write .lp or .json")
        return write_dimacs(program)
    raise ProgramError(f"dumps writes text, and {suffix} is compressed; use save")


def is_rule_text(path: str | os.PathLike[str]) -> bool:
    """Return whether a file of this name holds uncompressed rule text.

    Raises:
        ProgramError: if the name has no suffix of a program.
    """
    return _find_suffix(_path_text(path, "is_rule_text"), reading=False) in RULE_TEXT


def _find_suffix(name: str, *, reading: bool = True) -> str:
    lower = name.lower()
    packed = ".gz" if lower.endswith(".gz") else ""
    for suffix in SUFFIXES:
        if lower.endswith(suffix + packed):
            return suffix + packed
    if reading and lower.endswith(".safetensors"):
        raise ProgramError(
            f"{name!r} is a model or a layer, not a program; use LatentGamma.load or Layer.load"
        )
    other = "; otherwise name the format: format='lp', or --format lp where a command has it"
    raise ProgramError(
        f"the format of {name!r} is not known: its name must end in {', '.join(SUFFIXES)}, or in "
        f"one of them and .gz{other if reading else ''}"
    )


def decompress(data: bytes, path: str) -> bytes:
    """Return the bytes that were compressed with gzip."""
    try:
        return gzip.decompress(data)
    except EOFError:
        problem = "the compressed data ends too early; the file is truncated"
    except (OSError, zlib.error):
        problem = "the compressed data is damaged"
        if not data.startswith(b"\x1f\x8b"):
            problem = "this is not gzip data; leave .gz out of its name if it is plain"
    raise ParseError(problem, path=path)


def _path_text(path: object, function: str) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise ProgramError(f"{function} takes a path, not {type(path).__name__}")
    return os.fsdecode(path)
