"""Probabilities: random programs beside ProbLog, additions of n-digit numbers beside KLay, mazes.

    python benchmarks/probability.py [--device cuda] [--digits 1 2 4]

KLay evaluates circuits that another tool compiled. It gets two: the SDDs that PySDD compiles for
each sum, and the circuit of our own sum-product pass, which it could not have found itself. It
computes in the log semiring on the whole batch at once, as it is and, for few digits, through
`torch.compile`; the ratio takes the faster one. Times are the least of one forward and backward pass
from the scores of a batch of 64 to its log-probabilities.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch

import latentgamma as lg
from cuda_graph import captured
from train import Task, Way, maze, run

Row = dict[str, Any]
#: From scores to the log-probability, or log-odds, of each example's sum.
Result = Callable[[], torch.Tensor]
BATCH = 64
DIGITS = (1, 2, 4, 15, 100)
#: The most digits for which KLay's module is compiled, and for which PySDD compiles SDDs.
MOST_COMPILED = 4
MOST_SDD_DIGITS = 2


def rows() -> list[Row]:
    return [*random_programs(), *additions(), *mazes()]


def cuda_rows() -> list[Row]:
    return additions("cuda")


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
        exact["pass" if len(layer.rules.methods.passed) == len(queries) else "table"] += 1
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


def additions(
    device: str = "cpu", sizes: Sequence[int] = DIGITS, compiled: int = MOST_COMPILED
) -> list[Row]:
    """Reasoning time for a batch of additions, beside KLay."""
    return [addition_row(digits, device, compile_klay=digits <= compiled) for digits in sizes]


def addition_row(digits: int, device: str, *, compile_klay: bool) -> Row:
    """The times for one number of digits, the same scores and labels for everyone."""
    start = time.perf_counter()
    layer = addition_layer(digits, from_logits=True).to(device)
    build = time.perf_counter() - start
    generator = torch.Generator().manual_seed(digits)
    scores = torch.randn(BATCH, 2 * digits, 10, generator=generator).to(device).requires_grad_()
    numbers = torch.randint(10, (BATCH, 2 * digits), generator=generator).to(device)
    label, carry = sum_digits(numbers)
    given = {"digits": scores, "label": one_hot(label, 10), "carry": one_hot(carry, 2)}

    def ours() -> torch.Tensor:
        return layer(given, logits=True)

    ways = {"ours": ours} | klay_on_our_circuit(layer, scores, label, carry, compile_klay)
    if device == "cpu":
        ways |= klay_on_sdds(digits, scores, numbers)
    expected = torch.nn.functional.logsigmoid(ours().detach())  # from log-odds
    row: Row = {"digits": digits, "build_s": build}
    for name, result in ways.items():
        try:
            difference = (result().detach() - expected) / expected  # before graphs are captured
            row[f"{name}_ms"] = timed(result, scores)
        except RuntimeError as error:  # a compiler that does not work here
            print(f"{name} failed: {error}", file=sys.stderr)
            continue
        if device != "cpu":
            row[f"{name}_graph_ms"] = timed_graph(result, scores)
        if name != "ours":
            worst = float(difference.abs().max())
            assert worst < 1e-3, f"{name} and ours differ by {worst} with {digits} digits"
            row["relative_difference"] = max(row.get("relative_difference", 0.0), worst)
    best = [row[f"{name}_ms"] for name in ("klay", "klay_compiled") if f"{name}_ms" in row]
    if best:
        row["klay / ours"] = min(best) / row["ours_ms"]
    if best and row.get("ours_graph_ms"):
        best += [
            row[f"{n}_graph_ms"] for n in ("klay", "klay_compiled") if row.get(f"{n}_graph_ms")
        ]
        row["klay / ours in a graph"] = min(best) / row["ours_graph_ms"]
    if "klay_on_sdds" in ways:
        row["klay_on_sdds / ours"] = row["klay_on_sdds_ms"] / row["ours_ms"]
    return row


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


def timed(result: Result, scores: torch.Tensor, seconds: float = 2.0) -> float:
    """The least time of a forward and a backward pass, in milliseconds."""
    ones = torch.ones_like(result())

    def run() -> None:
        torch.autograd.grad(result(), scores, ones)
        if scores.is_cuda:
            torch.cuda.synchronize()

    return least_time(run, seconds)


def timed_graph(result: Result, scores: torch.Tensor, seconds: float = 0.5) -> float | None:
    """The same as one CUDA graph, or None where it cannot be captured."""
    ones = torch.ones_like(result())
    try:
        replay = captured(lambda: torch.autograd.grad(result(), scores, ones))
    except RuntimeError as error:
        print(f"no CUDA graph: {error}", file=sys.stderr)
        return None

    def run() -> None:
        replay()
        torch.cuda.synchronize()

    return least_time(run, seconds)


def least_time(run: Callable[[], None], seconds: float) -> float:
    """The least time of a call in milliseconds, over so many seconds and at least nine calls.

    Others may use the machine at the same time; the least time is touched by that the least.
    """
    times: list[float] = []
    for _ in range(2):
        run()
    while len(times) < 9 or sum(times) < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def klay_on_our_circuit(
    layer: lg.Layer,
    scores: torch.Tensor,
    label: torch.Tensor,
    carry: torch.Tensor,
    compile_klay: bool,
) -> dict[str, Result]:
    """KLay on the circuit of our pass, as it is and through `torch.compile`."""
    try:
        import klay
    except ImportError:
        return {}
    pass_ = layer.rules.methods.sum_product
    ours, circuit = pass_.circuit, klay.Circuit()
    node = [circuit.literal_node(n + 1) for n in range(ours.inputs)]
    terms = ours.parts.to_lists()
    for n in range(ours.inputs, ours.nodes):
        some = terms[ours.term_ptr[n] : ours.term_ptr[n + 1]]
        node.append(circuit.or_node([circuit.and_node([node[i] for i in term]) for term in some]))
    circuit.set_root(node[int(ours.outputs[-1])])
    used = torch.from_numpy(pass_.input_places.astype(np.int64)).to(scores.device)
    rest = torch.cat((one_hot(label, 10).flatten(1), one_hot(carry, 2)), 1)

    def result_of(module: Any) -> Result:
        def result() -> torch.Tensor:
            logs = torch.cat((scores.log_softmax(-1).flatten(1), rest), 1)[:, used]
            return module(logs)[:, 0]

        return result

    plain = circuit.to_torch_module(compile=False).to(scores.device)
    found = {"klay": result_of(plain)}
    if compile_klay:
        found["klay_compiled"] = result_of(circuit.to_torch_module().to(scores.device))
    return found


def klay_on_sdds(digits: int, scores: torch.Tensor, numbers: torch.Tensor) -> dict[str, Result]:
    """KLay on the SDDs of all sums, which PySDD compiles: what its users have."""
    if digits > MOST_SDD_DIGITS:
        return {}
    try:
        import klay
    except ImportError:
        return {}
    sums = compile_sums(digits)
    if sums is None:
        return {}
    circuit = klay.Circuit()
    for _, node in sorted(sums.items()):
        circuit.add_sdd(node)  # a root of its own
    module = circuit.to_torch_module(compile=False)
    places = 10 ** torch.arange(digits).repeat_interleave(2)
    total = (numbers * places).sum(1)

    def result() -> torch.Tensor:
        logs = scores.log_softmax(-1).flatten(1)
        return module(logs, torch.zeros_like(logs)).gather(1, total[:, None])[:, 0]

    return {"klay_on_sdds": result}


def compile_sums(digits: int) -> dict[int, Any] | None:
    """The SDD of every sum, from PySDD; None where that is not installed.

    Variable 10 (2 i + k) + d + 1 says that digit i of number k is d; the first digit is the last
    one of the number.
    """
    try:
        from pysdd.sdd import SddManager
    except ImportError:
        return None
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
    return sums


# -------------------------------------------------------------------- mazes


class SampledWay(Way):
    """Sampled worlds; one more world of either kind keeps the logarithm of the loss finite."""

    def __init__(self, task: Task, steps: int, seed: int, worlds: int = 32) -> None:
        super().__init__(task, steps)
        self.worlds = worlds
        self.layer = lg.Layer(
            task.program,
            task.facts,
            task.goals,
            semantics="probability",
            from_logits=True,
            inference=lg.Inference(method="sample", worlds=worlds, seed=seed),
        )

    def loss(self, facts: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
        p = (self.layer(facts) * self.worlds + 1) / (self.worlds + 2)
        return torch.nn.functional.binary_cross_entropy(p, goals)


def mazes(size: int = 8, seeds: int = 5) -> list[Row]:
    """A network that sees the cells of a maze and learns from whether its corner is reached."""
    found = [run(maze(size), partial(SampledWay, seed=seed), seed) for seed in range(seeds)]
    reached, cells = ([one[what] for one in found] for what in ("goal", "facts"))
    return [
        {
            "job": f"maze {size}×{size}, 32 sampled worlds an example, {seeds} seeds",
            "answers_right": sum(reached) / seeds,
            "worst_seed": min(reached),
            "cells_right": sum(cells) / seeds,
            "train_s": median([one["seconds"] for one in found]),
        }
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Additions beside KLay on one device.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--digits", type=int, nargs="+", default=list(DIGITS))
    parser.add_argument(
        "--compiled", type=int, default=MOST_COMPILED, help="the most digits KLay is compiled for"
    )
    args = parser.parse_args()
    for digits in args.digits:
        row = additions(args.device, [digits], args.compiled)[0]
        print(json.dumps({"device": args.device} | row), flush=True)


if __name__ == "__main__":
    main()
