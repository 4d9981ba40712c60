"""The sentences of docs/benchmarks/nesy.md, from the rows of the table."""

from __future__ import annotations

import math
import re
from typing import Any

Row = dict[str, Any]

PROTOCOLS = """\
Networks read images, rules turn what they read into an answer, and only the answer has a label. `labels` is the share of held-out
labels that are right, in percent, mean of the seeds; `each seed` shows all of them, none is left out. `concepts` is the share of images that
are read right; they are never labelled. `mappings` is the number of concept mappings, ways to read single images, that agree with all labels
(`lg.shortcuts`); if it is more than one, the labels alone cannot decide. Where they differ by the names of the values alone (Sudoku, XOR),
concepts are counted up to a renaming. `seconds` is the training of all seeds together, and `rules ms` the time of a step through the rules
alone on one CPU core, batch 64; KLay gets the circuit that LatentGamma found.

**Two protocols, never mixed.** `papers`: plain images and the network of the papers (LeNet, 44,426 parameters, no dropout, no normalisation
layers), at most their 100 epochs (200 Sudoku boards: 150 and 300 epochs); AdamW, a cosine schedule, and a running mean of the weights. The rate of the
additions was chosen on 10,000 training images that were held out; then everything was trained on all 60,000 and tested. Three settings were changed after a
first test: sums of 256 (4.0, concepts 91.3, with a rate of 0.001 and batches of 16), Sudoku 4 × 4 (97.4 with 600 epochs) and even–odd (72.2 with 10 epochs). Additions use every image once. The published sums of n digits use 5,000 training sums
(and 1,000 to choose an epoch with, which we do not use), so an image is in several sums; the figures with `_once` use each image once.
`ours`: the same with images shifted, turned and scaled a little; older figures with such images are on the page [mnist](mnist.md).

Published figures: DeepSoftLog (Maene and De Raedt, NeurIPS 2023) for additions, CTSketch (Choi et al., arXiv 2503.24123) for sums; both use this
network on plain images. Other tasks have no published figure under this protocol: visual Sudoku has been published with other data
and label sets, so no number stands beside it.

**Visual Sudoku**: 200 labelled boards, half of them valid, and 100 more to choose a threshold with. The rules say for each row,
column and box that it has every digit once, with the set of the digits seen so far as the state of a chain. A valid board makes all of them true; an
invalid board makes at least one of them false. The probability of that is computed as if rows, columns and boxes were independent, which they
are not. A board is called valid if its probability of being valid is above the threshold."""

#: The entropy of a sum of 1,024 uniform digits: the loss of a network that has learned nothing.
NOTHING_LEARNED = 0.5 * math.log(2 * math.pi * math.e * 1024 * 8.25)


def long_sums(papers: dict[str, Row]) -> list[str]:
    """Return what can be said about sums of 256 and 1,024 digits."""
    said = []
    if "sum256" in papers:
        row = papers["sum256"]
        said.append(
            f"sums of 256: {row['concepts']:.1f}% of the digits are read right and {row['labels']:.1f}% of "
            "the sums, which are right only where the errors of their digits cancel"
        )
    if "sum1024" in papers:
        row = papers["sum1024"]
        learned = "" if row["concepts"] > 50 else (
            f", no more than by chance: the loss stays near {NOTHING_LEARNED:.1f}, that of a network that "
            f"has learned nothing, through {row['epochs']} epochs. Longer training and a start from "
            "clusters of images were not tried"
        )  # fmt: skip
        said.append(
            f"sums of 1,024: {row['concepts']:.1f}% of the digits and {row['labels']:.1f}% of the sums"
            f"{learned}"
        )
    return [
        f"**Very long sums**, 5,000 of them, each image in 21 sums of 256 or 85 of 1,024: {'; '.join(said)}. "
        "Even with 99% of the digits right about ten of 1,024 are wrong, and about 3% of the sums are "
        "right. With each image in one sum (`_once`) there are 937 sums of 64, 234 of 256 and 58 of "
        "1,024, for a network with 44,426 parameters, which can memorise 58 numbers; of these only "
        "sums of 64 with distorted images have been run."
    ]  # fmt: skip


def about(rows: list[Row]) -> list[str]:
    """Return the paragraphs above the tables."""
    said = [PROTOCOLS]
    papers = [row for row in rows if row["part"] == "papers"]
    reached, missed = [], []
    for row in papers:
        best = re.match(r"[\d.]+", row.get("published") or "")
        if best:
            text = f"{row['content']} {row['labels']:.1f} (published {best[0]})"
            (reached if row["labels"] >= float(best[0]) else missed).append(text)
    said.append(
        f"**Beside the published figures**, plain images, mean of five seeds: {'; '.join(reached)}. "
        f"Below the published figure: {'; '.join(missed) or 'none'}."
    )
    failed = []
    for row in rows:
        if row["part"] in ("papers", "ours"):
            seeds = [float(value) for value in row["each seed"].split()]
            low = [value for value in seeds if value < 0.6 * max(seeds)]
            if low:
                failed.append(
                    f"{row['task']} ({row['part']}): {len(low)} of {len(seeds)}, at "
                    + ", ".join(f"{value:.1f}" for value in low)
                )
    said.append(
        "**Seeds that fail** (less than 0.6 times the best seed's labels): "
        f"{'; '.join(failed) or 'none'}."
    )
    shortcut = [row for row in papers if row["mappings"] not in ("", "1")]
    if shortcut:
        said.append(
            "**Labels that do not determine the concepts**: "
            + "; ".join(
                f"{row['content']}: {row['mappings']} mappings, labels {row['labels']:.1f}, concepts "
                f"{row['concepts']:.1f}"
                for row in shortcut
            )
            + "."
        )
    less = next((row for row in papers if row["task"] == "less"), None)
    if less and less["concepts"] < 90:
        said.append(
            f"**Less-than** has one concept mapping that agrees with all labels, and yet {less['labels']:.1f}% of "
            f"the labels are right with {less['concepts']:.1f}% of the digits: neighbours are read as "
            "one value, or spread over several, which few pairs contradict. Training alone does not "
            "find the one mapping."
        )
    said += long_sums({row["task"]: row for row in papers})
    trained = [row for row in rows if row["part"] in ("papers", "ours")]
    if trained:
        total, longest = (f([row["seconds"] for row in trained]) for f in (sum, max))
        said.append(
            f"**Time**: the seconds of all trainings on this page add up to {total / 60:.0f} minutes, measured "
            f"while several of them shared one GPU; the longest takes "
            f"{longest / 60:.1f} minutes for all five seeds."
        )
    growth = [row for row in rows if row["part"] == "growth" and row["device"] == "cuda"]
    if len(growth) > 1:
        few = next((row for row in growth if row["digits"] == 64), growth[0])
        many = growth[-1]
        ratio = many["digits"] / few["digits"]
        said.append(
            f"**Growth**: a step through the rules of a sum of {many['digits']:,} digits takes "
            f"{many['graph_ms']:.2g} ms in a CUDA graph and {many['mb']:.0f} MB, {few['digits']} digits "
            f"{few['graph_ms']:.2g} ms and {few['mb']:.0f} MB: {ratio:.0f} times the digits, "
            f"{many['graph_ms'] / few['graph_ms']:.1f} times the time and "
            f"{many['mb'] / few['mb']:.1f} times the memory. Building the layer of "
            f"{many['rules'] / 1e6:.0f} million rules takes {many['build_s']:.0f} s."
        )
    return said
