"""One decision and a million of them: beside the same rules written as Python `if`s, and clingo."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import latentgamma as lg

RULES, COLUMNS, ROWS = 50, 20, 1_000_000
_COMPARE = ("<", "<=", ">", ">=")

Rule = tuple[str, list[tuple[str, str, float]], list[str], list[str]]


def policy(seed: int = 0) -> list[Rule]:
    """Rules in layers: conditions on numbers, atoms that must follow, and atoms that must not.

    Every head of a layer is used in the one above, so that the answer depends on all rules.
    """
    rng = random.Random(seed)
    rules: list[Rule] = []
    heads: list[str] = []
    for layer, size in enumerate((14, 12, 10, 8, 5)):
        below, heads = heads, [f"h{layer}_{n}" for n in range(6)]
        for n in range(size):
            j = len(rules)
            conditions = [
                (f"c{(j + 7 * m) % COLUMNS}", rng.choice(_COMPARE), float(rng.randint(2, 8)))
                for m in range(rng.randint(1, 2))
            ]
            atoms = [below[n % len(below)]] if below and rng.random() < 0.6 else []
            denied = [below[(n + 1) % len(below)]] if below and rng.random() < 0.3 else []
            rules.append((heads[n % len(heads)], conditions, atoms, denied))
    rules.append(("approve", [("c0", ">=", 1.0)], heads[:2], heads[2:3]))
    return rules


def rule_text(rules: list[Rule]) -> str:
    """The policy as a program."""
    lines = []
    for j, (head, conditions, atoms, denied) in enumerate(rules):
        body = [f"{c} {op} {value}" for c, op, value in conditions] + atoms
        body += [f"not {atom}" for atom in denied]
        lines.append(f"% @rule R{j}\n{head} :- {', '.join(body)}.")
    return "\n".join(lines)


def by_hand(rules: list[Rule]) -> Callable[[dict[str, float]], tuple[bool, list[str]]]:
    """The policy as a person would write it: one `if` for each rule, and the ids of those that fire."""
    heads = list(dict.fromkeys(head for head, *_ in rules))
    lines = ["def decide(request):", "    used = []"]
    lines += [f"    c{n} = request['c{n}']" for n in range(COLUMNS)]
    lines += [f"    {head} = False" for head in heads]
    for j, (head, conditions, atoms, denied) in enumerate(rules):
        tests = [f"{c} {op} {value}" for c, op, value in conditions]
        tests += [*atoms, *(f"not {atom}" for atom in denied), f"not {head}"]
        lines += [
            f"    if {' and '.join(tests)}:",
            f"        {head} = True",
            f"        used.append('R{j}')",
        ]
    lines.append("    return approve, used")
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)
    decide: Callable[[dict[str, float]], tuple[bool, list[str]]] = found["decide"]
    return decide


def microseconds(work: Callable[[Any], Any], requests: list[Any]) -> float:
    """The median time of one call, over all requests."""
    times = []
    for request in requests:
        start = time.perf_counter()
        work(request)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def clingo_solve(rules: list[Rule]) -> Callable[[dict[str, float]], bool]:
    """One solve for each request: the conditions that hold are assumptions."""
    import clingo

    control = clingo.Control(["--warn=none"])
    names = sorted({f"{c} {op} {v}" for _, conditions, _, _ in rules for c, op, v in conditions})
    number = {name: f"x{n}" for n, name in enumerate(names)}
    parsed = {name: lg.logic.Condition.parse(name) for name in names}
    lines = [f"#external {atom}." for atom in number.values()]
    for head, conditions, atoms, denied in rules:
        body = [number[f"{c} {op} {v}"] for c, op, v in conditions] + atoms
        lines.append(f"{head} :- {', '.join([*body, *(f'not {a}' for a in denied)])}.")
    control.add("base", [], "\n".join(lines))
    control.ground([("base", [])])
    symbols = {name: clingo.Function(atom) for name, atom in number.items()}

    def solve(request: dict[str, float]) -> bool:
        for name, condition in parsed.items():
            assert condition is not None
            control.assign_external(symbols[name], condition.holds(request[condition.column]))
        with control.solve(yield_=True) as handle:
            return any(str(atom) == "approve" for atom in next(iter(handle)).symbols(atoms=True))

    return solve


def _with_proof(decider: lg.Decider) -> Callable[[Any], Any]:
    def work(request: Any) -> Any:
        decision = decider(request)
        return decision.rules, decision.proof

    return work


def rows() -> list[dict[str, Any]]:
    """Single decisions, proofs and a table."""
    rules = policy()
    hand, decider = by_hand(rules), lg.Decider(rule_text(rules), "approve")
    rng = np.random.default_rng(0)
    table = {f"c{n}": rng.integers(0, 11, ROWS).astype(float) for n in range(COLUMNS)}
    requests = [{name: float(column[n]) for name, column in table.items()} for n in range(2000)]
    expected = [hand(request)[0] for request in requests]
    assert [decider(request).answers["approve"] for request in requests] == expected
    found: list[dict[str, Any]] = []

    def single(who: str, work: Callable[[Any], Any], some: list[Any]) -> None:
        work(some[0])
        found.append({"part": "one request", "who": who, "median µs": microseconds(work, some)})

    single("latentgamma, answers", lambda r: decider(r).answers, requests)
    single("latentgamma, answers and rule ids", lambda r: decider(r).rules, requests)
    approved = [request for request, yes in zip(requests, expected, strict=True) if yes]
    assert approved
    single("latentgamma, with proof", _with_proof(decider), approved)
    single("latentgamma, smallest change", lambda r: decider(r).missing, requests[:20])
    single("hand-written ifs", hand, requests)
    solve = clingo_solve(rules)
    assert [solve(request) for request in requests[:200]] == expected[:200]
    single("clingo, one solve", solve, requests[:500])
    by_who = {row["who"]: row["median µs"] for row in found}
    for row in found:
        row["times hand-written"] = row["median µs"] / by_who["hand-written ifs"]
    decider.many(table)
    start = time.perf_counter()
    decisions = decider.many(table)
    answers = time.perf_counter() - start
    assert isinstance(decisions, lg.decide.Decisions)
    start = time.perf_counter()
    ids = decisions.rules
    with_ids = answers + time.perf_counter() - start
    assert len(ids) == ROWS
    assert decisions.answers["approve"][:2000].tolist() == expected
    columns = [column[:100_000].tolist() for column in table.values()]
    start = time.perf_counter()
    for row in zip(*columns, strict=True):
        hand(dict(zip(table, row, strict=True)))
    one_by_one = (time.perf_counter() - start) * ROWS / 100_000
    for who, seconds in (
        ("latentgamma, answers", answers),
        ("latentgamma, answers and rule ids", with_ids),
        ("hand-written ifs, row by row", one_by_one),
        ("clingo, one solve a row", by_who["clingo, one solve"] * ROWS / 1e6),
    ):
        row_of = {"part": f"{ROWS:,} rows", "who": who, "seconds": seconds}
        found.append({**row_of, "times": seconds / answers})
    return found
