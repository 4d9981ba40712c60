"""A network learns to see facts, though only what follows from them is labelled.

Three facts have a noisy sensor reading each; the labels speak of `alarm` alone, three rules away.
The rules stand behind the network as a layer and are not trained. Everything is measured on
held-out examples: the alarms, and also the facts, which the network was never told.

1. One small network for each fact: alarms and facts come out right.
2. One network that sees all sensors at once finds a shortcut. Its alarms are right, and the
   facts behind them wrong: it says what it likes, as long as the rules make the right alarm of it.
3. A few fully labelled examples cure that.
"""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import latentgamma as lg

RULES = """
smoke :- haze, heat.
fire  :- smoke, flicker.
alarm :- fire.
"""
FACTS = ["haze", "heat", "flicker"]
READINGS = 4  # numbers that a sensor gives
STEPS = 600


class OneForEach(nn.Module):
    """A small network for each fact, which sees the readings of that fact's sensor alone."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(READINGS, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in FACTS
        )

    def forward(self, readings: torch.Tensor) -> torch.Tensor:
        return torch.cat([part(readings[:, n]) for n, part in enumerate(self.parts)], dim=1)


def one_for_all() -> nn.Module:
    """One network that sees all sensors at once."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(len(FACTS) * READINGS, 64), nn.ReLU(), nn.Linear(64, len(FACTS))
    )


def examples(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sensor readings (N, 3, 4), facts (N, 3) and alarms (N,)."""
    directions = torch.randn(len(FACTS), READINGS, generator=torch.Generator().manual_seed(0))
    directions /= directions.norm(dim=1, keepdim=True)
    generator = torch.Generator().manual_seed(seed)
    facts = torch.rand(count, len(FACTS), generator=generator) < 0.5 ** (1 / 3)
    readings = (2.0 * facts - 1)[..., None] * directions
    readings += 0.25 * torch.randn(readings.shape, generator=generator)
    program = lg.parse(RULES)
    columns = [program.index[name] for name in FACTS]
    masks = torch.zeros(count, program.M, dtype=torch.bool).index_copy(
        1, torch.tensor(columns), facts
    )
    closed = torch.from_numpy(lg.closures(program, masks.numpy()))
    return readings, facts, closed[:, program.index["alarm"]]


def train(network: nn.Module, labelled: int) -> tuple[float, float]:
    """Train a network behind the layer; its accuracy on held-out alarms and facts."""
    readings, facts, alarms = examples(2000, seed=1)
    layer = lg.Layer(lg.parse(RULES), FACTS, "alarm", from_logits=True)
    annealing = lg.Annealing(layer, STEPS)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        batch = torch.randint(len(readings), (128,), generator=generator)
        odds = layer(network(readings[batch]), logits=True)
        loss = binary_cross_entropy_with_logits(odds, alarms[batch].float())
        if labelled:
            told = network(readings[:labelled])
            loss = loss + binary_cross_entropy_with_logits(told, facts[:labelled].float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        annealing.step()

    readings, facts, alarms = examples(2000, seed=3)
    layer.eval()
    with torch.no_grad():
        seen = network(readings)
        raised = layer(seen) > 0.5
    return (raised == alarms).float().mean().item(), ((seen > 0) == facts).float().mean().item()


def main() -> None:
    for title, make, labelled in (
        ("one network for each fact", OneForEach, 0),
        ("one network for all facts", one_for_all, 0),
        ("the same, 32 examples fully labelled", one_for_all, 32),
    ):
        torch.manual_seed(0)
        alarms, facts = train(make(), labelled)
        print(f"{title:<38} alarms right {alarms:6.1%}   facts right {facts:6.1%}")


if __name__ == "__main__":
    main()
