"""The exceptions of the library.

Bad input raises; a numerical failure is data (a certificate with a status).

    LatentGammaError
    ├── ProgramError (ValueError)       rules or arrays that do not describe a program
    │   └── ParseError                  text that is not a program, with its place
    ├── FactsError (ValueError)         facts that this program does not have
    ├── StateError (ValueError)         a tensor that is not a state of this model
    ├── ModelError (ValueError)         options or a file that do not fit a model
    ├── DataError (ValueError)          observations or requests that cannot be used
    ├── ArgumentError (ValueError)      an argument of another kind, or outside its range
    ├── CertificateError (RuntimeError) a certificate that was required and does not hold
    ├── DistributedError (RuntimeError) a process of a distributed run stopped or does not answer
    └── MissingPackageError (ImportError) an optional package that is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

__all__ = [
    "ArgumentError",
    "CertificateError",
    "DataError",
    "DistributedError",
    "FactsError",
    "LatentGammaError",
    "MissingPackageError",
    "ModelError",
    "ParseError",
    "ProgramError",
    "StateError",
]


class LatentGammaError(Exception):
    """The base of everything this library raises on purpose."""


class ProgramError(LatentGammaError, ValueError):
    """Rules or arrays do not describe a program."""


class ParseError(ProgramError):
    """A text is not a program; the message shows where and why.

    >>> error = ParseError("expected an atom", source="a :- .", line=1, column=6, path="r.lp")
    >>> print(error)
    r.lp:1:6: expected an atom
      a :- .
           ^
    """

    def __init__(
        self,
        problem: str,
        *,
        source: str = "",
        line: int | None = None,
        column: int | None = None,
        path: str = "<text>",
    ) -> None:
        self.problem = problem
        self.source = source
        self.line = line
        self.column = column
        self.path = path
        super().__init__(self._render())

    def _render(self) -> str:
        if self.line is None or self.column is None:
            return f"{self.path}: {self.problem}"
        head = f"{self.path}:{self.line}:{self.column}: {self.problem}"
        if not self.source:
            return head
        # Show a part of a very long line, so that the caret stays on the screen.
        start = max(0, self.column - 61)
        excerpt = self.source[start : start + 100].replace("\t", " ")
        printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in excerpt)
        return f"{head}\n  {printable}\n  {' ' * (self.column - 1 - start)}^"


class FactsError(LatentGammaError, ValueError):
    """Facts name atoms that the program does not have, or have the wrong shape."""


class StateError(LatentGammaError, ValueError):
    """A tensor is not a state of the model: shape, dtype or range."""


class ModelError(LatentGammaError, ValueError):
    """Options, parameters or a file do not fit a model."""


class DataError(LatentGammaError, ValueError):
    """Observations or requests cannot be used: shape, kind, range or contradiction."""


class ArgumentError(LatentGammaError, ValueError):
    """An argument is not of the kind that was expected, or outside its range."""


class CertificateError(LatentGammaError, RuntimeError):
    """A certificate was required, and it does not hold."""


class DistributedError(LatentGammaError, RuntimeError):
    """A process of a distributed run has stopped or does not answer."""


class MissingPackageError(LatentGammaError, ImportError):
    """An optional package is not installed; the message says how to install it.

    >>> print(MissingPackageError("rules with variables need clingo", "datalog"))
    rules with variables need clingo, which is not installed: pip install 'latentgamma[datalog]'
    """

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(f"{need}, which is not installed: pip install 'latentgamma[{extra}]'")


@contextmanager
def optional_package(need: str, extra: str) -> Iterator[None]:
    """Raise a MissingPackageError if an import in the block fails."""
    try:
        yield
    except ImportError:
        raise MissingPackageError(need, extra) from None


# Beyond this many names a fuzzy look-up would take longer than a person waits.
_LARGEST_LOOKUP = 100_000


def unknown_atoms(
    unknown: Iterable[str],
    atoms: Sequence[str],
    what: str = "facts",
    *,
    kind: str = "atom",
    lacking: str = "this program does not have",
) -> FactsError:
    """Return the error for names a program does not have, with the nearest ones it has.

    >>> unknown_atoms(["pigeon", "tern"], ("penguin", "bird"))
    FactsError("facts name 2 atoms this program does not have: 'pigeon' (did you mean 'penguin'?), 'tern'")
    >>> unknown_atoms(["agee"], ["age"], "label", kind="column", lacking="t.csv does not have")
    FactsError("label names a column t.csv does not have: 'agee' (did you mean 'age'?)")
    """
    names = sorted(set(unknown))
    shown = []
    for name in names[:5]:
        near = []
        if len(atoms) <= _LARGEST_LOOKUP and len(name) <= 200:
            near = difflib.get_close_matches(name, atoms, n=1, cutoff=0.45)
        shown.append(f"{name!r} (did you mean {near[0]!r}?)" if near else repr(name))
    if len(names) > 5:
        shown.append(f"and {len(names) - 5} more")
    verb = "name" if what.endswith("s") else "names"
    article = "an" if kind == "atom" else "a"
    count = f"{article} {kind}" if len(names) == 1 else f"{len(names)} {kind}s"
    return FactsError(f"{what} {verb} {count} {lacking}: {', '.join(shown)}")
