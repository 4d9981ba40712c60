"""A network learns to see facts, though only what follows from them is labelled.

Eight noisy sensors say something about four facts; the labels speak of `alarm` alone, three
steps of reasoning away. The rules stand behind the network and are not trained. With the proof
gradient the error at `alarm` reaches the facts it was derived from.
"""

import torch

import latentgamma as lg

RULES = """
smoke   :- haze, heat.
fire    :- smoke, flicker.
alarm   :- fire.
alarm   :- button.
"""
FACTS = ["haze", "heat", "flicker", "button"]


def main() -> None:
    program = lg.parse(RULES)
    layer = lg.oracle(program, gradient="proof").requires_grad_(False)
    depth = lg.depth_bound(program)
    columns = [program.index[name] for name in FACTS]
    generator = torch.Generator().manual_seed(0)

    facts = torch.rand(2000, len(FACTS), generator=generator) < 0.6
    sensors = facts.float() @ torch.randn(len(FACTS), 8, generator=generator)
    sensors += 0.1 * torch.randn(sensors.shape, generator=generator)
    truth = torch.stack([torch.from_numpy(lg.closure(program, state(program, row)).state.copy())
                         for row in facts])  # fmt: skip
    alarm = truth[:, program.index["alarm"]].float()

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for epoch in range(60):
        seen = torch.sigmoid(network(sensors))
        states = torch.zeros(len(seen), program.M).index_copy(1, torch.tensor(columns), seen)
        raised = layer(states, depth)[:, program.index["alarm"]].clamp(1e-4, 1 - 1e-4)
        loss = torch.nn.functional.binary_cross_entropy(raised, alarm)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if epoch % 20 == 19:
            right = ((raised > 0.5) == (alarm > 0.5)).float().mean()
            print(f"epoch {epoch + 1:3d}  loss {loss.item():.3f}  alarms right {right:.1%}")


def state(program: lg.Program, row: torch.Tensor) -> list[str]:
    """The names of the facts of one example."""
    return [name for name, true in zip(FACTS, row.tolist(), strict=True) if true]


if __name__ == "__main__":
    main()
