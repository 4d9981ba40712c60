"""Type-checked and never run: what the types of the public surface promise to a user."""

import numpy as np
import numpy.typing as npt
import torch

import latentgamma as lg


def symbols(path: str) -> frozenset[str]:
    program: lg.Program = lg.load(path)
    rule: lg.Rule = program.rules[0]
    closed: lg.logic.Closure = lg.closure(program, [rule.head])
    depth: int = closed.depth
    many: npt.NDArray[np.bool_] = lg.closures(program, [[0], ["a"]])
    proof: lg.logic.Derivation | None = lg.derivation(program, ["a"], "b")
    steps: lg.logic.Derivations = lg.derivations(program, ["a"])
    rules: npt.NDArray[np.int32] = steps.rule
    proof = proof or steps.proof(int(rules[0]))
    if proof is None:
        gap: lg.logic.WhyNot | None = lg.why_not(program, ["a"], "b")
        return gap.missing if gap is not None else frozenset()
    return closed.atoms if depth and many.any() else frozenset(proof.facts)


def layer(program: lg.Program) -> torch.Tensor:
    model = lg.oracle(program, lg.Constants.paper(), form="sparse", gate="bump")
    state: torch.Tensor = model.state(["a"])
    run: lg.operator.Trajectory = model.iterate(state, 3)
    certificate: lg.operator.Certificate = lg.certify(model, program, depth=3).require()
    window: tuple[float, float] = certificate.t_min, certificate.t_max
    sequence = torch.nn.Sequential(torch.nn.Linear(3, program.M), torch.nn.Sigmoid(), model)
    out: torch.Tensor = sequence(torch.zeros(3))
    return out + run.final * window[0]
