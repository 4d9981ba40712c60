"""A multi-label network in Lightning, with a layer of requirements behind it.

The digits of scikit-learn have eleven labels: ten digits, and `even`. Requirements are part of the loss
and of every prediction, so no prediction breaks them.

    pip install lightning scikit-learn
    python examples/lightning_labels.py
"""

from __future__ import annotations

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import latentgamma as lg

DIGITS = [f"digit_{n}" for n in range(10)]
LABELS = [*DIGITS, "even"]
REQUIREMENTS = lg.Requirements.from_text(
    "".join(f"even :- digit_{n}.\n" if n % 2 == 0 else f":- even, digit_{n}.\n" for n in range(10))
    + " ; ".join(DIGITS) + ".\n"
    + "".join(f":- digit_{a}, digit_{b}.\n" for a in range(10) for b in range(a))
)  # fmt: skip


class Digits(lightning.LightningModule):
    """A network, and the layer that its loss and its predictions go through."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, len(LABELS)))
        self.requirements = REQUIREMENTS.layer(LABELS)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        loss = self.requirements.loss(self.network(x), y)
        self.log("loss", loss)
        return loss

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.requirements.decide(self.network(batch[0]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


def main() -> None:
    lightning.seed_everything(0, verbose=False)
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    y = torch.tensor([[n == d for n in range(10)] + [d % 2 == 0] for d in data.target])
    training = DataLoader(TensorDataset(x[:1300], y[:1300]), batch_size=64, shuffle=True)
    unseen = DataLoader(TensorDataset(x[1300:]), batch_size=500)

    model = Digits()
    trainer = lightning.Trainer(
        max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, training)
    answers = torch.cat(trainer.predict(model, unseen))
    right = (answers == y[1300:]).all(1).float().mean()
    print(f"all labels right: {right:.1%}; {REQUIREMENTS.check(answers, LABELS)}")
    print(model.requirements.certificate())


if __name__ == "__main__":
    main()
