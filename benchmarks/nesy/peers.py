"""The time of the rules of a task, beside KLay and ProbLog on the same rules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import latentgamma as lg
from nesy.tasks import TableTask, all_tasks
from probability import additions, timed

BATCH = 64
TABLES = ("evenodd", "xor2", "majority5", "less", "mul2", "mul4")
#: ProbLog compiles these within minutes.
MOST_RULES = 200


def rows(digits: Sequence[int] = (1, 2, 4, 15)) -> list[dict[str, Any]]:
    """Return the milliseconds of a step of a batch, and ProbLog's of one example."""
    found = [
        {
            "part": "peers",
            "task": f"add{row['digits']}",
            "ours_ms": row["ours_ms"],
            "klay_ms": row.get("klay_ms"),
            "klay_on_sdds_ms": row.get("klay_on_sdds_ms"),
            "difference": row.get("relative_difference"),
        }
        for row in additions("cpu", digits, compiled=0)
    ]
    tasks = all_tasks()
    return found + [table_row(tasks[name]) for name in TABLES]  # type: ignore[arg-type]


def table_row(task: TableTask) -> dict[str, Any]:
    """Return the times of a task that is a table."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(BATCH, task.size, task.values, generator=generator).requires_grad_()
    row: dict[str, Any] = {"part": "peers", "task": task.name}

    def ours() -> Tensor:
        return task.layer(scores, logits=True)

    row["ours_ms"] = timed(ours, scores, 0.5)
    expected = ours().detach()
    try:
        theirs = klay_module(task.layer)
    except ImportError:
        theirs = None
    if theirs is not None:
        used = torch.from_numpy(task.layer.rules.methods.sum_product.input_places.astype(np.int64))

        def klay() -> Tensor:
            return theirs(scores.log_softmax(-1).flatten(1)[:, used])

        row["klay_ms"] = timed(klay, scores, 0.5)
        row["difference"] = float((klay().detach() - expected).abs().max())
    if task.program.R <= MOST_RULES:
        row |= problog(task, scores[0].detach().softmax(-1), expected[0].exp())
    return row


def klay_module(layer: lg.Layer) -> Any:
    """Return KLay's module of the circuit of our pass."""
    import klay

    ours, circuit = layer.rules.methods.circuit, klay.Circuit()
    node = [circuit.literal_node(n + 1) for n in range(ours.inputs)]
    terms = ours.parts.to_lists()
    for n in range(ours.inputs, ours.nodes):
        some = terms[ours.term_ptr[n] : ours.term_ptr[n + 1]]
        node.append(circuit.or_node([circuit.and_node([node[i] for i in term]) for term in some]))
    for output in ours.outputs.tolist():
        circuit.set_root(node[output])
    return circuit.to_torch_module(compile=False)


def problog(task: TableTask, p: Tensor, expected: Tensor) -> dict[str, Any]:
    """Return ProbLog's time for all labels of one example."""
    try:
        from problog import get_evaluatable
        from problog.program import PrologString
    except ImportError:
        return {}
    below_one = (1 - 1e-9) * p.double() / p.double().sum(-1, keepdim=True)
    lines = [
        "; ".join(f"{value:.12f}::digit({i},{v})" for v, value in enumerate(row)) + "."
        for i, row in enumerate(below_one.tolist())
    ]
    lines += [f"{head} :- {', '.join(body)}." for head, body in task.rules()]
    order = [f"label({label})" for label in task.labels]
    lines += [f"query({name})." for name in order]
    start = time.perf_counter()
    found = get_evaluatable().create_from(PrologString("\n".join(lines))).evaluate()
    seconds = time.perf_counter() - start
    values = {str(term): float(value) for term, value in found.items()}
    worst = max(abs(values[name] - float(p)) for name, p in zip(order, expected, strict=True))
    return {"problog_ms_of_one": 1e3 * seconds, "problog_difference": worst}
