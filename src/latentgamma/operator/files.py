"""A whole model in one safetensors file: its parameters, its program and its options.

Nothing in such a file is code, so opening one from a stranger is safe. What does not fit
together is refused: a file is read as a whole or not at all. A digest of everything else in
the file says whether any bit of it has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma._arguments import one_of, usable_device
from latentgamma._atomic_write import atomic_write
from latentgamma._text import file_problem
from latentgamma.certificate.constants import Gate
from latentgamma.engine.execute import KernelChoice
from latentgamma.errors import ArgumentError, ModelError, ProgramError
from latentgamma.operator.model import (
    STATE_DTYPES,
    Gradient,
    LatentGamma,
    model_of_raw,
    require_whole_model,
)
from latentgamma.operator.rules import AbstractRules, DenseRules, Literals, SparseRules
from latentgamma.operator.run import plain_parameters
from latentgamma.program.program import Label, Program, atoms_of_literals, checked_labels

_FORMAT, _VERSION = "latentgamma-model", "1"
_OPTIONS = {"form", "gate", "gradient", "kernel", "dtype", "program"}
_FORMS = ("dense", "sparse")
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in STATE_DTYPES}

Tensors: TypeAlias = dict[str, Tensor]


def save_model(model: LatentGamma, path: str | Path) -> None:
    """Write a model, its program and its options to one file, at once or not at all."""
    tensors, options = _content(model) if model.definite else _strata(model)
    write_content(path, _FORMAT, _VERSION, tensors, options)


def write_content(
    path: str | Path, kind: str, version: str, tensors: Tensors, options: Mapping[str, Any]
) -> None:
    """Write tensors and options with a digest of both to one file, at once or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    metadata = {"format": kind, "version": version, "options": json.dumps(options)}
    metadata["digest"] = _digest(tensors, metadata)
    try:
        with atomic_write(path) as temporary:
            save_file(tensors, temporary, metadata)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot write {str(path)!r}: {file_problem(error)}") from None


def require_stored_parameters(module: nn.Module) -> None:
    """Raise a ModelError if something else computes a parameter, which a file could not hold."""
    for part in module.modules():
        computed = part._modules.get("parametrizations")
        names = dict.fromkeys(plain_parameters(part), "prune.remove")
        names |= dict.fromkeys(
            () if computed is None else computed._modules, "parametrize.remove_parametrizations"
        )
        for name, remove in names.items():
            raise ModelError(
                f"a file holds parameters, but {name!r} is computed when it is called, as by "
                f"torch.nn.utils.{remove.partition('.')[0]}; first call {remove}(module, {name!r})"
            )


def _content(model: LatentGamma) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors and the options of a model of a definite program."""
    require_whole_model(model, "save")
    require_stored_parameters(model)
    if not isinstance(model.rules, (DenseRules, SparseRules)):
        raise ModelError(
            f"a file holds dense or sparse rules, not {type(model.rules).__name__}; use "
            f"model.rules.to_dense()"
        )
    tensors = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    tensors.pop("_extra_state")  # a digest of the program, which is in the file itself
    if model.program is not None:
        tensors |= program_tensors(model.program)
    options = {
        "form": "dense" if isinstance(model.rules, DenseRules) else "sparse",
        "gate": model.gate_kind,
        "gradient": model.gradient,
        "kernel": model.kernel,
        "dtype": str(model.dtype).removeprefix("torch."),
        "program": model.program is not None,
    }
    return tensors, options


def _strata(model: LatentGamma) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors and the options of the models of all strata, and the whole program."""
    if model.program is None:
        raise ModelError("a model of several strata is saved with its program; set model.program")
    tensors = program_tensors(model.program)
    options = []
    for s, part in enumerate(model.parts):
        own, chosen = _content(part)
        tensors |= {f"{s}.{name}": tensor for name, tensor in own.items()}
        options.append(chosen)
    return tensors, {"strata": options}


def load_model(path: str | Path, *, device: torch.device | str = "cpu") -> LatentGamma:
    """Return the model that `save_model` wrote; a file that does not fit is refused."""
    usable_device(device)
    try:
        tensors, metadata = checked_content(path, _FORMAT, _VERSION)
        options = _options(metadata)
        if isinstance(options, list):
            model = _model_of_strata(tensors, options)
        else:
            model = _model(tensors, options)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    return model.to(device)


def checked_content(path: str | Path, kind: str, version: str) -> tuple[Tensors, Mapping[str, str]]:
    """Return the tensors and the metadata of a file of this kind and version, with a right digest."""
    tensors, metadata = _read(path)
    if metadata.get("format") != kind:
        what = kind.replace("latentgamma-", "LatentGamma ")
        others = {"latentgamma-model": "LatentGamma", "latentgamma-layer": "Layer"}
        other = others.get(metadata.get("format", ""))
        hint = f"; use lg.{other}.load" if other else ""
        raise ModelError(f"this safetensors file does not hold a {what}{hint}")
    if metadata.get("version") != version:
        raise ModelError(
            f"this model file has version {metadata.get('version')}, but this release reads "
            f"version {version}; save it again with a release that fits"
        )
    if metadata.get("digest") != _digest(tensors, metadata):
        raise ModelError("this model file is damaged: its digest does not fit its content")
    return tensors, metadata


def _read(path: str | Path) -> tuple[Tensors, Mapping[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ModelError(f"cannot read a model: {file_problem(error)}") from None
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise ModelError(f"this is not a safetensors file ({error})") from None


# ---- Options


def _options(metadata: Mapping[str, str]) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the options of a model, or those of the models of all strata."""
    try:
        options = json.loads(metadata["options"])
        strata = options.get("strata", [options])
        if any(set(part) != _OPTIONS or type(part["program"]) is not bool for part in strata):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ModelError("the options of this model file cannot be read") from None
    checked = [_checked(part) for part in strata]
    return checked if "strata" in options else checked[0]


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    try:
        one_of("form", options["form"], _FORMS)
        one_of("gate", options["gate"], get_args(Gate))
        one_of("gradient", options["gradient"], get_args(Gradient))
        one_of("kernel", options["kernel"], get_args(KernelChoice))
        one_of("dtype", options["dtype"], DTYPES)
    except ArgumentError as error:
        raise ModelError(str(error)) from None
    return dict(options)


# ---- Digests


def _digest(tensors: Tensors, metadata: Mapping[str, str]) -> str:
    """Return a digest of all tensors and of the metadata, less the digest itself."""
    digest = hashlib.blake2b(digest_size=32)
    for key in sorted(metadata.keys() - {"digest"}):
        digest.update(json.dumps([key, metadata[key]]).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


# ---- Parameters


def _model(tensors: Tensors, options: Mapping[str, Any]) -> LatentGamma:
    parameters = {name: t for name, t in tensors.items() if not name.startswith("program.")}
    rest = {name: t for name, t in tensors.items() if name.startswith("program.")}
    shapes = _shapes(parameters, options["form"])
    _check(parameters, shapes)
    program = _program(rest) if options["program"] else None
    if program is None:
        _check_names(rest, set())
    model = model_of_raw(
        _rules(parameters, options["form"]),
        {name: t for name, t in parameters.items() if not name.startswith("rules.")},
        gate_kind=options["gate"],
        gradient=options["gradient"],
        kernel=options["kernel"],
        program=program,
    )
    return model.to(DTYPES[options["dtype"]])


def _model_of_strata(tensors: Tensors, options: list[dict[str, Any]]) -> LatentGamma:
    whole: Tensors = {}
    parts: list[Tensors] = [{} for _ in options]
    places = {str(s): part for s, part in enumerate(parts)}
    for name, tensor in tensors.items():
        place, _, own = name.partition(".")
        if place in places:
            places[place][own] = tensor
        else:
            whole[name] = tensor
    models = [_model(part, chosen) for part, chosen in zip(parts, options, strict=True)]
    return LatentGamma.from_strata(models, _program(whole, negation=True))


def _rules(parameters: Tensors, form: str) -> AbstractRules:
    part = {name.removeprefix("rules."): t for name, t in parameters.items()}
    if form == "dense":
        return DenseRules(part["body_logits"], part["head_logits"])
    return SparseRules(
        Literals(*(part[name] for name in Literals._fields)),
        M=len(part["offset"]),
        body_logits=part["body_logits"],
        body_background=part["body_background"],
        head_logits=part["head_logits"],
        head_background=part["head_background"],
    )


def _shapes(parameters: Tensors, form: str) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a model of this form with their shapes, from which M and R follow."""

    def length(name: str) -> int:
        return len(parameters[name]) if name in parameters and parameters[name].dim() == 1 else -1

    M, R = length("offset"), length("threshold")
    shapes: dict[str, tuple[int, ...]] = {
        "threshold": (R,),
        "sharpness_raw": (R,),
        "confidence_raw": (R,),
        "gain_raw": (),
        "offset": (M,),
        "gate_raw": (),
    }
    if form == "dense":
        return shapes | {"rules.body_logits": (R, M), "rules.head_logits": (R, M)}
    for part in ("body", "head"):
        literals = length(f"rules.{part}_logits")
        shapes[f"rules.{part}_background"] = (R,)
        for name in ("logits", "rule", "atom"):
            shapes[f"rules.{part}_{name}"] = (literals,)
    return shapes


def _check(parameters: Tensors, shapes: Mapping[str, tuple[int, ...]]) -> None:
    _check_names(parameters, set(shapes))
    wide = parameters["offset"].dtype
    if wide not in (torch.float32, torch.float64):
        raise ModelError(f"parameters are float32 or float64, but 'offset' is {wide}")
    for name, shape in shapes.items():
        tensor = parameters[name]
        if -1 in shape or tuple(tensor.shape) != shape:
            raise ModelError(
                f"tensor {name!r} has the shape {tuple(tensor.shape)}, which does not fit"
            )
        indices = name.endswith(("_rule", "_atom"))
        expected = torch.int64 if indices else wide
        if tensor.dtype != expected:
            raise ModelError(f"tensor {name!r} is {tensor.dtype}, but must be {expected}")
        if not indices and not tensor.isfinite().all():
            raise ModelError(f"tensor {name!r} holds a NaN or an infinity")
    M, R = len(parameters["offset"]), len(parameters["threshold"])
    for part in ("body", "head"):
        if f"rules.{part}_rule" in shapes:
            _check_pairs(
                part, parameters[f"rules.{part}_rule"], parameters[f"rules.{part}_atom"], R, M
            )


def _check_pairs(part: str, rule: Tensor, atom: Tensor, R: int, M: int) -> None:
    for name, indices, end in (("rule", rule, R), ("atom", atom, M)):
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < end):
            raise ModelError(f"tensor 'rules.{part}_{name}' has an index outside 0…{end - 1}")
    if len(torch.unique(rule * M + atom)) != len(rule):
        raise ModelError(f"some rule has the same atom twice in its {part}")


def _check_names(tensors: Tensors, expected: set[str]) -> None:
    for names, problem in (
        (expected - set(tensors), "are missing"),
        (set(tensors) - expected, "do not belong to a model of this form"),
    ):
        if names:
            shown = ", ".join(repr(name) for name in sorted(names)[:4])
            raise ModelError(f"the tensors {shown} {problem}")


# ---- The program


def program_tensors(program: Program) -> Tensors:
    """Return the program as index arrays, its names as one run of bytes."""
    names = [name.encode("utf-8", "surrogatepass") for name in program.atoms]
    arrays: dict[str, npt.NDArray[Any]] = {
        "body_indptr": program.body_indptr,
        "body_indices": atoms_of_literals(program.body_literals),
        "head_indptr": program.head_indptr,
        "head_indices": program.head_indices,
        "names": np.frombuffer(b"".join(names), np.uint8),
        "name_ends": np.cumsum([len(name) for name in names], dtype=np.int64),
    }
    if not program.definite:
        arrays["body_negated"] = program.body_literals < 0
    if program.labels:
        rows = [[j, label.id, label.citation] for j, label in enumerate(program.labels) if label]
        arrays["labels"] = np.frombuffer(json.dumps(rows).encode(), np.uint8)
    return {f"program.{key}": torch.from_numpy(np.array(array)) for key, array in arrays.items()}


def program_from_tensors(tensors: Tensors) -> Program:
    """Return the program that `program_tensors` wrote, with or without negation."""
    return _program(tensors, negation="program.body_negated" in tensors)


def _program(tensors: Tensors, *, negation: bool = False) -> Program:
    keys = ["body_indptr", "body_indices", "head_indptr", "head_indices"]
    labels = ["labels"] * ("program.labels" in tensors)
    part = _arrays(tensors, *keys, *["body_negated"] * negation, *labels)
    try:
        program = Program.from_arrays(
            part["body_indptr"], part["body_indices"], part["head_indices"], part["head_indptr"],
            body_negated=part.get("body_negated"),
            atoms=_atoms(part["name_ends"], part["names"]),
        )  # fmt: skip
        return replace(program, labels=_labels(part["labels"], program.R)) if labels else program
    except ProgramError as error:
        raise ModelError(f"the program does not fit: {error}") from None


def _labels(data: npt.NDArray[Any], R: int) -> tuple[Label | None, ...]:
    try:
        found = {j: Label(*names) for j, *names in json.loads(data.tobytes())}
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, ProgramError):
            raise
        raise ModelError("the labels of the rules cannot be read") from None
    if not all(type(j) is int and 0 <= j < R for j in found):
        raise ModelError("the labels of the rules cannot be read")
    return checked_labels([found.get(j) for j in range(R)])


def _arrays(tensors: Tensors, *keys: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a program by name; none is missing and no other is there."""
    every = (*keys, "names", "name_ends")
    _check_names(tensors, {f"program.{key}" for key in every})
    return {key: tensors[f"program.{key}"].numpy() for key in every}


def _atoms(ends: npt.NDArray[Any], blob: npt.NDArray[Any]) -> list[str]:
    lists = ends.dtype == np.int64 and blob.dtype == np.uint8 and ends.ndim == blob.ndim == 1
    bounds = np.append(0, ends)
    if not lists or np.any(np.diff(bounds) < 0) or bounds[-1] != len(blob):
        raise ModelError("the names of the atoms cannot be read")
    data = blob.tobytes()
    try:
        return [data[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(bounds.tolist())]
    except UnicodeDecodeError as error:
        raise ModelError(f"the program does not fit: {error}") from None
