"""Layer: a program as a module of PyTorch, to put behind a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, assert_never, final, get_args

import numpy as np
import torch
from torch import Tensor, nn

from latentgamma._arguments import one_of, real_number, wrong
from latentgamma.certificate.certify import Certificate
from latentgamma.certificate.constants import Gate
from latentgamma.engine.execute import KernelChoice
from latentgamma.engine.probability import LikelyProof
from latentgamma.engine.tensors import ZeroGradientWatch, finite_log_odds, values_can_be_read
from latentgamma.errors import ArgumentError, ModelError
from latentgamma.layer.explain import Explanation, explain_example
from latentgamma.layer.files import load_layer, save_layer
from latentgamma.layer.groups import (
    UNNAMED,
    Group,
    GroupsOfAtoms,
    batch_of_one,
    flat_values,
    named_groups,
    no_log_probabilities,
    read_groups,
    refuse_overlap,
    tensors_of,
)
from latentgamma.layer.inference import Inference, ProbabilitySemantics, input_posterior, proofs_of
from latentgamma.layer.plan import Plan
from latentgamma.layer.semantics import (
    DEFAULT_TOLERANCE,
    GammaSemantics,
    GodelSemantics,
    Semantics,
)
from latentgamma.operator.model import program_digest, refuse_other_program
from latentgamma.program.facts import (
    Facts,
    atom_index,
    fact_values,
)
from latentgamma.program.program import Program, require_program

SemanticsName: TypeAlias = Literal["godel", "gamma", "probability"]

# 0.55 − 0.5 is less than 0.05 by so little.
_ROUNDING = 1e-12


@final
class Layer(nn.Module):
    """A program as a layer: values of some atoms in, values of other atoms out.

    What a soft fact means is chosen by name:

    - `"godel"`: a fact at p is true to the degree p, and an atom is as true as its best proof, a
      proof as its weakest fact. Above one half is exactly the closure of the facts above one
      half, also under negation: a fact at exactly one half counts as false, so its complement is
      the next number above one half. In training the minima and maxima are smooth, on log-odds,
      at a temperature that `latentgamma.Annealing` lowers; in `eval()` they are hard.
    - `"gamma"`: the operator. A fact above ½ + δ is true and one below ½ − δ false; then what is
      above one half is the closure, which a certificate proves.
    - `"probability"`: a fact at p is true with probability p, independently of the others; an
      atom's value is its probability over all worlds.

    Where rules derive an input as well, its own value is one more way to be true: the better of
    the two counts with `"godel"`, and the probability of either with `"probability"`. Under
    negation, `not a` is the complement of the value of a.

    Args:
        program: the rules, with negation or without.
        inputs: the atoms that are fed: `{"name": atoms}` with arrays of names of any shape, or
            one such array. `Categorical(atoms)` says that exactly one is true along the last
            axis.
        outputs: the atoms to read, given in the same way.
        semantics: `"godel"`, `"gamma"` or `"probability"`.
        facts: atoms that are not fed and yet not false: names, or a dictionary from names to
            values between 0 and 1.
        from_logits: whether the inputs are log-odds (scores of a softmax for `Categorical`)
            instead of values between 0 and 1.
        temperature: of the smooth minima and maxima in training.
        kernel: `"auto"`, or `"reference"` to do without compiled code.
        inference: how probabilities are computed, with `semantics="probability"`.
        evidence: atoms that are known to be true or false; the outputs are probabilities given
            that, with `semantics="probability"`.
        tolerance: δ, for `"gamma"` alone; by default 0.05.
        gate: `"sigmoid"` or `"bump"`, for `"gamma"` alone; see `oracle`.

    Raises:
        ModelError: if groups overlap.
        ArgumentError: if an option is not one of those above.
        FactsError: if an atom is not in the program.

    >>> import latentgamma as lg
    >>> program = lg.parse("alarm :- smoke, heat. alarm :- button.")
    >>> layer = Layer(program, inputs=["smoke", "heat", "button"], outputs="alarm").eval()
    >>> layer(torch.tensor([[0.9, 0.7, 0.2]]))
    tensor([0.7000])
    """

    _temperature: Tensor
    _constants: Tensor

    def __init__(
        self,
        program: Program,
        inputs: GroupsOfAtoms,
        outputs: GroupsOfAtoms,
        *,
        semantics: SemanticsName = "godel",
        facts: Facts | None = None,
        from_logits: bool = False,
        temperature: float = 1.0,
        kernel: KernelChoice = "auto",
        inference: Inference | None = None,
        evidence: Mapping[str, bool] | None = None,
        tolerance: float | None = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__()
        require_program(program, "Layer")
        self.semantics: SemanticsName = one_of("semantics", semantics, get_args(SemanticsName))
        self.kernel: KernelChoice = one_of("kernel", kernel, get_args(KernelChoice))
        self.program = program
        self.inputs = read_groups(program, inputs, "inputs")
        self.outputs = read_groups(program, outputs, "outputs")
        self.from_logits = bool(from_logits)
        given = np.zeros(program.M) if facts is None else fact_values(program, facts)
        if given.ndim != 1:
            raise ModelError("facts is one set of facts, the same for every example")
        self.given = given
        refuse_overlap(program, self.inputs, np.flatnonzero(given).tolist())
        soft = np.flatnonzero((given > 0) & (given < 1))
        fed = np.concatenate([*(group.atoms for group in self.inputs), soft])
        read = np.concatenate([group.atoms for group in self.outputs])
        constants = torch.from_numpy(given[soft])
        self.register_buffer("_constants", constants, persistent=False)
        self.register_buffer("_temperature", torch.tensor(1.0))
        self._hard = False
        self._zero_gradient = ZeroGradientWatch(
            "layer.plan() names the inputs that no output depends on"
        )
        self.register_load_state_dict_pre_hook(refuse_other_program)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_reread_temperature)  # type: ignore[no-untyped-call]
        for name, option, owner in (
            ("inference", inference, "probability"),
            ("evidence", evidence, "probability"),
            ("tolerance", tolerance, "gamma"),
            ("gate", gate, "gamma"),
        ):
            if option is not None and semantics != owner:
                raise ArgumentError(f'{name} is for semantics="{owner}"')
        if not isinstance(inference, Inference | None):
            raise wrong("inference", "an Inference", inference)
        known = _read_evidence(program, {} if evidence is None else evidence)
        #: The arguments that were given, apart from the program, its groups and its facts.
        self.options: dict[str, Any] = {
            "semantics": semantics,
            "from_logits": self.from_logits,
            "kernel": kernel,
            "inference": inference,
            "evidence": None if evidence is None else dict(evidence),
            "tolerance": tolerance,
            "gate": gate,
        }
        true = np.flatnonzero(given == 1)
        self.rules: Semantics
        if semantics == "probability":
            self.rules = ProbabilitySemantics(
                program,
                self.inputs,
                soft.tolist(),
                self.outputs,
                true,
                inference or Inference(),
                known,
            )
        elif semantics == "gamma":
            delta = DEFAULT_TOLERANCE if tolerance is None else tolerance
            expected = "a number between 0 and 0.5"
            delta = real_number("tolerance", delta, expected, lambda x: 0 < x < 0.5)
            inside = np.flatnonzero(np.abs(given - 0.5) < delta - _ROUNDING)
            if len(inside):
                raise ModelError(
                    f"{program.atoms[inside[0]]!r} is given as {given[inside[0]]:g}, which is neither "
                    f"true nor false with the tolerance {delta:g}: facts lie outside "
                    f"({0.5 - delta:g}, {0.5 + delta:g})"
                )
            self.rules = GammaSemantics(
                program,
                fed,
                read,
                true,
                kernel=kernel,
                gate=one_of("gate", gate or "sigmoid", get_args(Gate)),
                delta=delta,
            )
        elif semantics == "godel":
            self.rules = GodelSemantics(program, fed, read, true, kernel=kernel)
        else:
            assert_never(semantics)
        self.temperature = temperature

    # ---- Temperature

    @property
    def temperature(self) -> float:
        """The temperature of the smooth minima and maxima in training; 0 means hard ones."""
        return float(self._temperature)

    @temperature.setter
    def temperature(self, value: float) -> None:
        value = real_number("temperature", value, "a number from 0 on", lambda x: 0 <= x < math.inf)
        self._temperature.fill_(value)
        self._hard = value == 0
        self.rules.cool(self.temperature)

    # ---- As a module

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Layer:
        """Apply `.to`, `.half` and so on; the soft facts and the temperature keep their digits."""
        before = self._constants, self._temperature
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        after = self._constants, self._temperature
        self._constants, self._temperature = (
            new if new.dtype == old.dtype else old.to(new.device)
            for old, new in zip(before, after, strict=True)
        )
        return self

    def get_extra_state(self) -> Tensor:
        """Return the extra entry of a state dict: a digest of the program.

        Returns:
            A tensor of bytes.
        """
        return program_digest(self.program)

    def set_extra_state(self, state: Tensor) -> None:
        """Do nothing: `load_state_dict` has already compared the digests.

        Args:
            state: what `get_extra_state` returned.
        """

    def save(self, path: str | Path) -> None:
        """Write the layer, its program included, to one safetensors file.

        Args:
            path: where; an existing file is replaced at once or not at all.

        Raises:
            ModelError: if the file cannot be written.
        """
        save_layer(self, path)

    @staticmethod
    def load(path: str | Path, *, device: torch.device | str = "cpu") -> Layer:
        """Return the layer that `save` wrote.

        Args:
            path: the file.
            device: where its tensors are put.

        Raises:
            ModelError: if this is no such file, or its content has changed since it was written.
        """
        return load_layer(path, device=device)

    def covers(self, given: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return for which examples the guarantee of `plan()` holds, of bool, shaped as the batch.

        A layer with `semantics="gamma"` is certified for facts outside the tolerance around one
        half, unless its parameters have changed too much for that; the other semantics take every
        example.

        >>> import latentgamma as lg
        >>> program = lg.parse("c :- a, b.")
        >>> layer = lg.Layer(program, ["a", "b"], "c", semantics="gamma", tolerance=0.1)
        >>> layer.covers(torch.tensor([[0.9, 0.2], [0.9, 0.55]]))
        tensor([ True, False])

        Args:
            given: as in `forward`.
        """
        facts, batch = self._facts(given)  # (B, n)
        return self.rules.covers(self, facts).reshape(batch)

    # ---- Running

    def forward(self, given: Tensor | Mapping[str, Tensor], *, logits: bool = False) -> Any:
        """Return the values of the outputs, each (B, *shape), for inputs (B, *shape).

        A batch may have several dimensions: outputs have those of the inputs.

        Args:
            given: `{"name": tensor}`, or a tensor where there is one group. Facts may be true or
                false: a tensor of bool or of whole numbers.
            logits: whether to return log-odds instead of values between 0 and 1, and
                log-probabilities along the last axis for `Categorical` outputs.

        Returns:
            `{"name": tensor}`; a tensor where there is one group of outputs, and either it has
            no name or `given` is a tensor too.

        Raises:
            StateError: if an input is missing, not in [0, 1], NaN, or of a wrong shape. A NaN among
                the scores of an example on a GPU may give outputs of NaN instead.
            ModelError: if `logits` asks for log-probabilities of atoms that are never true.
        """
        if torch.compiler.is_compiling() and not self.rules.traceable:  # a graph break
            return torch.compiler.disable(self._run)(given, logits, self.training)  # type: ignore[no-untyped-call]
        return self._run(given, logits, self.training)

    def _run(self, given: Tensor | Mapping[str, Tensor], logits: bool, training: bool) -> Any:
        """Run `forward` on checked inputs."""
        tensors, batch = self._tensors(given)
        flat = self.rules.run(self, tensors, logits=logits, training=training)
        return self._results(flat, given, batch, logits=logits)

    def _tensors(
        self, given: Tensor | Mapping[str, Tensor]
    ) -> tuple[list[Tensor], tuple[int, ...]]:
        """Return the tensors of the groups, each (B, *shape), and the shape of the batch."""
        return tensors_of(self.inputs, given, self.device, from_logits=self.from_logits)

    def _results(
        self,
        flat: Tensor,
        given: Tensor | Mapping[str, Tensor],
        batch: tuple[int, ...],
        *,
        logits: bool = False,
    ) -> Any:
        """Return the outputs (B, O) as tensors of their groups, each (*batch, *shape)."""
        if len(self.outputs) == 1:
            parts: Sequence[Tensor] = [flat]
        else:
            parts = torch.split(flat, [len(group.atoms) for group in self.outputs], dim=1)
        results = {
            group.name: _reshape(group, part, batch, logits=logits)
            for group, part in zip(self.outputs, parts, strict=True)
        }
        if UNNAMED in results or (len(results) == 1 and isinstance(given, Tensor)):
            return next(iter(results.values()))
        return results

    def evaluate(self, given: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return the values of all outputs that `eval()` gives, one group after another.

        Args:
            given: the inputs, as in `forward`.

        Returns:
            The outputs, shape (B, O), with all dimensions of the batch.
        """
        tensors, batch = self._tensors(given)
        flat = self.rules.run(self, tensors, logits=False, training=False)
        return flat.reshape(*batch, sum(len(group.atoms) for group in self.outputs))

    def log_odds(self, facts: Tensor) -> Tensor:
        """Return the log-odds of all outputs that `eval()` computes from flat inputs.

        Args:
            facts: what `flat_inputs` returned, shape (B, I).

        Returns:
            The outputs one after another, shape (B, O).
        """
        return self.rules.log_odds(self, facts)

    @property
    def device(self) -> torch.device:
        """The device of the inputs that this layer takes."""
        return self._temperature.device

    def flat_inputs(self, given: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return all inputs one after another, checked: values, or log-odds if they are given.

        Args:
            given: the inputs, as in `forward`.

        Returns:
            A tensor of shape (B, I), B being the number of all examples; the atoms of `facts` come
            last.

        Raises:
            StateError: if an input is missing, not in [0, 1], NaN, or of a wrong shape.
        """
        return self._facts(given)[0]

    def _facts(self, given: Tensor | Mapping[str, Tensor]) -> tuple[Tensor, tuple[int, ...]]:
        """Return what `flat_inputs` does, and the shape of the batch."""
        tensors, batch = self._tensors(given)
        return self._flat(tensors), batch

    def _flat(self, tensors: Sequence[Tensor], *, as_odds: bool = False) -> Tensor:
        """Return the tensors of the groups one after another, checked unless `as_odds`. (B, I)."""
        parts = [
            flat_values(group, tensor, from_logits=self.from_logits, as_odds=as_odds)
            for group, tensor in zip(self.inputs, tensors, strict=True)
        ]
        if len(self._constants):
            parts.append(self._soft_facts(parts[0].dtype).expand(parts[0].shape[0], -1))
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def _soft_facts(self, dtype: torch.dtype) -> Tensor:
        """Return the values of facts that are neither true nor false, or their log-odds. (1, C)."""
        constants = self._constants.double()
        constants = (torch.logit(constants) if self.from_logits else constants).to(dtype)
        return (finite_log_odds(constants) if self.from_logits else constants)[None]

    # ---- What it does

    def plan(self) -> Plan:
        """Return how this layer computes, and whether that is exact.

        >>> import latentgamma as lg
        >>> print(Layer(lg.parse("b :- a. c :- b."), "a", "c").plan())
        godel: an atom is as true as its best proof, a proof as its weakest fact
        exact: above one half is the closure of what is above one half, on every input
        1 input, 1 output; 2 nodes, 2 edges, no cycles

        Returns:
            A plan; `str` of it is text.
        """
        return self.rules.plan(self)

    @property
    def certificate(self) -> Certificate:
        """The proof that the outputs of a `"gamma"` layer are the closure.

        It is for the parameters and the dtype that the operator has now: it is computed anew when
        they have changed.

        Raises:
            ModelError: if the layer has other semantics.
            CertificateError: if the operator has a window, but the steps of this layer are
                outside it.
        """
        return self.rules.certificate

    def certified(self, *, tolerance: float = DEFAULT_TOLERANCE, gate: Gate = "sigmoid") -> Layer:
        """Return this `"godel"` or `"gamma"` layer with the semantics "gamma", and its certificate.

        Its outputs are above one half where those of this layer in `eval()` are, whenever every
        input is outside (½ − δ, ½ + δ). Probabilities have no certified form: two facts at 0.6 are both
        above one half, and the probability of both is 0.36.

        Args:
            tolerance: δ.
            gate: `"sigmoid"` or `"bump"`.

        Returns:
            A layer in `eval()` mode, on the device of this one, with the same `kernel`.

        Raises:
            ModelError: if this layer has other semantics, or one of its soft `facts` is inside
                (½ − δ, ½ + δ).

        >>> import latentgamma as lg
        >>> layer = Layer(lg.parse("c :- a, b."), ["a", "b"], "c").certified()
        >>> layer.certificate.holds
        True
        >>> layer(torch.tensor([[0.6, 0.7], [0.6, 0.4]])) > 0.5
        tensor([ True, False])
        """
        if not self.rules.has_certified_form:
            raise ModelError(
                "a certificate proves which atoms follow from the facts above one half, and "
                f"semantics={self.semantics!r} computes something else: it has no certified form. "
                'lg.Layer(..., semantics="gamma") has a certificate'
            )
        facts = {self.program.atoms[i]: float(self.given[i]) for i in np.flatnonzero(self.given)}
        twin = Layer(
            self.program,
            named_groups(self.program, self.inputs),
            named_groups(self.program, self.outputs),
            semantics="gamma",
            facts=facts,
            from_logits=self.from_logits,
            temperature=0.0,
            kernel=self.kernel,
            tolerance=tolerance,
            gate=gate,
        )
        return twin.to(self._temperature.device).eval()

    def estimate(self, given: Tensor | Mapping[str, Tensor]) -> tuple[Any, Any]:
        """Return the probabilities of the outputs and their standard errors, 0 where exact.

        Args:
            given: as in `forward`.

        Returns:
            Two results shaped as that of `forward`.

        Raises:
            ModelError: if the semantics is not "probability", or there is evidence.
        """
        rules = self.rules.probabilities("estimate", "standard errors are")
        facts, batch = self._facts(given)
        values = rules.in_order(facts, from_logits=self.from_logits)
        value, error = (part.to(facts.dtype) for part in rules.estimate(values))
        return self._results(value, given, batch), self._results(error, given, batch)

    def posterior(self, given: Tensor | Mapping[str, Tensor], atom: str) -> Any:
        """Return the probability of each input given that an atom is true.

        >>> import latentgamma as lg
        >>> program = lg.parse("alarm :- fire. alarm :- drill.")
        >>> layer = lg.Layer(program, ["fire", "drill"], "alarm", semantics="probability")
        >>> layer.posterior(torch.tensor([[0.1, 0.1]]), "alarm")
        tensor([[0.5263, 0.5263]])

        Args:
            given: as in `forward`.
            atom: the atom that is true.

        Returns:
            A result shaped as the inputs: a tensor, or a dictionary of tensors.

        Raises:
            ModelError: if the semantics is not "probability", there is evidence, or the
                probability is sampled.
            StateError: if the atom has probability zero.
        """
        rules = self.rules.probabilities(
            "posterior", "read the inputs as outputs of this layer instead: a posterior is"
        )
        facts, batch = self._facts(given)
        atom_place = atom_index(self.program, atom)
        found = input_posterior(rules, facts, atom_place, from_logits=self.from_logits)
        found = found.to(facts.dtype)
        sizes = [len(group.atoms) for group in self.inputs]
        parts = torch.split(found[:, : sum(sizes)], sizes, dim=1)
        results = {
            group.name: part.reshape(*batch, *group.shape)
            for group, part in zip(self.inputs, parts, strict=True)
        }
        return results if isinstance(given, Mapping) else next(iter(results.values()))

    def proofs(
        self,
        example: Tensor | Mapping[str, Tensor],
        atom: str,
        *,
        most: int = 5,
        budget: int = 200_000,
    ) -> tuple[LikelyProof, ...]:
        """Return the most likely proofs of an atom for one example, the likeliest first.

        >>> import latentgamma as lg
        >>> program = lg.parse("alarm :- smoke, heat. alarm :- button.")
        >>> inputs = ["smoke", "heat", "button"]
        >>> layer = Layer(program, inputs, "alarm", semantics="probability")
        >>> print(*layer.proofs(torch.tensor([0.9, 0.7, 0.2]), "alarm"), sep="; ")
        0.63  smoke, heat; 0.2  button

        Args:
            example: the inputs of one example, without the batch dimension.
            atom: the atom to prove.
            most: the largest number of proofs.
            budget: the number of partial proofs that the search may visit.

        Returns:
            At most `most` proofs; empty if no inputs prove the atom.

        Raises:
            ModelError: if the semantics is not "probability", the program has negation, there is
                evidence, or the budget is spent.
        """
        rules = self.rules.probabilities("proofs", "proofs are")
        facts = self.flat_inputs(batch_of_one(self.inputs, example, "proofs"))
        values = rules.in_order(facts, from_logits=self.from_logits)[0]
        return proofs_of(rules, values, atom_index(self.program, atom), most, budget)

    def explain(self, example: Tensor | Mapping[str, Tensor], expected: Any = None) -> Explanation:
        """Return the proof of each output, changes of inputs that would change it, and gradients.

        What is said follows from the semantics, as `eval()` computes it:

        - `"probability"`: for each input the least change that alone takes the answer over one
          half, or that there is none. The probability is linear in each input, so it is solved for.
        - `"godel"`: inputs that together take the answer over one half, and none can be left out.
          The proof is one whose weakest fact is as strong as possible; where the program has
          negation, one from what is above one half. Then clingo looks for the inputs to change.
        - `"gamma"`: the same, as far as the certificate proves it.

        Of a `Categorical` output, the answer is the atom with the greatest value. Of a `Categorical`
        input, a change of one value leaves the others their proportions. Every change that is
        stated has been tried with the layer, or follows from its certificate. Gradients are
        derivatives of log-odds in log-odds.

        Args:
            example: the inputs of one example, without the batch dimension.
            expected: what the outputs should be: a tensor of the shape of the outputs, or a
                dictionary of them, true above one half; for a `Categorical` also the indices
                along its last axis.

        Returns:
            The answers, the wrong ones first; `str` of it is text, and
            `latentgamma.plot.explanation` draws one of them.

        Raises:
            StateError: if the inputs or the expected outputs have a wrong shape.

        >>> import latentgamma as lg
        >>> program = lg.parse("alarm :- smoke, heat.")
        >>> layer = Layer(program, ["smoke", "heat"], "alarm")
        >>> print(layer.explain(torch.tensor([0.9, 0.2]), expected=torch.tensor(1.0)))
        alarm is false, at 0.2, and should be true
        best proof (weakest fact: heat, at 0.2):
          alarm  (rule 0)
          ├─ smoke  (given)
          └─ heat  (given)
        this change makes it true:
          heat from 0.2 to 0.501
        largest gradients, of its log-odds in those of the inputs:
          heat at 0.2 (gradient +1)
        >>> layer = Layer(program, ["smoke", "heat"], "alarm", semantics="probability")
        >>> print(*layer.explain(torch.tensor([0.6, 0.7]))["alarm"].alone, sep="; ")
        smoke from 0.6 to 0.715; heat from 0.7 to 0.834
        """
        return explain_example(self, example, expected)

    def extra_repr(self) -> str:
        """Return the line that `print(layer)` shows.

        Returns:
            The semantics, and the shapes of the inputs and outputs.
        """
        shapes = [
            ", ".join(f"{group.name}{list(group.shape) or ''}" or "1" for group in groups)
            for groups in (self.inputs, self.outputs)
        ]
        return f"semantics={self.semantics!r}, inputs={shapes[0]}, outputs={shapes[1]}"


def _reshape(group: Group, part: Tensor, batch: tuple[int, ...], *, logits: bool) -> Tensor:
    shape = (*batch, *group.shape)
    shaped = part if part.shape == shape else part.reshape(shape)
    if not (logits and group.categorical):
        return shaped
    found = torch.log_softmax(shaped, -1)
    # On a GPU one would have to wait for the answer.
    if found.is_cpu and values_can_be_read(found):
        lost = found.isnan().reshape(-1, len(group.atoms)).any(1)
        if bool(lost.any()):
            raise no_log_probabilities(group, int(lost.nonzero()[0, 0]))
    return found


def _reread_temperature(layer: Layer, _: object) -> None:
    layer.temperature = layer.temperature


def _read_evidence(program: Program, evidence: Mapping[str, bool]) -> dict[int, bool]:
    """Return the truth of the atoms of the evidence, by their index."""
    if not isinstance(evidence, Mapping):
        raise ModelError(
            f'evidence is a dictionary such as {{"alarm": True}}, not {type(evidence).__name__}'
        )
    known: dict[int, bool] = {}
    for atom, value in evidence.items():
        if not isinstance(value, bool | np.bool_):
            raise ModelError(f"evidence says True or False of {atom!r}, not {value!r}")
        i = atom_index(program, atom, what="evidence")
        if known.setdefault(i, bool(value)) != value:
            raise ModelError(f"evidence says both True and False of {program.atoms[i]!r}")
    return known
