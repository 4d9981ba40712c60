"""Laws of sharded models, checked in every process of a group: see `test_distributed.py`.

Each function is called with a mesh of all processes and a folder that they share.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import latentgamma as lg
from latentgamma import LatentGamma, Program
from latentgamma.distributed import ShardedRules, gather, shard
from random_models import random_model, random_states
from random_programs import random_program

#: The parameters of which each process has those of its own rules.
OF_RULES = ("rules.", "threshold", "sharpness_raw", "confidence_raw")

#: Programs with more and with fewer rules than processes, without any, and with one long rule.
PROGRAMS = {
    "random": random_program(3, 6, 11),
    "loops": random_program(7, 9, 30, body=3),
    "fewer rules than processes": random_program(5, 4, 2),
    "no rules": Program.from_rules([], atoms=["a", "b"]),
    "one long rule": Program.from_rules(
        [("h", [f"b{i}" for i in range(40)]), ("g", ["h"]), ("f", ["g"]), ("e", ["f", "h"])]
    ),
}


def gradients(
    model: LatentGamma, state: Tensor, steps: int, **options: object
) -> dict[str, Tensor]:
    """∂ of a weighted sum of the final state, in the state and in every parameter."""
    leaf = state.detach().clone().requires_grad_()
    weight = torch.linspace(-1, 2, state.numel(), dtype=torch.float64).view(state.shape)
    inputs = {"state": leaf, **dict(model.named_parameters())}
    after = model(leaf, steps, **options)
    found = torch.autograd.grad((weight.to(leaf) * after).sum(), [*inputs.values()])
    return {"after": after.detach()} | dict(zip(inputs, found, strict=True))


def whole(model: LatentGamma, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The values of all rules, under the names of the model in one process."""
    rules = model.rules
    assert isinstance(rules, ShardedRules)
    return {
        name.replace("rules.local.", "rules."): (
            rules.ranks.concatenate(value) if name.startswith(OF_RULES) else value
        )
        for name, value in values.items()
    }


def compare(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name],
            value,
            rtol=tolerance,
            atol=tolerance,
            msg=lambda text, n=name: f"{n}: {text}",
        )


def check_values_and_gradients(mesh: DeviceMesh, folder: Path) -> None:
    for name, program in PROGRAMS.items():
        for form in ("sparse", "dense"):
            for gate in ("sigmoid", "bump"):
                model = random_model(program, form=form, gate=gate, seed=len(name))
                sharded = shard(model, mesh)
                state = random_states(model, 3, seed=1)
                compare(
                    whole(sharded, gradients(sharded, state, 4)), gradients(model, state, 4), 1e-12
                )


def check_every_way_to_run(mesh: DeviceMesh, folder: Path) -> None:
    model = random_model(PROGRAMS["loops"], seed=2)
    sharded = shard(model, mesh)
    state = random_states(model, 2, seed=3)
    for options in ({"memory": "sqrt"}, {"memory": "all"}, {"logits": True}):
        compare(
            whole(sharded, gradients(sharded, state, 5, **options)),
            gradients(model, state, 5, **options),
            1e-12,
        )
    expected = model.iterate(state, 3).states
    torch.testing.assert_close(sharded.iterate(state, 3).states, expected, rtol=0, atol=1e-13)
    with sharded.fixed():
        torch.testing.assert_close(sharded(state, 3), expected[-1], rtol=0, atol=1e-13)


def check_float32(mesh: DeviceMesh, folder: Path) -> None:
    model = random_model(PROGRAMS["loops"], seed=4, dtype=torch.float32)
    sharded = shard(model, mesh)
    state = random_states(model, 3, seed=5)
    found, expected = whole(sharded, gradients(sharded, state, 3)), gradients(model, state, 3)
    for name, value in expected.items():
        scale = float(value.abs().max()) or 1.0
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6 * max(1.0, scale))


def check_sixteen_bits(mesh: DeviceMesh, folder: Path) -> None:
    model = random_model(PROGRAMS["random"], seed=4, dtype=torch.bfloat16)
    sharded = shard(model, mesh)
    state = random_states(model, 3, seed=5)
    assert sharded.dtype == sharded(state, 2).dtype == torch.bfloat16
    torch.testing.assert_close(sharded(state, 2), model(state, 2), rtol=0, atol=1e-2)


def check_second_derivatives(mesh: DeviceMesh, folder: Path) -> None:
    model = random_model(PROGRAMS["random"], seed=6)
    sharded = shard(model, mesh)
    found = []
    for each in (model, sharded):
        leaf = random_states(model, 2, seed=7).requires_grad_()
        (slope,) = torch.autograd.grad(each(leaf, 2).square().sum(), leaf, create_graph=True)
        parameters = dict(each.named_parameters())
        second = torch.autograd.grad(slope.square().sum(), [leaf, *parameters.values()])
        found.append(dict(zip(("state", *parameters), second, strict=True)))
    compare(whole(sharded, found[1]), found[0], 1e-11)


def check_proof_gradient(mesh: DeviceMesh, folder: Path) -> None:
    for form in ("sparse", "dense"):
        model = random_model(PROGRAMS["random"], form=form, gradient="proof", seed=8)
        sharded = shard(model, mesh)
        assert sharded.gradient == "proof"
        state = random_states(model, 3, seed=9)
        compare(whole(sharded, gradients(sharded, state, 3)), gradients(model, state, 3), 1e-12)


def check_certificate(mesh: DeviceMesh, folder: Path) -> None:
    program = lg.generators.chain(9, body=2)
    model = lg.oracle(program, form="sparse", dtype=torch.float64)
    sharded = shard(model, mesh)
    assert model.certificate().holds
    assert sharded.certificate() == model.certificate()
    state = model.state(list(program.roots)[:3])
    torch.testing.assert_close(sharded(state), model(state), rtol=0, atol=1e-12)
    assert sharded.closure(list(program.roots)) == model.closure(list(program.roots))
    # A change in one process is a change of the model.
    for each in (model, sharded):
        with torch.no_grad():
            if each is model or each.rules.first == 0:
                each.threshold[:1] += 0.3
    assert sharded.certificate() == model.certificate()


def check_training(mesh: DeviceMesh, folder: Path) -> None:
    """Five steps of Adam end at the same parameters as in one process."""
    model = random_model(PROGRAMS["loops"], seed=10)
    sharded = shard(model.trainable("body", "threshold", "gain", "offset", "gate"), mesh)
    state, target = random_states(model, 4, seed=11), random_states(model, 4, seed=12)
    for each in (model, sharded):
        optimizer = torch.optim.Adam([p for p in each.parameters() if p.requires_grad], 0.05)
        for _ in range(5):
            optimizer.zero_grad()
            (each(state, 3) - target).square().mean().backward()
            optimizer.step()
    compare(dict(gather(sharded).named_parameters()), dict(model.named_parameters()), 1e-10)


def check_gather(mesh: DeviceMesh, folder: Path) -> None:
    for form in ("sparse", "dense"):
        model = random_model(PROGRAMS["random"], form=form, gate="bump", seed=13).trainable("head")
        back = gather(shard(model, mesh))
        assert type(back.rules) is type(model.rules)
        assert back.gate_kind == "bump"
        assert back.program is model.program
        assert {n for n, p in back.named_parameters() if p.requires_grad} == {
            n for n, p in model.named_parameters() if p.requires_grad
        }
        before = model.state_dict()
        for name, value in back.state_dict().items():
            assert torch.equal(value, before[name])


def check_shares_are_balanced(mesh: DeviceMesh, folder: Path) -> None:
    program = lg.generators.random(50, 1000, seed=0)
    model = lg.oracle(program, lg.Constants.paper(), form="sparse")
    sharded = shard(model, mesh)
    rules = sharded.rules
    assert isinstance(rules, ShardedRules)
    sizes = [sum(row) for row in rules.ranks.counts(len(rules.local.literals().body_atom))]
    assert sum(sizes) == len(program.body_indices)
    assert max(sizes) - min(sizes) < 50
    assert sharded.R == program.R
    assert sum(row[0] for row in rules.ranks.counts(rules.R)) == program.R


def check_wrong_use(mesh: DeviceMesh, folder: Path) -> None:
    model = lg.oracle(lg.generators.g1(), form="sparse")
    sharded = shard(model, mesh)
    with pytest.raises(lg.ModelError, match="sharded already"):
        shard(sharded, mesh)
    with pytest.raises(lg.ModelError, match="not sharded"):
        gather(model)
    with pytest.raises(lg.ArgumentError, match="DeviceMesh"):
        shard(model, "cpu")  # type: ignore[arg-type]
    with pytest.raises(lg.ModelError, match="save needs a model with all its rules"):
        sharded.save(folder / "model.safetensors")
    with pytest.raises(lg.ModelError, match="cannot be pickled"):
        pickle.dumps(sharded)
    for function in (lg.perturb, lg.parameter_count):
        with pytest.raises(lg.ModelError, match="gather"):
            function(sharded)
    again = copy.deepcopy(sharded)
    state = model.state(list(model.program.roots))
    assert torch.equal(again(state, 3), sharded(state, 3))
    assert "rank" in repr(sharded)


EVERY = [function for name, function in globals().items() if name.startswith("check_")]
