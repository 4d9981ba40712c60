"""From a program to the model whose parameters are written down from it."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from latentgamma._certificate.closed_form import ClosedForm, HeadSharing
from latentgamma._certificate.constants import Constants
from latentgamma._certificate.strata import closed_strata
from latentgamma._errors import ModelError
from latentgamma._model.checks import one_of
from latentgamma._model.module import Gradient, KernelChoice, LatentGamma
from latentgamma._model.rules import AbstractRules
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._model.stages import GateKind, is_bump
from latentgamma._model.stratified import StratifiedModel
from latentgamma._program.program import Program, require_definite, require_program

Form: TypeAlias = Literal["auto", "dense", "sparse"]

#: Up to this many entries one small matrix product beats gathering and scattering literals.
_DENSE_UP_TO = 1 << 9


def oracle(
    program: Program,
    constants: Constants | None = None,
    *,
    form: Form = "auto",
    gate: GateKind = "sigmoid",
    gradient: Gradient = "exact",
    head_sharing: HeadSharing = "equal",
    kernel: KernelChoice = "auto",
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> LatentGamma | StratifiedModel:
    """The model whose parameters are the closed form of a program.

    >>> from latentgamma import parse
    >>> model = oracle(parse("bird :- penguin. animal :- bird."))
    >>> model(model.state(["penguin"])) > 0.5
    tensor([True, True, True])

    Args:
        program: any program.
        constants: by default `Constants.certified(program)`, under which the model is exact
            from step D to a million and beyond, for every fact set.
        form: "sparse" costs as much as the program has literals; "dense" gives every pair of
            rule and atom its own logits; "auto" is dense for tiny programs only.
        gate: "sigmoid", or "bump", whose underivable atoms never rise at all.
        gradient: "exact" or "proof", see `LatentGamma`.
        head_sharing: how rules with several heads share: "equal", or "paper", the construction
            of its Appendix G.
        kernel: "auto", or "reference" to do without compiled kernels, see `LatentGamma`.
        dtype: the dtype of the states: float64, float32, float16 or bfloat16; by default torch's
            default dtype. Parameters are float32 or wider.
        device: the device of the model; by default torch's default device.

    Returns:
        A `LatentGamma`; for a program with negation, a `StratifiedModel` with a `LatentGamma`
        for each stratum.

    Raises:
        ProgramError: if the first argument is not a program.
        ModelError: if an option is not one of those above, or the dense form does not fit in
            memory.
        CertificateError: if no certified constants exist for this program and dtype.
    """
    require_program(program, "oracle")
    if program.definite:
        return definite_oracle(
            program, constants, form=form, gate=gate, gradient=gradient, head_sharing=head_sharing,
            kernel=kernel, dtype=dtype, device=device,
        )  # fmt: skip
    _check_options(form, gate, head_sharing)
    dtype, name = _state_dtype(dtype)
    strata = closed_strata(program, constants, dtype=name, bump=is_bump(gate))
    parts = [
        definite_oracle(
            each.program, each.constants, form=form, gate=gate, gradient=gradient, head_sharing=head_sharing,
            kernel=kernel, dtype=dtype, device=device,
        )
        for each in strata.parts
    ]  # fmt: skip
    return StratifiedModel(parts, program)


def definite_oracle(
    program: Program,
    constants: Constants | None = None,
    *,
    form: Form = "auto",
    gate: GateKind = "sigmoid",
    gradient: Gradient = "exact",
    head_sharing: HeadSharing = "equal",
    kernel: KernelChoice = "auto",
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> LatentGamma:
    """The model of a definite program; the arguments are those of `oracle`."""
    require_definite(program, "this model")
    _check_options(form, gate, head_sharing)
    dtype, name = _state_dtype(dtype)
    if constants is None:
        constants = Constants.certified(program, dtype=name, gate=gate)
    wide = dtype if dtype.itemsize >= 4 else torch.float32
    closed = ClosedForm(program, constants, head_sharing=head_sharing)
    dense = form == "dense" or (form == "auto" and program.R * program.M <= _DENSE_UP_TO)
    if dense:
        refuse_if_too_large(program.R, program.M, wide, device)
    rules: AbstractRules = _sparse_rules(program, constants, wide)
    # Written down on the host, and moved as a whole.
    with torch.device("cpu"):
        model = LatentGamma(
            rules.to_dense() if dense else rules,
            threshold=torch.tensor(closed.threshold, dtype=wide),
            sharpness=torch.tensor(closed.sharpness, dtype=wide),
            confidence=torch.tensor(closed.confidence, dtype=wide),
            gain=torch.tensor(closed.gain, dtype=wide),
            offset=torch.tensor(closed.offset, dtype=wide),
            gate=torch.tensor(constants.gate, dtype=wide),
            gate_kind=gate,
            gradient=gradient,
            kernel=kernel,
            program=program,
        )
    return model.to(device=torch.get_default_device() if device is None else device, dtype=dtype)


def _check_options(form: Form, gate: GateKind, head_sharing: HeadSharing) -> None:
    one_of("form", form, get_args(Form))
    one_of("head_sharing", head_sharing, get_args(HeadSharing))
    one_of("gate", gate, get_args(GateKind))


def _state_dtype(dtype: torch.dtype | None) -> tuple[torch.dtype, str]:
    """The dtype of the states, and its name."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise ModelError(f"dtype must be float64, float32, float16 or bfloat16, not {dtype}")
    return dtype, str(dtype).removeprefix("torch.")


def _sparse_rules(program: Program, constants: Constants, dtype: torch.dtype) -> SparseRules:
    bodies, heads, R = len(program.body_indices), len(program.head_indices), program.R

    def full(count: int, value: float) -> Tensor:
        return torch.full((count,), value, dtype=dtype, device="cpu")

    return SparseRules(
        SparseRules.literals_of(program),
        M=program.M,
        body_logits=full(bodies, constants.body),
        body_background=full(R, -constants.body),
        head_logits=full(heads, constants.head),
        head_background=full(R, 0.0),
    )


def refuse_if_too_large(
    R: int, M: int, dtype: torch.dtype, device: torch.device | str | None
) -> None:
    """Raise a ModelError if the dense form of R rules over M atoms does not fit in memory."""
    # Logits and weights, of bodies and of heads.
    needed = 4 * R * M * dtype.itemsize
    if device is not None and torch.device(device).type == "cuda":
        available = torch.cuda.mem_get_info(device)[0]
    else:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise ModelError(
            f"the dense form of this program needs {_bytes(needed)}, and there are "
            f'{_bytes(available)}; use form="sparse"'
        )


def _bytes(count: float) -> str:
    """A number of bytes as a person writes it.

    >>> _bytes(3.9e12)
    '3.9 TB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
