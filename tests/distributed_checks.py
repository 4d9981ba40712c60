"""Laws of sharded models, checked in every process of a group: see `test_distributed.py`.

Each function is called with a mesh of all processes and a folder that they share.
"""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import latentgamma as lg
from latentgamma import LatentGamma, Program
from latentgamma.certificate.constants import Sizes
from latentgamma.distributed import (
    AtomShardedRules,
    ProgramShard,
    ShardedRules,
    fully_shard,
    gather,
    load_shard,
    shard,
)
from latentgamma.distributed import (
    sharded_oracle as program_shards,
)
from latentgamma.distributed.collectives import Ranks
from latentgamma.program.compilation import paused_collector
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
    for options in ({}, {"logits": True}):
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
    # Steps are counted under the rows that act, in every dtype, and all processes agree on them.
    shortcut = lg.parse("b :- a. c :- a. c :- b.")
    sharded = shard(lg.oracle(shortcut, form="sparse"), mesh)
    dead = 1 - sharded.rules.first
    if 0 <= dead < sharded.rules.R:
        with torch.no_grad():
            sharded.confidence_raw[dead] = -40.0
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert bool((sharded(sharded.state(["a"]).to(dtype)) > 0.5).all())
    assert sharded.closure(["a"]) == {"a", "b", "c"}


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
    with pytest.raises(lg.errors.ModelError, match="sharded already"):
        shard(sharded, mesh)
    with pytest.raises(lg.errors.ModelError, match="not sharded"):
        gather(model)
    with pytest.raises(lg.errors.ArgumentError, match="DeviceMesh"):
        shard(model, "cpu")  # type: ignore[arg-type]
    with pytest.raises(lg.errors.ModelError, match="save needs a model with all its rules"):
        sharded.save(folder / "model.safetensors")
    with pytest.raises(lg.errors.ModelError, match="cannot be pickled"):
        pickle.dumps(sharded)
    for function in (lg.paper.perturb, lg.paper.parameter_count):
        with pytest.raises(lg.errors.ModelError, match="gather"):
            function(sharded)
    if mesh.size() > 1:
        rank = mesh.get_local_rank()
        with pytest.raises(lg.errors.ModelError, match="different models"):
            shard(random_model(PROGRAMS["random"], seed=rank), mesh)
        with pytest.raises(lg.errors.ProgramError, match="different atoms"):
            ProgramShard.of(Program.from_rules([], atoms=[f"a{rank}"]), mesh)
    again = copy.deepcopy(sharded)
    state = model.state(list(model.program.roots))
    assert torch.equal(again(state, 3), sharded(state, 3))
    assert "rank" in repr(sharded)


# ------------------------------------------------------------------------ atoms divided too


def _own_gradients(
    model: LatentGamma, state: Tensor, steps: int, **options: object
) -> dict[str, Tensor]:
    """As `gradients`, where each process has the state and the loss of its own atoms."""
    rules = model.rules
    assert isinstance(rules, AtomShardedRules)
    weight = torch.linspace(-1, 2, state.numel(), dtype=torch.float64).view(state.shape)
    leaf = state[..., rules.own_atoms].clone().requires_grad_()
    inputs = {"state": leaf, **dict(model.named_parameters())}
    after = model(leaf, steps, **options)
    found = torch.autograd.grad(
        (weight[..., rules.own_atoms].to(leaf) * after).sum(), [*inputs.values()]
    )
    values = {"after": after.detach()} | dict(zip(inputs, found, strict=True))
    return {
        name.replace("rules.local.", "rules."): (
            rules.gather_state(value)
            if name in ("after", "state")
            else rules.ranks.concatenate(value)
            if name.startswith((*OF_RULES, "offset"))
            else value
        )
        for name, value in values.items()
    }


def check_atoms_divided_too(mesh: DeviceMesh, folder: Path) -> None:
    for name, program in PROGRAMS.items():
        model = random_model(program, gate="bump" if "r" in name else "sigmoid", seed=len(name))
        divided = shard(model, mesh, atoms=True)
        state = random_states(model, 3, seed=1)
        compare(_own_gradients(divided, state, 4), gradients(model, state, 4), 1e-12)
    for options in ({}, {"logits": True}):
        compare(
            _own_gradients(divided, state, 3, **options),
            gradients(model, state, 3, **options),
            1e-12,
        )
    single = state[0]
    compare(_own_gradients(divided, single, 2), gradients(model, single, 2), 1e-12)


def check_the_rest_of_divided_atoms(mesh: DeviceMesh, folder: Path) -> None:
    program = lg.generators.chain(9, body=2)
    model = lg.oracle(program, form="sparse", dtype=torch.float64)
    divided = shard(model, mesh, atoms=True)
    assert lg.certify(divided, program) == lg.certify(model, program)
    compare(dict(gather(divided).named_parameters()), dict(model.named_parameters()), 0.0)
    assert "atoms" in repr(divided)
    path = folder / f"divided run of {mesh.size()}"
    lg.distributed.save_checkpoint(path, divided, step=1)
    with torch.no_grad():
        for parameter in divided.parameters():
            parameter.zero_()
    assert lg.distributed.load_checkpoint(path, divided) == 1
    alone = lg.oracle(program, lg.Constants.paper(), form="sparse", dtype=torch.float64)
    lg.distributed.load_checkpoint(path, alone)
    for each in (gather(divided), alone):
        compare(dict(each.named_parameters()), dict(model.named_parameters()), 0.0)
    with pytest.raises(lg.errors.ModelError, match="proof"):
        divided.gradient = "proof"
    with pytest.raises(lg.errors.ModelError, match="sparse rules"):
        shard(lg.oracle(program, form="dense"), mesh, atoms=True)
    with pytest.raises(lg.errors.ModelError, match="no program"):
        divided.certificate()


# ------------------------------------------------------------------------ programs in parts

TEXTS = {
    "plain": "a :- b, c.\nb.\nc, d :- b.\n\n% a comment.\ne :- a,\n  d.\nf :- e. g :- f.\nh :- g. \n",
    "no line end": "a :- b.\r\nc :- a, b.\r\nb.",
    "one line": "a :- b. c :- a.",
    "names": "'x y.' :- p(1,2). 'ü' :- 'x y.'.\n#external z.\np(1,2) :- z.\n",
    "many": str(lg.generators.random(40, 300, seed=5)),
}


def check_programs_in_parts(mesh: DeviceMesh, folder: Path) -> None:
    """Each process reads a part of a file, and together they have what one would read."""
    for block in (7, 1 << 20):
        program_shards._BLOCK = block
        for name, text in TEXTS.items():
            path = folder / f"{name}.lp"
            if mesh.get_local_rank() == 0:
                path.write_bytes(text.encode())
            dist.barrier()
            expected = lg.load(path)
            part = load_shard(path, mesh)
            assert part.rules.atoms == expected.atoms
            assert part.sizes == Sizes.of(expected)
            assert (part.rules_per_head == expected.rules_per_head).all()
            rules = [rule for each in part.ranks.objects([*part.rules.rules]) for rule in each]
            assert rules == [*expected.rules]
            assert rules[part.first : part.first + part.rules.R] == [*part.rules.rules]


def check_oracle_in_parts(mesh: DeviceMesh, folder: Path) -> None:
    """The model has the parameters that `lg.oracle` gives the whole program."""
    for name, program in PROGRAMS.items():
        if not program.R:
            continue
        size, rank = mesh.size(), mesh.get_local_rank()
        own = range(program.R)[rank * program.R // size : (rank + 1) * program.R // size]
        part = Program.from_rules([program.rules[j] for j in own], atoms=program.atoms)
        found = lg.distributed.oracle(ProgramShard.of(part, mesh), dtype=torch.float64)
        expected = lg.oracle(program, form="sparse", dtype=torch.float64)
        mine = dict(gather(found).named_parameters())
        for key, value in expected.named_parameters():
            assert torch.equal(mine[key], value), (name, key)
        state = random_states(expected, 2)
        torch.testing.assert_close(found(state, 4), expected(state, 4), rtol=0, atol=1e-12)
        divided = lg.distributed.oracle(
            ProgramShard.of(part, mesh), dtype=torch.float64, atoms=True
        )
        after = divided(state[..., divided.rules.own_atoms], 4)
        torch.testing.assert_close(
            divided.rules.gather_state(after), expected(state, 4), rtol=0, atol=1e-12
        )


def check_wrong_files(mesh: DeviceMesh, folder: Path) -> None:
    texts = {
        "not.lp": "a :- not b.\n",
        "variable.lp": "p(X) :- q(X).\n",
        "split.lp": "a :- b %.\n.\n",
    }
    program_shards._BLOCK = 4
    for name, text in texts.items():
        if mesh.get_local_rank() == 0:
            (folder / name).write_text(text)
        dist.barrier()
        with pytest.raises(lg.errors.ProgramError, match="read in parts"):
            load_shard(folder / name, mesh)
    with pytest.raises(lg.errors.ProgramError, match="cannot read"):
        load_shard(folder / "nothing.lp", mesh)
    with pytest.raises(lg.errors.ProgramError, match="only rule text"):
        load_shard(folder / "rules.cnf", mesh)
    with pytest.raises(lg.errors.ArgumentError, match="ProgramShard"):
        lg.distributed.oracle(lg.parse("a."))  # type: ignore[arg-type]


# ------------------------------------------------------------------------ the cost model


def _most_allocated(run: Callable[[], object]) -> int:
    """The most bytes that torch had allocated at a time while this ran."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    gc.collect()
    # Otherwise the collector may free tensors of earlier models meanwhile, which would be subtracted.
    profiled = torch.profiler.profile(activities=activities, profile_memory=True)
    with paused_collector(), profiled as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in events))


def check_plan(mesh: DeviceMesh, folder: Path) -> None:
    """The plan is within a fifth of what is allocated, and of what is sent."""
    size = mesh.size()
    if size not in (1, 2):
        return
    for M, R, k, B in ((2000, 20000, 3, 2), (40000, 20000, 2, 3)):
        rng = np.random.default_rng(0)
        atoms = rng.integers(0, M, (R // size, k + 1))
        starts = np.arange(0, k * len(atoms) + 1, k)
        part = Program.from_arrays(starts, atoms[:, :k].ravel(), atoms[:, k], atoms=M)
        for divided in (False, True):
            model = lg.distributed.oracle(
                ProgramShard.of(part, mesh), lg.Constants.paper(), atoms=divided
            )
            plan = lg.distributed.plan(M, R, k, B, size, atoms=divided)
            held = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
            state = torch.rand(B, model.M)

            def run(model: LatentGamma = model, state: Tensor = state) -> None:
                with torch.no_grad():
                    model(state, 1)

            def train(model: LatentGamma = model, state: Tensor = state) -> None:
                model(state, 1).sum().backward()

            assert plan.held == pytest.approx(held, rel=0.05)
            for function, expected in ((run, plan.memory), (train, plan.training_memory)):
                allocated = []
                for _ in range(3):  # what other threads free too late counts only in some runs
                    model.zero_grad()
                    allocated.append(_most_allocated(function))
                used = held + state.nbytes + min(allocated)
                assert expected == pytest.approx(used, rel=0.2)
            sent = _bytes_sent(model, run), _bytes_sent(model, train)
            expected_sent = plan.communication, plan.training_communication
            assert expected_sent == pytest.approx(sent, rel=0.2)


def _bytes_sent(model: LatentGamma, run: Callable[[], object]) -> float:
    """What this process sends to others: a ring sends a sum almost twice."""
    ranks = model.rules.ranks
    sent = 0.0
    share = (ranks.size - 1) / ranks.size

    def all_reduce(*tensors: Tensor) -> tuple[Tensor, ...]:
        nonlocal sent
        sent += 2 * share * sum(tensor.nbytes for tensor in tensors)
        return Ranks.all_reduce(ranks, *tensors)

    def exchange(tensor: Tensor, send: list[int], receive: list[int]) -> Tensor:
        nonlocal sent
        sent += tensor.nbytes - send[ranks.rank] * tensor[:1].nbytes
        return Ranks.exchange(ranks, tensor, send, receive)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ranks.__dict__, "all_reduce", all_reduce)
        patch.setitem(ranks.__dict__, "exchange", exchange)
        run()
    return sent


# ------------------------------------------------------------------------ DDP and FSDP


def _network(semantics: str) -> nn.Sequential:
    torch.manual_seed(0)
    program = lg.parse("alarm :- smoke, heat. alarm :- button. leave :- alarm, people.")
    layer = lg.Layer(
        program,
        inputs=["smoke", "heat", "button", "people"],
        outputs=["alarm", "leave"],
        semantics=semantics,
        from_logits=True,
    )
    return nn.Sequential(nn.Linear(3, 4), layer).double()


def _data_parallel_makers() -> dict[str, Callable[[], nn.Module]]:
    """Modules to train on batches of their own, by name."""
    made: dict[str, Callable[[], nn.Module]] = {
        f"layer, {semantics}": partial(_network, semantics)
        for semantics in ("godel", "gamma", "probability")
    }
    for form in ("sparse", "dense"):
        made[form] = partial(random_model, PROGRAMS["random"], form=form, seed=14)
    made["kernel"] = partial(random_model, lg.generators.chain(80), form="sparse", seed=14)
    return made


def check_data_parallel(mesh: DeviceMesh, folder: Path) -> None:
    """DDP and FSDP on parts of a batch have the gradient of one process on the whole batch."""
    rank, size = mesh.get_local_rank(), mesh.size()
    if size != 2:
        return
    for name, make in _data_parallel_makers().items():
        module = make()
        layer = name.startswith("layer")
        inputs = torch.randn(2 * size, 3).double() if layer else random_states(module, 2 * size)
        arguments = () if layer else (3,)
        module(inputs, *arguments).mean().backward()
        expected = {key: p.grad for key, p in module.named_parameters() if p.requires_grad}
        for wrap in (DistributedDataParallel, partial(fully_shard, mesh=mesh)):
            wrapped = wrap(make())
            part = inputs[2 * rank : 2 * rank + 2]
            wrapped(part, *arguments).mean().backward()
            found = {
                key.removeprefix("module."): (
                    p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
                )
                for key, p in wrapped.named_parameters()
                if p.requires_grad
            }
            compare(found, expected, 1e-12)


def check_both_at_once(mesh: DeviceMesh, folder: Path) -> None:
    """Rules over one dimension of a mesh, batches over the other."""
    if mesh.size() != 4:
        return
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("batch", "rules"))
    with pytest.raises(lg.errors.ArgumentError, match="one dimension"):
        shard(random_model(PROGRAMS["random"]), grid)
    model = random_model(PROGRAMS["random"], seed=15)
    state = random_states(model, 4, seed=16)
    model(state, 3).mean().backward()
    sharded = shard(model, grid["rules"])
    replica = DistributedDataParallel(sharded, process_group=grid.get_group("batch"))
    first = 2 * grid.get_local_rank("batch")
    replica(state[first : first + 2], 3).mean().backward()
    found = whole(sharded, {name: p.grad for name, p in sharded.named_parameters()})
    compare(found, {name: p.grad for name, p in model.named_parameters()}, 1e-12)


# ------------------------------------------------------------------------ checkpoints


def _train(model: LatentGamma, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        state = random_states(model, 3, seed=step)
        (model(state, 2) - state.flip(0)).square().mean().backward()
        optimizer.step()


def check_checkpoints(mesh: DeviceMesh, folder: Path) -> None:
    """A checkpoint is read by fewer processes, and training goes on as if nothing had happened."""
    path = folder / f"run of {mesh.size()}"
    model = random_model(PROGRAMS["loops"], seed=17)
    sharded = shard(model, mesh)
    optimizers = [torch.optim.AdamW(each.parameters(), 0.03) for each in (model, sharded)]
    _train(sharded, optimizers[1], range(3))
    lg.distributed.save_checkpoint(path, sharded, optimizers[1], step=2)
    optimizers[1].param_groups[0]["lr"] = 0.01
    lg.distributed.save_checkpoint(path, sharded, optimizers[1], step=3)
    assert len([*path.iterdir()]) == 1  # the older one is deleted
    optimizers[0].param_groups[0]["lr"] = 0.03
    _train(model, optimizers[0], range(3))
    optimizers[0].param_groups[0]["lr"] = 0.01
    _train(model, optimizers[0], range(3, 5))
    expected = dict(model.named_parameters())
    # In one process, without torch.distributed.
    alone = random_model(PROGRAMS["loops"], seed=18)
    optimizer = torch.optim.AdamW(alone.parameters(), 0.5)
    assert lg.distributed.load_checkpoint(path, alone, optimizer) == 3
    _train(alone, optimizer, range(3, 5))
    compare(dict(alone.named_parameters()), expected, 1e-10)
    # In half of the processes.
    half = max(1, mesh.size() // 2)
    some = DeviceMesh("cpu", list(range(half)))
    if mesh.get_local_rank() < half:
        again = shard(random_model(PROGRAMS["loops"], seed=19), some)
        optimizer = torch.optim.AdamW(again.parameters(), 0.5)
        assert lg.distributed.load_checkpoint(path, again, optimizer) == 3
        _train(again, optimizer, range(3, 5))
        compare(dict(gather(again).named_parameters()), expected, 1e-10)
    dist.barrier()


def check_dense_checkpoint(mesh: DeviceMesh, folder: Path) -> None:
    path = folder / f"dense run of {mesh.size()}"
    model = random_model(PROGRAMS["random"], form="dense", seed=20)
    lg.distributed.save_checkpoint(path, shard(model, mesh))
    other = random_model(PROGRAMS["random"], form="dense", seed=21)
    lg.distributed.load_checkpoint(path, other)
    compare(dict(other.named_parameters()), dict(model.named_parameters()), 0.0)


def check_wrong_checkpoints(mesh: DeviceMesh, folder: Path) -> None:
    path = folder / f"wrong run of {mesh.size()}"
    model = shard(random_model(PROGRAMS["random"], seed=17), mesh)
    with pytest.raises(lg.errors.ModelError, match="no complete checkpoint"):
        lg.distributed.load_checkpoint(path, model)
    lg.distributed.save_checkpoint(path, model)
    other = Program.from_rules([("b", ["a"])], atoms=["a", "b"])
    with pytest.raises(lg.errors.ModelError, match="another program"):
        lg.distributed.load_checkpoint(path, shard(random_model(other), mesh))
    with pytest.raises(lg.errors.ModelError, match="same optimiser"):
        lg.distributed.load_checkpoint(path, model, torch.optim.Adam(model.parameters()))
    with pytest.raises(lg.errors.ModelError, match="not the model's"):
        lg.distributed.save_checkpoint(path, model, torch.optim.SGD([torch.zeros(1)], 0.1))


EVERY = [function for name, function in globals().items() if name.startswith("check_")]
#: What is checked for every number of processes, and what for two and four.
CORE = [
    check_values_and_gradients,
    check_every_way_to_run,
    check_float32,
    check_certificate,
    check_atoms_divided_too,
    check_programs_in_parts,
]
