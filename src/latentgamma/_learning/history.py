"""The learning curve: what was known after each stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from latentgamma._learning.implications import Implication, as_rule
from latentgamma._program.rules import Rule


class HistoryEntry(NamedTuple):
    """One point of a learning curve.

    >>> import latentgamma as lg
    >>> result = lg.fit([[1, 0], [0, 0]], [[1, 1], [0, 0]], atoms=["penguin", "bird"], holdout=0)
    >>> [(entry.stage, entry.rules) for entry in result.history]
    [('head 1 of 1', 1), ('done', 1)]

    Attributes:
        stage: what was finished.
        rules: the number of rules so far.
        explained: the share explained so far: of the labels that became true; from closures, of
            the examples, or with noise of the labels; with method "paper", of the labels.
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
        self,
        atoms: Sequence[str],
        known: Iterable[Implication],
        callback: ProgressCallback | None,
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
