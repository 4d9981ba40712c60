"""A whole layer in one safetensors file: its program, its groups, its options and its state."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from latentgamma._arguments import usable_device
from latentgamma.errors import LatentGammaError, ModelError
from latentgamma.layer.groups import Group, named_groups
from latentgamma.layer.inference import Inference
from latentgamma.operator.files import (
    DTYPES,
    checked_content,
    program_from_tensors,
    program_tensors,
    require_stored_parameters,
    write_content,
)

if TYPE_CHECKING:
    from latentgamma.layer.layer import Layer

_FORMAT, _VERSION = "latentgamma-layer", "1"


def save_layer(layer: Layer, path: str | Path) -> None:
    """Write a layer to one file, at once or not at all."""
    require_stored_parameters(layer)
    tensors = {f"state.{k}": v.cpu().contiguous() for k, v in layer.state_dict().items()}
    tensors |= program_tensors(layer.program)
    tensors["given"] = torch.from_numpy(np.array(layer.given))
    groups = {
        what: [[g.name, list(g.shape), g.atoms.tolist(), g.categorical] for g in found]
        for what, found in (("inputs", layer.inputs), ("outputs", layer.outputs))
    }
    inference = layer.options["inference"]
    options = layer.options | {"inference": None if inference is None else asdict(inference)}
    dtype = layer.rules.dtype and str(layer.rules.dtype).removeprefix("torch.")
    content = {**groups, "options": options, "training": layer.training, "dtype": dtype}
    write_content(path, _FORMAT, _VERSION, tensors, content)


def load_layer(path: str | Path, *, device: torch.device | str = "cpu") -> Layer:
    """Return the layer that `save_layer` wrote; a file that does not fit is refused."""
    from latentgamma.layer.layer import Layer

    usable_device(device)
    try:
        tensors, metadata = checked_content(path, _FORMAT, _VERSION)
        given = tensors.pop("given").numpy()
        state = {k: tensors.pop(k) for k in list(tensors) if k.startswith("state.")}
        program = program_from_tensors(tensors)
        content = json.loads(metadata["options"])
        options = content["options"]
        if options["inference"] is not None:
            options["inference"] = Inference(**options["inference"])
        inputs, outputs = (
            named_groups(
                program,
                [
                    Group(name, shape, np.array(atoms), one)
                    for name, shape, atoms, one in content[what]
                ],
            )
            for what in ("inputs", "outputs")
        )
        layer = Layer(program, inputs, outputs, facts=given, **options)
        if content["dtype"] is not None:
            layer.to(DTYPES[content["dtype"]])
        layer.load_state_dict({k.removeprefix("state."): v for k, v in state.items()})
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        reason = error if isinstance(error, LatentGammaError) else "its content cannot be read"
        raise ModelError(f"{path}: {reason}") from None
    return layer.train(bool(content["training"])).to(device)
