"""A search spread over processes: each takes its share of the cases, from seeds of its own."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

#: Searches so many cases from a seed on, on a device: counts by name, and what is wrong.
Search: TypeAlias = Callable[[int, int, str], tuple[Counter[str], list[Any]]]
#: Seeds that one process may use.
_SEEDS = 10**6


def _alone(search: Search, count: int, seed: int, device: str) -> tuple[Counter[str], list[Any]]:
    torch.set_num_threads(1)
    return search(count, seed, device)


def run(search: Search, what: str, default: int, doc: str | None) -> tuple[Counter[str], list[Any]]:
    """Search as the command line says, and print the counts, the time and what is wrong."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument(f"--{what}", type=int, default=default, dest="count")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the models run")
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    start = time.monotonic()
    each = -(-args.count // args.processes)
    tasks = [
        (search, each, (args.seed * args.processes + p) * _SEEDS, args.device)
        for p in range(args.processes)
    ]
    if args.processes == 1:
        results = [_alone(*tasks[0])]
    else:
        with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
            results = pool.starmap(_alone, tasks)
    tried: Counter[str] = sum((counts for counts, _ in results), Counter())
    wrong = [one for _, found in results for one in found]
    for name, count in sorted(tried.items()):
        print(f"{count:8,}  {name}")
    print(f"{time.monotonic() - start:8.0f}  seconds, processes: {args.processes}")
    for one in wrong:
        print(f"WRONG: {one}")
    return tried, wrong
