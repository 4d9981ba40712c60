"""The command `compile`: runs every compiled function once, so that numba keeps its code on disk."""

from __future__ import annotations

import argparse
import time

from latentgamma._text import quantity
from latentgamma.cli.commands import UsageError
from latentgamma.cli.console import Screen
from latentgamma.cli.main import import_torch

#: A cycle, bodies and heads of several atoms, and rules that follow each other.
_RULES = "b :- a. a :- b. c :- a, d. d, e :- c, a, f. g :- e. h :- g, c. i :- c."


def compile_all(args: argparse.Namespace) -> int:
    """Compile what is not on disk yet, and say what that was."""
    from latentgamma.program import compilation

    try:
        compilation.load_numba().njit(cache=True)(compile_all)
    except RuntimeError:
        raise UsageError(
            "there is no folder to keep compiled code in; set NUMBA_CACHE_DIR to one"
        ) from None
    import_torch()
    compiled: list[str] = []
    start = time.perf_counter()
    compilation.on_compile.append(compiled.append)
    compilation.forced = True
    try:
        _run_logic()
        _run_operator()
        _run_layers()
        _run_requirements()
        _run_graphs()
    finally:
        compilation.forced = None
        compilation.on_compile.remove(compiled.append)
    seconds = time.perf_counter() - start
    if args.json:
        Screen().json({"compiled": compiled, "seconds": round(seconds, 3)})
    else:
        Screen().line(f"compiled {quantity(len(compiled), 'function')} in {seconds:.1f} s")
    return 0


def _run_logic() -> None:
    import numpy as np

    import latentgamma as lg
    from latentgamma.learning.implications import apply_implications
    from latentgamma.program.compilation import compile_loop

    program = lg.parse(_RULES)
    for facts in (["a"], ["a", "d", "f"]):
        lg.closure(program, facts)
    lg.closures(program, [["a"]])
    lg.closures(program, lg.logic.pack(np.ones((1, program.M), bool)), packed=True)
    lg.logic.unpack(lg.logic.random_planes([0.5] * program.M, 64), 64)
    lg.logic.depth_bound(program)
    lg.why_not(program, ["a"], "h")
    lg.closure(lg.parse("#external b. a :- not b."), [])
    words = np.zeros((1, 1), np.uint64)
    compile_loop(apply_implications)(words, words, words)


def _run_operator() -> None:
    import torch

    import latentgamma as lg

    program = lg.generators.chain(100)
    for dtype in (torch.float32, torch.float64):
        model = lg.oracle(program, form="sparse", dtype=dtype)
        for batch in (1, 20):
            state = torch.zeros(batch, program.M, dtype=dtype)
            model(state, 1).sum().backward()
            model(state)


def _run_layers() -> None:
    import torch

    import latentgamma as lg

    program, inputs = lg.parse(_RULES), ["a", "d", "f"]
    passed = lg.parse("g :- a, d. h :- g. i :- f.")  # by a sum-product pass
    for dtype in (torch.float32, torch.float64):
        given = torch.full((2, 3), 0.5, dtype=dtype, requires_grad=True)
        layer = lg.Layer(program, inputs, ["h", "i"])
        layer(given).sum().backward()
        layer.eval()(given).sum().backward()
        with torch.no_grad():
            layer(given)
        for groups in (inputs, lg.Categorical(inputs)):
            for logits in (False, True):
                layer = lg.Layer(
                    passed, groups, ["h", "i"], semantics="probability", from_logits=logits
                )
                for kind in (dtype, torch.bfloat16):
                    scores = (given if logits else given / 1.5).to(kind)
                    layer(scores, logits=logits).sum().backward()


def _run_requirements() -> None:
    import torch

    import latentgamma as lg

    layer = lg.Requirements.from_text(":- a, b. c ; d :- a.").layer()
    given = torch.zeros(2, 4, requires_grad=True)
    (layer(given).sum() + layer.loss(given, torch.zeros(2, 4))).backward()
    layer.eval()(given.detach())


def _run_graphs() -> None:
    import latentgamma as lg

    triples = [(f"a{i % 5}", f"r{i % 3}", f"b{i % 4}") for i in range(40)]
    found = lg.relational.mine_chains(triples, min_support=1, validation=triples[:2])
    found.rank(triples[:1], aggregation="maximum")
