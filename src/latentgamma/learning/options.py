"""The options of `fit`, and what it records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from latentgamma._arguments import one_of, real_number, usable_device, whole_number, wrong
from latentgamma.errors import ArgumentError
from latentgamma.learning.bodies import Implication, as_rule
from latentgamma.program.program import Program, Rule, require_definite

if TYPE_CHECKING:
    import torch

    from latentgamma.operator.annealing import Homotopy


# ---- The learning curve: what was known after each stage


class HistoryEntry(NamedTuple):
    """One point of a learning curve.

    >>> import latentgamma as lg
    >>> result = lg.fit([[1, 0], [0, 0]], [[1, 1], [0, 0]], atoms=["penguin", "bird"], holdout=0)
    >>> [(entry.stage, entry.rules) for entry in result.history]
    [('head 1 of 1', 1), ('done', 1)]

    Attributes:
        stage: what was finished.
        rules: the number of rules so far.
        explained: the fraction explained so far: of the labels that became true; from closures, of
            the examples, or with noise of the labels.
        new: the rules found since the last entry. A rule from closures can still be removed when
            later ones imply it.
    """

    stage: str
    rules: int
    explained: float
    new: tuple[Rule, ...] = ()


#: Called with each entry, and with the current stage in between.
ProgressCallback: TypeAlias = Callable[[HistoryEntry], None]


class History:
    """The entries so far; each is passed on to a callback."""

    def __init__(
        self, atoms: Sequence[str], known: Iterable[Implication], callback: ProgressCallback | None
    ) -> None:
        self.entries: list[HistoryEntry] = []
        self._atoms, self._callback = atoms, callback
        self._reported = set(known)
        self._last = HistoryEntry("start", len(self._reported), 0.0)

    def add(
        self, stage: str, rules: int, explained: float, found: Iterable[Implication] = ()
    ) -> None:
        """Add an entry; rules that were reported or known before are not new."""
        new = [rule for rule in dict.fromkeys(found) if rule not in self._reported]
        self._reported.update(new)
        named = tuple(as_rule(rule, self._atoms) for rule in new)
        self._last = HistoryEntry(stage, rules, explained, named)
        self.entries.append(self._last)
        if self._callback is not None:
            self._callback(self._last)

    def add_rules(self, stage: str, rules: Sequence[Implication], explained: float) -> None:
        """Add an entry about all rules so far."""
        self.add(stage, len(rules), explained, rules)

    def report_stage(self, stage: str) -> None:
        """Call the callback with the current stage, without adding an entry."""
        if self._callback is not None:
            self._callback(self._last._replace(stage=stage, new=()))


# ---- The options of `fit`, checked

Kind: TypeAlias = Literal["transitions", "closures", "trajectories", "models"]
Method: TypeAlias = Literal["auto", "gradient", "symbolic"]
Noise: TypeAlias = float | Literal["auto"]

#: The largest body by default, and from closures with wrong labels.
MAX_BODY = 8
NOISY_MAX_BODY = 3
#: The fraction of the examples that is held out by default.
_HOLDOUT = 0.1
#: Options that limit the rules.
_LIMITS = ("heads", "bodies", "forbidden", "max_body")


@dataclass(frozen=True)
class FitOptions:
    """Every option of `fit`, as it was passed; `check_options` makes one."""

    kind: Kind
    method: Method
    noise: Noise
    seed: int
    known: Program | None
    refine: bool
    heads: tuple[str, ...] | None
    bodies: tuple[str, ...] | None
    forbidden: tuple[tuple[str, str], ...]
    max_body: int | None
    holdout: float | None
    homotopy: Homotopy | None
    device: torch.device | str
    checkpoint: str | None
    progress: ProgressCallback | None
    executor: Executor | None

    @property
    def closed(self) -> bool:
        """Whether a target is everything that follows, and not one step."""
        return self.kind in ("closures", "models")

    def body_limit(self, noise: float) -> int:
        """Return the largest body, given the fraction of wrong labels."""
        if self.max_body is not None:
            return self.max_body
        return NOISY_MAX_BODY if self.kind == "closures" and noise > 0 else MAX_BODY

    @property
    def held_out(self) -> float:
        """The fraction of the examples that measures accuracy."""
        if self.holdout is not None:
            return self.holdout
        return 0.0 if self.kind == "models" else _HOLDOUT


def check_options(given: Mapping[str, Any]) -> FitOptions:
    """Return the options of `fit`, or raise.

    Raises:
        ArgumentError: an option has a wrong type or value, or does not apply.
        ProgramError: the known program has negation.
    """
    known, noise, max_body, holdout = (
        given[name] for name in ("known", "noise", "max_body", "holdout")
    )
    if known is not None and not isinstance(known, Program):
        raise wrong("known", "a Program, such as lg.parse returns", known)
    if known is not None:
        require_definite(known, "fit(known=…)")
    if not isinstance(given["refine"], bool):
        raise wrong("refine", "True or False", given["refine"])
    if given["progress"] is not None and not callable(given["progress"]):
        raise wrong("progress", "a function that takes a HistoryEntry", given["progress"])
    if not isinstance(given["executor"], Executor | None):
        expected = "a concurrent.futures.Executor, such as RayExecutor()"
        raise wrong("executor", expected, given["executor"])
    checked = {
        "kind": one_of("kind", given["kind"], get_args(Kind)),
        "method": one_of("method", given["method"], get_args(Method)),
        "noise": noise if noise == "auto" else _fraction("noise", noise, 0.5, ', or "auto"'),
        "seed": whole_number("seed", given["seed"]),
        "heads": _names("heads", given["heads"]),
        "bodies": _names("bodies", given["bodies"]),
        "forbidden": _pairs(given["forbidden"]),
        "max_body": None if max_body is None else whole_number("max_body", max_body),
        "holdout": None if holdout is None else _fraction("holdout", holdout, 1.0),
        "homotopy": _homotopy(given["homotopy"]),
        "device": usable_device(given["device"]),
        "checkpoint": _path(given["checkpoint"]),
    }
    options = FitOptions(**{**given, **checked})
    _refuse_unused(options)
    return options


def _refuse_unused(options: FitOptions) -> None:
    """Raise where an option has no effect on what was asked for."""
    given = [name for name in (*_LIMITS, "known", "checkpoint", "homotopy", "executor")
             if getattr(options, name) not in (None, ())]  # fmt: skip
    if options.refine and options.known is None:
        raise ArgumentError("refine=True is about known rules; pass known as well, or leave it out")
    if options.kind == "models":
        if options.method not in ("auto", "symbolic") or options.noise != 0.0:
            raise ArgumentError('kind="models" is learned by method="symbolic", without noise')
        unused = [name for name in given if name != "known"]
        if unused:
            raise ArgumentError(
                f'kind="models" finds all rules at once and does not use {", ".join(unused)}; '
                f"to limit the rules leave out columns of the table"
            )
    elif options.executor is not None and options.method == "gradient":
        raise ArgumentError(
            'executor spreads the search of method="symbolic"; method="gradient" trains all heads '
            "together on one device"
        )
    elif options.homotopy is not None and options.method != "gradient":
        raise ArgumentError(
            'homotopy is used by method="gradient" only; pass that method, or leave it out'
        )


# ---- Single options


def _fraction(name: str, value: Any, end: float, other: str = "") -> float:
    expected = f"a fraction from 0 to {end:g}, {end:g} excluded{other}"
    return real_number(name, value, expected, lambda fraction: 0 <= fraction < end)


def _names(name: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable):
        raise wrong(name, "names of atoms", value)
    listed = tuple(names)
    for one in listed:
        if not isinstance(one, str):
            raise ArgumentError(f"{name} must be names of atoms, but has {one!r}")
    return listed


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    expected = "pairs (head, atom) of names"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise wrong("forbidden", expected, value)
    pairs = []
    for pair in value:
        names = () if isinstance(pair, str) or not isinstance(pair, Iterable) else tuple(pair)
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            raise ArgumentError(f"forbidden must be {expected}, but has {pair!r}")
        pairs.append((names[0], names[1]))
    return tuple(pairs)


def _homotopy(value: Any) -> Homotopy | None:
    if value is None:
        return None
    from latentgamma.operator.annealing import Homotopy

    if not isinstance(value, Homotopy):
        raise wrong("homotopy", "a Homotopy", value)
    return value


def _path(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return os.fsdecode(value)
    except TypeError:
        raise wrong("checkpoint", "a path", value) from None
