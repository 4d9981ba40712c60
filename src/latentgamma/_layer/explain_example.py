"""From a layer and one example to its explanation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma._errors import StateError
from latentgamma._layer.explanation import Example, Explanation, explain_answer
from latentgamma._layer.groups import UNNAMED, Group, batch_of_one
from latentgamma._program.program import require_definite

if TYPE_CHECKING:
    from latentgamma._layer.layer import Layer


def explain_example(
    layer: Layer, example: Tensor | Mapping[str, Tensor], expected: Any
) -> Explanation:
    """See `Layer.explain`."""
    program = require_definite(layer.program, "explain")
    with torch.no_grad():
        flat = layer.flat_inputs(batch_of_one(layer.inputs, example, "explain"))
        values = (torch.sigmoid(flat) if layer.from_logits else flat)[0].double().cpu().numpy()
        outputs, slopes = _outputs_and_slopes(layer, flat)
    fed = np.concatenate([group.atoms for group in layer.inputs])
    inputs = values[: len(fed)]
    given = np.zeros(program.M, np.bool_)
    given[np.flatnonzero(layer.given > 0.5)] = True
    true = np.concatenate([part.ravel() for part in _decided(layer.inputs, inputs)])
    shown = Example(program, fed, inputs, true, given)
    wanted = _expected(layer.outputs, expected)
    answers, start = [], 0
    for group, decided, should in zip(
        layer.outputs, _decided(layer.outputs, outputs), wanted, strict=True
    ):
        for n, (atom, is_true) in enumerate(
            zip(group.atoms.tolist(), decided.ravel().tolist(), strict=True)
        ):
            label = None if should is None else bool(should.ravel()[n])
            # Of exactly one true atom, those that are neither answered nor expected say nothing.
            if group.categorical and not is_true and not label:
                continue
            place = start + n
            slope = slopes[place][: len(fed)]
            value = float(outputs[place])
            answers.append(
                explain_answer(shown, atom, value, slope, is_true=is_true, expected=label)
            )
        start += len(group.atoms)
    answers.sort(key=lambda answer: not answer.is_wrong)
    return Explanation(tuple(answers))


def _outputs_and_slopes(
    layer: Layer, flat: Tensor
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The values of the outputs (O,), and their derivatives in the inputs, on log-odds (O, I)."""
    odds = flat if layer.from_logits else torch.logit(flat.double().clamp(1e-12, 1 - 1e-12))
    leaf = odds.double()[0].detach().requires_grad_()
    with torch.enable_grad():
        count = sum(len(group.atoms) for group in layer.outputs)
        copies = leaf.expand(count, -1)  # one example for each output, so that one pass serves all
        given = copies if layer.from_logits else torch.sigmoid(copies)
        result = layer.run_hard(given, logits=True)
        (slope,) = torch.autograd.grad(torch.diagonal(result).sum(), copies)
    values = layer.run_hard(flat, logits=False)[0]
    return values.double().cpu().numpy(), slope.cpu().numpy()


def _decided(
    groups: tuple[Group, ...], values: npt.NDArray[np.float64]
) -> list[npt.NDArray[np.bool_]]:
    """Which atoms count as true: above one half, or the greatest of a `Categorical`."""
    parts = np.split(values, np.cumsum([len(group.atoms) for group in groups])[:-1])
    decided = []
    for group, part in zip(groups, parts, strict=True):
        shaped = part.reshape(group.shape)
        if group.categorical:
            top = shaped.argmax(-1)[..., None]
            decided.append(np.arange(group.shape[-1]) == top)
        else:
            decided.append(shaped > 0.5)
    return decided


def _expected(groups: tuple[Group, ...], expected: Any) -> list[npt.NDArray[np.bool_] | None]:
    named = expected if isinstance(expected, Mapping) else {groups[0].name: expected}
    if expected is not None and not isinstance(expected, Mapping) and len(groups) > 1:
        raise StateError("this layer has several groups of outputs; pass expected as a dictionary")
    labels: list[npt.NDArray[np.bool_] | None] = []
    for group in groups:
        given = named.get(group.name)
        if given is None:
            labels.append(None)
            continue
        array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
        if group.categorical and array.shape == group.shape[:-1] and array.dtype.kind in "iu":
            labels.append(np.arange(group.shape[-1]) == array[..., None])
        elif array.shape == group.shape:
            labels.append(array > 0.5)
        else:
            name = "" if group.name == UNNAMED else f" of {group.name!r}"
            raise StateError(
                f"the expected outputs{name} have the shape {group.shape}, not {array.shape}"
            )
    return labels
