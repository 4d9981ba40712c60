"""What `relational.fit` claims about programs that it did not return, held against enumeration."""

from __future__ import annotations

import importlib
import itertools
import random
import re
from collections.abc import Iterator

import pytest

import latentgamma as lg
import relational_tasks as tasks
from latentgamma.relational.budget import ROWS_OF_A_SECOND, Budget
from latentgamma.relational.clauses import BodySearch, Clause, clause_bits
from latentgamma.relational.problem import Problem
from latentgamma.relational.result import derived_atoms
from latentgamma.relational.search import Search, SearchOptions

pytest.importorskip("clingo")

#: The limits of a claim, as the reason states them.
CLAIM = re.compile(r"no set of rules with bodies of up to (\d+) literals? and (\d+) variables?")


class Enumeration:
    """Every rule within some limits, with its ground instances as bit masks."""

    def __init__(self, problem: Problem, literals: int, variables: int, *, recursive: bool) -> None:
        self._problem = problem
        self._targets = {target.relation: target for target in problem.targets}
        n = len(problem.constants)
        self._atoms: dict[tuple[int, tuple[int, ...]], int] = {}
        self.positive = self.negative = self.given = 0
        for target in problem.targets:
            for code in problem.every_tuple(target).tolist():
                values = tuple(code // n**i % n for i in reversed(range(target.arity)))
                bit = 1 << len(self._atoms)
                self._atoms[target.relation, values] = bit
                if code in target.given:
                    self.given |= bit
                elif code in target.positive:
                    self.positive |= bit
                elif target.negative is None or code in target.negative:
                    self.negative |= bit
        self._facts = [{tuple(row) for row in r.rows.tolist()} for r in problem.background]
        allowed = [r for r in range(len(problem.names)) if recursive or r not in self._targets]
        shortest: dict[frozenset[tuple[int, int]], float] = {}
        for target in problem.targets:
            for body in self._bodies(target.types, allowed, literals, variables):
                ground = frozenset(self._ground(target.relation, target.arity, body))
                bits = clause_bits(Clause(target.relation, target.arity, body), len(allowed))
                shortest[ground] = min(bits, shortest.get(ground, bits))
        shortest.pop(frozenset(), None)
        self.rules = sorted(((bits, tuple(sorted(g))) for g, bits in shortest.items()))

    def _bodies(
        self, head: tuple[int, ...], allowed: list[int], literals: int, variables: int
    ) -> Iterator[tuple[tuple[int, tuple[int, ...]], ...]]:
        every = [
            (r, arguments)
            for r in allowed
            for arguments in itertools.product(range(variables), repeat=len(self._problem.types[r]))
        ]
        for size in range(1, literals + 1):
            for body in itertools.combinations(every, size):
                used = {v for _, arguments in body for v in arguments}
                # The variables of the head are in the body, and the others are numbered from there.
                if used != set(range(max(len(head), len(used)))):
                    continue
                kinds = {
                    (v, k) for r, a in body for v, k in zip(a, self._problem.types[r], strict=True)
                }
                if len(kinds | set(enumerate(head))) == len(used):
                    yield body

    def _ground(self, head: int, arity: int, body: tuple) -> Iterator[tuple[int, int]]:
        """The head of each instance, and its body atoms of targets."""
        count = 1 + max(v for _, arguments in body for v in arguments)
        for values in itertools.product(range(len(self._problem.constants)), repeat=count):
            needs = 0
            for r, arguments in body:
                row = tuple(values[v] for v in arguments)
                if r not in self._targets:
                    if row not in self._facts[r]:
                        break
                elif (r, row) in self._atoms:
                    needs |= self._atoms[r, row]
                else:
                    break
            else:
                atom = self._atoms[head, values[:arity]]
                if not atom & (needs | self.given):
                    yield atom, needs

    def model(self, chosen: list[int], start: int) -> int:
        """The least model of some rules above some atoms."""
        while True:
            before = start
            for number in chosen:
                for atom, needs in self.rules[number][1]:
                    if needs & ~start == 0:
                        start |= atom
            if start == before:
                return start

    def shortest(self, below: float) -> float | None:
        """The description length of the shortest program that has fewer bits than this."""
        best = [below]
        # A rule that derives a negative example by itself is in no program.
        usable = [
            n
            for n in range(len(self.rules))
            if not self.model([n], self.given | self.positive) & self.negative
        ]

        def search(chosen: list[int], state: int, at: int, bits: float) -> None:
            if state & self.negative:
                return
            if not self.positive & ~state:
                best[0] = min(best[0], bits)
                return
            if self.positive & ~self.model([*chosen, *usable[at:]], state):
                return
            for place in range(at, len(usable)):
                number = usable[place]
                longer = bits + self.rules[number][0]
                if longer >= best[0]:
                    return  # the rules are sorted by length
                more = [*chosen, number]
                search(more, self.model(more, state), place + 1, longer)

        search([], self.given, 0, 0.0)
        return best[0] if best[0] < below else None


def problem_of(seed: int) -> tuple[dict, list, list | None, dict]:
    """A small background with random labels, and limits that can be enumerated."""
    rng = random.Random(seed)
    constants = "abcd"[: rng.choice([3, 4])]
    pairs = list(itertools.product(constants, repeat=2))
    background = {"p": rng.sample(pairs, rng.randint(2, 5))}
    for name in rng.choice([["q"], ["q", "r"]]):
        background[name] = [(c,) for c in rng.sample(constants, rng.randint(1, 2))]
    targets = rng.choice([{"t": 1}, {"t": 1}, {"t": 2}, {"t": 1, "s": 1}])
    positive, negative = [], []
    for name, arity in targets.items():
        tuples = list(itertools.product(constants, repeat=arity))
        rng.shuffle(tuples)
        count = rng.randint(1, max(1, len(tuples) // 3))
        positive += [(name, *row) for row in tuples[:count]]
        others = tuples[count:]
        negative += [(name, *row) for row in others[: rng.randint(1, len(others))]]
    wide = max(targets.values())
    limits = {"max_body": 2, "max_variables": rng.choice([wide, 3 if len(targets) == 1 else 2])}
    limits["recursive"] = rng.random() < 0.85
    return background, positive, negative if rng.random() < 0.7 else None, limits


def claim_of(result: lg.relational.RelationalResult, *, recursive: bool) -> str:
    """Hold the claim of a result against enumeration, and return what is claimed."""
    claim = CLAIM.search(result.reason)
    if claim is None:
        return "nothing"
    literals, variables = map(int, claim.groups())
    enumeration = Enumeration(result.problem, literals, variables, recursive=recursive)
    # The lengths of single rules are rounded to a hundredth of a bit.
    below = result.bits - 0.05 if result.found else float("inf")
    assert enumeration.shortest(below) is None, (result.text, result.reason)
    return "shortest" if result.found else "excluded"


def fit_claim(seed: int) -> str:
    background, positive, negative, limits = problem_of(seed)
    result = lg.relational.fit(
        background, positive, negative, closed_world=True, **limits, time_limit=600
    )
    return claim_of(result, recursive=limits["recursive"])


@pytest.mark.quick_first
@pytest.mark.parametrize("block", range(6))
def test_claims_agree_with_enumeration(block: int) -> None:
    claims = [fit_claim(seed) for seed in range(25 * block, 25 * block + 25)]
    assert claims.count("shortest") >= 3
    assert claims.count("excluded") >= 3


def test_a_base_case_without_a_labelled_example_is_found() -> None:
    """Nothing labels f(b) and f(c), which f(a) needs."""
    background = {
        "tail": [("a", "b"), ("b", "c"), ("d", "e"), ("e", "g")],
        "six": [("c",)],
        "seven": [("g",)],
    }
    negative = [("f", "d"), ("f", "e"), ("f", "g")]
    result = lg.relational.fit(background, [("f", "a")], negative, max_body=2, max_variables=2)
    assert result.text == "f(X) :- six(X).\nf(X) :- tail(X,Y), f(Y)."


def test_a_second_recursive_literal_excludes_tuples_without_a_label() -> None:
    """t(e) needs both children, and every tuple that t(f) needs has no label."""
    background = {
        "left": [("e", "a"), ("f", "a"), ("g", "b")],
        "right": [("e", "b"), ("f", "c"), ("g", "c")],
        "leaf": [("a",), ("b",)],
        "other": [("c",)],
    }
    limits = {"max_body": 4, "max_variables": 3, "time_limit": 600}
    negative = [("t", "f"), ("t", "g")]
    result = lg.relational.fit(background, [("t", "e")], negative, **limits)
    assert result.found


EDGES = {"edge": [tuple(pair) for pair in ("ab", "bc", "cd", "db", "ef")]}
REACHED = [("reach", *pair) for pair in ("ac", "ad", "bd", "ab", "ef")]
NOT_REACHED = [("reach", *pair) for pair in ("ba", "fe", "ca", "ae")]


class Clock:
    """A clock that moves by one second each time it is read."""

    def __init__(self) -> None:
        self.seconds = 0

    def __call__(self) -> float:
        self.seconds += 1
        return float(self.seconds)


@pytest.mark.slow
def test_what_the_last_bodies_before_the_time_limit_found_is_kept(monkeypatch) -> None:
    problem = tasks.problem({"p": [("a", "b")], "q": [("a",)]}, [("t", "a")], [("t", "b")])
    options = SearchOptions(recursive=False)
    search = Search(problem, options, Budget(600), lambda *_: None)
    original = BodySearch.next_level

    def until_the_end(self: BodySearch, *arguments: object) -> object:
        found = original(self, *arguments)
        search._bodies._end = 0.0
        return found

    monkeypatch.setattr(BodySearch, "next_level", until_the_end)
    search._add_level(1)
    assert search._bodies.over
    assert search._pool.size


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"invent": 1}, marks=pytest.mark.slow),
        pytest.param({"invent": 2}, marks=pytest.mark.slow),
        {"method": "gradient"},
        {"noise": 0.1},
        {"noise": 0.1, "invent": 1},
    ],
    ids=str,
)
def test_a_call_ends_soon_after_its_time_limit_whenever_that_is(monkeypatch, options) -> None:
    """Rows are counted wherever work is done: few are looked at once the time is up."""
    fit_module = importlib.import_module("latentgamma.relational.fit")
    budgets: list[Budget] = []
    rows_at_the_end: list[int] = []

    class Watched(Budget):
        def stops_by_time(self) -> bool:
            up = super().stops_by_time()
            if self._clock.seconds >= limit and not rows_at_the_end:
                rows_at_the_end.append(self.work)
            return up

    def watched(seconds: float, work_limit: int | None) -> Budget:
        budgets.append(Watched(seconds, Clock(), work_limit))
        return budgets[-1]

    monkeypatch.setattr(fit_module, "Budget", watched)
    # Else the number of times that the clock is read depends on how quick clingo is.
    monkeypatch.setattr("latentgamma.relational.search._WAIT", 600.0)
    limit = 10**9
    examples = (EDGES, REACHED, NOT_REACHED)
    short = {"max_body": 2, "max_variables": 3}
    whole = lg.relational.fit(*examples, **short, **options, time_limit=limit)
    assert not whole.timed_out
    looks = budgets[-1]._clock.seconds
    rng = random.Random(0)
    for limit in sorted(rng.sample(range(2, looks), 4)):
        rows_at_the_end.clear()
        result = lg.relational.fit(*examples, **short, **options, time_limit=limit)
        assert any("time limit" in note for note in result.notes)
        alternatives = any("limit ended the search for alternatives" in n for n in result.notes)
        assert result.timed_out or alternatives
        for rows in rows_at_the_end:
            assert budgets[-1].work - rows <= ROWS_OF_A_SECOND / 10
        if result.found and not options.get("noise"):
            derived = result.predict(EDGES)
            assert set(REACHED) <= derived
            assert not set(NOT_REACHED) & derived
        claim_of(result, recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_call_has_the_same_result_twice(seed: int) -> None:
    background, positive, negative, limits = problem_of(seed)
    for options in ({}, {"invent": 1}, {"method": "gradient"}, {"noise": "auto"}):
        one, two = (
            lg.relational.fit(background, positive, negative, **limits, **options, seed=seed)
            for _ in range(2)
        )
        same = {"seconds": None, "history": None, "certificate": None}
        assert {**one.to_dict(), **same} == {**two.to_dict(), **same}


@pytest.mark.slow
def test_a_resumed_search_counts_the_work_of_the_earlier_one(tmp_path, monkeypatch) -> None:
    fit_module = importlib.import_module("latentgamma.relational.fit")
    budgets: list[Budget] = []

    def kept(seconds: float, work_limit: int | None) -> Budget:
        budgets.append(Budget(seconds, work_limit=work_limit))
        return budgets[-1]

    monkeypatch.setattr(fit_module, "Budget", kept)
    for _ in range(2):
        lg.relational.fit(
            EDGES, REACHED, NOT_REACHED, max_body=2, checkpoint=tmp_path / "saved", time_limit=600
        )
    assert budgets[0].work == budgets[1].work


def test_a_checkpoint_of_another_release_is_refused(tmp_path, monkeypatch) -> None:
    fit_module = importlib.import_module("latentgamma.relational.fit")
    monkeypatch.setattr(fit_module, "__version__", "0.0.0")
    lg.relational.fit(EDGES, REACHED, max_body=1, checkpoint=tmp_path / "saved")
    monkeypatch.undo()
    with pytest.raises(lg.errors.DataError, match="release was"):
        lg.relational.fit(EDGES, REACHED, max_body=1, checkpoint=tmp_path / "saved")


@pytest.mark.parametrize("unfinished", [0, 1])
@pytest.mark.parametrize("method", ["search", "gradient"])
def test_a_level_is_complete_only_if_it_is_for_every_target(
    monkeypatch, method: str, unfinished: int
) -> None:
    original = BodySearch.next_level

    def cut(self, variables, budget, *args):
        clauses, whole = original(self, variables, budget, *args)
        return clauses, whole and self.target.name != "ts"[unfinished]

    monkeypatch.setattr(BodySearch, "next_level", cut)
    background = {"p": [("a", "b"), ("b", "a")], "q": [("c",)]}
    examples = [("t", "a"), ("s", "a")]
    negative = [(name, c) for name in "ts" for c in "bc"]
    result = lg.relational.fit(background, examples, negative, max_body=2, method=method)
    assert not result.found
    assert not CLAIM.search(result.reason)


def test_a_difference_holds_for_the_facts_that_it_shows() -> None:
    """A rule whose body is in two parts does not see the facts of other instances."""
    result = lg.relational.fit(EDGES, REACHED, NOT_REACHED, max_body=2, max_variables=4)
    assert "edge(X,Z), edge(U,Y)" in result.text
    assert result.alternatives
    for one in result.alternatives:
        facts = one.facts.replace("), ", "). ") + "."
        name, *arguments = one.atom.replace(")", "").replace("(", ",").split(",")
        atom = (name, *arguments)
        assert (atom in result.predict(facts)) is not one.derives
        assert (atom in derived_atoms(f"{one.text}\n{facts}", {}, ["reach/2"])) is one.derives
