"""The results of the validation, beside what the paper prints."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from latentgamma.errors import DataError

# ---- The figures that the paper prints, as data


class PrintedGraph(NamedTuple):
    """The figures of one graph in the paper's tables and text."""

    M: int
    R: int
    rho_max: int
    t_conv: int  # Table 1
    accuracy: tuple[float, ...]  # Table 3, at each of SIGMAS
    bound: float  # Table 3's last line: RM·Φ(−4)
    sigma_max: float  # Section 7, 'theoretical estimates'
    roots: int  # single productive roots tried, Appendix F
    leaves: int  # single leaves tried, Appendix F


#: Table 3's levels of noise on the body logits.
SIGMAS = (1.0, 1.5, 2.0, 2.5, 3.0)
#: The levels of noise on the head logits in Appendix E.
HEAD_SIGMAS = (1.0, 2.0, 3.0, 4.0)
#: Noisy models for each level, fact sets for each graph, runs whose laws are checked, and edge cases.
PERTURBATIONS = 3
EXAMPLES = 500
TRAJECTORIES = 50
EDGE_CASES = 33

#: γ⁺, γ⁻ and the wall time as the paper prints them.
GAMMA_PLUS = 4.687
GAMMA_MINUS = 0.0316
WALL_TIME = 39.8  # seconds for G4, phases A to E, on an A100

GRAPHS = {
    "g1": PrintedGraph(33, 32, 2, 30, (1.0, 1.0, 1.0, 1.0, 1.0), 0.033, 3.03, 1, 1),
    "g2": PrintedGraph(57, 60, 3, 31, (1.0, 1.0, 1.0, 1.0, 0.730), 0.108, 2.86, 1, 5),
    "g3": PrintedGraph(117, 132, 8, 32, (1.0, 1.0, 1.0, 0.750, 0.088), 0.489, 2.70, 2, 5),
    "g4": PrintedGraph(504, 648, 16, 32, (1.0, 1.0, 1.0, 0.183, 0.015), 10.3, 2.38, 5, 5),
}


# ---- Frozen dataclasses as JSON text and back, with a digest of all fields

_T = TypeVar("_T")


def to_json(value: Any) -> str:
    """Return a frozen result as JSON text, with a digest of its fields."""
    data = dataclasses.asdict(value)
    return _dumps({**data, "digest": _digest(data)}) + "\n"


def from_json(kind: type[_T], text: str) -> _T:
    """Return the dataclass in a JSON text that `to_json` has written."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise DataError(f"this is not JSON that can be read: {problem}") from None
    if not isinstance(data, dict) or data.pop("digest", None) != _digest(data):
        raise DataError("its digest is not that of its content: the file was changed")
    try:
        result: _T = _decode(kind, data)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise DataError(f"it does not have the fields of {kind.__name__}") from None
    return result


def _dumps(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def _digest(data: Any) -> str:
    try:
        return hashlib.sha256(_dumps(data).encode()).hexdigest()
    except ValueError:
        raise DataError("it has numbers that are not finite") from None


def _decode(kind: Any, data: Any) -> Any:
    """Return dataclasses and tuples where the annotation has them; JSON has dictionaries and lists."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _decode(hints[name], x) for name, x in data.items()})  # type: ignore[operator]
    if get_origin(kind) is tuple and data is not None:
        first, *others = get_args(kind)
        if others == [Ellipsis]:
            return tuple(_decode(first, x) for x in data)
        return tuple(_decode(one, x) for one, x in zip((first, *others), data, strict=True))
    return data


# ---- The results of the validation: frozen values that are written to JSON and read back

#: Written into every results file; a reader refuses another one.
FORMAT = "latentgamma-validation-2"


# ---- A: the closed form


@dataclass(frozen=True)
class GraphRow:
    """The sizes of a program, and the number of its parameters."""

    graph: str
    M: int
    R: int
    k: int
    rho_max: int
    productive_roots: int
    leaves: int
    depth: int  # no fact set takes more steps
    dense: int  # parameters, 2RM + 3R + M
    sparse: int  # parameters, one per literal and 5R + M
    bits: float  # the proved lower bound of Theorem 8.1
    bits_printed: float  # its formula as printed, which is no bound
    bits_enough: float  # what suffices to number all programs of this size


@dataclass(frozen=True)
class ConstantsRow:
    """The constants of one construction, and the paper's assumption about them."""

    graph: str
    constants: str  # "paper" or "certified"
    body: float
    head: float
    sharpness: float
    confidence: float
    gain: float
    gate: float
    gamma_plus: float
    gamma_minus: float
    star: float  # 4kM e^{−η}, which (★) wants at most 1
    star_holds: bool


@dataclass(frozen=True)
class Construction:
    """Phase A: the programs, and the constants of their parameters."""

    graphs: tuple[GraphRow, ...]
    constants: tuple[ConstantsRow, ...]


# ---- B: expressivity


@dataclass(frozen=True)
class ExpressivityRow:
    """The results on the fact sets of one graph, after `steps` steps."""

    graph: str
    constants: str
    examples: int
    steps: int
    accuracy: float  # fraction of examples with every atom right
    fpr: float  # the largest of any example
    fnr: float  # the largest of any example
    t_conv: int  # the last example's first step with the right support; −1 if one never has it
    t_conv_mean: float
    depth: int  # the largest D of any example
    leak: float  # the largest value of an underivable atom after the last step


@dataclass(frozen=True)
class Expressivity:
    """Phase B, Table 1: the operator against the symbolic closure."""

    rows: tuple[ExpressivityRow, ...]

    @property
    def holds(self) -> bool:
        """Whether every atom of every example was right."""
        return all(row.accuracy == 1.0 for row in self.rows)


# ---- C: robustness


@dataclass(frozen=True)
class NoiseRow:
    """One level of noise on one graph; the tuples have one entry per perturbation."""

    graph: str
    sigma: float
    bound: float  # Theorem 7.1's, also the number of events to expect
    probability: float | None  # the exact one, of at least one sign change; None for heads
    accuracies: tuple[float, ...]
    events: tuple[int, ...]  # sign changes, or rules whose largest head logit is another's
    certified: tuple[bool, ...]
    covered: tuple[bool, ...]  # whether the certificate covers the number of steps run
    t_max: tuple[float | None, ...]  # of those certified; None where nothing is proved

    @property
    def accuracy(self) -> float:
        """The mean over the perturbations."""
        return sum(self.accuracies) / len(self.accuracies)


@dataclass(frozen=True)
class CriticalRow:
    """The predicted and the measured critical noise of a graph."""

    graph: str
    logits: int  # RM
    predicted: float  # RM·Φ(−η/σ) = 1
    last_good: float | None  # the largest tested σ up to which accuracy stays at least 0.95
    curve: tuple[tuple[float, float], ...]  # (σ, probability that no sign changes)


@dataclass(frozen=True)
class Robustness:
    """Phase C, Table 3: Gaussian noise on body logits, and on head logits."""

    steps: int
    body: tuple[NoiseRow, ...]
    head: tuple[NoiseRow, ...]
    critical: tuple[CriticalRow, ...]

    @property
    def holds(self) -> bool:
        """Whether every noisy model that its certificate covers was right."""
        return all(
            accuracy == 1.0
            for row in (*self.body, *self.head)
            for accuracy, covered in zip(row.accuracies, row.covered, strict=True)
            if covered
        )


# ---- D, E, F


@dataclass(frozen=True)
class StructureRow:
    """How many random states, pairs and trajectories satisfy the laws, in float64, exactly."""

    graph: str
    states: int
    rising: int  # Lemma 5.1: no value falls
    ordered: int  # Proposition 5.4: a larger state goes to a larger one
    trajectories: int
    bounded: int  # Proposition 5.2: rising, and never above one


@dataclass(frozen=True)
class StructureChecks:
    """Phase D, Table 2: laws that hold for all parameters."""

    rows: tuple[StructureRow, ...]

    @property
    def holds(self) -> bool:
        """Whether every law held every time."""
        return all(
            row.rising == row.ordered == row.states and row.bounded == row.trajectories
            for row in self.rows
        )


@dataclass(frozen=True)
class EdgeCase:
    """The result for one edge case."""

    graph: str
    case: str  # "empty", "root", "all roots" or "leaf"
    facts: tuple[str, ...]
    closure: int  # the number of atoms it should derive, facts included
    jaccard: float


@dataclass(frozen=True)
class EdgeCases:
    """Phase E: no facts, single roots, all roots, single leaves."""

    rows: tuple[EdgeCase, ...]

    @property
    def holds(self) -> bool:
        """Whether all cases are exact."""
        return all(row.jaccard == 1.0 for row in self.rows)


@dataclass(frozen=True)
class MultiHeadRow:
    """Rules with several heads; the facts are the body of one rule."""

    head_sharing: str  # "paper" or "equal"
    constants: str
    rules: int
    active: int  # rules with all heads active
    exact: int  # rules from whose body the whole closure came out, and nothing else
    t_conv: int
    certified: bool
    t_max: float | None
    mixed: float  # 'x :- a. x, y, z :- b.': x from b alone, after `steps` steps
    steps: int


@dataclass(frozen=True)
class MultiHead:
    """Phase F: rules with several heads."""

    rows: tuple[MultiHeadRow, ...]

    @property
    def holds(self) -> bool:
        """Whether our construction activates all heads of all rules, also in the mixed program."""
        ours = [row for row in self.rows if row.head_sharing == "equal"]
        return all(row.active == row.exact == row.rules and row.mixed > 0.5 for row in ours)


# ---- G: windows


@dataclass(frozen=True)
class WindowRow:
    """The window of a graph that the paper states, and the one that is proved."""

    graph: str
    constants: str
    promised: float | None  # ⌊log 2 / c_max⌋; None beyond any number
    t_min: float | None
    t_max: float | None
    depth: int
    leak: float
    holds: bool
    bound: tuple[tuple[float, float], ...]  # (steps, bound on every underivable atom)
    measured: tuple[tuple[int, float], ...]  # (steps, largest underivable atom seen)


@dataclass(frozen=True)
class Windows:
    """Phase G, our own: the certified window of each graph, and the one in the paper."""

    rows: tuple[WindowRow, ...]

    @property
    def holds(self) -> bool:
        """Whether every graph is certified, with certified constants from its depth on."""
        return all(
            row.holds and (row.constants != "certified" or row.t_min == row.depth)
            for row in self.rows
        )


# ---- All of it


@dataclass(frozen=True)
class Validation:
    """All results. The same seed gives the same results, bit for bit.

    >>> from latentgamma.paper import validation
    >>> results, timing = validation.run_validation(["g1", "g2"])  # doctest: +SKIP
    >>> results.holds, results.graphs  # doctest: +SKIP
    (True, ('g1', 'g2'))
    """

    format: str
    seed: int
    graphs: tuple[str, ...]
    construction: Construction
    expressivity: Expressivity
    robustness: Robustness
    structure: StructureChecks
    edge_cases: EdgeCases
    multi_head: MultiHead
    windows: Windows

    @property
    def holds(self) -> bool:
        """Whether everything that should hold on every machine and seed does."""
        return (
            self.expressivity.holds
            and self.robustness.holds
            and self.structure.holds
            and self.edge_cases.holds
            and self.multi_head.holds
            and self.windows.holds
        )

    def to_json(self) -> str:
        """Return the results as JSON text that `from_json` reads; wall times are no part of it."""
        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Validation:
        """Return the results that `to_json` wrote; a `DataError` if these are not such."""
        found = from_json(Validation, text)
        if found.format != FORMAT:
            raise DataError(f"this file has format {found.format!r}, but {FORMAT!r} is expected")
        return found


@dataclass(frozen=True)
class Timing:
    """How long a validation took, and on what; it differs from run to run.

    >>> from latentgamma.paper import validation
    >>> results, timing = validation.run_validation(["g1", "g2"])  # doctest: +SKIP
    >>> [phase for phase, seconds in timing.phases]  # doctest: +SKIP
    ['A', 'B', 'C', 'D', 'E', 'F', 'G']
    """

    device: str
    machine: str  # processor, cores, operating system
    versions: tuple[tuple[str, str], ...]  # of Python and of the packages that compute
    wall: float
    cpu: float
    peak_memory: float  # bytes
    phases: tuple[tuple[str, float], ...]  # wall seconds
