"""Hugging Face's Trainer with a layer of rules in the loss.

Pairs of digits of scikit-learn are labelled with their sum alone. The model reads each digit, and its loss
goes through `sum(X + Y) :- left(X), right(Y).`

    pip install transformers accelerate scikit-learn
    python examples/huggingface_trainer.py
"""

from __future__ import annotations

import tempfile

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

import latentgamma as lg

RULES = lg.parse(
    "".join(f"sum({x + y}) :- left({x}), right({y}).\n" for x in range(10) for y in range(10))
)
DIGITS = lg.Categorical([[f"left({x})" for x in range(10)], [f"right({y})" for y in range(10)]])
SUMS = lg.Categorical([f"sum({s})" for s in range(19)])


class SumModel(PreTrainedModel):
    """Reads two digits, and adds them by rules."""

    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        with torch.device("cpu"):  # from_pretrained builds models on the meta device
            self.rules = lg.Layer(RULES, DIGITS, SUMS, semantics="probability")
        self.post_init()

    def forward(self, images: Tensor, labels: Tensor | None = None) -> SequenceClassifierOutput:
        digits = self.network(images).softmax(-1)  # (B, 2, 10)
        logits = self.rules(digits, logits=True)  # (B, 19)
        loss = None if labels is None else nn.functional.nll_loss(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Sums(Dataset[dict[str, Tensor]]):
    """Pairs of images with their sum."""

    def __init__(self, images: Tensor, digits: Tensor, count: int) -> None:
        places = torch.randint(len(images), (count, 2), generator=torch.Generator().manual_seed(0))
        self.images, self.sums = images[places], digits[places].sum(1)

    def __len__(self) -> int:
        return len(self.sums)

    def __getitem__(self, item: int) -> dict[str, Tensor]:
        return {"images": self.images[item], "labels": self.sums[item]}


def main() -> None:
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    digits = torch.tensor(data.target)
    torch.manual_seed(0)
    model = SumModel(PretrainedConfig())
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=250, per_device_train_batch_size=64, learning_rate=5e-3,
            per_device_eval_batch_size=500, use_cpu=True, report_to="none", save_strategy="no",
            logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=Sums(images[:1300], digits[:1300], 4000))
        trainer.train()
        unseen = Sums(images[1300:], digits[1300:], 1000)
        found = trainer.predict(unseen)
        model.save_pretrained(folder)
        again = SumModel.from_pretrained(folder)
    sums = (found.predictions.argmax(1) == found.label_ids).mean()
    with torch.no_grad():
        read = again.network(images[1300:]).argmax(1)
        assert (again(unseen.images).logits.argmax(1).numpy() == found.predictions.argmax(1)).all()
    print(f"sums right {sums:.1%}, digits right {(read == digits[1300:]).float().mean():.1%}")


if __name__ == "__main__":
    main()
