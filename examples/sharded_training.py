"""Train a model whose rules are divided among processes.

torchrun --standalone --nproc-per-node 2 examples/sharded_training.py
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import latentgamma as lg


def main() -> None:
    if dist.is_torchelastic_launched():  # started by torchrun
        dist.init_process_group("gloo")  # "nccl" on GPUs
    elif not dist.is_initialized():  # one process, to try it
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    program = lg.generators.random(50, 400, seed=0)
    model = lg.oracle(program, lg.Constants.paper(), form="sparse").trainable("threshold")
    sharded = lg.distributed.shard(model, mesh)
    print(sharded.rules.extra_repr())

    # The same data in every process. Facts alone are to stay: raise the thresholds.
    state = torch.rand(16, program.M, generator=torch.Generator().manual_seed(0))
    target = (state > 0.5).float()
    optimizer = torch.optim.Adam([p for p in sharded.parameters() if p.requires_grad], 0.1)
    folder = Path("checkpoints")
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        loss = (sharded(state, 2) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 9:
            lg.distributed.save_checkpoint(folder, sharded, optimizer, step=step + 1)
    assert losses[-1] < losses[0]
    assert lg.distributed.load_checkpoint(folder, sharded, optimizer) == 20

    whole = lg.distributed.gather(sharded)
    if mesh.get_local_rank() == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; {whole.R} rules gathered")
    if dist.is_torchelastic_launched():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
