"""Learn to read digits from sums alone, and see when the sums do not say which digit is which.

The images are the 1,797 digits of scikit-learn. The network never sees the label of a single
digit: it is trained through `sum(X + Y) :- left(X), right(Y).` on the probability of the sum.
It takes half a minute. Run it with

    pip install scikit-learn
    python examples/digit_sums.py
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import latentgamma as lg

PROGRAM = lg.parse(
    "".join(f"sum({x + y}) :- left({x}), right({y}).\n" for x in range(10) for y in range(10))
)
DIGITS = lg.Categorical([[f"left({x})" for x in range(10)], [f"right({y})" for y in range(10)]])
SUMS = lg.Categorical([f"sum({s})" for s in range(19)])
#: Sums of these pairs leave 36 ways of reading the digits.
FEW_PAIRS = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]
ALL_PAIRS = [(x, y) for x in range(10) for y in range(10)]


def load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and their digits, for training and for testing."""
    found = load_digits()
    images = torch.from_numpy(found.data / 16.0).float()
    labels = torch.from_numpy(found.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    known, unseen = order[:1300], order[1300:]
    return images[known], labels[known], images[unseen], labels[unseen]


def draw(labels: Tensor, pairs: list[tuple[int, int]], count: int, seed: int) -> Tensor:
    """The places of two images for each of `count` sums. (count, 2)."""
    rng = np.random.default_rng(seed)
    of_digit = [np.flatnonzero(labels.numpy() == digit) for digit in range(10)]
    chosen = [pairs[i] for i in rng.integers(len(pairs), size=count)]
    return torch.tensor([[rng.choice(of_digit[x]), rng.choice(of_digit[y])] for x, y in chosen])


def train(
    images: Tensor,
    labels: Tensor,
    pairs: list[tuple[int, int]],
    *,
    labelled: tuple[int, ...] = (),
    seed: int = 0,
    epochs: int = 15,
) -> nn.Module:
    """A network that reads digits, trained on sums; the images of a few digits may be labelled."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    layer = lg.Layer(PROGRAM, DIGITS, SUMS, semantics="probability")
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    places = draw(labels, pairs, 4000, seed)
    sums = labels[places].sum(-1)
    shown = torch.isin(labels, torch.tensor(labelled))
    for _ in range(epochs):
        for batch in torch.randperm(len(places)).split(64):
            digits = torch.softmax(network(images[places[batch]]), -1)  # (B, 2, 10)
            loss = nn.functional.nll_loss(layer(digits, logits=True), sums[batch])
            if labelled:
                loss = loss + nn.functional.cross_entropy(network(images[shown]), labels[shown])
                # All digits are about equally frequent. Without this term the labels are not
                # enough: training ends where 2 + 8 and 3 + 7 are both read as 5 + 5.
                share = digits.mean((0, 1))
                loss = loss + (share * share.clamp(min=1e-9).log()).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network


class Accuracy(NamedTuple):
    """How a network reads unseen images."""

    digits: float
    sums: float  # of pairs such as it was trained on
    mapping: tuple[int, ...]  # what each digit is read as most often

    def __str__(self) -> str:
        read = " ".join(map(str, self.mapping))
        return f"  sums right {self.sums:.1%}, digits {self.digits:.1%}; 0 to 9 read as {read}"


@torch.no_grad()
def measure(
    network: nn.Module, images: Tensor, labels: Tensor, pairs: list[tuple[int, int]]
) -> Accuracy:
    """The accuracy on images that were not trained on."""
    read, places = network(images).argmax(-1), draw(labels, pairs, 2000, 1)
    sums = (read[places].sum(-1) == labels[places].sum(-1)).float().mean()
    mapping = lg.layer.concept_mapping({"": labels.numpy()}, {"": read.numpy()})[""]
    return Accuracy(float((read == labels).float().mean()), float(sums), mapping)


def main() -> None:
    torch.set_num_threads(1)  # the tensors are small
    images, labels, unseen, unseen_labels = load()
    for title, pairs in (("Sums of all pairs", ALL_PAIRS), ("Sums of eight pairs", FEW_PAIRS)):
        found = lg.shortcuts(PROGRAM, DIGITS, SUMS, np.array(pairs))
        print(f"{title}: {found}")
        print(measure(train(images, labels, pairs), unseen, unseen_labels, pairs))
    labelled = tuple(value for _, value in found.labels or ())
    print(f"The same, with images of {labelled} labelled:")
    network = train(images, labels, pairs, labelled=labelled)
    print(measure(network, unseen, unseen_labels, pairs))


if __name__ == "__main__":
    main()
