"""A program with negation as a PyTorch module: a `LatentGamma` for each stratum, in a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from latentgamma._certificate.certificate import Certificate
from latentgamma._certificate.certify import certify
from latentgamma._certificate.parts import Places
from latentgamma._errors import ModelError, StateError
from latentgamma._model.certificate_cache import CertificateCache
from latentgamma._model.module import LatentGamma
from latentgamma._model.runner import Memory
from latentgamma._program.facts import Facts, FactSets, fact_values
from latentgamma._program.program import Program

#: The buffers of a part: the atoms that it reads, which of them negated, and the places that are
#: written.
_PLACES = ("atom", "negated", "derived")


@final
class StratifiedModel(nn.Module):
    """The operator of a program with negation: a state of M values in [0, 1] in, and out.

    The strata run one after another, each for the same number of steps. An atom that a stratum
    negates enters it as 1 − s, where s is what the strata below have made of the atom.
    `latentgamma.oracle(program)` builds one, and `latentgamma.certify(model, program)` says for
    how many steps it is exact.

    >>> import latentgamma as lg
    >>> program = lg.parse("fly :- bird, not penguin. bird :- penguin.")
    >>> model = lg.oracle(program)
    >>> sorted(model.closure(["bird"])), sorted(model.closure(["penguin"]))
    (['bird', 'fly'], ['bird', 'penguin'])

    Attributes:
        parts: the model of each stratum.
        program: the program.
    """

    def __init__(self, parts: Sequence[LatentGamma], program: Program) -> None:
        super().__init__()
        if [part.M for part in parts] != [stratum.program.M for stratum in program.strata]:
            raise ModelError("there must be one model for each stratum, with the stratum's atoms")
        self.parts = nn.ModuleList(parts)
        self.program = program
        self._certificates = CertificateCache()
        for s, stratum in enumerate(program.strata):
            arrays = stratum.atom.astype(np.int64), stratum.negated, stratum.derived
            for name, array in zip(_PLACES, arrays, strict=True):
                self.register_buffer(f"{name}_{s}", torch.tensor(array), persistent=False)

    @property
    def M(self) -> int:
        """The number of atoms."""
        return self.program.M

    @property
    def R(self) -> int:
        """The number of rows of all strata."""
        return self.program.R

    @property
    def atoms(self) -> tuple[str, ...]:
        """The names of the atoms in the order of the state."""
        return self.program.atoms

    @property
    def places(self) -> list[Places]:
        """What each part reads of the state and writes to it, as `forward` does."""
        return [
            Places(*(getattr(self, f"{name}_{s}").cpu().numpy() for name in _PLACES))
            for s in range(len(self.parts))
        ]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the states that `state` makes."""
        first = next(iter(self.parts), None)
        return first.dtype if isinstance(first, LatentGamma) else torch.get_default_dtype()

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        first = next(iter(self.parts), None)
        return first.device if isinstance(first, LatentGamma) else torch.get_default_device()

    def state(self, facts: Facts | FactSets) -> Tensor:
        """The state of a fact set or of many, on this model's device and dtype.

        Args:
            facts: one fact set or many, as in `LatentGamma.state`.

        Returns:
            A tensor of shape (M,), or (N, M) for many fact sets.

        Raises:
            FactsError: if these are not facts of the program.
        """
        values = torch.from_numpy(fact_values(self.program, facts))
        return values.to(device=self.device, dtype=self.dtype)

    def names(self, state: Tensor) -> frozenset[str] | list[frozenset[str]]:
        """The names of the atoms above one half.

        Args:
            state: one state, shape (M,), or a batch, shape (N, M).

        Returns:
            A set of names; for a batch, a list with a set for each state.

        Raises:
            FactsError: if one state does not have M values.
        """
        above = (state.detach() > 0.5).cpu().numpy()
        if above.ndim == 1:
            return self.program.names(above)
        return [self.program.names(row) for row in above.reshape(-1, self.M)]

    def forward(
        self, state: Tensor, steps: int | None = None, *, memory: Memory = "states"
    ) -> Tensor:
        """The state after each stratum has taken `steps` steps.

        Args:
            state: values in [0, 1], shape (…, M).
            steps: the number of steps of each stratum, from 0 on; None for as many as the
                certificate asks for.
            memory: what is kept for the backward pass, as in `LatentGamma.forward`.

        Returns:
            A tensor of the shape of `state`.

        Raises:
            StateError: the state or the number of steps is not one.
            CertificateError: `steps=None` on a model without a certified window.
        """
        if not isinstance(state, Tensor) or state.dim() == 0 or state.shape[-1] != self.M:
            shape = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise StateError(
                f"a state is a tensor whose last dimension is the number of atoms, {self.M}, but "
                f"this is {shape}; try model.state"
            )
        if steps is None and len(self.parts):
            steps = int(self._certificate(state.dtype).require().t_min)
        for s, part in enumerate(self.parts):
            atom, negated, derived = (getattr(self, f"{name}_{s}") for name in _PLACES)
            given = state.index_select(-1, atom)  # (…, m)
            after = part(torch.where(negated, 1 - given, given), steps, memory=memory)
            values = after.index_select(-1, derived)
            state = state.index_copy(-1, atom[derived], values)
        return state

    def closure(self, facts: Facts) -> frozenset[str]:
        """The names of the atoms that the network derives from these facts.

        Args:
            facts: one fact set, as in `LatentGamma.state`.

        Returns:
            A set of names, the given facts included.

        Raises:
            FactsError: if these are not facts of the program.
            CertificateError: if the model has no certified window.
        """
        with torch.no_grad():
            return self.program.names((self(self.state(facts)) > 0.5).cpu().numpy())

    def save(self, path: str | Path) -> None:
        """Write the models of all strata, their options and the program to one safetensors file.

        `LatentGamma.load` reads it back.

        Args:
            path: the file to write; it is replaced as a whole or not at all.

        Raises:
            ModelError: the file cannot be written.
        """
        from latentgamma._model.serialization import save_model

        save_model(self, path)

    def certificate(self) -> Certificate:
        """The certificate of this model against its own program.

        It is computed anew when a parameter, a buffer or an option has changed.

        Returns:
            A certificate whose steps are those of each stratum.
        """
        return self._certificate(self.dtype)

    def _certificate(self, dtype: torch.dtype) -> Certificate:
        """The certificate for states of this dtype."""
        parts = [part for part in self.parts if isinstance(part, LatentGamma)]
        with torch.no_grad():  # what the parts run with, also where they are fixed
            values = [tensor for part in parts for tensor in part.step_parameters().tensors()]
        return self._certificates.get(
            (self.program, dtype, *(part.gate_kind for part in parts)),
            (*values, *self.buffers()),
            lambda: certify(self, self.program, dtype=str(dtype).removeprefix("torch.")),
        )
