"""Whether a program is so small that grounding it in this process cannot take long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from latentgamma.datalog.source import Source, walk

# Clingo joins some millions of tuples in a second.
_MOST_TUPLES = 4_000_000
# A longer text takes longer to ground than a process takes to start.
_LONGEST = 1 << 16
# Ground rules after which a program is no longer small: without arithmetic, and with it. Each
# rule may bring one new number.
_RULES, _RULES_WITH_ARITHMETIC = 100_000, 1_000

_constant = re.compile(r'"(?:[^"\\]|\\.)*+"|\w++')


def rules_in_process(source: Source, texts: Sequence[str]) -> int:
    """How many ground rules may be made in this process; 0 if a join may take long.

    A join looks at no more tuples than there are ways to give values to the variables of its rule.

    Args:
        source: the text, read.
        texts: what clingo grounds.
    """
    if sum(map(len, texts)) > _LONGEST:
        return 0
    values = len({constant for text in texts for constant in _constant.findall(text)})
    arithmetic = False
    most = 0  # variables of a rule
    for rule in source.rules:
        variables: set[str] = set()
        anonymous = 0
        for node in walk(rule):
            kind = node.ast_type.name
            if kind == "Variable":
                anonymous += node.name == "_"
                variables.add(node.name)
            elif kind == "Interval":
                length = _length(node, source)
                if length is None:
                    return 0
                values += length
            elif may_crash(node):
                return 0
            arithmetic |= kind in {"BinaryOperation", "UnaryOperation"}
        most = max(most, len(variables - {"_"}) + anonymous)
    limit = _RULES_WITH_ARITHMETIC if arithmetic else _RULES
    values += limit if arithmetic else 0
    return limit if len(source.rules) * values**most <= _MOST_TUPLES else 0


def may_crash(node: Any) -> bool:
    """Whether this is a division that may end clingo's process: the least number by -1.

    Its result does not fit in 32 bits, and the processor raises an exception.
    """
    if node.ast_type.name != "BinaryOperation" or int(node.operator_type) not in {6, 7}:
        return False
    right = node.right
    known = right.ast_type.name == "SymbolicTerm" and right.symbol.type.name == "Number"
    return not (known and right.symbol.number >= 0)


def _length(interval: Any, source: Source) -> int | None:
    """How many values an interval has, if its ends are known."""
    ends: list[int] = []
    for term in (interval.left, interval.right):
        if term.ast_type.name != "SymbolicTerm":
            return None
        symbol = source.constants.get(str(term.symbol), term.symbol)
        if symbol.type.name != "Number":
            return None
        ends.append(symbol.number)
    return max(0, ends[1] - ends[0] + 1)
