"""Probabilities: beside ProbLog on random programs, beside KLay on additions of n-digit numbers.

KLay evaluates circuits that another tool compiled. It gets two: the SDDs that PySDD compiles
from the formula of each sum, and the circuit of our own sum-product pass, which it could not
have found itself. Times are medians; `reason` is one forward and backward pass over a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch

import latentgamma as lg

Row = dict[str, Any]
BATCH = 64


def rows() -> list[Row]:
    return [*random_programs(), *additions()]


# -------------------------------------------------------------------- random programs


def random_programs(count: int = 200) -> list[Row]:
    """Random programs with cycles, negation and annotated disjunctions, beside ProbLog."""
    try:
        from problog import get_evaluatable
        from problog.program import PrologString
    except ImportError:
        return [{"job": "random programs", "peer": "problog is not installed"}]
    worst, ours, theirs, exact = 0.0, 0.0, 0.0, {"pass": 0, "table": 0}
    for seed in range(count):
        text, rules, inputs, given, queries = random_program(seed)
        start = time.perf_counter()
        problog = get_evaluatable().create_from(PrologString(text)).evaluate()
        theirs += time.perf_counter() - start
        expected = {str(term): value for term, value in problog.items()}
        start = time.perf_counter()
        layer = lg.Layer(lg.parse(rules), inputs, queries, semantics="probability")
        found = layer(given)
        ours += time.perf_counter() - start
        assert layer.plan().exact
        exact["pass" if len(layer.rules.ladder.passed) == len(queries) else "table"] += 1
        for query, value in zip(queries, found[0].tolist(), strict=True):
            worst = max(worst, abs(value - expected.get(query, 0.0)))
    return [
        {
            "job": f"{count} random programs",
            "largest_difference": worst,
            "by_pass": exact["pass"],
            "by_table": exact["table"],
            "problog_s": theirs,
            "ours_s": ours,
            "problog / ours": theirs / ours,
        }
    ]


def random_program(seed: int) -> tuple[str, str, dict[str, Any], dict[str, Any], list[str]]:
    """The text for ProbLog, our rules, inputs and their values, and the atoms asked for."""
    rng = np.random.default_rng(seed)
    facts = [f"f{i}" for i in range(int(rng.integers(2, 6)))]
    group = [f"g{i}" for i in range(int(rng.integers(2, 4)))]
    derived = [f"d{i}" for i in range(int(rng.integers(2, 6)))]
    p = rng.uniform(0.05, 0.95, len(facts)).round(3)
    q = rng.dirichlet(np.ones(len(group))).round(3)
    q[-1] = 1 - q[:-1].sum()
    lines = []
    for n, head in enumerate(derived):
        for _ in range(int(rng.integers(1, 4))):
            pool = [*facts, *group, *derived]
            body = rng.choice(pool, size=int(rng.integers(1, 4)), replace=False).tolist()
            body = [atom for atom in body if atom != head] or [facts[0]]
            below = [atom for atom in body if atom in facts or atom in derived[:n]]
            if below and rng.random() < 0.3 and not any(a in derived[n:] for a in body):
                body = [f"not {a}" if a == below[0] else a for a in body]
            lines.append((head, body))
    # A rule with negation may only use what cannot depend on its head: drop those that do.
    depends: dict[str, set[str]] = {head: set() for head in derived}
    for head, body in lines:
        depends[head] |= {atom.removeprefix("not ") for atom in body}
    for _ in derived:
        for head in derived:
            depends[head] |= {x for atom in depends[head] & set(derived) for x in depends[atom]}
    lines = [
        (head, body)
        for head, body in lines
        if not any(a.startswith("not ") and head in depends.get(a[4:], ()) for a in body)
    ]
    rules = "\n".join(f"{head} :- {', '.join(body)}." for head, body in lines)
    used = {atom.removeprefix("not ") for _, body in lines for atom in body}
    declared = "\n".join(f"#external {atom}." for atom in [*facts, *group])
    queries = sorted({head for head, _ in lines})
    known = set(queries)
    for atom in sorted(used - known - set(facts) - set(group)):  # derived by no rule that is left
        declared += f"\n#external {atom}."
    problog = "\n".join(
        [
            *(f"{value:.6f}::{fact}." for fact, value in zip(facts, p, strict=True)),
            "; ".join(f"{value:.6f}::{atom}" for atom, value in zip(group, q, strict=True)) + ".",
            rules.replace("not ", "\\+"),
            *(f"{atom} :- fail." for atom in sorted(used - known - set(facts) - set(group))),
            *(f"query({query})." for query in queries),
        ]
    )
    inputs = {"facts": facts, "group": lg.Categorical(group)}
    given = {"facts": torch.tensor(p)[None], "group": torch.tensor(q)[None]}
    return problog, declared + "\n" + rules, inputs, given, queries


# -------------------------------------------------------------------- additions


def addition_program(digits: int) -> lg.Program:
    """Whether two numbers add up to a given one: `goal`, from the digits of all three."""
    rules: list[tuple[str, list[str]]] = []
    for i in range(digits):
        for x, y, c in product(range(10), range(10), (0, 1) if i else (0,)):
            total = x + y + c
            body = [f"a({i},{x})", f"b({i},{y})", f"label({i},{total % 10})"]
            rules.append((f"carry({i + 1},{total // 10})", body + [f"carry({i},{c})"] * (i > 0)))
    rules += [("goal", [f"carry({digits},{c})", f"label({digits},{c})"]) for c in (0, 1)]
    return lg.Program.from_rules(rules)


def addition_layer(digits: int, **options: Any) -> lg.Layer:
    """A layer whose inputs are the digits of the summands, `(2 n, 10)`, and those of the sum."""
    names = [[f"{x}({i},{d})" for d in range(10)] for i in range(digits) for x in "ab"]
    labels = [[f"label({i},{d})" for d in range(10)] for i in range(digits)]
    inputs = {
        "digits": lg.Categorical(names),
        "label": lg.Categorical(labels),
        "carry": lg.Categorical([f"label({digits},{c})" for c in (0, 1)]),
    }
    return lg.Layer(addition_program(digits), inputs, "goal", semantics="probability", **options)


def additions() -> list[Row]:
    """Reasoning time for a batch of additions, beside KLay."""
    found = []
    for digits in (1, 2, 4, 15, 100):
        start = time.perf_counter()
        layer = addition_layer(digits, from_logits=True)
        build = time.perf_counter() - start
        generator = torch.Generator().manual_seed(digits)
        scores = torch.randn(BATCH, 2 * digits, 10, generator=generator, requires_grad=True)
        numbers = torch.randint(10, (BATCH, 2 * digits), generator=generator)
        label, carry = sum_digits(numbers)
        given = {"digits": scores, "label": one_hot(label, 10), "carry": one_hot(carry, 2)}

        def ours(layer: lg.Layer = layer, given: dict[str, Any] = given) -> torch.Tensor:
            return torch.nn.functional.softplus(-layer(given, logits=True)).sum()

        row: Row = {"digits": digits, "build_s": build, "reason_ms": timed(ours, scores)}
        row |= klay_on_our_circuit(layer, scores, label, carry, float(ours()))
        row |= pysdd_compile(digits)
        if row.get("klay_reason_ms"):
            row["klay / ours"] = row["klay_reason_ms"] / row["reason_ms"]
        found.append(row)
    return found


def sum_digits(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The digits of the sum, (B, n), and the last carry, (B,), from (B, 2 n) digits."""
    carry = torch.zeros_like(numbers[:, 0])
    digits = []
    for i in range(0, numbers.shape[1], 2):
        total = numbers[:, i] + numbers[:, i + 1] + carry
        digits.append(total % 10)
        carry = total // 10
    return torch.stack(digits, 1), carry


def one_hot(values: torch.Tensor, size: int) -> torch.Tensor:
    """Scores that are certain of a value."""
    return torch.where(values[..., None] == torch.arange(size, device=values.device), 0.0, -1e4)


def timed(loss: Callable[[], torch.Tensor], scores: torch.Tensor, rounds: int = 9) -> float:
    """The median time of a forward and a backward pass, in milliseconds."""
    times = []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        torch.autograd.grad(loss(), scores)
        times.append(time.perf_counter() - start)
    return 1e3 * median(times[2:])


def klay_on_our_circuit(
    layer: lg.Layer, scores: torch.Tensor, label: torch.Tensor, carry: torch.Tensor, expected: float
) -> Row:
    """KLay on the circuit of our pass; the whole batch goes through `vmap`, as its manual says."""
    try:
        import klay
    except ImportError:
        return {"klay_reason_ms": None}
    start = time.perf_counter()
    pass_ = layer.rules.ladder.circuit
    circuit = klay.Circuit()
    node = [circuit.literal_node(n + 1) for n in range(pass_.inputs)]
    for n in range(len(pass_.independent)):
        bodies = [
            circuit.and_node(
                [node[i] for i in pass_.body[pass_.body_ptr[j] : pass_.body_ptr[j + 1]]]
            )
            for j in range(pass_.rule_ptr[n], pass_.rule_ptr[n + 1])
        ]
        node.append(circuit.or_node(bodies))
    circuit.set_root(node[-1])
    module = circuit.to_torch_module(semiring="log", compile=False)
    build = time.perf_counter() - start
    used = torch.from_numpy(pass_.input_places.astype(np.int64))
    batched = torch.vmap(module)

    def theirs() -> torch.Tensor:
        logs = scores.log_softmax(-1).flatten(1)
        rest = torch.cat((one_hot(label, 10).flatten(1), one_hot(carry, 2)), 1)
        return -batched(torch.cat((logs, rest), 1)[:, used]).sum()

    difference = abs(float(theirs()) - expected) / abs(expected)
    return {
        "klay_build_s": build,
        "klay_reason_ms": timed(theirs, scores),
        "relative_difference": difference,
    }


def pysdd_compile(digits: int, most: int = 2) -> Row:
    """The time in which PySDD compiles the formula of every sum, for few digits."""
    if digits > most:
        return {"pysdd_compile_s": None}
    try:
        from pysdd.sdd import SddManager
    except ImportError:
        return {"pysdd_compile_s": None}
    start = time.perf_counter()
    manager = SddManager(var_count=20 * digits, auto_gc_and_minimize=False)

    def chosen(number: int, place: int, digit: int) -> Any:
        first = 10 * (2 * place + number)
        node = manager.literal(first + digit + 1)
        for other in range(10):
            if other != digit:
                node = node & manager.literal(-(first + other + 1))
        return node

    sums: dict[int, Any] = {0: manager.true()}
    for place in reversed(range(digits)):
        grown: dict[int, Any] = {}
        pairs: dict[int, Any] = {}
        for x, y in product(range(10), repeat=2):
            node = chosen(0, place, x) & chosen(1, place, y)
            pairs[x + y] = pairs[x + y] | node if x + y in pairs else node
        for total, so_far in sums.items():
            for pair, node in pairs.items():
                both = so_far & node
                key = 10 * total + pair
                grown[key] = grown[key] | both if key in grown else both
        sums = grown
    return {"pysdd_compile_s": time.perf_counter() - start}


if __name__ == "__main__":
    for row in rows():
        print(row)
