"""The sentences of docs/benchmarks/nesy.md, from the rows of the table."""

from __future__ import annotations

import math
import re
from itertools import pairwise

from nesy import Row, on_gpu

PROTOCOLS = """\
Networks read images, rules turn what they read into an answer, and only the answer has a label. `labels` is the share of held-out
labels that are right, in percent, mean of the seeds; `each seed` shows all of them, none is left out. `concepts` is the share of images that
are read right; they are never labelled. `read as` shows what most images of 0, 1, 2 and so on are read as, seed by seed, where this is not
the value itself. `mappings` is the number of concept mappings, ways to read single images, that agree with all labels
(`lg.shortcuts`; by argument for Sudoku, where it is every renaming, and for sums of many digits); if it is more than one, the labels alone cannot
decide. Where they differ by the names of the values alone (Sudoku, XOR),
concepts are counted up to a renaming. `seconds` is the whole task with all its seeds: the rules are built, the networks trained and tested. On a GPU, all
seeds of a task are trained at once, and `peak MB` is memory of the GPU; on a CPU, seconds are those of one core, and `peak MB` is the memory of the process.
`rules ms` is the time of a step through the rules alone on one CPU core, batch 64, in one process with KLay and ProbLog
(`OMP_NUM_THREADS=1 python benchmarks/nesy peers`, with the versions of `benchmarks/peers.txt`); KLay gets the circuit that LatentGamma found.

**Two protocols, never mixed.** `papers`: plain images and the network of the papers (LeNet, 44,426 parameters, no dropout, no normalisation
layers), at most their 100 epochs (200 Sudoku boards: 150 and 300 epochs); AdamW, a cosine schedule, and a running mean of the weights.
`ours`: the same with images shifted, turned and scaled a little. Additions use every image once. The published sums of n digits use
5,000 training sums (and 1,000 to choose an epoch with, which we do not use), so an image is in several sums; the tasks with `_once` use
each image once.

**How settings were chosen.** On 10,000 of the training images (`--held-out`); the networks of the table are trained on all 60,000. Some were
changed after a test: the epochs of Sudoku 4 × 4 and of even–odd, and the epochs, messages, decay and running mean of sums of 256 and
1,024. These tests had seeds 0 to 4, which gave more than the table has on sums of 16 (87.0%) and of 64 (57.7%). Seeds 20 to 24 were run once,
after every choice. The command of a row names its seeds; without them, they are 0 to 4.

Published figures: DeepSoftLog (Maene and De Raedt, NeurIPS 2023) for additions, CTSketch (Choi et al., arXiv 2503.24123) for sums; both use this
network on plain images. Other tasks have no published figure under this protocol: visual Sudoku has been published with other data
and label sets, so no number stands beside it.

**Visual Sudoku**: 200 labelled boards, half of them valid, and 100 more to choose a threshold with. The rules say for each row,
column and box that it has every digit once, with the set of the digits seen so far as the state of a chain. A valid board makes all of them true; an
invalid board makes at least one of them false. The probability of that is computed as if rows, columns and boxes were independent, which they
are not. A board is called valid if its probability of being valid is above the threshold."""

#: The variance of MNIST's training digits, and how many there are.
VARIANCE, IMAGES = 8.35, 60_000


def noise(digits: int, sums: int) -> float:
    """Return the standard deviation of what sums say about a digit, if nothing else is known."""
    return float((VARIANCE * digits / max(sums * digits / IMAGES, 1)) ** 0.5)


#: Shares of right labels below this, in percent, differ between seeds by chance.
LEAST_COMPARED = 10


def standard_error(row: Row) -> float:
    """Return the standard error of the share of right labels, in percent, of 1,000 for each seed."""
    share = row["labels"] / 100
    return 100 * math.sqrt(share * (1 - share) / (1000 * len(row["each seed"].split())))


def long_sums(rows: list[Row]) -> list[str]:
    """Return what can be said about sums of 256 and 1,024 digits."""
    learned = [row for row in rows if row.get("trained by") == "messages"]
    often = [row for row in learned if row["examples"] == 5000]
    once = [row for row in rows if str(row.get("task")).endswith("_once")]

    def figures(some: list[Row]) -> str:
        return "; ".join(
            f"{row['content']} ({row['part']}, {row['machine']}) {row['concepts']:.1f}% and {row['labels']:.1f}%"
            for row in some
        )

    said = []
    if often:
        said.append(
            "**Very long sums** are trained by messages, which the rules do not compute. There are 5,000 sums, so each image is "
            "in 21 sums of 256 digits or 85 of 1,024. A sum sends each of its images the message p(sum | digit), with the other "
            "digits drawn from what the network says of them, and the messages of all sums of an image are multiplied: belief "
            "propagation between sums and network. The loss of an image is −log Σ P(digit) · message(digit), and the messages "
            "are computed again twice an epoch. The sum of so many other digits is nearly normal, so the message is taken as "
            "normal, with a variance estimated from the residuals of all sums, which covers what the network gets wrong. The "
            "rules' own message is the gradient of their log-probability; in float64, normalised over the ten digits, it differs "
            "from the normal one by less than 0.004 on 300 sums of 64 digits, which a test in `tests/laws/test_nesy.py` compares.\n\n"
            "The gradient through the rules of one sum is the message of that sum alone, whose noise grows with the length of the "
            "sum: trained through the rules, 97.6% of the digits and 5.9% of the sums of 256 were right (five seeds on an H200; "
            "`python benchmarks/nesy sum256 --protocol papers --settings "
            '\'{"epochs": 20, "batch": 8, "rate": 0.002, "messages": false}\'`), and sums of 1,024 stayed '
            f"at chance. By messages, digits and sums right, mean of the seeds: {figures(often)}. A sum is right only where the "
            "errors of its digits cancel."
        )
    said.append(
        "**What the number of sums can determine**: a sum is one equation, whatever its length. If nothing is known of the "
        "other digits, what the sums of an image say about its digit has a standard deviation of "
        f"√(variance of a sum / sums of the image) = {noise(1024, 5000):.0f} with 5,000 sums, for every length, because longer sums contain "
        f"the image more often. Where each image is in one sum, it is {noise(64, 937):.0f} with 937 sums of 64 digits, {noise(256, 234):.0f} with 234 of 256 "
        f"and {noise(1024, 58):.0f} with 58 of 1,024: 44,426 parameters can fit 58 sums without reading digits. "
        f"With each image once, digits and sums right: {figures(once) or 'nothing yet'}."
    )  # fmt: skip
    return said


def about(rows: list[Row]) -> list[str]:
    """Return the paragraphs above the tables."""
    said = [PROTOCOLS]
    papers = [row for row in rows if row["part"] == "papers"]
    reached, missed = [], []
    for row in papers:
        best = re.match(r"[\d.]+", row.get("published") or "")
        if best:
            seeds = len(row["each seed"].split())
            where = f"{seeds} seeds on {row['machine']}"
            error = f" ± {standard_error(row):.1f}" * (row["labels"] < 10)
            text = f"{row['content']} {row['labels']:.1f}{error} ({where}; published {best[0]})"
            (reached if row["labels"] >= float(best[0]) else missed).append(text)
    if reached or missed:
        said.append(
            "**Beside the published figures**, plain images, mean of the seeds in the table: "
            f"{'; '.join(reached) or 'none'}. "
            f"Below the published figure: {'; '.join(missed) or 'none'}. Where few sums are right, ± is the standard error of "
            "the share of 1,000 sums for each seed."
        )
    failed, nothing = [], []
    for row in rows:
        if row["part"] in ("papers", "ours"):
            seeds = [float(value) for value in row["each seed"].split()]
            low = [value for value in seeds if value < 0.6 * max(seeds)]
            if max(seeds) < 1:
                nothing.append(f"{row['task']} ({row['part']}, {row['machine']})")
            elif low and max(seeds) >= LEAST_COMPARED:
                failed.append(
                    f"{row['task']} ({row['part']}, {row['epochs']} epochs): {len(low)} of {len(seeds)}, at "
                    + ", ".join(f"{value:.1f}" for value in low)
                )
    said.append(
        "**Seeds that fail** (less than 0.6 times the labels of the best seed, where that has at least "
        f"{LEAST_COMPARED}% right): {'; '.join(failed) or 'none'}. No seed has 1% of the labels right: "
        f"{', '.join(nothing) or 'none'}."
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
        first = less["read as"].split(" / ")[0]
        seen = f": in the first seed 0 to 9 are read as {' '.join(first)}" if first else ""
        said.append(
            f"**Less-than** has one concept mapping that agrees with all labels, and yet {less['labels']:.1f}% of "
            f"the labels are right with {less['concepts']:.1f}% of the digits. The digits are read in the "
            f"right order, but not at their places{seen}. Each two "
            "neighbours that share a value cost 1 of 100 pairs and leave one value of ten unused, so the "
            "digits between the two and the unused value move by one and count as wrong. To get out of "
            "there, several digits would have to change their values at once. [joint](joint.md), on "
            "scikit-learn's digits, has a term for this, the entropy of the concepts, and finds all ten "
            "in every seed."
        )
    if any(str(row.get("task")).startswith("sum") for row in rows):
        said += long_sums(rows)
    trained = [row for row in rows if on_gpu(row)]
    if trained:
        total, longest = (f([row["seconds"] for row in trained]) for f in (sum, max))
        calls = [row for row in rows if row["part"] == "call" and row["device"] == "cuda"]
        minutes = sum(row["minutes"] for row in calls)
        in_all = f"`python benchmarks/nesy` took {minutes:.0f} minutes in {len(calls)} calls. "
        said.append(
            f"**Time**: {in_all * bool(calls)}The seconds of all tasks on this page add up to {total / 60:.0f} "
            "minutes of one GPU, with the five seeds of a task at once, its rules and tests included; "
            f"the longest task takes {longest / 60:.1f} minutes."
        )
    growth = [row for row in rows if row["part"] == "growth" and row["device"] == "cuda"]
    if len(growth) > 1:
        few = next((row for row in growth if row["digits"] == 64), growth[0])
        many = growth[-1]
        ratio = many["digits"] / few["digits"]
        time, before, after = max(
            (b["graph_ms"] / a["graph_ms"], a["digits"], b["digits"])
            for a, b in pairwise(growth)
            if a["method"] == b["method"] == "tree"
        )
        said.append(
            f"**Growth** (`python benchmarks/nesy growth`): a step through the rules of a sum of {many['digits']:,} digits takes "
            f"{many['graph_ms']:.2g} ms in a CUDA graph and {many['mb']:.0f} MB, {few['digits']} digits "
            f"{few['graph_ms']:.2g} ms and {few['mb']:.0f} MB: {ratio:.0f} times the digits, "
            f"{many['graph_ms'] / few['graph_ms']:.1f} times the time and "
            f"{many['mb'] / few['mb']:.1f} times the memory, where N log N grows "
            f"{ratio * math.log(many['digits']) / math.log(few['digits']):.0f} times. The steepest doubling, from "
            f"{before} to {after:,} digits, takes {time:.1f} times as long (N log N: "
            f"{2 * math.log(after) / math.log(before):.1f} times). Building the layer of "
            f"{many['rules'] / 1e6:.0f} million rules takes {many['build_s']:.0f} s."
        )
    return said
