"""What a certificate says: a window of steps in which a model provably equals a program."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from latentgamma._display import Display, Displayed
from latentgamma._errors import CertificateError
from latentgamma._program.program import Program


class Margins(NamedTuple):
    """The margins by which a model separates true bodies and atoms from false ones.

    It separates them where the `on` fields are positive and the `off` and `sink` fields negative.

    >>> import latentgamma as lg
    >>> margins = lg.oracle(lg.parse("bird :- penguin.")).certificate().margins
    >>> margins.match_on > 0 > margins.match_off
    True
    """

    match_on: float  # least bs − b of a satisfied body (Lemma 6.3, case 1)
    match_off: float  # largest bs − b of an unsatisfied body (Lemma 6.3, case 2)
    evidence_on: float  # least φ of an atom with a satisfied rule (Lemma 6.4)
    evidence_off: float  # largest φ of an atom without one (Lemma 6.4)
    sink: float  # largest φ of an atom that no rule derives (Lemma 6.5)


class Status(Enum):
    """The outcome of a certificate; the value is its name in JSON.

    >>> Status.HOLDS.value
    'holds'
    """

    HOLDS = "holds"
    LEAKS = "leaks"
    LAGS = "lags"
    DIFFERS = "differs"
    UNDEFINED = "undefined"


def is_window(t_min: float, t_max: float) -> bool:
    """Whether these are the ends of a window: t_min steps can be taken, and t_max are no fewer.

    A window of no steps at all, which every model has on the fact sets that are closed, is none.
    """
    return math.isfinite(t_min) and t_min <= t_max and t_max >= 1


@dataclass(frozen=True, repr=False)
class Certificate(Displayed):
    """A window [t_min, t_max] of steps in which a model provably equals a program.

    For every fact set whose closure takes at most `depth` steps, after any number of steps in
    the window, the atoms above one half are the closure, no more and no less. It applies to
    states that start at 0 and 1 and are held in `dtype`.

    >>> import latentgamma as lg
    >>> certificate = lg.oracle(lg.parse("bird :- penguin. animal :- bird.")).certificate()
    >>> print(certificate)
    exact from step 2 on, for every fact set (none is deeper than 2), in float32
    >>> certificate.covers(1), certificate.covers(2)
    (False, True)
    """

    t_min: float
    t_max: float
    depth: int
    leak: float
    margins: Margins
    status: Status
    message: str
    weakest_rule: str | None
    weakest_atom: str | None
    dtype: str
    differences: tuple[str, ...] = ()
    #: Facts may be as low as 1 − tolerance at the start, and other atoms as high as tolerance.
    tolerance: float = 0.0
    #: (steps, bound on every underivable atom after them), to draw.
    curve: tuple[tuple[float, float], ...] = ()
    #: The rules of each stratum whose steps `depth` and `t_min` count: those of the program, or
    #: those that the model's rows act as, which have the same closures but may take more steps.
    #: A fact set that they close in d steps is right from step t_min − (depth − d) on.
    rules: tuple[Program, ...] = field(default=(), compare=False)

    @property
    def holds(self) -> bool:
        """Whether there is a window at all."""
        return self.status is Status.HOLDS and is_window(self.t_min, self.t_max)

    def require(self) -> Certificate:
        """This certificate, or a CertificateError that says why it does not hold.

        Returns:
            The same object, so that calls can be chained: `certify(model, program).require().t_min`.

        Raises:
            CertificateError: there is no window.
        """
        if not self.holds:
            raise CertificateError(self.message)
        return self

    def covers(self, steps: int) -> bool:
        """Whether the answer after so many steps is proved right.

        Args:
            steps: the number of steps, from 0 on.

        Returns:
            True if there is a window and the number lies in it.
        """
        return self.holds and self.t_min <= steps <= self.t_max

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain values, for JSON; an infinite end is None.

        Returns:
            A dictionary with all fields but `curve` and `rules`, and with `holds`.
        """
        return {
            "holds": self.holds,
            "status": self.status.value,
            "message": self.message,
            "t_min": None if math.isinf(self.t_min) else int(self.t_min),
            "t_max": None if math.isinf(self.t_max) else int(self.t_max),
            "depth": self.depth,
            "leak": self.leak,
            "margins": {k: v if math.isfinite(v) else None for k, v in self._margins()},
            "weakest_rule": self.weakest_rule,
            "weakest_atom": self.weakest_atom,
            "differences": list(self.differences),
            "dtype": self.dtype,
            "tolerance": self.tolerance,
        }

    def _margins(self) -> list[tuple[str, float]]:
        return list(self.margins._asdict().items())

    def __repr__(self) -> str:
        return f"Certificate({self})"

    def _display(self) -> Display:
        end = "no end" if math.isinf(self.t_max) else f"{self.t_max:,.0f}"
        window = f"steps {self.t_min:,.0f} to {end}" if self.holds else "none"
        rows = [("certified", window), ("depth", f"{self.depth:,}"), ("dtype", self.dtype),
                ("leak per step", f"{self.leak:.3g}"), ("tolerance", f"{self.tolerance:g}")]  # fmt: skip
        rows += [
            (name.replace("_", " "), f"{value:+.4g}")
            for name, value in self._margins()
            if math.isfinite(value)
        ]
        title = f"{'✓' if self.holds else '✗'} {self.message}"
        return Display(title, self.holds, rows=rows, right=1, notes=self.differences[:20])

    def __str__(self) -> str:
        return self.message
