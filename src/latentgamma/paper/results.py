"""The results of the validation, and the figures that the paper prints."""

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
#: Noisy models for each level, fact sets for each graph, and runs whose laws are checked.
PERTURBATIONS = 3
EXAMPLES = 500
TRAJECTORIES = 50

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


# ---- The results of the validation: a row for each thing that was tried

#: Written into every results file; a reader refuses another one.
FORMAT = "latentgamma-validation-3"


class Phase(NamedTuple):
    """One of the seven phases."""

    title: str
    field: str  # of `Validation`: the rows, each of which says whether it holds
    claim: str  # what a row that holds shows


PHASES = {
    "A": Phase("Parameters in closed form", "programs", "programs have the stated sizes"),
    "B": Phase("Closures", "expressivity", "models exact in every atom of every run"),
    "C": Phase("Noise", "noise", "levels of noise at which no certified model is wrong"),
    "D": Phase("Monotonicity and bounds", "structure", "graphs without an exception"),
    "E": Phase("Edge cases", "edge_cases", "cases exact"),
    "F": Phase("Rules with several heads", "multi_head", "models activate all heads"),
    "G": Phase("Certificates", "windows", "models certified"),
}


@dataclass(frozen=True)
class GraphRow:
    """Phase A: the sizes of a program, and the number of its parameters."""

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

    @property
    def holds(self) -> bool:
        """Whether the program has the sizes that the paper states."""
        printed = GRAPHS[self.graph]
        sizes = (self.M, self.R, self.k, self.rho_max)
        return sizes == (printed.M, printed.R, 2, printed.rho_max)


@dataclass(frozen=True)
class ConstantsRow:
    """Phase A: the constants of one construction, and the paper's assumption about them."""

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
class ExpressivityRow:
    """Phase B, Table 1: the operator against the closures of the fact sets of one graph."""

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

    @property
    def holds(self) -> bool:
        """Whether every atom of every example was right."""
        return self.accuracy == 1.0


@dataclass(frozen=True)
class NoiseRow:
    """Phase C, Table 3: one level of noise on one graph; tuples have one entry per perturbation."""

    logits: str  # "body" or "head"
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

    @property
    def holds(self) -> bool:
        """Whether every noisy model that its certificate covers was right."""
        pairs = zip(self.accuracies, self.covered, strict=True)
        return all(accuracy == 1.0 for accuracy, covered in pairs if covered)


@dataclass(frozen=True)
class StructureRow:
    """Phase D, Table 2: how often laws that hold for all parameters held, in float64, exactly."""

    graph: str
    states: int
    rising: int  # Lemma 5.1: no value falls
    ordered: int  # Proposition 5.4: a larger state goes to a larger one
    trajectories: int
    bounded: int  # Proposition 5.2: rising, and never above one

    @property
    def holds(self) -> bool:
        """Whether every law held every time."""
        return self.rising == self.ordered == self.states and self.bounded == self.trajectories


@dataclass(frozen=True)
class EdgeCase:
    """Phase E: no facts, a single root, all roots, or a single leaf."""

    graph: str
    case: str  # "empty", "root", "all roots" or "leaf"
    facts: tuple[str, ...]
    closure: int  # the number of atoms it should derive, facts included
    jaccard: float

    @property
    def holds(self) -> bool:
        """Whether every atom was right."""
        return self.jaccard == 1.0


@dataclass(frozen=True)
class MultiHeadRow:
    """Phase F: rules with several heads; the facts are the body of one rule."""

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

    @property
    def holds(self) -> bool:
        """Whether all heads of all rules are active; with our thresholds also in the mixed program."""
        mixed = self.mixed > 0.5 or self.head_sharing == "paper"
        return self.active == self.exact == self.rules and mixed


@dataclass(frozen=True)
class WindowRow:
    """Phase G, our own: the window of a graph that the paper states, and the one that is proved."""

    graph: str
    constants: str
    promised: float | None  # ⌊log 2 / c_max⌋; None beyond any number
    t_min: float | None
    t_max: float | None
    depth: int
    leak: float
    certified: bool
    bound: tuple[tuple[float, float], ...]  # (steps, bound on every underivable atom)
    measured: tuple[tuple[int, float], ...]  # (steps, largest underivable atom seen)

    @property
    def holds(self) -> bool:
        """Whether the graph is certified, with certified constants from its depth on."""
        return self.certified and (self.constants == "paper" or self.t_min == self.depth)


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
    programs: tuple[GraphRow, ...]
    constants: tuple[ConstantsRow, ...]
    expressivity: tuple[ExpressivityRow, ...]
    noise: tuple[NoiseRow, ...]
    structure: tuple[StructureRow, ...]
    edge_cases: tuple[EdgeCase, ...]
    multi_head: tuple[MultiHeadRow, ...]
    windows: tuple[WindowRow, ...]

    def rows(self, phase: str) -> tuple[Any, ...]:
        """Return the rows of a phase, "A" to "G", each of which says whether its claim holds."""
        rows: tuple[Any, ...] = getattr(self, PHASES[phase].field)
        return rows

    @property
    def holds(self) -> bool:
        """Whether everything that should hold on every machine and seed does."""
        return all(row.holds for phase in PHASES for row in self.rows(phase))

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
