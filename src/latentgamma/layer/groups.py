"""Groups of atoms that go into a layer and come out, and the tensors given for them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma.engine.tensors import categorical_log_odds, finite_log_odds, values_can_be_read
from latentgamma.errors import ModelError, StateError, unknown_atoms
from latentgamma.operator.model import STATE_DTYPES
from latentgamma.program.facts import find_name
from latentgamma.program.program import Program

# ---- Named groups of atoms, and the tensors that belong to them

#: A name, or an array of names of any shape.
AtomNames: TypeAlias = "str | Sequence[Any] | npt.NDArray[Any] | Categorical"
#: Named groups, or one group without a name.
GroupsOfAtoms: TypeAlias = "Mapping[str, AtomNames] | AtomNames"

#: What a group is called that was given without a dictionary.
UNNAMED = ""


@dataclass(frozen=True, eq=False)
class Categorical:
    """Atoms of which exactly one is true along the last axis.

    As an input, the values along that axis are a probability distribution, and with
    `from_logits=True` the scores of a softmax. As an output, `logits=True` gives
    log-probabilities along that axis, given that one of these atoms is true: name all values, or
    the likelihood of a label is too large.

    >>> Categorical([f"digit({d})" for d in range(10)]).atoms.shape
    (10,)
    """

    atoms: npt.NDArray[Any]

    def __init__(self, atoms: Sequence[Any] | npt.NDArray[Any]) -> None:
        names = _names(atoms, "a Categorical")
        if names.ndim == 0 or names.shape[-1] < 2:
            raise ModelError(
                f"a Categorical needs at least two atoms along its last axis, but the shape of "
                f"these names is {names.shape}"
            )
        object.__setattr__(self, "atoms", names)


@dataclass(frozen=True, eq=False)
class Group:
    """Atoms under one name, in the shape of their tensors."""

    name: str
    shape: tuple[int, ...]
    atoms: npt.NDArray[np.int64]  # (n,) indices
    categorical: bool

    @property
    def title(self) -> str:
        """How messages refer to it."""
        return repr(self.name) if self.name != UNNAMED else "the layer"


def read_groups(program: Program, given: GroupsOfAtoms, what: str) -> tuple[Group, ...]:
    """Return the groups that a user wrote down, `what` being "inputs" or "outputs".

    Raises:
        ModelError: if this is not a group of names, or there is none.
        FactsError: if an atom is not in the program.
    """
    named = given if isinstance(given, Mapping) else {UNNAMED: given}
    if not named:
        raise ModelError(f"{what} needs at least one group of atoms")
    groups, unknown = [], []
    for name, atoms in named.items():
        if not isinstance(name, str):
            raise ModelError(f"the name of a group is a string, not {name!r}")
        label = f"{what}[{name!r}]" if name != UNNAMED else what
        names = atoms.atoms if isinstance(atoms, Categorical) else _names(atoms, label)
        indices = [find_name(program, str(atom)) for atom in names.flat]
        unknown += [str(atom) for atom, i in zip(names.flat, indices, strict=True) if i is None]
        found = np.array([-1 if i is None else i for i in indices], np.int64)
        groups.append(Group(name, names.shape, found, isinstance(atoms, Categorical)))
    if unknown:
        error = unknown_atoms(unknown, program.atoms, what=what)
        raise type(error)(f"{error}; '#external {unknown[0]}.' adds an atom that no rule has")
    return tuple(groups)


def named_groups(program: Program, groups: Iterable[Group]) -> GroupsOfAtoms:
    """Return the groups as a user writes them down: what `read_groups` reads."""
    named: dict[str, AtomNames] = {}
    for group in groups:
        names = np.array([program.atoms[i] for i in group.atoms], object).reshape(group.shape)
        named[group.name] = Categorical(names) if group.categorical else names
    return named[UNNAMED] if UNNAMED in named else named  # noqa: SIM401


def refuse_overlap(program: Program, groups: Iterable[Group], facts: Iterable[int]) -> None:
    """Raise a ModelError if an atom is fed twice, or is fed and given as well."""
    owner = dict.fromkeys(facts, "facts")
    for group in groups:
        for i in group.atoms.tolist():
            if i in owner:
                also = "twice" if owner[i] == group.title else f"and in {owner[i]}"
                raise ModelError(
                    f"{program.atoms[i]!r} is in {group.title} {also}; an atom is fed once"
                )
            owner[i] = group.title


def _names(atoms: Any, label: str) -> npt.NDArray[Any]:
    try:
        names = np.asarray(atoms)
    except ValueError:
        raise ModelError(
            f"{label} must be an array of names in which all rows have one length"
        ) from None
    if not names.size:
        raise ModelError(f"{label} has no atoms")
    if names.dtype.kind not in "UO" or not all(isinstance(name, str) for name in names.flat):
        shown = repr(atoms) if len(repr(atoms)) < 60 else type(atoms).__name__
        raise ModelError(f"{label} must be an array of names of atoms, not {shown}")
    return names


def no_log_probabilities(group: Group, example: int | None = None) -> ModelError:
    """Return the error for a `Categorical` output none of whose atoms can be true."""
    where = "" if example is None else f" in example {example}"
    hint = "; layer.plan() names outputs that are always false" if example is None else ""
    return ModelError(
        f"no atom along the last axis of the outputs of {group.title} can be true{where}, so they "
        f"have no log-probabilities{hint}"
    )


# ---- Tensors


def tensors_of(
    groups: Sequence[Group],
    given: Tensor | Mapping[str, Tensor],
    device: torch.device,
    *,
    from_logits: bool,
) -> tuple[list[Tensor], tuple[int, ...]]:
    """Return the tensors of the groups in their order, each (B, *shape), and the shape of the batch.

    Shapes are checked, several dimensions of a batch become one, and true or false facts become
    numbers.

    Raises:
        StateError: if a tensor is missing, has no group, or has a wrong shape, dtype or device.
    """
    unnamed = len(groups) == 1 and not isinstance(given, Mapping)
    named = {groups[0].name: given} if unnamed else given
    if not isinstance(named, Mapping):
        names = ", ".join(repr(group.name) for group in groups)
        raise StateError(
            f"this layer has {len(groups)} groups of inputs; pass a dictionary with {names}, not "
            f"{type(given).__name__}"
        )
    known = [group.name for group in groups]
    for name in named:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise StateError(f"there is no group of inputs {name!r}{hint}")
    tensors: list[Tensor] = []
    batch: tuple[int, ...] = ()
    for group in groups:
        if group.name not in named:
            raise StateError(f"the inputs of {group.title} are missing")
        tensor = _checked_shape(group, named[group.name], device, from_logits=from_logits)
        lead = tuple(tensor.shape[: tensor.dim() - len(group.shape)])
        if tensors and lead != batch:
            here, there = (" × ".join(map(str, shape)) for shape in (lead, batch))
            raise StateError(
                f"the inputs of {group.title} have {here} examples, those of "
                f"{groups[0].title} {there}"
            )
        batch = lead
        tensors.append(tensor if len(lead) == 1 else tensor.reshape(-1, *group.shape))
    return tensors, batch


def batch_of_one(groups: Sequence[Group], example: Tensor | Mapping[str, Tensor], what: str) -> Any:
    """Return the inputs of one example as those of a batch; what is no tensor is left as it is.

    Raises:
        StateError: if these are the inputs of a batch; `what` is the method that takes one example.
    """
    given = example if isinstance(example, Mapping) else {groups[0].name: example}
    for group in groups:
        tensor = given.get(group.name)
        if isinstance(tensor, Tensor) and tensor.dim() > len(group.shape):
            raise StateError(
                f"{what} takes one example: the inputs of {group.title} have the shape "
                f"{group.shape} here, not {tuple(tensor.shape)}"
            )
    if isinstance(example, Mapping):
        return {name: t[None] if isinstance(t, Tensor) else t for name, t in example.items()}
    return example[None] if isinstance(example, Tensor) else example


def _batch_shape(group: Group) -> str:
    return "(B,)" if not group.shape else f"(B, {', '.join(map(str, group.shape))})"


def _checked_shape(group: Group, tensor: Any, device: torch.device, *, from_logits: bool) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise StateError(
            f"the inputs of {group.title} are a tensor of shape {_batch_shape(group)}, not "
            f"{type(tensor).__name__}"
        )
    if not from_logits and not tensor.is_floating_point() and not tensor.is_complex():
        found: Tensor = tensor.to(torch.get_default_dtype())
        return _checked_shape(group, found, device, from_logits=from_logits)
    if tensor.dtype not in STATE_DTYPES:
        raise StateError(
            f"the inputs of {group.title} are floating-point numbers, not {tensor.dtype}; use "
            f"tensor.float()"
        )
    if tensor.layout is not torch.strided:
        raise StateError(
            f"the inputs of {group.title} are a dense tensor, not one with the layout "
            f"{tensor.layout}; use tensor.to_dense()"
        )
    lead = tensor.dim() - len(group.shape)
    if lead < 1 or tensor.shape[lead:] != group.shape:
        raise StateError(
            f"the inputs of {group.title} have the shape {_batch_shape(group)}, B being the size "
            f"of the batch, but these have {tuple(tensor.shape)}"
        )
    if tensor.device != device:
        raise StateError(
            f"the inputs of {group.title} are on {tensor.device}, but the layer on {device}; use "
            f"tensor.to({str(device)!r})"
        )
    return tensor


# ---- The values of one group of inputs: checked, flat, and as log-odds where they are given so


def group_tolerance(dtype: torch.dtype) -> float:
    """Return how far from one the values of a group may sum up.

    A softmax over thousands of values misses one by less than 1e-5 in float32, and by up to
    2^-8 in bfloat16.
    """
    return 1e-4 if dtype in (torch.float32, torch.float64) else 1e-2


def flat_values(
    group: Group, tensor: Tensor, *, from_logits: bool, as_odds: bool = False
) -> Tensor:
    """Return the values of a group's tensor, or their log-odds. (B, *shape) -> (B, n).

    `from_logits` says that these are log-odds or scores of a softmax; `as_odds` that they are
    checked, and scores are log-odds already.

    Raises:
        StateError: if values are NaN, outside [0, 1], or no distribution.
    """
    if not as_odds:
        check_values(group, tensor, from_logits=from_logits)
    if from_logits:
        scores = group.categorical and not as_odds
        tensor = finite_log_odds(categorical_log_odds(tensor) if scores else tensor)
    return tensor.reshape(tensor.shape[0], len(group.atoms))


def check_values(group: Group, tensor: Tensor, *, from_logits: bool) -> None:
    """Raise a StateError if values are NaN, outside [0, 1], or no distribution.

    Log-odds on a GPU are not looked at, for which one would have to wait: NaN leads to NaN.
    """
    if not tensor.numel() or not values_can_be_read(tensor) or (from_logits and tensor.is_cuda):
        return
    low, high = (float(end) for end in torch.aminmax(tensor.detach()))
    if math.isnan(low) or math.isnan(high):
        raise StateError(f"the inputs of {group.title} have a NaN among them")
    if from_logits:
        if group.categorical and bool((tensor.detach().amax(-1) == -math.inf).any()):
            raise StateError(
                f"the scores of {group.title} are all −∞ along the last axis of some example; at "
                f"least one must be larger"
            )
        return
    if low < 0 or high > 1:
        raise StateError(
            f"the inputs of {group.title} lie in [0, 1], but these reach from {low:.9g} to "
            f"{high:.9g}; apply a {'softmax' if group.categorical else 'sigmoid'}, or make the "
            f"layer with from_logits=True"
        )
    if group.categorical:
        total = tensor.detach().double().sum(-1)
        worst = float((total - 1).abs().max())
        tolerance = group_tolerance(tensor.dtype)
        if worst > tolerance:
            raise StateError(
                f"the inputs of {group.title} sum to one along the last axis to within "
                f"{tolerance:g}, but some miss it by {worst:.3g}; apply a softmax, or make the "
                f"layer with from_logits=True"
            )
