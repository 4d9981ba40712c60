"""One contract for every semiring and executor: values, gradients, second derivatives, batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

import latentgamma as lg
from latentgamma import Program
from latentgamma.engine.circuit import (
    FALSE,
    INDEPENDENT,
    NOT,
    SUM,
    TRUE,
    Circuit,
    circuit_of_terms,
    compile_circuit,
)
from latentgamma.engine.execute import KernelChoice, MinMax, run
from latentgamma.engine.reference import (
    GODEL,
    GODEL_ODDS,
    LAST,
    LOG,
    REAL,
    SMOOTH,
    Nodes,
    Run,
    Semiring,
)
from latentgamma.errors import ModelError
from random_programs import random_program, random_stratified_rules


class BestProof(Run):
    """A semiring that the library does not have: the best proof, the product of its inputs."""

    def products(self, nodes: Nodes, values: Tensor) -> Tensor:
        padded = torch.cat((values, values.new_ones(len(values), 1)), 1)
        product = values.new_ones(len(values), nodes.count)
        for parts in nodes.parts:
            product = product * padded[:, parts]
        return product

    def sums(self, nodes: Nodes, values: Tensor) -> Tensor:
        own = torch.where(nodes.has_own, values[:, nodes.own], -torch.inf)
        rows = nodes.row.expand(len(values), -1)
        return own.scatter_reduce(1, rows, values[:, nodes.child], "amax")


class Proofs(BestProof):
    """The number of proofs, for inputs that are such numbers; `not a` is 1 if a has none."""

    def sums(self, nodes: Nodes, values: Tensor) -> Tensor:
        own = torch.where(nodes.has_own, values[:, nodes.own], 0)
        return own.index_add(1, nodes.row, values[:, nodes.child])

    def negation(self, values: Tensor) -> Tensor:
        return (values == 0).to(values.dtype)


@dataclass(frozen=True)
class Definition:
    """A semiring by hand: products and sums of (n,) numbers, negation, its scale of probabilities."""

    semiring: Semiring
    product: Callable[[Tensor], Tensor]
    total: Callable[[Tensor], Tensor]
    opposite: Callable[[Tensor], Tensor]
    scale: Callable[[Tensor], Tensor]
    piecewise_linear: bool = False  # all second derivatives are zero
    absorptive: bool = True  # true + x = true; otherwise every rule counts


T = 0.7
#: A new semiring is a row here.
DEFINITIONS = {
    "values": Definition(
        GODEL, torch.amin, torch.amax, lambda x: 1 - x, lambda p: p, piecewise_linear=True
    ),
    "odds": Definition(
        GODEL_ODDS,
        torch.amin,
        torch.amax,
        lambda x: -x,
        lambda p: 6 * torch.logit(p + 0.25),
        piecewise_linear=True,
    ),
    "smooth": Definition(
        replace(SMOOTH, temperature=T),
        lambda x: -T * (-x / T).logsumexp(0),
        lambda x: T * (x / T).logsumexp(0),
        lambda x: -x,
        lambda p: 6 * torch.logit(p + 0.25),
    ),
    "real": Definition(REAL, torch.prod, torch.sum, lambda x: 1 - x, lambda p: p),
    "log": Definition(
        LOG,
        torch.sum,
        lambda x: x.logsumexp(0),
        lambda x: torch.log(-torch.expm1(x)),
        torch.log,
    ),
    "best proof": Definition(
        Semiring("best proof", BestProof, 0.0, 1.0),
        torch.prod,
        torch.amax,
        lambda x: 1 - x,
        lambda p: p + 0.5,
    ),
    "proofs": Definition(
        Semiring("proofs", Proofs, 0.0, 1.0),
        torch.prod,
        torch.sum,
        lambda x: (x == 0).double(),
        lambda p: (10 * p - 1).floor().clamp(min=0),
        absorptive=False,
    ),
}
SEMIRINGS = {name: row.semiring for name, row in DEFINITIONS.items()}
BY_HAND = {row.semiring: row for row in DEFINITIONS.values()}
#: Plain torch, and compiled code of a device.
EXECUTORS = [
    "torch",
    pytest.param("cpu", marks=pytest.mark.slow),
    *(["cuda"] if torch.cuda.is_available() else []),
]
every_semiring = pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=list(SEMIRINGS))
every_executor = pytest.mark.parametrize("executor", EXECUTORS)


def execute(executor: str, circuit: Circuit, semiring: Semiring, x: Tensor) -> Tensor:
    device = "cuda" if executor == "cuda" else "cpu"
    return run(circuit, semiring, x.to(device), plain=executor == "torch").to(x.device)


# ------------------------------------------------------------------------ programs


def acyclic(seed: int) -> Program:
    rng = np.random.default_rng(seed)
    rules = []
    for _ in range(9):
        head = int(rng.integers(2, 7))
        body = rng.choice(head, int(rng.integers(1, min(head, 3) + 1)), replace=False)
        rules.append(lg.Rule((f"a{head}",), frozenset(f"a{b}" for b in body)))
    return Program.from_rules(rules, [f"a{i}" for i in range(7)])


def cyclic(seed: int) -> Program:
    return random_program(seed, 6, 10)


def negation(seed: int) -> Program:
    rules = [r for r in random_stratified_rules(seed) if not r.body & {*r.heads, *r.negated}]
    return Program.from_rules(rules, [f"a{i}" for i in range(6)])


def programs(kind: str, semiring: Semiring, count: int = 8) -> list[Program]:
    """Random programs that the semiring takes; smooth values on cycles have a test of their own."""
    found = (globals()[kind](seed) for seed in itertools.count())
    some = found
    if semiring.name != "hard":
        some = (program for program in found if not all_atoms(program, semiring).cycles)
    return list(itertools.islice(some, count))


# ------------------------------------------------------------------------ by hand


def by_hand(program: Program, x: Tensor, semiring: Semiring) -> Tensor:
    """The values of all atoms from those of all inputs, rule by rule. (M,) -> (M,)."""
    true, definition = x.new_tensor(semiring.true), BY_HAND[semiring]

    def product(parts: list[Tensor]) -> Tensor:
        return definition.product(torch.stack(parts)) if parts else true

    definite = [(r.heads, r.body) for r in program.rules if not r.negated]
    certain = lg.closure(Program.from_rules(definite, program.atoms)).atoms
    certain = certain if definition.absorptive else frozenset()
    index = {name: i for i, name in enumerate(program.atoms)}
    level = [0] * program.M
    for _, rule in itertools.product(range(program.M), program.rules):
        below = [level[index[b]] for b in rule.body] + [1 + level[index[n]] for n in rule.negated]
        for head in rule.heads:
            level[index[head]] = max(level[index[head]], *below, 0)
    values = [true if a in certain else x[i] for i, a in enumerate(program.atoms)]
    for stratum, _, head in itertools.product(range(program.M), range(program.M), program.atoms):
        i = index[head]
        if level[i] != stratum or head in certain:
            continue
        bodies = [
            (r.body - certain, r.negated)
            for r in program.rules
            if head in r.heads and head not in r.body and not r.negated & certain
        ]
        bodies = list(set(bodies)) if definition.absorptive else bodies
        terms = [
            product([values[index[b]] for b in sorted(body)]
                    + [definition.opposite(values[index[n]]) for n in sorted(negated)])
            for body, negated in sorted(bodies, key=str)
        ]  # fmt: skip
        values[i] = definition.total(torch.stack([x[i], *terms]))
    return torch.stack(values)


def inputs(program: Program, semiring: Semiring, seed: int, batch: int = 3) -> Tensor:
    """Different numbers on the scale of the semiring."""
    rng = np.random.default_rng(seed)
    p = rng.permuted(np.tile(np.linspace(0.04, 0.4, program.M), (batch, 1)), axis=1)
    p = torch.from_numpy(p + 0.001 * rng.random(p.shape))
    return BY_HAND[semiring].scale(p)


def all_atoms(program: Program, semiring: Semiring = GODEL) -> Circuit:
    atoms = np.arange(program.M)
    return compile_circuit(program, atoms, atoms, absorptive=BY_HAND[semiring].absorptive)


@every_executor
@every_semiring
@pytest.mark.parametrize("kind", ["acyclic", "cyclic", "negation"])
def test_values_gradients_and_second_derivatives(
    executor: str, semiring: Semiring, kind: str
) -> None:
    if kind == "cyclic" and not BY_HAND[semiring].absorptive:
        pytest.skip("no rule is simplified away, so every one of these has a cycle")
    moved = 0.0
    for seed, program in enumerate(programs(kind, semiring)):
        x = inputs(program, semiring, seed).requires_grad_()
        expected = torch.stack([by_hand(program, row, semiring) for row in x])
        # The sum of several proofs may be more than one, and then has no negation.
        no_negation = kind == "negation" and semiring is REAL and bool((expected > 1).any())
        if no_negation or not expected.isfinite().all():
            continue
        found = execute(executor, all_atoms(program, semiring), semiring, x)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        if not expected.requires_grad:
            continue
        weights = torch.linspace(0.5, 2, found.numel(), dtype=x.dtype).view(found.shape)
        slopes = [
            torch.autograd.grad((out * weights).sum(), x, create_graph=True, allow_unused=True)[0]
            for out in (found, expected)
        ]
        torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-9)
        bare = execute(executor, all_atoms(program, semiring), semiring, x)
        (alone,) = torch.autograd.grad((bare * weights).sum(), x)  # by the kernel
        torch.testing.assert_close(alone, slopes[1].detach(), rtol=1e-9, atol=1e-9)
        twice = [
            torch.autograd.grad((slope**2).sum(), x)[0]
            if slope.requires_grad
            else torch.zeros_like(x)
            for slope in slopes
        ]
        torch.testing.assert_close(*twice, rtol=1e-8, atol=1e-8)
        moved += twice[1].abs().sum().item()
    assert bool(moved) != BY_HAND[semiring].piecewise_linear


@every_executor
@every_semiring
def test_batches_do_not_change_an_example_and_may_be_empty(
    executor: str, semiring: Semiring
) -> None:
    for program in programs("negation", semiring, 3):
        circuit = all_atoms(program, semiring)
        x = inputs(program, semiring, 0, batch=37)
        together = execute(executor, circuit, semiring, x)
        alone = torch.cat([execute(executor, circuit, semiring, row[None]) for row in x])
        if executor == "torch":  # whose functions differ in the last digit for long tensors
            torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
        else:
            assert torch.equal(together.nan_to_num(), alone.nan_to_num())
        with torch.no_grad():  # keeps less
            again = execute(executor, circuit, semiring, x.clone().requires_grad_())
        assert torch.equal(again.nan_to_num(), together.nan_to_num())
        empty = x[:0].clone().requires_grad_()
        out = execute(executor, circuit, semiring, empty)
        assert out.shape == (0, program.M)
        assert torch.autograd.grad(out.sum(), empty)[0].shape == empty.shape


@every_executor
@every_semiring
def test_float32_is_close_to_float64(executor: str, semiring: Semiring) -> None:
    for program in programs("acyclic", semiring, 3):
        x = inputs(program, semiring, 1)
        narrow = execute(executor, all_atoms(program, semiring), semiring, x.float())
        assert narrow.dtype == torch.float32
        wide = execute(executor, all_atoms(program, semiring), semiring, x)
        torch.testing.assert_close(narrow.double(), wide, rtol=1e-4, atol=1e-5)
        half = execute(executor, all_atoms(program, semiring), semiring, x.half())
        assert half.dtype == torch.float16
        torch.testing.assert_close(half.double(), wide, rtol=1e-2, atol=1e-2)


def test_a_name_of_compiled_code_does_not_run_it_for_another_semiring() -> None:
    circuit = compile_circuit(lg.parse("c :- a. c :- b."), [1, 2], [0])
    assert run(circuit, Semiring("real", BestProof, 0.0, 1.0), torch.tensor([[0.5, 0.25]])) == 0.5


@pytest.mark.parametrize("plain", [True, False])
def test_every_rule_counts_where_sums_are_not_absorptive(plain: bool) -> None:
    text = "a. b :- a. b :- a. b. c :- b, a. c :- b, d. c :- b, e. f :- c, not g. h :- f. h :- f."
    program = lg.parse(text)
    index = program.index
    read = [index[atom] for atom in "abcfh"]
    circuit = compile_circuit(program, [index["d"]], read, true=[index["e"]], absorptive=False)
    x = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64, requires_grad=True)
    for semiring in (SEMIRINGS["proofs"], REAL):  # b has 3 proofs, c 3 + 3 d + 3
        found = run(circuit, semiring, x, plain=plain)
        assert found.tolist() == [[1, 3, 6 + 3 * d, 6 + 3 * d, 2 * (6 + 3 * d)] for d in (0, 1, 5)]
        (slope,) = torch.autograd.grad(found.sum(), x)
        assert slope.tolist() == [[12]] * 3
    logs = run(circuit, LOG, x.detach().log(), plain=plain).exp()
    torch.testing.assert_close(logs, found.detach())
    with pytest.raises(ModelError, match="absorptive"):
        run(circuit, GODEL, x, plain=plain)
    with pytest.raises(ModelError, match="absorptive"):
        MinMax(circuit)
    loop = compile_circuit(lg.parse("a :- a, b."), [0, 1], [0], absorptive=False)
    with pytest.raises(ModelError, match="no cycles"):
        run(loop, REAL, torch.ones(1, 2), plain=plain)


@pytest.mark.parametrize("name", ["values", "real", "best proof", "proofs"])
def test_gradients_of_zeros(name: str) -> None:
    semiring, program = SEMIRINGS[name], lg.parse("c :- a, b. d :- c.")
    circuit = compile_circuit(program, [program.index[i] for i in "ab"], [program.index["d"]])
    x = torch.tensor([[0.0, 0.5], [0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    rows = [BY_HAND[semiring].product(row) for row in x]
    (expected,) = torch.autograd.grad(sum(rows), x)
    for plain in (True, False):
        (slope,) = torch.autograd.grad(run(circuit, semiring, x, plain=plain).sum(), x)
        assert slope.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("d :- a, not e.", lambda a, e: a > 0 and e < 0),
        ("d :- c. c :- a. c :- e.", lambda a, e: max(a, e) > 0),
    ],
)
def test_infinite_log_odds_are_true_and_false(
    text: str, holds: Callable[[float, float], bool]
) -> None:
    program = lg.parse(text)
    circuit = compile_circuit(program, [program.index[i] for i in "ae"], [program.index["d"]])
    odds = list(itertools.product((-torch.inf, 1.0, torch.inf), repeat=2))
    x = torch.tensor(odds, dtype=torch.float64, requires_grad=True)
    found = [run(circuit, GODEL_ODDS, x, plain=plain) for plain in (True, False)]
    assert torch.equal(*found)
    assert (found[0][:, 0] > 0).tolist() == [holds(a, e) for a, e in odds]
    assert torch.equal(*(torch.autograd.grad(out.sum(), x)[0] for out in found))


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_smooth_closures_of_infinite_log_odds_are_finite(kernel: KernelChoice) -> None:
    program = lg.parse("c :- a, b. c :- d. e :- c, not a. f :- e. f :- g. g :- f, d. g :- a.")
    fed, read = ([program.index[i] for i in some] for some in ("abd", "cefg"))
    closed = MinMax(compile_circuit(program, fed, read), kernel=kernel)
    x = torch.tensor(list(itertools.product((-torch.inf, 1.0, torch.inf), repeat=3)))
    x.requires_grad_()
    out = closed(x, 0.5)
    assert ((out > 0) == (closed(x, 0.0) > 0)).all()
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert out.isfinite().all()
    assert slope.isfinite().all()


@every_executor
@every_semiring
def test_constants(executor: str, semiring: Semiring) -> None:
    program = lg.parse("a. b :- a, c. d :- e. f :- d, not a.")
    index = program.index
    read = [index[atom] for atom in "abdf"]
    absorptive = BY_HAND[semiring].absorptive
    circuit = compile_circuit(program, [index["c"]], read, absorptive=absorptive)
    x = inputs(program, semiring, 0)[:, :1]
    found = execute(executor, circuit, semiring, x)
    assert circuit.outputs[2:].tolist() == [FALSE, FALSE]
    assert (circuit.outputs[0] == TRUE) == absorptive
    torch.testing.assert_close(found[:, 1:2], x, rtol=1e-14, atol=0)
    ends = [semiring.true, semiring.false, semiring.false]
    assert found[:, [0, 2, 3]].tolist() == [ends] * 3


@every_executor
@pytest.mark.parametrize("semiring", [REAL, LOG], ids=["real", "log"])
def test_independent_sums_and_negations(executor: str, semiring: Semiring) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        nodes: list[tuple[int, list[list[int]]]] = []
        for n in range(3, 9):
            kind = int(rng.choice([SUM, INDEPENDENT, NOT]))
            count = 1 if kind == NOT else int(rng.integers(1, 4))
            sizes = [1] if kind == NOT else rng.integers(1, 5, count).tolist()
            nodes.append((kind, [rng.integers(0, n, size).tolist() for size in sizes]))
        circuit, _ = circuit_of_terms(3, nodes, [*range(9), TRUE, FALSE])
        p = torch.from_numpy(rng.uniform(0.02, 0.25, (4, 3))).requires_grad_()
        value = list(p.unbind(1))
        for kind, terms in nodes:
            parts = torch.stack([torch.stack([value[i] for i in t]).prod(0) for t in terms])
            value.append(
                1 - parts[0] if kind == NOT
                else 1 - (1 - parts).prod(0) if kind == INDEPENDENT
                else parts.sum(0)
            )  # fmt: skip
        expected = torch.stack([*value, torch.ones(4), torch.zeros(4)], 1).double()
        if bool((expected > 1).any()):
            continue
        given = p.log() if semiring is LOG else p
        found = execute(executor, circuit, semiring, given)
        found = found.exp() if semiring is LOG else found
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        weights = torch.linspace(0.5, 2, 11, dtype=p.dtype)
        slopes = [
            torch.autograd.grad((out * weights).sum(), p, create_graph=True)[0]
            for out in (found, expected)
        ]
        torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-10)
        again = execute(executor, circuit, semiring, given)
        again = again.exp() if semiring is LOG else again
        (alone,) = torch.autograd.grad((again * weights).sum(), p)
        torch.testing.assert_close(alone, slopes[1].detach(), rtol=1e-8, atol=1e-10)


def test_probabilities_of_zero_and_one_have_finite_gradients() -> None:
    nodes = [(INDEPENDENT, [[0], [1]]), (NOT, [[2]]), (SUM, [[2, 3], [0, 1]])]
    circuit, _ = circuit_of_terms(2, nodes, [2, 3, 4])
    for ends in itertools.product((0.0, 0.25, 1.0), repeat=2):
        p = torch.tensor([ends], dtype=torch.float64, requires_grad=True)
        (expected,) = torch.autograd.grad(run(circuit, REAL, p)[0, 0], p)
        found = run(circuit, LOG, p.log())
        torch.testing.assert_close(found.exp(), run(circuit, REAL, p), rtol=1e-12, atol=1e-300)
        assert torch.equal(found == -torch.inf, run(circuit, REAL, p) == 0)
        logs = p.detach().log().requires_grad_()
        (slope,) = torch.autograd.grad(run(circuit, LOG, logs)[0, 0].exp(), logs)
        torch.testing.assert_close(slope, expected * p.detach(), rtol=1e-9, atol=1e-12)
        (slope,) = torch.autograd.grad(run(circuit, LOG, logs).exp().sum(), logs)
        assert slope.isfinite().all()


@pytest.mark.parametrize("semiring", [REAL, LOG], ids=["real", "log"])
def test_sums_of_products_take_no_cycles(semiring: Semiring) -> None:
    circuit = all_atoms(lg.parse("a :- b. b :- a."))
    with pytest.raises(ModelError, match="no cycles"):
        run(circuit, semiring, torch.rand(1, 2, dtype=torch.float64))


# ------------------------------------------------------------------------ minima and maxima


@every_executor
def test_above_one_half_is_the_closure_of_what_is_above_one_half(executor: str) -> None:
    masks = np.array(list(itertools.product([False, True], repeat=6)))
    rng = np.random.default_rng(0)
    soft = torch.from_numpy(np.where(masks, rng.uniform(0.5001, 1, masks.shape),
                                     rng.uniform(0, 0.5, masks.shape)))  # fmt: skip
    for program in [*map(cyclic, range(15)), *map(negation, range(15))]:
        found = execute(executor, all_atoms(program), GODEL, soft)
        assert np.array_equal((found > 0.5).numpy(), lg.closures(program, masks))


def slow_closure(program: Program, state: list[float]) -> list[tuple[float, int]]:
    """(value, rank) of each atom, one T_P step after another. Rank −1: true whatever is given."""
    certain = lg.closure(program).atoms
    derivable = {h for rule in program.rules for h in rule.heads if h not in rule.body}
    best = [
        (1.0, -1) if a in certain else (x, LAST if a in derivable else 0)
        for a, x in zip(program.atoms, state, strict=True)
    ]
    while True:
        after = list(best)
        for j in range(program.R):
            value, rank = slow_body(program, j, best)
            for h in program.heads_of(j).tolist():
                if (value, -rank - 1) > (after[h][0], -after[h][1]):
                    after[h] = (value, rank + 1)
        if after == best:
            return best
        best = after


def slow_body(program: Program, j: int, best: list[tuple[float, int]]) -> tuple[float, int]:
    pairs = [best[b] for b in program.body_of(j).tolist()] or [(1.0, -1)]
    value = min(v for v, _ in pairs)
    return value, max(r for v, r in pairs if v == value)


def slow_gradient(program: Program, state: list[float], atom: int) -> list[float]:
    """Where a gradient of one that arrives at an atom goes to, proof by proof."""
    best = slow_closure(program, state)
    slope = [0.0] * program.M

    def send(i: int, part: float) -> None:
        value, rank = best[i]
        if rank <= 0 or rank == LAST:
            slope[i] += part if rank >= 0 else 0.0
            return
        bodies = {
            frozenset(program.body_of(j).tolist()) - {b for b, p in enumerate(best) if p[1] < 0}
            for j in range(program.R)
            if i in program.heads_of(j) and slow_body(program, j, best) == (value, rank - 1)
        }
        for body in bodies:
            weakest = [b for b in body if best[b][0] == value]
            for b in weakest:
                send(b, part / len(bodies) / len(weakest))

    send(atom, 1.0)
    return slope


@every_executor
@pytest.mark.parametrize("levels", [[0.9, 0.0], [0.5], [0.3, 0.5, 0.7]])
def test_gradients_at_ties_go_along_the_shortest_proofs(executor: str, levels: list[float]) -> None:
    for seed in range(20):
        program = random_program(seed, 7, 14)
        rng = np.random.default_rng(seed)
        state = torch.from_numpy(rng.choice(levels, program.M)).requires_grad_()
        found = execute(executor, all_atoms(program), GODEL, state[None])[0]
        assert found.tolist() == [v for v, _ in slow_closure(program, state.tolist())]
        for i in range(program.M):
            (slope,) = torch.autograd.grad(found[i], state, retain_graph=True, allow_unused=True)
            slope = torch.zeros_like(state) if slope is None else slope
            expected = slow_gradient(program, state.tolist(), i)
            assert slope.tolist() == pytest.approx(expected, abs=1e-12)


@every_executor
def test_smooth_values_on_cycles_become_hard_and_have_their_derivative(executor: str) -> None:
    cycles = 0
    for seed in range(12):
        program = cyclic(seed)
        circuit = all_atoms(program)
        cycles += circuit.cycles
        x = inputs(program, GODEL_ODDS, seed).requires_grad_()
        hard = execute(executor, circuit, GODEL_ODDS, x)
        cold = execute(executor, circuit, replace(SMOOTH, temperature=1e-5), x)
        torch.testing.assert_close(cold, hard, atol=1e-3, rtol=0)
        smooth = replace(SMOOTH, temperature=0.7)
        torch.autograd.gradcheck(
            lambda x, c=circuit, s=smooth: execute(executor, c, s, x), x, fast_mode=True
        )
    assert cycles > 5


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("grid", [False, True])
def test_executors_agree(temperature: float, grid: bool) -> None:
    semiring = replace(SMOOTH, temperature=temperature) if temperature else GODEL_ODDS
    for seed in range(60):
        rng = np.random.default_rng(seed)
        program = random_program(rng, 12, 30) if seed % 2 else negation(seed)
        M = program.M
        fed = np.flatnonzero(rng.random(M) < rng.choice([0.3, 0.7, 1.0]))
        read = rng.integers(0, M, int(rng.integers(0, 9)))
        circuit = compile_circuit(program, fed, read, true=np.flatnonzero(rng.random(M) < 0.1))
        shape = int(rng.choice([1, 3, 37])), len(fed)
        x = rng.integers(-2, 3, shape).astype(float) if grid else rng.normal(0, 2, shape)
        weights = torch.from_numpy(rng.normal(0, 1, (shape[0], len(read))))
        found = []
        for executor in EXECUTORS:
            leaf = torch.from_numpy(x).requires_grad_()
            out = execute(executor, circuit, semiring, leaf)
            slope = torch.zeros_like(leaf)
            if out.requires_grad:
                (slope,) = torch.autograd.grad((out * weights).sum(), leaf, allow_unused=True)
            found.append((out.detach(), torch.zeros_like(leaf) if slope is None else slope))
        for other in found[1:]:
            torch.testing.assert_close(other, found[0], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("hard", [True, False])
def test_a_compiler_takes_minima_and_maxima_as_one_operation(hard: bool) -> None:
    program = lg.parse("c :- a, not b. d :- c, e. e :- d. e :- a.")
    closed = MinMax(
        compile_circuit(program, [program.index[i] for i in "ab"], np.arange(program.M))
    )
    compiled = torch.compile(closed, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    T = torch.tensor(0.5)
    one, other = (way(x, T, hard=hard) for way in (closed, compiled))
    assert torch.equal(one, other)
    assert torch.equal(*(torch.autograd.grad(out.sum(), x)[0] for out in (one, other)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_reads_the_temperature_again() -> None:
    closed = MinMax(all_atoms(cyclic(3))).cuda()
    x = torch.randn(5, closed.circuit.inputs, device="cuda", requires_grad=True)
    T = torch.tensor(0.5, device="cuda")

    def step() -> tuple[Tensor, ...]:
        out = closed(x, T, hard=False)
        return out.detach(), *torch.autograd.grad(out.sum(), x)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    T.fill_(2.0)
    graph.replay()
    for one, other in zip(found, step(), strict=True):
        assert torch.equal(one, other)
