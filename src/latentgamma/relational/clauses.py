"""Clauses with variables: their bodies and their ground instances."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma.logic.closures import closures
from latentgamma.program.program import Program
from latentgamma.relational.budget import ROWS_OF_A_BODY, ROWS_OF_A_SECOND, Budget, OutOfBudget
from latentgamma.relational.problem import (
    FACT,
    POSSIBLE,
    Bindings,
    Ints,
    Problem,
    Relation,
    Target,
    Truth,
    decode,
    encode,
    join,
    literal_truth,
)

# ---- Clauses with variables: values, text, a canonical form and their description length

#: A predicate, by its number, and its variables. The head has the variables 0, 1, …
Literal: TypeAlias = "tuple[int, tuple[int, ...]]"
Body: TypeAlias = "tuple[Literal, ...]"

#: Up to this many variables beside the head's, every renaming is tried.
_MOST_RENAMED = 5
#: Rounds in which variables are told apart by the variables next to them.
_ROUNDS = 2


class Clause(NamedTuple):
    """A rule with variables: `head` is the number of its predicate."""

    head: int
    arity: int
    body: Body

    @property
    def variables(self) -> int:
        """The number of variables."""
        return 1 + max([self.arity - 1, *(v for _, literal in self.body for v in literal)])

    def uses(self, predicates: Iterable[int]) -> bool:
        """Return whether one of these predicates is in the body."""
        return self.occurrences(predicates) > 0

    def occurrences(self, predicates: Iterable[int]) -> int:
        """Return the number of literals of these predicates in the body."""
        wanted = set(predicates)
        return sum(predicate in wanted for predicate, _ in self.body)


def canonical(body: Sequence[Literal], arity: int) -> Body:
    """Return the body with variables renamed and literals sorted: one form for all variants.

    >>> canonical([(1, (3, 0)), (0, (2, 3))], 1)
    ((0, (1, 2)), (1, (2, 0)))
    """
    places: dict[int, list[int]] = {}
    for predicate, literal in body:
        for place, variable in enumerate(literal):
            if variable >= arity:
                places.setdefault(variable, []).append(predicate * 64 + place)
    orders: Iterable[Sequence[int]]
    if len(places) < 2:
        orders = [list(places)]
    else:
        keys = {v: tuple(sorted(found)) for v, found in places.items()}
        used = sorted(places, key=keys.__getitem__)
        if len(set(keys.values())) == len(used) or len(used) > _MOST_RENAMED:
            orders = [used]
        else:  # variables that occur in the same places are told apart by those next to them
            orders = _orders(body, sorted(used), arity)

    def renamed(order: Sequence[int]) -> Body:
        names = {variable: arity + place for place, variable in enumerate(order)}
        literals = [(p, tuple([names.get(v, v) for v in literal])) for p, literal in body]
        return tuple(sorted(literals))

    return min(map(renamed, orders))


def _orders(body: Sequence[Literal], used: Sequence[int], arity: int) -> Iterator[tuple[int, ...]]:
    """Return orders of the variables: sorted by where they occur, and every order of equal ones."""
    rank = {v: v - arity for v in range(arity)} | dict.fromkeys(used, 0)
    for _ in range(_ROUNDS):
        places: dict[int, list[tuple[int, int, tuple[int, ...]]]] = {v: [] for v in used}
        for predicate, literal in body:
            ranks = tuple([rank[v] for v in literal])
            for place, variable in enumerate(literal):
                if variable >= arity:
                    places[variable].append((predicate, place, ranks))
        keys = {v: (rank[v], tuple(sorted(places[v]))) for v in used}
        numbers = {key: number for number, key in enumerate(sorted(set(keys.values())))}
        rank.update({v: numbers[keys[v]] for v in used})
        if len(numbers) == len(used):
            break
    ordered = sorted(used, key=rank.__getitem__)
    groups = [list(group) for _, group in itertools.groupby(ordered, key=rank.__getitem__)]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield tuple(itertools.chain.from_iterable(parts))


def as_body(literals: Iterable[Sequence[Any]]) -> Body:
    """Return a body from lists, as JSON has it."""
    return tuple((int(predicate), tuple(arguments)) for predicate, arguments in literals)


def clause_bits(clause: Clause, predicates: int) -> float:
    """Return the description length of a clause: each literal names a predicate and variables."""
    variables = math.log2(max(2, clause.variables))
    predicate = math.log2(max(2, predicates))
    return 1.0 + sum(predicate + len(literal) * variables for _, literal in clause.body)


def clause_text(clause: Clause, forms: Sequence[str], inputs: Sequence[Sequence[bool]] = ()) -> str:
    """Return the clause as Datalog; variables get letters in the order in which they occur.

    `forms` are those of the predicates (see `atom_form`), and `inputs` what is an input of each:
    literals follow the ones that give their inputs a value.

    >>> clause_text(Clause(0, 2, ((1, (0, 2)), (1, (2, 1)))), ["uncle({0},{1})", "brother({0},{1})"])
    'uncle(X,Y) :- brother(X,Z), brother(Z,Y).'
    """
    last = {number for number, form in enumerate(forms) if " " in form}  # tests, and `not`
    ordered = readable_order(clause, last, inputs)
    letters: dict[int, str] = {}
    for variable in [*range(clause.arity), *(v for _, literal in clause.body for v in literal)]:
        letters.setdefault(variable, _letter(len(letters)))
    head, *body = (
        forms[number].format(*(letters[v] for v in arguments))
        for number, arguments in [(clause.head, range(clause.arity)), *ordered]
    )
    return f"{head} :- {', '.join(body)}." if body else f"{head}."


def readable_order(
    clause: Clause, last: Iterable[int] = (), inputs: Sequence[Sequence[bool]] = ()
) -> list[Literal]:
    """Return the literals so that each shares a variable with the head or an earlier one.

    Literals of the predicates in `last` come after others that have their variables, and every
    literal after those that give its `inputs` a value.
    """
    last = frozenset(last)
    left = list(clause.body)
    known = {0} if clause.arity else set()
    given = {v for v, needed in enumerate(inputs[clause.head] if inputs else ()) if needed}
    given = given or set(range(clause.arity))
    done: list[Literal] = []

    def is_ready(literal: Literal) -> bool:
        number, arguments = literal
        ways = inputs[number] if inputs else (False,) * len(arguments)
        needs = {v for v, needed in zip(arguments, ways, strict=True) if needed}
        return needs <= given and (number not in last or known >= set(arguments))

    while left:
        ready = list(filter(is_ready, left))
        linked = [literal for literal in ready or left if known & set(literal[1])]
        linked.sort(key=lambda literal: (literal[0] == clause.head, -len(known & {*literal[1]})))
        chosen = linked[0] if linked else (ready or left)[0]
        left.remove(chosen)
        done.append(chosen)
        known |= set(chosen[1])
        given |= set(chosen[1])
    return done


def _letter(number: int) -> str:
    return "XYZUVWABCDEFGHIJKLMNOPQRST"[number] if number < 26 else f"X{number}"


# ---- Candidate clauses: bodies that cover no negative example, and some other tuple
# Bodies grow by one literal at a time. A body that covers negative examples only is dropped. One that
# covers positive examples only is a candidate and is not made longer, since each longer body derives
# less. A tuple without a label may be needed by a recursive rule, or lead to a negative example: a
# body that covers one is kept, and grows also where it is a candidate.

#: Rows of a table of bindings; a body with more is left out, and the result says so.
MOST_ROWS = 2_000_000
#: Literals of targets in a body.
MOST_RECURSIVE = 2
#: Tables that are kept, so that bodies with the same start share its joins.
_KEPT = 48
#: Literals times rows that are looked at together.
_MOST_CELLS = 2_000_000
#: Bodies after which candidates are compared with the examples, and rows that follow at least.
_LOOK, _LEAST_ROWS = 64, ROWS_OF_A_SECOND
#: Bodies whose promise is computed together.
_MANY = 1_500
#: What each positive example that a body covers adds to its promise, and bodies that cover the same
#: examples of which all are promising.
_COVER_BITS, _MOST_ALIKE = 0.3, 4
#: Rows that take as long as the rest of the work for a body that is judged together with others.
_ROWS_OF_A_JUDGEMENT = 4_000


@dataclass(frozen=True)
class Examples:
    """The tuples that bodies are tested on."""

    codes: Ints  # of the tuples
    positive: np.ndarray  # whether each is positive
    negative: np.ndarray  # whether each is negative; the others have no label
    complete: bool  # whether no tuple was left out that rules may derive

    @staticmethod
    def of(problem: Problem, target: Target, most: int, seed: int, *, unlabelled: bool) -> Examples:
        """Return the positive and negative examples, and tuples without a label if asked for.

        Many are sampled.
        """
        rng = np.random.default_rng(seed)

        def sampled(codes: Ints, size: int) -> Ints:
            return codes if len(codes) <= size else np.sort(rng.choice(codes, size, replace=False))

        positive = sampled(target.positive, most)
        if target.negative is not None:
            negative = target.negative
        elif problem.tuples(target) <= 4 * most:
            negative = np.setdiff1d(problem.every_tuple(target), target.known)
        else:
            columns = [rng.choice(problem.domains[kind], 2 * most) for kind in target.types]
            codes = encode(columns, len(problem.constants), 2 * most)
            negative = np.setdiff1d(codes, target.known)
        negative = sampled(negative, 4 * most)
        other = sampled(problem.unlabelled(target), most) if unlabelled else negative[:0]
        labelled = len(positive) + len(negative)
        complete = labelled == problem.label_count(target)
        if unlabelled:
            complete &= labelled + len(other) + len(target.given) == problem.tuples(target)
        kind = np.repeat([1, -1, 0], [len(positive), len(negative), len(other)])
        codes = np.concatenate([positive, negative, other])
        return Examples(codes, kind == 1, kind == -1, complete)


def arguments(options: Sequence[Sequence[int]], old: int, most: int) -> Iterator[tuple[int, ...]]:
    """Return the arguments of a literal: each an option, and not all of them new variables.

    A new variable is the option -1; they are numbered from `old`, and below `most`.
    """
    for choice in itertools.product(*options):
        new = choice.count(-1)
        if (new < len(choice) or not choice) and old + new <= most:
            number = itertools.count(old)
            yield tuple(next(number) if v < 0 else v for v in choice)


class BodySearch:
    """The bodies for one target, one more literal at each level.

    `allowed` are the relations that bodies may use, `recursive` those that count as recursive,
    `exclusive` those of which a body may use only one, and `free` those that may name a new value.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        relations: Sequence[Relation],
        allowed: Sequence[int],
        recursive: Iterable[int],
        examples: Examples,
        exclusive: Iterable[int] = (),
        free: Iterable[int] = (),
    ) -> None:
        self.target = target
        self.relations = relations
        self.recursive = frozenset(recursive)
        self.exclusive = frozenset(exclusive)
        self._free = frozenset(free)
        self.examples = examples
        self.too_large = 0
        self.allowed = allowed
        rows = decode(examples.codes, len(problem.constants), target.arity)
        self._start = Bindings(
            tuple(rows.T.copy()), np.full(len(rows), FACT, np.uint8), np.arange(len(rows))
        )
        self._tables: OrderedDict[Body, Bindings | None] = OrderedDict()
        self._seen: set[Body] = set()
        self._world = problem.world
        #: Whether the head has inputs, from which rules compute the other arguments.
        self.directed = any(target.inputs)
        self._known = {
            place for place, given in enumerate(target.inputs) if given or not self.directed
        }
        #: The relations that are computed.
        self.tests = frozenset(
            n for n, relation in enumerate(relations) if relation.test is not None
        )
        #: The examples that each body covers, as bits, if no rule is recursive.
        self.cover: dict[Body, bytes] = {}
        self.cut = False
        #: The positive examples without a rule when bodies were last left out.
        self._wanted = examples.positive
        #: The examples that each candidate covers, by its body.
        self.covered: dict[Body, Ints] = {}
        self.frontier: list[Body] = [()]

    def next_level(
        self, variables: int, budget: Budget, must_use: frozenset[int] = frozenset()
    ) -> tuple[list[Clause], bool]:
        """Return the candidates with one more literal, and whether all bodies were tried.

        They have at most so many variables, and one of the predicates `must_use`.
        """
        found: list[Clause] = []
        grown: list[Body] = []
        complete = True
        self.cover.clear()
        start, enough = budget.work, False
        try:
            for place, parent in enumerate(self.frontier):
                # Where only promising bodies grow, as much work follows once the examples have rules.
                if self.cut and not enough and place % _LOOK == 0 and self._covers_all(found):
                    enough = True
                    budget = budget.part(rows=max(_LEAST_ROWS, budget.work - start))
                table = self.table(parent, budget)
                if table is None:
                    continue
                self._extend(parent, table, variables, must_use, found, grown, budget)
        except OutOfBudget:
            complete = False
        self.frontier = grown
        return found, complete

    def _covers_all(self, found: Sequence[Clause]) -> bool:
        """Return whether candidates cover every positive example that had no rule before them."""
        covered = [self.covered[one.body] for one in found if one.body in self.covered]
        rows = np.flatnonzero(self._wanted)
        return bool(covered) and bool(np.isin(rows, np.concatenate(covered)).all())

    def keep_best(self, most: int, explained: Ints) -> None:
        """Leave out all but the most promising bodies: those for examples that are not explained yet."""
        if len(self.frontier) <= most:
            return
        self.cut = True
        count = len(self.examples.codes)
        wanted = self.examples.positive & ~np.isin(self.examples.codes, explained)
        if not wanted.any():
            wanted = self.examples.positive
        self._wanted = wanted
        columns = np.stack([wanted, self.examples.negative]).astype(np.float32)  # (2, examples)
        prior = float(wanted.sum() / max(1, (wanted | self.examples.negative).sum()))
        every = np.packbits(np.ones(count, bool)).tobytes()
        promise: list[float] = []
        for start in range(0, len(self.frontier), _MANY):
            part = [self.cover.get(body, every) for body in self.frontier[start : start + _MANY]]
            bits = np.unpackbits(np.array([np.frombuffer(one, np.uint8) for one in part]), axis=1)
            right, wrong = columns @ bits[:, :count].T.astype(np.float32)
            gain = np.log2((right + prior) / (right + wrong + 1) / prior)
            promise += (right * (gain + _COVER_BITS)).tolist()
        kept: list[Body] = []
        same: dict[bytes, int] = {}
        for place in sorted(range(len(promise)), key=lambda place: -promise[place]):
            body = self.frontier[place]
            key = self.cover.get(body, every)
            same[key] = same.get(key, 0) + 1
            if same[key] <= _MOST_ALIKE:
                kept.append(body)
                if len(kept) == most:
                    break
        self.frontier = kept

    def grow(self, clauses: Iterable[Clause]) -> None:
        """Make clauses longer at the next level: they derive a negative example after all."""
        self.frontier += [tuple(readable_order(clause, self.tests)) for clause in clauses]

    def _extend(
        self,
        parent: Body,
        table: Bindings,
        variables: int,
        must_use: frozenset[int],
        found: list[Clause],
        grown: list[Body],
        budget: Budget,
    ) -> None:
        """Sort bodies with one more literal into candidates and those that grow."""
        old = len(self.variable_types(parent))
        # A comparison or negated literal gives no variable its value.
        bound = {v for n, literal in parent if n not in self.tests for v in literal}
        head = set(range(self.target.arity))
        positive = self.examples.positive[table.example]
        negative = self.examples.negative[table.example]
        chunk = max(1, _MOST_CELLS // max(1, len(table.truth)))
        every = list(self.extensions(parent, variables))
        for start in range(0, len(every), chunk):
            new = every[start : start + chunk]
            budget.spend(len(new) * (_ROWS_OF_A_JUDGEMENT + len(table.truth)))
            truths = np.stack([self.truth(number, literal, table) for number, literal, _ in new])
            useful = truths[:, ~negative].any(axis=1)
            same = (truths != table.truth).sum(axis=1) == 0
            unsafe = (truths[:, negative] == FACT).sum(axis=1) > 0
            others = (truths[:, ~positive] > 0).sum(axis=1) > 0
            for row in np.flatnonzero(useful).tolist():
                number, literal, body = new[row]
                fresh = max(literal) >= old if literal else False
                new_head = number not in self.tests and bool((head & set(literal)) - bound)
                # Tuples without a label are true only if some rule derives them.
                certain = number not in self.recursive or not (truths[row] == POSSIBLE).any()
                if not fresh and not new_head and certain and same[row]:
                    self._seen.discard(body)
                    continue  # the literal excludes nothing
                covered = np.zeros(len(self.examples.codes), bool)
                covered[table.example[truths[row] > 0]] = True
                given = bound if number in self.tests else bound | set(literal)
                if not unsafe[row] and head <= given:
                    clause = Clause(self.target.relation, self.target.arity, body)
                    if not must_use or clause.uses(must_use):
                        found.append(clause)
                        if not self.recursive:
                            self.covered[body] = np.flatnonzero(covered)
                    if not others[row]:
                        continue  # it derives positive examples only, and a longer body fewer of them
                longer = (*parent, (number, literal))
                grown.append(longer)
                if not self.recursive:
                    self.cover[longer] = np.packbits(covered).tobytes()

    def truth(self, number: int, literal: tuple[int, ...], table: Bindings) -> Truth:
        """Return the truth of each row together with one more literal, which is not the head."""
        truth = literal_truth(self.relations[number], literal, table)
        if number == self.target.relation and max(literal, default=0) < len(table.columns):
            truth[same_as_head(table, literal)] = 0
        return truth

    def extensions(
        self, parent: Body, variables: int
    ) -> Iterator[tuple[int, tuple[int, ...], Body]]:
        """Return the literals to add, each with the body that has it and was not seen before.

        They share a variable, and types agree.
        """
        types = self.variable_types(parent)
        used = {number for number, _ in parent}
        known = self._known | {v for _, literal in parent for v in literal}
        recursive = sum(number in self.recursive for number, _ in parent)
        for number in self.allowed:
            relation = self.relations[number]
            if number in self.recursive and recursive >= MOST_RECURSIVE:
                continue
            if number in self.exclusive and (used & self.exclusive) - {number}:
                continue
            found = self._arguments(relation, types, variables, known)
            if number in self._free and number not in used and len(types) < variables:
                found = itertools.chain(found, [(len(types),)])
            for literal in found:
                if (number, literal) in parent:
                    continue
                if number == self.target.relation and literal == tuple(range(self.target.arity)):
                    continue
                body = canonical((*parent, (number, literal)), self.target.arity)
                if body not in self._seen:
                    self._seen.add(body)
                    yield number, literal, body

    def _arguments(
        self, relation: Relation, types: Sequence[int], variables: int, known: set[int]
    ) -> Iterator[tuple[int, ...]]:
        """Return the arguments of a literal; its inputs are variables that have a value."""
        options = []
        for kind, is_input in zip(relation.types, relation.inputs, strict=True):
            old = [v for v, other in enumerate(types) if other == kind]
            if is_input:
                old = [v for v in old if v in known]
            options.append(old if is_input or kind == self._world else [*old, -1])
        symmetric = relation.test is not None and relation.form == "{0} != {1}"
        for choice in arguments(options, len(types), variables):
            if symmetric and choice[0] >= choice[1]:
                continue
            if relation.test is None or choice[:1] != choice[1:] or " {1}" not in relation.form:
                yield choice

    def variable_types(self, body: Body) -> list[int]:
        """Return the types of the variables: the head's, then those of the body in order."""
        types = dict(enumerate(self.target.types))
        for number, literal in body:
            types.update(zip(literal, self.relations[number].types, strict=True))
        return [types[v] for v in range(len(types))]

    def table(self, body: Body, budget: Budget) -> Bindings | None:
        """Return the ways in which a body can hold for the examples; None if there are too many."""
        if not body:
            return self._start
        if body in self._tables:
            self._tables.move_to_end(body)
            return self._tables[body]
        before = self.table(body[:-1], budget)
        table = None
        if before is not None:
            number, literal = body[-1]
            budget.spend(ROWS_OF_A_BODY + len(before.truth))
            table = join(self.relations[number], literal, before, MOST_ROWS)
            budget.count(0 if table is None else len(table.truth))
            if table is None:
                self.too_large += 1
            elif _repeats(table, len(before.columns)):
                table = None
            elif number == self.target.relation:
                table = table.take(~same_as_head(table, literal))
        self._tables[body] = table
        if len(self._tables) > _KEPT:
            self._tables.popitem(last=False)
        return table


def same_as_head(table: Bindings, literal: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return the rows in which a literal of the target is the head itself: they derive nothing."""
    same = np.ones(len(table.truth), bool)
    for place, variable in enumerate(literal):
        one, other = table.columns[place], table.columns[variable]
        if one is not None and other is not None:
            same &= one == other
    return same


def _repeats(table: Bindings, old: int) -> bool:
    """Return whether a new variable always has the value of an older one."""
    for new in range(old, len(table.columns)):
        column = table.columns[new]
        for earlier in table.columns[:new]:
            if earlier is not None and column is not None and np.array_equal(earlier, column):
                return True
    return False


# ---- The ground instances of candidate clauses, and the program in which each clause can be used
# Each ground rule gets one more body atom `use(c)` for its clause: a set of clauses is a fact set,
# and its least model is a closure.


@dataclass
class Candidate:
    """A clause with its ground instances."""

    clause: Clause  # the clause
    bits: float  # its description length
    heads: Ints  # the codes of the heads of its instances
    # for each literal of a learned predicate, the relation and the codes
    bodies: tuple[tuple[int, Ints], ...]
    # the invented predicates that it uses, with the description lengths of their definitions
    definitions: dict[int, float] = field(default_factory=dict)
    # other clauses with the same instances, and their description lengths
    variants: list[tuple[Clause, float]] = field(default_factory=list)

    @property
    def recursive(self) -> bool:
        """Whether the body uses a predicate that is learned."""
        return bool(self.bodies)

    @property
    def literals(self) -> int:
        """The number of literals in all instances, with those that say that it is used."""
        return len(self.heads) * (2 + len(self.bodies))

    def key(self) -> tuple[object, ...]:
        """Return a value that is equal for clauses with the same instances."""
        bodies = tuple((number, codes.tobytes()) for number, codes in self.bodies)
        return (self.clause.head, *self.definitions, self.heads.tobytes(), bodies)


def set_bits(candidates: Iterable[Candidate]) -> float:
    """Return the description length of a set of candidates, with the definitions that they use."""
    bits = 0.0
    used: dict[int, float] = {}
    for one in candidates:
        bits += one.bits
        used |= one.definitions
    return bits + sum(used.values())


class TooManyRows(Exception):  # noqa: N818 - never leaves the package
    """A body has more instances than are looked at."""


def body_bindings(
    body: Body,
    keep: Sequence[int],
    relations: Sequence[Relation],
    budget: Budget,
    most_rows: int = MOST_ROWS,
) -> tuple[list[Ints], Truth]:
    """Return the distinct values of some variables for which a body holds."""
    table = Bindings((), np.full(1, FACT, np.uint8), np.zeros(1, np.int64))
    left = sorted(body, key=lambda literal: len(relations[literal[0]].rows))
    known: set[int] = set()
    while left:
        ready = [one for one in left if relations[one[0]].test is None or known >= {*one[1]}]
        if not ready:
            raise TooManyRows  # a comparison of variables that no literal gives a value
        linked = [literal for literal in ready if known & set(literal[1])] or ready
        # A literal without new variables only removes rows.
        chosen = min(linked, key=lambda literal: len(set(literal[1]) - known))
        left.remove(chosen)
        budget.spend(ROWS_OF_A_BODY + len(table.truth))
        joined = join(relations[chosen[0]], chosen[1], table, most_rows)
        if joined is None:
            raise TooManyRows
        budget.count(len(joined.truth))
        known |= set(chosen[1])
        needed = set(keep) | {v for _, literal in left for v in literal}
        table = _distinct(joined, needed, relations[chosen[0]].constants)
    columns = [table.columns[v] for v in keep]
    return [column for column in columns if column is not None], table.truth


def least_model(
    clauses: Sequence[Clause], relations: list[Relation], budget: Budget, most_rows: int = MOST_ROWS
) -> None:
    """Replace the relations of the heads by what clauses derive from all relations."""
    grows = True
    while grows:
        grows = False
        for clause in clauses:
            head = relations[clause.head]
            n = head.constants
            keep = range(clause.arity)
            columns, truth = body_bindings(clause.body, keep, relations, budget, most_rows)
            known = encode(list(head.rows.T), n, len(head.rows))
            codes = np.union1d(known, encode(columns, n, len(truth)))
            if len(codes) > len(known):
                grows = True
                rows = decode(codes, n, clause.arity)
                relations[clause.head] = Relation("", rows, n, head.types)


def _distinct(table: Bindings, needed: set[int], constants: int) -> Bindings:
    """Return the table without the variables that are no longer needed."""
    kept = [v for v, c in enumerate(table.columns) if c is not None and v in needed]
    if len(kept) == sum(column is not None for column in table.columns):
        return table
    columns = [column for v in kept if (column := table.columns[v]) is not None]
    if constants ** len(kept) * 4 >= 2**62:
        return table
    codes = encode([*columns], constants, len(table.truth)) * 4 + (3 - table.truth.astype(np.int64))
    codes = np.unique(codes)
    rows, first = np.unique(codes // 4, return_index=True)  # the highest truth comes first
    truth = (3 - codes[first] % 4).astype(np.uint8)
    values = decode(rows, constants, len(kept))
    result: list[Ints | None] = [None] * len(table.columns)
    for place, variable in enumerate(kept):
        result[variable] = values[:, place]
    return Bindings(tuple(result), truth, np.zeros(len(truth), np.int64))


def instances(
    clause: Clause,
    bits: float,
    problem: Problem,
    target: Target,
    relations: Sequence[Relation],
    learned: Iterable[int],
    budget: Budget,
    *,
    noisy: bool = False,
) -> Candidate | None:
    """Return the clause with its instances; None if it derives a negative example, or nothing.

    Instances whose head is in their own body, or is given, derive nothing and are left out.
    """
    learned = set(learned)
    literals = [literal for literal in clause.body if literal[0] in learned]
    head = list(range(clause.arity))
    keep = sorted({*head, *(v for _, literal in literals for v in literal)})
    columns, truth = body_bindings(clause.body, keep, relations, budget)
    at = {variable: columns[place] for place, variable in enumerate(keep)}
    n, rows = len(problem.constants), len(truth)
    heads = encode([at[v] for v in head], n, rows)
    if not noisy:
        wrong = is_negative(target, heads)
        if (truth[wrong] == FACT).any():
            return None
    bodies = [(p, encode([at[v] for v in literal], n, rows)) for p, literal in literals]
    useful = ~np.isin(heads, target.given)
    relevant = problem.relevant(target)
    if relevant is not None:
        useful &= np.isin(heads, relevant)
    for relation, codes in bodies:
        if relation == clause.head:
            useful &= codes != heads
    stacked = np.stack([heads[useful], *(codes[useful] for _, codes in bodies)])
    stacked = np.unique(stacked, axis=1)
    if not stacked.shape[1]:
        return None
    kept = tuple((p, stacked[1 + place]) for place, (p, _) in enumerate(bodies))
    return Candidate(clause, bits, stacked[0], kept)


def is_negative(target: Target, codes: Ints) -> np.ndarray:
    """Return which of these tuples are negative examples."""
    if target.negative is not None:
        return np.isin(codes, target.negative)
    return ~(np.isin(codes, target.positive) | np.isin(codes, target.given))


class Hypotheses:
    """The program of all candidates, in which a set of clauses is a fact set.

    The last atoms of `program` are `use(c)`, one for each candidate; `positive` are the atoms of the
    positive examples, `negative` those of negative ones that some instance derives.
    """

    def __init__(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        self.problem = problem
        self.candidates = candidates
        codes: dict[int, list[Ints]] = {}
        for target in problem.targets:
            codes[target.relation] = [target.positive, target.given]
        for one in candidates:
            codes[one.clause.head].append(one.heads)
            for relation, values in one.bodies:
                codes[relation].append(values)
        self._codes = {r: np.unique(np.concatenate(parts)) for r, parts in codes.items()}
        self._offset: dict[int, int] = {}
        total = 0
        for relation, values in self._codes.items():
            self._offset[relation] = total
            total += len(values)
        self.use = total
        self.program = self._program(total)
        parts: list[tuple[Ints, Ints, Ints]] = []
        for target in problem.targets:
            r, known = target.relation, self._codes[target.relation]
            negative = known[is_negative(target, known)]
            of_target = (target.positive, target.given, negative)
            parts.append(tuple(self.ids(r, values) for values in of_target))  # type: ignore[arg-type]
        self.positive, self.given, self.negative = map(np.concatenate, zip(*parts, strict=True))

    def ids(self, relation: int, codes: Ints) -> Ints:
        """Return the atoms of these tuples."""
        return self._offset[relation] + np.searchsorted(self._codes[relation], codes)

    def atom(self, number: int) -> tuple[Target, int]:
        """Return the target and the code of an atom."""
        for target in self.problem.targets:
            at = number - self._offset[target.relation]
            if 0 <= at < len(self._codes[target.relation]):
                return target, int(self._codes[target.relation][at])
        raise IndexError(number)

    def rules_of(self, candidate: int) -> tuple[Ints, list[Ints]]:
        """Return the heads and the body atoms of the instances of a candidate."""
        one = self.candidates[candidate]
        heads = self.ids(one.clause.head, one.heads)
        return heads, [self.ids(relation, codes) for relation, codes in one.bodies]

    def _program(self, total: int) -> Program:
        heads, parts, sizes = [], [], []
        for number in range(len(self.candidates)):
            head, bodies = self.rules_of(number)
            use = np.full(len(head), total + number)
            heads.append(head)
            parts.append(np.stack([use, *bodies], axis=1).ravel())
            sizes.append(np.full(len(head), 1 + len(bodies)))
        if not heads:
            return Program.from_arrays([0], [], [], atoms=total)
        ptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return Program.from_arrays(
            ptr, np.concatenate(parts), np.concatenate(heads), atoms=total + len(self.candidates)
        )

    def models(self, hypotheses: Sequence[Iterable[int]]) -> np.ndarray:
        """Return the least model of each set of candidates, shape (sets, atoms)."""
        rows = np.zeros((len(hypotheses), self.program.M), bool)
        for row, chosen in enumerate(hypotheses):
            rows[row, self.use + np.array(list(chosen), np.int64)] = True
        rows[:, self.given] = True
        return closures(self.program, rows)[:, : self.use]

    def explain(self, hypotheses: Sequence[Iterable[int]]) -> npt.NDArray[np.bool_]:
        """Return which sets of candidates derive every positive example and no negative one."""
        models = self.models(hypotheses)
        right = models[:, self.positive].all(axis=1) & ~models[:, self.negative].any(axis=1)
        return np.asarray(right)
