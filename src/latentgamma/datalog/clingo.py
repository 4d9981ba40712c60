"""Grounding by clingo, and its output as a program."""

from __future__ import annotations

import math
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma.datalog import clingo_run
from latentgamma.datalog.clingo_names import decode_name
from latentgamma.datalog.clingo_run import Output, ground_here
from latentgamma.datalog.source import CANDIDATE, Source, walk
from latentgamma.errors import ProgramError
from latentgamma.program.program import Program

# ---- Whether a program is so small that grounding it in this process cannot take long

# Clingo joins some millions of tuples in a second.
_MOST_TUPLES = 4_000_000
# A longer text takes longer to ground than a process takes to start.
_LONGEST = 1 << 16
# Ground rules after which a program is no longer small: without arithmetic, and with it. Each
# rule may bring one new number.
_RULES, _RULES_WITH_ARITHMETIC = 100_000, 1_000

_constant = re.compile(r'"(?:[^"\\]|\\.)*+"|\w++')


def rules_in_process(source: Source, texts: Sequence[str]) -> int:
    """Return how many ground rules may be made in this process; 0 if a join may take long.

    A join looks at no more tuples than there are ways to give values to the variables of its rule.
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
    """Return whether this is a division that may end clingo's process: the least number by -1.

    Its result does not fit in 32 bits, and the processor raises an exception.
    """
    if node.ast_type.name != "BinaryOperation" or int(node.operator_type) not in {6, 7}:
        return False
    right = node.right
    known = right.ast_type.name == "SymbolicTerm" and right.symbol.type.name == "Number"
    return not (known and right.symbol.number >= 0)


def _length(interval: Any, source: Source) -> int | None:
    """Return how many values an interval has, if its ends are known."""
    ends: list[int] = []
    for term in (interval.left, interval.right):
        if term.ast_type.name != "SymbolicTerm":
            return None
        symbol = source.constants.get(str(term.symbol), term.symbol)
        if symbol.type.name != "Number":
            return None
        ends.append(symbol.number)
    return max(0, ends[1] - ends[0] + 1)


# ---- Grounding with limits: small programs in this process, others in a child that can be ended

# The child looks at the clock between two rules, and its message says how far it got: it has this
# many seconds more than the limit before it is killed.
_GRACE = 0.5
_LONGEST_WAIT = 1e6  # seconds; more than the clocks of some systems take is an error


class GroundingFailed(Exception):  # noqa: N818 - never leaves the package, which adds the place
    """Clingo refused the text; the messages say why."""

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = messages
        super().__init__("".join(messages))


class DivisionCrash(ProgramError):  # noqa: N818 - never leaves the package, as above
    """A division that does not fit in 32 bits has ended clingo's process."""


def run_clingo(
    texts: Sequence[str],
    *,
    max_rules: int,
    max_seconds: float,
    complete: bool = False,
    small: int = 0,
) -> Output:
    """Return what clingo's grounder makes of these texts.

    Clingo cannot be interrupted while it joins, and a thread that still runs it when Python exits
    ends the process with a segmentation fault. So only what is known to be small runs here.

    Args:
        texts: parts of one program.
        max_rules: stop with a ProgramError beyond this many ground rules.
        max_seconds: stop with a ProgramError after so long.
        complete: keep the bodies of rules whose heads are true whatever the open facts are.
        small: how many ground rules may be made in this process before a child takes over.
    """
    request: dict[str, Any] = {
        "texts": list(texts),
        "max_rules": max_rules,
        "max_seconds": max_seconds,
        "complete": complete,
    }
    output = None
    if small or not sys.executable:
        here = min(max_rules, small) if sys.executable else max_rules
        output = ground_here(**{**request, "max_rules": here})
    if output is None or (output.stopped == "rules" and len(output.heads) < max_rules):
        output = _ground_in_child(request)
    if output.failed:
        raise ProgramError(output.failed)
    if output.stopped:
        raise ProgramError(_too_much(output, max_rules, max_seconds))
    if output.refused:
        raise GroundingFailed(output.messages)
    return output


def _ground_in_child(request: dict[str, Any]) -> Output:
    """Return what a child process makes of the request. It is ended at the limit, and on Ctrl-C."""
    start = (
        f"import sys, runpy; sys.path[:] = {sys.path!r}; "
        f"runpy.run_path({str(Path(clingo_run.__file__))!r}, run_name='__main__')"
    )
    command, pipe = [sys.executable, "-I", "-S", "-c", start], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        try:
            seconds = min(request["max_seconds"], _LONGEST_WAIT) + _GRACE
            data, said = child.communicate(pickle.dumps(request), timeout=seconds)
        except subprocess.TimeoutExpired:
            return Output(stopped="seconds")
        finally:  # subprocess.run does not wait for a child that it kills after Ctrl-C
            child.kill()
            child.wait()
    if child.returncode == -signal.SIGFPE:
        raise DivisionCrash(
            "a division here is 2147483648, which does not fit in 32 bits: -2147483648 divided by -1"
        )
    if child.returncode:
        raise ProgramError(_crash(child.returncode, said.decode(errors="replace")))
    return Output(**pickle.loads(data))


def _crash(status: int, said: str) -> str:
    last = said.strip().rpartition("\n")[2]
    reason = f"signal {-status}" if status < 0 else f"exit status {status}"
    return f"clingo's process ended with {reason}{': ' * bool(last)}{last}; is there enough memory?"


def _too_much(output: Output, max_rules: int, max_seconds: float) -> str:
    limit = (
        f"max_rules={max_rules:,}" if output.stopped == "rules" else f"max_seconds={max_seconds:g}"
    )
    raised = "raise the limit of lg.datalog.ground or 'latentgamma ground'"
    if not output.heads:  # the child was killed
        return (
            f"grounding was stopped by {limit} in the middle of a join. A rule whose atoms share no "
            f"variables joins all of them with all: split it, or {raised}"
        )
    last = next(reversed(output.facts), None) or next(reversed(output.names.values()), None)
    shown = f", the last of them for {last}" if last else ""
    return (
        f"grounding was stopped by {limit} after {len(output.heads):,} ground rules{shown}. Rules "
        f"such as 'n(X+1) :- n(X)' have no end: bound the variable ('X < 100'); or {raised}"
    )


# ---- Clingo's ground rules as a program

Numbers = npt.NDArray[np.int32]


def assembled(output: Output) -> tuple[Program, npt.NDArray[np.int64]]:
    """Return the program of clingo's output, and which rule of the output each of its rules was.

    Atoms are numbered as the printed rules have them. A fact that clingo names without a rule has
    the number -1.

    Raises:
        NotStratifiedError: if an atom depends on its own negation.
    """
    sizes = np.frombuffer(output.sizes, np.int32)
    heads = np.frombuffer(output.heads, np.int32)
    bodies = np.frombuffer(output.bodies, np.int32)
    sources = dict.fromkeys(output.facts, -1)
    # A complete output has a name for its facts, too; parts of evaluated aggregates have none.
    stating = np.flatnonzero(sizes == 0)
    for rule, atom in zip(stating.tolist(), heads[stating].tolist(), strict=True):
        if atom in output.names:
            sources.setdefault(output.names[atom], rule)
    facts = [name for name in sources if not name.startswith(CANDIDATE)]
    stated = {name: n for n, name in enumerate(facts)}
    heads, bodies, counts, rules = _without_nameless(heads, bodies, sizes, output.names)
    externals = np.array([i for i in output.externals if i in output.names], np.int32)
    numbers = _first_seen(heads, bodies, counts, externals)
    place = np.zeros(int(numbers.max(initial=0)) + 1, np.int32)
    fresh: list[str] = []
    for atom in numbers.tolist():
        name = output.names[atom]
        number = stated.get(name)
        if number is None:
            number = len(facts) + len(fresh)
            fresh.append(name)
        place[atom] = number
    F = len(facts)
    atoms = tuple(map(decode_name, (*facts, *fresh)))
    ends: npt.NDArray[np.int64] = np.concatenate((np.zeros(F + 1, np.int64), np.cumsum(counts)))
    all_heads = np.concatenate((np.arange(F, dtype=np.int32), place[heads]))
    negated = bodies < 0
    program = Program.from_arrays(
        ends,
        place[np.abs(bodies)],
        all_heads,
        body_negated=negated if negated.any() else None,
        atoms=atoms,
    )
    stated_by = np.fromiter((sources[name] for name in facts), np.int64, F)
    return program, np.concatenate((stated_by, rules))


#: Rules that may stand for one with anonymous variables.
_MOST_UNFOLDED = 1_000_000


def _without_nameless(
    heads: Numbers, bodies: Numbers, sizes: Numbers, names: dict[int, str]
) -> tuple[Numbers, Numbers, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rules that have a body, with atoms without a name replaced by their own rules.

    The last array has the number of each rule among the given ones. Such an atom stands for `p(X,_)`, whatever the last argument is, or for an aggregate that clingo
    has evaluated.
    """
    most = max(int(np.abs(bodies).max(initial=0)), int(heads.max(initial=0)), max(names, default=0))
    named = np.zeros(most + 1, np.bool_)
    named[np.fromiter(names, np.int64, len(names))] = True
    rules = np.flatnonzero(sizes)
    counts = sizes.astype(np.int64)
    known = named[np.abs(bodies)]
    if known.all() and named[heads[rules]].all():
        return heads[rules], bodies, counts[rules], rules
    ends = np.cumsum(counts)
    unknown = np.bincount(np.repeat(np.arange(len(heads)), counts)[~known], minlength=len(heads))
    unfold = _Unfolding(named)
    for j in np.flatnonzero(~named[heads]).tolist():
        unfold.bodies.setdefault(int(heads[j]), []).append(
            bodies[ends[j] - counts[j] : ends[j]].tolist()
        )
    kept: list[int] = []
    new_bodies: list[tuple[int, ...]] = []
    for j in rules[named[heads[rules]]].tolist():
        body = bodies[ends[j] - counts[j] : ends[j]].tolist()
        for one in unfold.all_of(body) if unknown[j] else [tuple(body)]:
            kept.append(j)
            new_bodies.append(one)
    flat = np.fromiter(chain.from_iterable(new_bodies), np.int32)
    numbers = np.array(kept, np.int64)
    return heads[numbers], flat, np.array([len(b) for b in new_bodies], np.int64), numbers


class _Unfolding:
    """Literals as sets of conjunctions of literals that have names, one of which must hold."""

    def __init__(self, named: npt.NDArray[np.bool_]) -> None:
        self.named = named
        self.bodies: dict[int, list[list[int]]] = {}  # of the atoms that have no name
        self.found: dict[int, list[tuple[int, ...]]] = {}

    def of(self, literal: int) -> list[tuple[int, ...]]:
        """Return the conjunctions for one literal."""
        if self.named[abs(literal)]:
            return [(literal,)]
        if literal not in self.found:
            rules = self.bodies.get(abs(literal), [])
            if literal > 0:
                ways = [one for body in rules for one in self.all_of(body)]
            else:  # one literal of each body is false
                ways = self._product([[w for x in body for w in self.of(-x)] for body in rules])
            self.found[literal] = list(dict.fromkeys(ways))
        return self.found[literal]

    def all_of(self, body: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the conjunctions for a body."""
        return self._product([self.of(literal) for literal in body])

    def _product(self, parts: Sequence[Sequence[tuple[int, ...]]]) -> list[tuple[int, ...]]:
        if math.prod(map(len, parts)) > _MOST_UNFOLDED:
            raise ProgramError(
                f"'_' over open facts stands for more than {_MOST_UNFOLDED:,} ground rules here; "
                "derive an atom without the argument first, and use that"
            )
        joined = (dict.fromkeys(chain.from_iterable(one)) for one in product(*parts))
        return [tuple(one) for one in joined if not any(-literal in one for literal in one)]


def _first_seen(
    heads: npt.NDArray[np.int32],
    bodies: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int64],
    others: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """Return the atoms in the order in which rules mention them, heads first, then the others."""
    ends = np.cumsum(sizes)
    sequence = np.empty(len(heads) + len(bodies) + len(others), np.int32)
    at = np.arange(len(heads))
    sequence[at + ends - sizes] = heads
    sequence[np.arange(len(bodies)) + np.repeat(at, sizes) + 1] = np.abs(bodies)
    sequence[len(heads) + len(bodies) :] = others
    return np.array(list(dict.fromkeys(sequence.tolist())), np.int32)
