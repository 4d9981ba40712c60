"""Decisions with reasons: the questions that a request answers, by which rules, and what would change them."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import operator
import sys
import warnings
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations, groupby, islice, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import one_of, wrong
from latentgamma._text import listing
from latentgamma.decide.columns import (
    Column,
    column_reader,
    fact_column,
    fact_value,
    is_uncertain,
)
from latentgamma.decide.requests import PlacedRequest, check_columns, read_requests
from latentgamma.errors import DataError, ProgramError
from latentgamma.logic.proof import (
    Absent,
    Derivation,
    ProofStep,
    absent_leaf,
    derivation,
    proof_step,
)
from latentgamma.logic.why_not import why_not
from latentgamma.program.conditions import (
    column_value,
    condition_masks,
    is_missing,
    row_count,
    value_text,
)
from latentgamma.program.counting import counts_of
from latentgamma.program.facts import atom_index, bit_places
from latentgamma.program.graph import dependencies, rule_order, rules_deriving
from latentgamma.program.names import (
    condition_text,
    constant_text,
    plain_number,
    quote,
    rule_text,
)
from latentgamma.program.program import Program, require_program

#: Requests that are tried, in the search for the smallest change, before the search gives up.
_MOST_TRIED = 20_000
# Combinations of values that are tried to leave out a condition in the description of a change.
_MOST_COMBINED = 200

# Explanations of absent atoms that are kept for other requests.
_MOST_KEPT = 10_000
# Rules times atoms: each rule has a few numbers with a bit for each atom.
_MOST_BITS = 10**9
# Pairs of names that are compared to find a misspelt one, and those that are warned of.
_MOST_COMPARED, _MOST_WARNINGS = 100_000, 5
# Facts with probabilities, over all of whose worlds the questions are summed.
_MOST_UNCERTAIN = 20


def _record(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Return the JSON schema of an object with these properties and no others."""
    return {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        "properties": properties,
    }


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_CHANGE = _record(
    {
        "name": _TEXT,
        "value": {"type": ["string", "number", "boolean", "null"]},
        "needed": _TEXTS,
        "text": _TEXT,
    },
    "value",
)
#: The JSON schema of a decision, as `Decision.to_dict` has it.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Decision",
    **_record(
        {
            "latentgamma": {"const": 1},
            "kind": {"const": "decision"},
            "answers": {
                "description": "for each question whether it follows from the request",
                "type": "object",
                "additionalProperties": {"type": "boolean"},
            },
            "rules": {
                "description": "the rules by which the answers follow, in the order of their use",
                **_TEXTS,
            },
            "violated": {
                "description": "the requirements that do not hold",
                "type": "array",
                "items": _record({"rule": _TEXT, "requirement": _TEXT, "facts": _TEXTS}),
            },
            "digest": {
                "description": "SHA-256 of the program, the questions and the request",
                "type": "string",
                "pattern": "^[0-9a-f]{64}$",
            },
            "probability": {
                "description": "for each question its probability, if facts have probabilities",
                "type": "object",
                "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1},
            },
            "proof": {
                "description": "for each question that follows its proof, premises first",
                "type": "object",
                "additionalProperties": {"type": "object"},
            },
            "missing": {
                "description": "for each question that does not follow a smallest change of the request "
                "with which it would; null if none was found",
                "type": "object",
                "additionalProperties": {
                    "anyOf": [{"type": "null"}, {"type": "array", "items": _CHANGE}]
                },
            },
        },
        "probability",
        "proof",
        "missing",
    ),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A value of a request that would have to be another one.

    >>> decider = Decider("loan :- income >= 30000.", "loan")
    >>> print(decider({"income": 28500}).missing["loan"][0])
    income >= 30000 (income is 28500: 1500 short)

    Attributes:
        name: the column or the fact.
        value: what the request has.
        needed: the fact or its negation, or the conditions that would have to hold; every value
            that meets them is enough.
        distance: how far a number would have to move, if it is a number; negative: down.
        further: whether it would have to move further than that.
    """

    name: str
    value: Any
    needed: tuple[str, ...]
    distance: float | None = None
    further: bool = False

    def __str__(self) -> str:
        needed = ", ".join(self.needed)
        if self.needed in ((quote(self.name),), (f"not {quote(self.name)}",)):
            return needed
        short = ""
        if self.distance:  # at 0 the condition alone says which way
            more = "more than " if self.further else ""
            size = constant_text(float(f"{abs(self.distance):.12g}"))
            short = f": {more}{size} {'short' if self.distance > 0 else 'too much'}"
        return f"{needed} ({value_text(self.name, self.value)}{short})"

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain values, for JSON."""
        value = _plain(self.value)
        return {"name": self.name, "value": value, "needed": list(self.needed), "text": str(self)}


class Violation(NamedTuple):
    """A requirement that does not hold: its id or number, its text, and the facts of its body.

    >>> decider = Decider("adult :- age >= 18. :- adult, school.", "adult")
    >>> print(*decider({"age": 20, "school": True}).violated)
    rule 1 is violated: :- adult, school. (adult, school)
    """

    rule: str
    requirement: str
    facts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rule} is violated: {self.requirement} ({', '.join(self.facts)})"


@dataclass(frozen=True, eq=False)
class Decision:
    """What follows from one request; proofs and smallest changes are computed when they are read.

    >>> decision = Decider("minor :- age < 18.", "minor")({"age": 17})
    >>> print(decision)
    minor: yes
    minor  (rule 0)
    └─ age < 18  (age is 17)

    Attributes:
        answers: for each question whether it follows.
        request: the request.
    """

    answers: dict[str, bool]
    request: Mapping[str, Any]
    _decider: Decider = field(repr=False)
    _given: int = field(repr=False)
    _state: int = field(repr=False)
    _fired: list[_Rule] = field(repr=False)

    def __reduce__(self) -> Any:
        return self._decider, (self.request,)

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """The rules by which the answers follow, in the order of their use: ids, or 'rule 3'.

        Of several rules that derive an atom, the first in the program is named; among atoms that
        need each other, the first that applies.
        """
        names = self._decider._rule_names
        used = _used(self._fired, self._decider._goals & self._state)
        return tuple(dict.fromkeys([name for rule in used if (name := names[rule.number])]))

    @cached_property
    def violated(self) -> tuple[Violation, ...]:
        """The requirements that do not hold."""
        decider = self._decider
        if not self._state & decider._required:
            return ()
        program = decider.program
        found = []
        for rule, name in program.requirements.items():
            if not self._state >> program.index[name] & 1:
                continue
            literals = program.literals_of(rule).tolist()
            facts = [self._fact(b) for b in literals if b >= 0]
            facts += [f"not {quote(program.atoms[~b])}" for b in literals if b < 0]
            label = program.label(rule)
            called = f"rule {rule}" if label is None else label.id
            found.append(Violation(called, decider._requirement(rule), tuple(facts)))
        return tuple(found)

    def _fact(self, atom: int) -> str:
        name = self._decider.program.atoms[atom]
        condition = self._decider.program.conditions.get(name)
        if condition is None:
            return quote(name)
        value = value_text(condition.column, self.request.get(condition.column))
        return f"{quote(name)} ({value})"

    @cached_property
    def proof(self) -> dict[str, Derivation]:
        """For each question that follows its proof."""
        return _Proofs((q, self._proof(q)) for q, answer in self.answers.items() if answer)

    def _proof(self, question: str) -> Derivation:
        decider, program = self._decider, self._decider.program
        goal = program.index[question]
        if program.origin is not None:
            found = derivation(program, _bits(self._given, program.M), goal)
            assert found is not None
            return found
        used = _used(self._fired, 1 << goal)
        needed = 1 << goal
        for rule in used:
            needed |= rule.positive
        steps = [self._given_step(i) for i in bit_places(needed & self._given)]
        # The rule that derives each atom; −1 for an atom that is given.
        reasons = defaultdict[int, int](lambda: -1)
        for rule in used:
            reasons[rule.atom] = rule.number
            if rule.atom not in decider._hidden:
                steps.append(self._step(reasons, rule.atom))
        depth: dict[str, int] = {}
        for step in steps:
            below = max([depth[name] for name in step.premises], default=0)
            derived = step.rule is not None or step.needed is not None
            depth[step.atom] = below + derived
        absent = dict.fromkeys([name for step in steps for name in step.negated])
        leaves = tuple([self._leaf(name) for name in absent])
        facts: frozenset[str] = frozenset()
        if leaves:
            facts = frozenset([program.atoms[i] for i in bit_places(self._given)])
        return Derivation(program, question, depth[question], tuple(steps), leaves, facts)

    def _leaf(self, name: str) -> Absent:
        """Return why an atom does not follow; it depends on the literals of its rules alone."""
        decider, program = self._decider, self._decider.program
        atom = program.index[name]
        if atom not in decider._leaf_bits:
            below = sum(1 << i for i in dependencies(program, [atom])[0])
            read = [name for name, column in decider.columns.items() if column.bits & below]
            decider._leaf_bits[atom] = decider._literals_below(atom), tuple(read)
        bits, columns = decider._leaf_bits[atom]
        unknown = tuple([column for column in columns if is_missing(self.request.get(column))])
        key = atom, self._state & bits, unknown
        leaf = decider._leaves.get(key)
        if leaf is None:
            leaf = absent_leaf(program, _bits(self._state, program.M), name)
            leaf = dataclasses.replace(leaf, unknown=unknown)
            if len(decider._leaves) < _MOST_KEPT:
                decider._leaves[key] = leaf
        return leaf

    def _given_step(self, atom: int) -> ProofStep:
        name = self._decider.program.atoms[atom]
        condition = self._decider.program.conditions.get(name)
        column = None if condition is None else condition.column
        value = None if column is None else (column, self.request.get(column))
        return ProofStep(name, None, (), value=value)

    def _step(self, reasons: Mapping[int, int], atom: int) -> ProofStep:
        decider, rule = self._decider, reasons[atom]
        if atom in decider._counts:
            return proof_step(decider.program, reasons, atom)
        # The step of a rule is the same in every proof.
        step = decider._steps.get((rule, atom))
        if step is None:
            step = decider._steps[rule, atom] = proof_step(decider.program, reasons, atom)
        return step

    @cached_property
    def missing(self) -> dict[str, tuple[Change, ...] | None]:
        """For each question that does not follow a smallest change of the request.

        The changes are the fewest columns and facts with which the question follows, and values as
        near as possible. None if the search found no change.
        """
        false = [name for name, answer in self.answers.items() if not answer]
        return {name: self._decider._smallest_change(self, name) for name in false}

    @cached_property
    def probability(self) -> dict[str, float] | None:
        """For each question its probability, if the request gives facts with probabilities.

        The facts are independent, and the sum over all their worlds is exact. None if every fact is
        certain.

        Raises:
            DataError: if the questions depend on more than 20 uncertain facts.
        """
        return self._decider._probability(self)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the program, the questions and the request, as hexadecimal digits."""
        decider = self._decider
        values = {
            name: decider._value_read(name, value)
            for name, value in self.request.items()
            if name in decider.columns or name in decider._fact_bits
        }
        known = {name: value for name, value in sorted(values.items()) if value is not None}
        text = json.dumps(known, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(f"{decider.digest}\n{text}".encode()).hexdigest()

    def to_dict(self, *, proof: bool = False, missing: bool = False) -> dict[str, Any]:
        """Return the decision as plain values; `lg.decide.SCHEMA` is their JSON schema.

        Args:
            proof: with the proofs of the questions that follow.
            missing: with the smallest changes for those that do not.
        """
        found: dict[str, Any] = {
            "latentgamma": 1,
            "kind": "decision",
            "answers": self.answers,
            "rules": list(self.rules),
            "violated": [{**v._asdict(), "facts": list(v.facts)} for v in self.violated],
            "digest": self.digest,
        }
        if self.probability is not None:
            found["probability"] = self.probability
        if proof:
            found["proof"] = {name: tree.to_dict() for name, tree in self.proof.items()}
        if missing:
            found["missing"] = {
                name: None if changes is None else [change.to_dict() for change in changes]
                for name, changes in self.missing.items()
            }
        return found

    def to_json(
        self, *, proof: bool = False, missing: bool = False, indent: int | None = None
    ) -> str:
        """Return the decision as JSON text.

        Args:
            proof: as in `to_dict`.
            missing: as in `to_dict`.
            indent: the spaces of each level, as in `json.dumps`; None for one line.
        """
        found = self.to_dict(proof=proof, missing=missing)
        return json.dumps(found, ensure_ascii=False, indent=indent)

    def __str__(self) -> str:
        parts = []
        for name, answer in self.answers.items():
            parts.append(f"{quote(name)}: {'yes' if answer else 'no'}")
            if answer:
                parts.append(str(self.proof[name]))
            elif (changes := self.missing[name]) is None:
                parts.append("no change was found with which it would follow")
            else:
                parts.append(f"it would follow with {listing(list(map(str, changes)), 10)}")
        return "\n".join([*parts, *map(str, self.violated)])


class _Proofs(dict[str, Derivation]):
    """The proofs of the questions that follow."""

    def __missing__(self, question: str) -> Derivation:
        raise KeyError(f"no proof of {question!r}: it does not follow; see decision.missing")


def _parsed(text: str) -> Program:
    """Return the program of a text; conditions in rules with variables are refused."""
    from latentgamma.datalog import GroundingWarning
    from latentgamma.datalog.programs import parse

    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*compares two constants", GroundingWarning)
        try:
            return parse(text)
        except GroundingWarning as error:
            raise ProgramError(str(error)) from None


class _Rule(NamedTuple):
    """A rule and one of its heads, as masks of bits, one for each atom."""

    positive: int
    excluded: int  # its negative literals, and the head itself
    head: int
    atom: int  # the number of the head
    number: int


class Decider:
    """A program prepared to answer questions about one request after another.

    A request says what the values of columns are, which the conditions of the program compare, and
    which facts hold. What it does not say is missing: every comparison with a missing value is
    false, and so is a fact. A fact may have a probability; it then counts as true above one half,
    and `Decision.probability` has the probability of each answer.

    >>> decider = Decider('''
    ...     % @rule R1: Art. 3
    ...     loan :- income >= 30000, not minor.
    ...     % @rule R2
    ...     minor :- age < 18.
    ... ''', "loan")
    >>> decision = decider({"income": 41000, "age": 30})
    >>> decision.answers, decision.rules
    ({'loan': True}, ('R1',))
    >>> print(decision.proof["loan"])
    loan  (R1: Art. 3)
    ├─ income >= 30000  (income is 41000)
    └─ not minor  (R2 needs age < 18)
    >>> print(*decider({"income": 28500, "age": 30}).missing["loan"])
    income >= 30000 (income is 28500: 1500 short)

    Args:
        program: a program, or its text.
        questions: one atom or several.
        facts: atoms that rules derive and a request can state all the same. A request that states
            others is refused; in a table such a column is not read.
        unknown: what to do with a name that the program does not have: "refuse" a request that
            lacks a name which the questions need (one of them may be misspelt), or "ignore" it.

    Attributes:
        program: the program.
        questions: the names of the atoms that are asked for.
        columns: the columns that conditions compare, by name.
        facts: the atoms that a request can state: those that no rule derives, and those of the
            argument.
        needed_names: the columns and the facts that the questions depend on and no rule derives.
        digest: the SHA-256 of the program and the questions.

    Raises:
        ProgramError: if a rule derives a condition, a name is that of a column and of an atom, a
            requirement is violated by every request, rules with variables have conditions, or the
            program is too large.
        FactsError: if the program does not have such an atom.
    """

    def __init__(
        self,
        program: Program | str,
        questions: str | Iterable[str],
        *,
        facts: Iterable[str] = (),
        unknown: str = "refuse",
    ) -> None:
        if isinstance(program, str):
            program = _parsed(program)
        self.program = require_program(program, "Decider")
        self._ignore = one_of("unknown", unknown, ("refuse", "ignore")) == "ignore"
        if not isinstance(questions, Iterable):
            raise wrong("questions", "one name or several", questions)
        asked = [questions] if isinstance(questions, str) else list(questions)
        if not asked:
            raise ProgramError("a decider needs at least one question")
        goals = [atom_index(program, name) for name in asked]
        self.questions = tuple(program.atoms[i] for i in goals)
        self._question_bits = [(program.atoms[i], 1 << i) for i in goals]
        self._goals = sum(1 << i for i in set(goals))
        self._required = sum(
            1 << program.index[name] for name in set(program.requirements.values())
        )
        self.columns = self._find_columns()
        self._blocks = self._prepare(
            {*goals, *map(program.index.get, program.requirements.values())}
        )
        self._hidden = frozenset(np.flatnonzero(program.auxiliary).tolist())
        self._counts = counts_of(program)
        self._steps: dict[tuple[int, int], ProofStep] = {}
        self._leaves: dict[tuple[int, int, tuple[str, ...]], Absent] = {}
        self._leaf_bits: dict[int, tuple[int, tuple[str, ...]]] = {}
        self._rule_names = [self._rule_name(j) for j in range(program.R)]
        if not isinstance(facts, Iterable):
            raise wrong("facts", "names of atoms", facts)
        stated = [facts] if isinstance(facts, str) else facts
        self._stated = tuple(
            program.atoms[atom_index(program, name, what="facts")] for name in stated
        )
        self.facts = self._find_facts()
        self._fact_bits = {name: 1 << program.index[name] for name in self.facts}
        self._read_columns = column_reader(self.columns.values())
        self.needed_names = self._find_needed()
        #: Texts that conditions compare a column with, and that could be the name of another one.
        self._words = {
            word: condition
            for condition in program.conditions.values()
            for word in (condition.value,)
            if isinstance(word, str) and word.isidentifier()
        }
        try:
            self.refuse_compared_columns(self.columns)
        except DataError as error:
            raise ProgramError(str(error)) from None
        self._refuse_impossible()
        self._warn_of_misspelt_names()

    def __reduce__(self) -> Any:
        unknown = "ignore" if self._ignore else "refuse"
        made = partial(Decider, facts=self._stated, unknown=unknown)
        return made, (self.program, self.questions)

    def _literals_below(self, atom: int) -> int:
        """Return the bits of the atoms in the rules for an atom, or in a count."""
        program = self.program
        if atom in self._counts:
            _, atoms, negated = self._counts[atom]
            return sum(1 << program.index[name] for name in {*atoms, *negated})
        ends, rules = rules_deriving(program)
        bits = 0
        for rule in rules[ends[atom] : ends[atom + 1]].tolist():
            for b in program.literals_of(rule).tolist():
                bits |= 1 << (b if b >= 0 else ~b)
        return bits

    def _find_needed(self) -> tuple[str, ...]:
        """Return the columns and the facts that a table must have."""
        program = self.program
        columns = [name for name, column in self.columns.items() if column.bits & self._relevant]
        facts = [
            name
            for name in self.facts
            if not program.rules_per_head[program.index[name]]
            and self._relevant >> program.index[name] & 1
            and name not in self.questions
        ]
        return (*columns, *facts)

    def _find_columns(self) -> dict[str, Column]:
        program = self.program
        by_column: dict[str, list[tuple[int, Any]]] = {}
        for name, condition in program.conditions.items():
            i, column = program.index[name], condition.column
            if program.rules_per_head[i]:
                raise ProgramError(f"a rule derives {name!r}, but a condition is true of a value")
            if column in program.index:
                raise ProgramError(
                    f"{column!r} is a column and an atom; give one of them another name"
                )
            by_column.setdefault(column, []).append((i, condition))
        return {name: Column(name, conditions) for name, conditions in by_column.items()}

    def _find_facts(self) -> tuple[str, ...]:
        program = self.program
        special = {*program.conditions, *program.requirements.values()}
        return tuple(
            name
            for i, name in enumerate(program.atoms)
            if name not in special
            and i not in self._hidden
            and i not in self._counts
            and (not program.rules_per_head[i] or name in self._stated)
        )

    def _warn_of_misspelt_names(self) -> None:
        """Warn of facts, a few, whose names are almost those of atoms that rules derive and none uses."""
        program = self.program
        given = {*program.underivable, *self.questions}
        unused = [name for name in program.leaves if name not in given]
        facts = self.facts if len(self.facts) * len(unused) <= _MOST_COMPARED else ()
        near = ((x, y) for x in facts for y in difflib.get_close_matches(x, unused, 1, cutoff=0.8))
        for fact, atom in islice(near, _MOST_WARNINGS):
            warnings.warn(
                f"no rule derives {fact!r}, and no rule uses {atom!r}: if one of them is "
                "misspelt, the answers are wrong",
                stacklevel=3,
            )

    def _requirement(self, rule: int) -> str:
        """Return a rule without a head as text, its literals in the order of the program."""
        names = self.program.atoms
        literals = self.program.literals_of(rule).tolist()
        return rule_text(
            [], [quote(names[b]) if b >= 0 else f"not {quote(names[~b])}" for b in literals]
        )

    def _rule_name(self, rule: int) -> str:
        program = self.program
        label = program.label(rule)
        if label is not None:
            return label.id
        head = int(program.heads_of(rule)[0])
        return "" if head in self._hidden or head in self._counts else f"rule {rule}"

    def _prepare(self, goals: set[Any]) -> list[tuple[bool, list[_Rule]]]:
        """Return blocks of rules in an order in which they are applied, once or until nothing changes."""
        program = self.program
        relevant, needed = dependencies(program, goals)
        if len(needed) * program.M > _MOST_BITS:
            raise ProgramError(
                f"the questions depend on {len(needed):,} rules of a program with {program.M:,} atoms, "
                "too many for a decider; use lg.closure or lg.closures"
            )
        self._relevant = sum(1 << i for i in relevant)
        blocks: list[tuple[bool, list[_Rule]]] = []
        for stratum in program.strata:
            component = rule_order(stratum.program).component
            cycles = set(np.flatnonzero(np.bincount(component) > 1).tolist())
            # Components are numbered from the last to the first. The rules for an atom come after
            # all rules for what they need, in the order of the program.
            steps = sorted(
                (-c, c in cycles, int(number), int(stratum.atom[head]))
                for r, number in enumerate(stratum.rules)
                if number in needed
                for head in stratum.program.heads_of(r)
                for c in (int(component[head]),)
            )
            for cycle, part in groupby(steps, lambda step: step[1] and step[:1]):
                made = [self._rule(number, atom) for _, _, number, atom in part]
                blocks.append((bool(cycle), made))
        return blocks

    def _rule(self, number: int, atom: int) -> _Rule:
        literals = self.program.literals_of(number).tolist()
        head = 1 << atom
        return _Rule(
            sum(1 << b for b in literals if b >= 0),
            head | sum(1 << ~b for b in literals if b < 0),
            head,
            atom,
            number,
        )

    def _refuse_impossible(self) -> None:
        """Raise an error if a requirement is violated whatever is given."""
        program = self.program
        if not program.definite:
            return
        state, _ = self._close(0)
        for rule, name in program.requirements.items():
            if state >> program.index[name] & 1:
                raise ProgramError(
                    f"no request can meet the requirement '{self._requirement(rule)}': its body "
                    "always holds"
                )

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the program and the questions."""
        text = f"{self.program}\n{json.dumps(self.questions)}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    # ---- One request

    def __call__(self, request: Any) -> Decision:
        """Return the decision on one request.

        Args:
            request: a dictionary, a dataclass, a named tuple, or a row of a pandas table.

        Raises:
            DataError: if it has a name that the program does not have, or a value of a wrong kind.
        """
        # A copy: the decision must not change when the caller changes the request.
        request = dict(request if type(request) is dict else _as_mapping(request))
        given = self._read(request)
        state, fired = self._close(given)
        answers = {name: state & bit != 0 for name, bit in self._question_bits}
        return Decision(answers, request, self, given, state, fired)

    def _value_read(self, name: str, value: Any) -> Any:
        """Return what the rules read of a column or a fact, the same for every type of the value."""
        if is_missing(value):
            return None
        if name not in self.columns:
            return float(value) if is_uncertain(value) else fact_value(name, value)
        text = self.columns[name].text
        # A column without comparisons is only asked whether it is missing.
        return True if text is None else _plain(column_value(name, value, text=text))

    def _read(self, request: Mapping[str, Any]) -> int:
        state = self._read_columns(request)
        if not request.keys() <= self.columns.keys():
            for name, value in request.items():
                bit = self._fact_bits.get(name)
                if bit is not None:
                    state |= bit if fact_value(name, value) else 0
                elif not (self._ignore or name in self.columns) and (
                    name in self.program.index or any(n not in request for n in self.needed_names)
                ):
                    raise self._unknown(request, name)
            self.refuse_compared_columns(request)
        return state

    def refuse_compared_columns(self, names: Container[str]) -> None:
        """Raise an error if a condition compares a column with what is the name of another one."""
        if self._words and not self._ignore:
            for word, condition in self._words.items():
                if word in names and word not in self.questions:
                    raise DataError(
                        f"{condition.name!r} compares {condition.column!r} with the text {word!r}, "
                        f"which is also a column: columns are compared with constants; compute "
                        f"the difference of the two columns first"
                    )

    def _unknown(self, request: Mapping[str, Any], name: str) -> DataError:
        if not all(isinstance(name, str) for name in request):
            name = next(name for name in request if not isinstance(name, str))
            return DataError(f"the names of a request are texts, not {name!r}")
        if name in self.questions:
            return DataError(f"the request states {name!r}, which is what the rules are asked")
        if name in self.program.index and self.program.rules_per_head[self.program.index[name]]:
            return DataError(
                f"the request states {name!r}, which the rules derive; Decider(facts=[{name!r}]) "
                f"allows it"
            )
        near = difflib.get_close_matches(name, [*self.columns, *self.facts], n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return DataError(
            f"the request has {name!r}, which is neither a column nor a fact of the program{hint}"
        )

    def _close(self, state: int) -> tuple[int, list[_Rule]]:
        """Return the closure of the bits, and the rules that added some."""
        fired = []
        for cyclic, rules in self._blocks:
            while True:
                changed = False
                for rule in rules:
                    positive, excluded, head, _, _ = rule
                    if state & positive == positive and not state & excluded:
                        state |= head
                        fired.append(rule)
                        changed = True
                if not cyclic or not changed:
                    break
        return state, fired

    # ---- Facts with probabilities

    def _probability(self, decision: Decision) -> dict[str, float] | None:
        program = self.program
        soft = {
            name: float(value)
            for name, value in decision.request.items()
            if name in self._fact_bits and is_uncertain(value)
        }
        if not soft:
            return None
        soft = {name: p for name, p in soft.items() if self._relevant & self._fact_bits[name]}
        if len(soft) > _MOST_UNCERTAIN:
            raise DataError(
                f"the questions depend on {len(soft)} uncertain facts; up to {_MOST_UNCERTAIN} can be "
                "summed over; use lg.Layer(semantics='probability')"
            )
        worlds = np.arange(1 << len(soft))
        chance = np.ones(len(worlds))
        given = _bits(decision._given, program.M)
        planes: dict[int, npt.NDArray[np.uint64]] = {
            i: _packed(np.ones(len(worlds), np.bool_)) for i in np.flatnonzero(given).tolist()
        }
        for n, (name, p) in enumerate(soft.items()):
            true = (worlds >> n & 1).astype(np.bool_)
            chance *= np.where(true, p, 1 - p)
            planes[program.index[name]] = _packed(true)
        _close_planes(self, planes, len(worlds))
        zero = np.zeros(-(-len(worlds) // 64), np.uint64)
        return {
            name: min(
                1.0,
                float(chance @ _unpacked(planes.get(program.index[name], zero), len(worlds))),
            )
            for name in self.questions
        }

    # ---- The smallest change

    def _smallest_change(self, decision: Decision, question: str) -> tuple[Change, ...] | None:
        goal = 1 << self.program.index[question]
        base = decision._given
        atoms, _ = dependencies(self.program, [self.program.index[question]])
        options = self._options(decision, sum(1 << i for i in atoms))
        names = list(options)
        tried = 0
        for size in range(1, len(names) + 1):
            best: tuple[tuple[float, int], tuple[_Option, ...]] | None = None
            for chosen in combinations(names, size):
                for moves in product(*(options[name] for name in chosen)):
                    tried += 1
                    if tried > _MOST_TRIED:
                        return self._searched_change(decision, question, options)
                    state = base
                    for move in moves:
                        state = state & ~move.bits | move.mask
                    if self._close(state)[0] & goal:
                        cost = sum(move.cost for move in moves), sum(m.further for m in moves)
                        if best is None or cost < best[0]:
                            best = cost, moves
            if best is not None:
                return self._described(decision, goal, best[1])
        return None

    def _options(self, decision: Decision, cone: int) -> dict[str, list[_Option]]:
        """Return for each column and fact that matters the other values that it could have."""
        program, request = self.program, decision.request
        found: dict[str, list[_Option]] = {}
        for name, column in self.columns.items():
            if not column.bits & cone:
                continue
            value = column.known(request.get(name))
            now, here = column.region(value), decision._given & column.bits
            nearest: dict[int, _Option] = {}
            for region in range(column.first, len(column.masks)):
                mask = column.masks[region]
                if (mask ^ here) & cone and region != now:
                    distance, cost = _distance(column, value, now, region)
                    option = _Option(name, column.bits, mask, here, cost, distance, region % 2 == 0)
                    known = nearest.get(mask & cone)
                    if known is None or option.effort < known.effort:
                        nearest[mask & cone] = option
            if now is not None and (column.missing ^ here) & cone:  # a last resort
                nearest.setdefault(
                    column.missing & cone,
                    _Option(name, column.bits, column.missing, here, 1e6),
                )
            if nearest:
                found[name] = sorted(nearest.values(), key=lambda option: option.effort)
        for name in self.facts:
            i = program.index[name]
            bit = 1 << i
            stated = bool(decision._given & bit)
            if cone & bit and (stated or not program.rules_per_head[i]):
                mask, here = (0, bit) if stated else (bit, 0)
                found[name] = [_Option(name, bit, mask, here, 1.0)]
        return found

    def _described(
        self, decision: Decision, goal: int, moves: Iterable[_Option]
    ) -> tuple[Change, ...]:
        """Return the changes in as few conditions as say which values the columns must have."""
        chosen = list(moves)
        kept = [move.bits for move in chosen]  # of each, the conditions that are named
        for n, move in enumerate(chosen):
            flipped = move.mask ^ move.before
            # Leave out first what is false, then what holds already.
            order = (~move.mask & ~flipped, ~move.mask & flipped, move.mask & ~flipped)
            for group in (*order, move.mask & flipped):
                for i in bit_places(group & move.bits):
                    fewer = [*kept[:n], kept[n] & ~(1 << i), *kept[n + 1 :]]
                    if fewer[n] and self._suffices(decision._given, chosen, fewer, goal):
                        kept = fewer
        atoms = self.program.atoms
        changes = []
        for move, own in zip(chosen, kept, strict=True):
            needed = [quote(atoms[i]) for i in bit_places(own & move.mask)]
            needed += [f"not {quote(atoms[i])}" for i in bit_places(own & ~move.mask)]
            column = self.columns.get(move.name)
            if column and all((mask ^ move.mask) & own for mask in column.masks[column.first :]):
                needed = [condition_text(move.name, "is missing", None)]
            value = decision.request.get(move.name)
            changes.append(Change(move.name, value, tuple(needed), move.distance, move.further))
        return tuple(changes)

    def _suffices(self, given: int, moves: list[_Option], kept: list[int], goal: int) -> bool:
        """Return whether the goal follows with all values that meet the conditions that are kept."""
        values: list[list[int]] = []
        for move, own in zip(moves, kept, strict=True):
            column = self.columns.get(move.name)
            masks = (
                {move.mask} if column is None else {*column.masks[column.first :], column.missing}
            )
            values.append([mask for mask in masks if not (mask ^ move.mask) & own])
        if math.prod(map(len, values)) > _MOST_COMBINED:
            return False
        changed = sum(move.bits for move in moves)
        return all(
            self._close(given & ~changed | sum(masks))[0] & goal for masks in product(*values)
        )

    def _searched_change(
        self, decision: Decision, question: str, options: dict[str, list[_Option]]
    ) -> tuple[Change, ...] | None:
        """Return the change that `why_not` finds, if the columns can have such values."""
        program = self.program
        found = why_not(program, program.names(_bits(decision._given, program.M)), question)
        if found is None:
            return None
        added = sum(1 << program.index[name] for name in found.missing)
        removed = sum(1 << program.index[name] for name in found.withdrawn)
        state, moves = decision._given, []
        for several in options.values():
            bits = several[0].bits
            if not (added | removed) & bits:
                continue
            fits = [m for m in several if not (added & bits & ~m.mask) and not removed & m.mask]
            if not fits:
                return None
            moves.append(fits[0])
            state = state & ~bits | fits[0].mask
        if not self._close(state)[0] >> program.index[question] & 1:
            return None
        return self._described(decision, 1 << program.index[question], moves)

    # ---- Many requests

    def many(
        self, requests: Any, *, errors: str = "raise"
    ) -> Decisions | Iterator[Decision | DataError]:
        """Return the decisions on the rows of a table, or on requests one after another.

        Args:
            requests: a table (of pandas, polars or pyarrow, or a dictionary of columns), which is
                decided at once; or the path of a CSV, TSV, JSONL or Parquet file, or any iterable of
                requests, which are decided as they are read.
            errors: of a file or an iterable, "raise" the error of a bad request, or "keep" it in
                place of its decision; a table with a bad value is refused.

        Returns:
            `Decisions` for a table; else an iterator over `Decision`s.

        Raises:
            DataError: if a column that the rules compare is not there, or a value is of a wrong kind.
        """
        one_of("errors", errors, ("raise", "keep"))
        # The class is asked first: a lazy frame of polars would resolve its columns, with a warning.
        if isinstance(requests, Mapping) or any(
            hasattr(one, "columns") for one in (type(requests), requests)
        ):
            return Decisions(self, requests)
        return self._each(read_requests(self, requests), keep=errors == "keep")

    def _each(
        self, requests: Iterable[PlacedRequest], *, keep: bool
    ) -> Iterator[Decision | DataError]:
        for request in requests:
            try:
                yield request.decide(self)
            except DataError as error:
                if not keep:
                    raise
                yield error


class _Option(NamedTuple):
    """Another value that a column or a fact could have."""

    name: str
    bits: int  # of all its conditions
    mask: int  # of those that would hold
    before: int  # of those that hold now
    cost: float  # to choose among changes of as many columns
    distance: float | None = None
    further: bool = False

    @property
    def effort(self) -> tuple[float, bool]:
        """What options are sorted by: a bound itself comes before what lies beyond it."""
        return self.cost, self.further


def _distance(
    column: Column, value: Any, now: int | None, region: int
) -> tuple[float | None, float]:
    """Return how far a number would have to move into a region, and what that costs in the search."""
    if column.text or now is None:
        return None, 1.0
    # The end of the region that is nearer: the constant itself, or one that is not part of it.
    place = region // 2 - (region % 2 == 0 and region > now)
    distance = float(column.points[place]) - value
    if math.isinf(distance):
        return None, 1.0
    ratio = abs(distance) / (1.0 + abs(value))
    return distance, ratio / (1.0 + ratio)


def _used(fired: list[_Rule], wanted: int) -> list[_Rule]:
    """Return the rules that the wanted bits rest on, in the order applied."""
    used = []
    for rule in reversed(fired):
        if rule.head & wanted:
            used.append(rule)
            wanted |= rule.positive
    used.reverse()
    return used


def _bits(value: int, count: int) -> npt.NDArray[np.bool_]:
    """Return the bits of a number as booleans. Shape (count,)."""
    data = value.to_bytes(count // 8 + 1, "little")
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[:count].astype(np.bool_)


def _as_mapping(request: Any) -> Mapping[str, Any]:
    if isinstance(request, Mapping):
        return request
    if dataclasses.is_dataclass(request) and not isinstance(request, type):
        return {item.name: getattr(request, item.name) for item in dataclasses.fields(request)}
    for method in ("_asdict", "to_dict"):  # a named tuple, a row of pandas
        if hasattr(request, method):
            found: Mapping[str, Any] = getattr(request, method)()
            return found
    raise DataError(
        f"a request is a dictionary, a dataclass or a row, not {type(request).__name__}"
    )


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; None if it is missing."""
    if is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
        return plain_number(value)
    return str(value)


# ---- The rows of a table at once

# What has a length, but not a value for each row.
_NO_COLUMN = (str, bytes, Mapping, Set)


class Decisions:
    """The decisions on the rows of a table.

    >>> decider = Decider("minor :- age < 18. blocked :- minor, not guardian.", ["minor", "blocked"])
    >>> found = decider.many({"age": [17, 30, 12], "guardian": [False, False, True]})
    >>> found.answers["blocked"]
    array([ True, False, False])
    >>> found[0].rules, found.rules[2]
    (('rule 0', 'rule 1'), ('rule 0',))

    Attributes:
        answers: for each question one boolean for each row.
        violated: for each requirement, by its id or its text, one boolean for each row.
    """

    def __init__(self, decider: Decider, table: Any) -> None:
        self._decider, self._table = decider, table
        program = decider.program
        if not hasattr(table, "__len__"):
            kind = type(table).__name__
            raise DataError(f"a {kind} is not a table of rows; collect() makes one of a lazy frame")
        check_columns(decider, _column_names(table), "the table")
        names = set(_column_names(table))
        for name in names.intersection((*decider.columns, *decider.facts)):
            if isinstance(table[name], _NO_COLUMN) or not hasattr(table[name], "__len__"):
                raise DataError(f"the column {name!r} is {table[name]!r}, not a list of values")
        self._facts = [name for name in decider.facts if name in names]
        wanted = {
            program.index[name]: condition
            for name, condition in program.conditions.items()
            if decider._relevant >> program.index[name] & 1
        }
        self._rows = N = row_count(table)
        masks = condition_masks(wanted.values(), table)
        self._planes = dict(zip(wanted, map(_packed, masks), strict=True))
        for name in self._facts:
            mask = fact_column(name, table[name])
            if len(mask) != N:
                raise DataError(f"the column {name!r} has {len(mask)} rows, but the first has {N}")
            self._planes[program.index[name]] = _packed(mask)
        self._fired = _close_planes(decider, self._planes, N)
        self.answers = {name: self._column(program.index[name]) for name in decider.questions}
        self.violated = {
            (
                label.id if (label := program.label(rule)) else decider._requirement(rule)
            ): self._column(program.index[name])
            for rule, name in program.requirements.items()
        }

    def _plane(self, atom: int) -> npt.NDArray[np.uint64]:
        plane = self._planes.get(atom)
        return np.zeros(-(-self._rows // 64), np.uint64) if plane is None else plane

    def _column(self, atom: int) -> npt.NDArray[np.bool_]:
        return _unpacked(self._plane(atom), self._rows)

    @cached_property
    def rules(self) -> list[tuple[str, ...]]:
        """For each row the rules by which the answers follow, in the order of their use."""
        program, names = self._decider.program, self._decider._rule_names
        wanted = {program.index[q]: self._plane(program.index[q]) for q in self._decider.questions}
        used: list[tuple[int, npt.NDArray[np.uint64]]] = []
        for rule, head, new in reversed(self._fired):
            if head not in wanted:
                continue
            rows = new & wanted[head]
            if not rows.any():
                continue
            used.append((rule, rows))
            for b in program.literals_of(rule).tolist():
                if b >= 0:
                    wanted[b] = wanted[b] | rows if b in wanted else rows
        used.reverse()
        shown = [(rule, rows) for rule, rows in used if names[rule]]
        if not shown:
            return [()] * self._rows
        table = np.stack([_unpacked(rows, self._rows) for _, rows in shown], axis=1)
        packed = np.packbits(table, axis=1)
        _, first, inverse = np.unique(
            packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True
        )
        texts = [
            tuple(dict.fromkeys(names[shown[u][0]] for u in np.flatnonzero(table[n])))
            for n in first.tolist()
        ]
        return [texts[k] for k in inverse.tolist()]

    def table(self, *, missing: bool = False) -> dict[str, Any]:
        """Return columns: one for each question, `rules`, `violated`, and perhaps `missing`.

        Args:
            missing: with the smallest change of each row in which a question does not follow, as
                texts by question. It is searched row by row.
        """
        names = list(self.violated)
        rows = zip(*(column.tolist() for column in self.violated.values()), strict=True)
        violated = [tuple(n for n, true in zip(names, row, strict=True) if true) for row in rows]
        found: dict[str, Any] = {
            **self.answers,
            "rules": self.rules,
            "violated": violated if names else [()] * self._rows,
        }
        if missing:
            found["missing"] = [
                {
                    name: None if changes is None else list(map(str, changes))
                    for name, changes in self[n].missing.items()
                }
                for n in range(self._rows)
            ]
        return found

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> Decision:
        row = operator.index(row)
        if not -self._rows <= row < self._rows:
            raise IndexError(f"row {row} of {self._rows}")
        known = _column_names(self._table)
        names = [name for name in (*self._decider.columns, *self._facts) if name in known]
        return self._decider({name: _cell(self._table[name], row % self._rows) for name in names})

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {int(rows.sum()):,}" for name, rows in self.answers.items())
        return f"Decisions({self._rows:,} rows, {counts})"


def _close_planes(
    decider: Decider, planes: dict[int, npt.NDArray[np.uint64]], rows: int
) -> list[tuple[int, int, npt.NDArray[np.uint64]]]:
    """Apply the rules to all rows; return rule, head and the rows in which it was first."""
    program = decider.program
    zero = np.zeros(-(-rows // 64), np.uint64)
    fired = []
    for cyclic, rules in decider._blocks:
        while True:
            changed = False
            for rule in rules:
                fires = ~zero
                for b in program.literals_of(rule.number).tolist():
                    fires &= planes.get(b, zero) if b >= 0 else ~planes.get(~b, zero)
                before = planes.get(rule.atom, zero)
                new = fires & ~before
                if new.any():
                    planes[rule.atom] = before | new
                    fired.append((rule.number, rule.atom, new))
                    changed = True
            if not cyclic or not changed:
                break
    return fired


def _column_names(table: Any) -> set[str]:
    if isinstance(table, Mapping):
        return set(table)
    return set(getattr(table, "column_names", None) or list(table.columns))


def _cell(column: Any, row: int) -> Any:
    value = column.iloc[row] if hasattr(column, "iloc") else column[row]
    if value is np.ma.masked:
        return None
    if hasattr(value, "as_py"):  # a scalar of pyarrow
        return value.as_py()
    return value.item() if hasattr(value, "detach") else value  # a tensor


def _packed(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    octets = np.packbits(mask, bitorder="little")
    return np.pad(octets, (0, -len(octets) % 8)).view(np.uint64)


def _unpacked(plane: npt.NDArray[np.uint64], rows: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(plane.view(np.uint8), bitorder="little", count=rows).view(np.bool_)
