"""Probability: how a layer computes it, with evidence and posteriors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, final, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma._arguments import one_of, real_number, whole_number
from latentgamma.engine.exactness import Variables
from latentgamma.engine.fused import LOG, LOG_ODDS, FusedPass, Watch
from latentgamma.engine.probability import (
    LikelyProof,
    ProbabilityMethods,
    choose_methods,
    likely_proofs,
)
from latentgamma.engine.tensors import (
    LEAST_COMPLEMENT,
    ROUNDED_COMPLEMENT,
    can_leave_torch,
    finite_log_odds,
    held_log,
    hold,
    log_odds_of_log,
    may_be_any,
    probability,
)
from latentgamma.errors import ModelError, StateError
from latentgamma.layer.evidence_diagram import (
    CERTAIN_ODDS,
    IMPOSSIBLE,
    EvidenceDiagram,
    evidence_diagram,
    input_log_odds,
    refuse_impossible,
)
from latentgamma.layer.explain import Explainer, Inputs, ProbabilityExplainer
from latentgamma.layer.groups import Group, group_tolerance, no_log_probabilities
from latentgamma.layer.plan import Plan, probability_plan
from latentgamma.layer.semantics import Semantics
from latentgamma.program.graph import Csr
from latentgamma.program.program import Indices, Program, atoms_of_literals

if TYPE_CHECKING:
    from latentgamma.layer.layer import Layer

# ---- Evidence: joint probabilities with the outputs


def _methods_of_bodies(
    choose: Callable[..., ProbabilityMethods], program: Program, bodies: Sequence[Sequence[int]]
) -> ProbabilityMethods:
    """Return how the probability of each body of literals is computed: as that of one more atom."""
    names = [f"and({n})" for n in range(len(bodies))]
    while set(names) & set(program.atoms):
        names = [name + "'" for name in names]
    added = list(range(program.M, program.M + len(bodies)))
    rows = Csr.from_lists(bodies)
    literals: Indices = np.append(program.body_literals, rows.indices)
    extended = Program.from_arrays(
        np.append(program.body_indptr, program.body_indptr[-1] + rows.indptr[1:]),
        atoms_of_literals(literals),
        np.append(program.head_indices, added),
        np.append(program.head_indptr, program.head_indptr[-1] + 1 + np.arange(len(bodies))),
        body_negated=literals < 0,
        atoms=(*program.atoms, *names),
    )
    return choose(extended, outputs=added, subtract=False)


# ---- The semantics "probability": an atom's probability over all worlds

Method: TypeAlias = Literal["auto", "pass", "table", "sample"]


@dataclass(frozen=True)
class Inference:
    """How a layer computes probabilities.

    Args:
        method: `"auto"` takes for each output the first that fits: one sum-product pass where it
            is proved exact (as a tree, where the rules are a long chain such as a running sum), a
            table of all worlds within the budget, sampled worlds. `"pass"`,
            `"table"` and `"sample"` use that one alone.
        budget: the most worlds of a table.
        worlds: the number of sampled worlds for each example.
        error: in `eval()`, more worlds are drawn until the standard error of every output is at
            most this; None draws `worlds` only.
        most_worlds: the most worlds drawn for that, for each example.
        seed: of the sampled worlds; None takes torch's own generator.

    >>> Inference(worlds=32, seed=0).method
    'auto'
    """

    method: Method = "auto"
    budget: int = 1 << 16
    worlds: int = 64
    error: float | None = None
    most_worlds: int = 1 << 20
    seed: int | None = None

    def __post_init__(self) -> None:
        one_of("method", self.method, get_args(Method))
        for name, least in (("budget", 1), ("worlds", 2), ("most_worlds", 2)):
            whole_number(name, getattr(self, name), least)
        if self.error is not None:
            real_number("error", self.error, "a positive number or None", lambda x: x > 0)
        if self.seed is not None:
            whole_number("seed", self.seed, -(2**63), 2**64 - 1)


@final
class ProbabilitySemantics(Semantics):
    """An atom's value is its probability over all worlds.

    A fact at p is true with probability p, independently of all others; of a `Categorical` group
    exactly one atom is true.
    """

    traceable = False  # compiled code of its own, and tables that are kept

    def __init__(
        self,
        program: Program,
        groups: Sequence[Group],
        constants: Sequence[int],
        outputs: Sequence[Group],
        true: npt.NDArray[np.int64],
        inference: Inference,
        evidence: Mapping[int, bool],
    ) -> None:
        super().__init__()
        flat = [*(atom for group in groups for atom in group.atoms.tolist()), *constants]
        facts = [i for group in groups if not group.categorical for i in group.atoms.tolist()]
        rows = tuple(
            tuple(row)
            for group in groups
            if group.categorical
            for row in group.atoms.reshape(-1, group.shape[-1]).tolist()
        )
        self.inference = inference
        self.variables = Variables((*facts, *constants), rows)
        self.has_evidence, self._has_soft_facts = bool(evidence), bool(constants)
        self.diagram: EvidenceDiagram | None = None
        read = [atom for group in outputs for atom in group.atoms.tolist()]
        choose = partial(
            choose_methods,
            variables=self.variables,
            true=true.tolist(),
            budget=inference.budget,
            method=inference.method,
        )
        if evidence:
            # The evidence, each output together with it, and each negation, as atoms of their own.
            known = [atom if value else ~atom for atom, value in evidence.items()]
            joint = [known, *([atom, *known] for atom in read)]
            negations = [[~atom, *known] for atom in read]
            self.methods = _methods_of_bodies(choose, program, joint)
            self._find_negations = partial(_methods_of_bodies, choose, program, negations)
            if inference.method == "pass" and self.methods.sum_product.subtracts:
                raise ModelError(
                    "with this evidence a pass would take one minus a probability, which may hide "
                    'that the evidence is impossible: use method="auto"'
                )
            if not self.methods.exact and inference.method == "auto":
                self.diagram = evidence_diagram(
                    program, self.variables, read, evidence, true.tolist()
                )
        else:
            self.methods = choose(program, outputs=read)
        #: Outputs that are true in no world, or in none that agrees with the evidence.
        self.impossible = self.methods.impossible
        if evidence and program.M not in self.impossible:  # else the evidence is impossible itself
            joint_atoms = zip(read, range(program.M + 1, program.M + 1 + len(read)), strict=True)
            self.impossible = frozenset(a for a, both in joint_atoms if both in self.impossible)
        self._never = self._never_true(outputs)
        categorical = [group.categorical for group in outputs for _ in group.atoms]
        self.register_buffer("_categorical", torch.tensor(categorical), persistent=False)
        self._can_fuse = not self.has_evidence and self.methods.exact
        column = {atom: n for n, atom in enumerate(flat)}
        order = torch.tensor([column[int(atom)] for atom in self.variables.atoms])
        self._reordered = order.tolist() != sorted(order.tolist())
        widths = [group.shape[-1] if group.categorical else 1 for group in groups]
        widths += [1] * self._has_soft_facts  # one more tensor
        ends = np.cumsum([len(group.atoms) for group in groups])
        # Kept on the CPU: nothing may wait for a device while a CUDA graph is captured.
        self._fused = FusedPass(
            self.methods,
            np.split(order.argsort().numpy(), ends)[: len(widths)],
            widths,
            np.where(categorical, LOG, LOG_ODDS),
            outputs[0].shape if len(outputs) == 1 else (len(read),),
        )
        self.register_buffer("_order", order, persistent=False)
        self._generators: dict[torch.device, torch.Generator] = {}

    _order: Tensor
    _categorical: Tensor  # (O,) which outputs are read as log-probabilities

    def _never_true(self, outputs: Sequence[Group]) -> Group | None:
        """Return a `Categorical` output with a group along its last axis that is never true."""
        for group in outputs:
            rows = group.atoms.reshape(-1, group.shape[-1]).tolist() if group.categorical else []
            if any(self.impossible.issuperset(row) for row in rows):
                return group
        return None

    def run(
        self, layer: Layer, tensors: Sequence[Tensor], *, logits: bool, training: bool
    ) -> Tensor:
        """Return the outputs, (B, O) or in the shape of their only group."""
        if logits and self._never is not None:
            raise no_log_probabilities(self._never)
        plain = partial(self._plain_run, layer, logits=logits, training=training)
        watch = layer._zero_gradient.warn if training else None
        found = self.fused(layer, tensors, logits, watch, plain)
        return plain(tensors) if found is None else found

    def _plain_run(
        self, layer: Layer, tensors: Sequence[Tensor], *, logits: bool, training: bool
    ) -> Tensor:
        widened = layer.from_logits and all(tensor.dtype == torch.float32 for tensor in tensors)
        if widened:  # as in the compiled code: differences of large scores keep their digits
            tensors = [tensor.double() for tensor in tensors]
        found = super().run(layer, tensors, logits=logits, training=training)
        return found.float() if widened else found

    def fused(
        self,
        layer: Layer,
        tensors: Sequence[Tensor],
        logits: bool,
        watch: Watch | None,
        again: Callable[..., Tensor],
    ) -> Tensor | None:
        """Return the outputs in one compiled step, or None where that is not possible.

        They have the shape (B, *shape) of their group where there is one, otherwise (B, O). See
        `FusedPass.run`.
        """
        dtype, chain = tensors[0].dtype, self.methods.chain
        if (
            not self._can_fuse
            or (chain is not None and not chain.prefers_pass(tensors[0].device))
            or dtype not in (torch.float32, torch.float64)
            or any(tensor.dtype != dtype for tensor in tensors)
            or tensors[0].device.type not in ("cpu", "cuda")
            or not can_leave_torch(*tensors)
        ):
            return None
        given, plain = tensors, again
        if self._has_soft_facts:  # one more tensor
            given = [*tensors, layer._soft_facts(dtype).expand(len(tensors[0]), -1)]
            plain = lambda some: again(some[:-1])  # noqa: E731
        return self._fused.run(
            given,
            from_logits=layer.from_logits,
            logits=logits,
            tolerance=group_tolerance(dtype),
            again=plain,
            watch=watch,
        )

    def guarantee(self) -> tuple[bool, str]:
        """Return whether the outputs are exact, and how they are computed."""
        if self.diagram is not None:
            return True, str(self.diagram)
        return self.methods.exact, str(self.methods).replace("\n", "\n  ")

    def plan(self, layer: Layer) -> Plan:
        """Return how the layer computes."""
        return probability_plan(layer, self.methods, self.impossible, self.guarantee())

    def explainer(self, inputs: Inputs) -> Explainer:
        """Return the function that explains one output."""
        return ProbabilityExplainer(inputs, self)

    def probabilities(self, what: str, result: str) -> ProbabilitySemantics:
        """Return itself if there is no evidence."""
        if self.has_evidence:
            raise ModelError(f"{result} for layers without evidence")
        return self

    def forward(
        self, facts: Tensor, temperature: Tensor, *, hard: bool, from_logits: bool, logits: bool
    ) -> Tensor:
        """Return the probabilities (B, O) of the outputs; with `logits` log-odds or logarithms.

        Raises:
            ModelError: where `torch.func` transforms sampled worlds.
        """
        if logits:
            logs, odds = self.logarithms(facts, hard=hard, from_logits=from_logits)
            return torch.where(self._categorical, logs, odds)
        given = self._ordered_inputs(facts, from_logits=from_logits)
        return self._probabilities(given, hard=hard, from_logits=from_logits).to(facts.dtype)

    def log_odds(self, layer: Layer, facts: Tensor) -> Tensor:
        """Return the log-odds that `eval()` computes of the outputs (B, O), from flat inputs."""
        return self.logarithms(facts, hard=True, from_logits=layer.from_logits)[1]

    def logarithms(self, facts: Tensor, *, hard: bool, from_logits: bool) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities and log-odds of the outputs, each (B, O); see `forward`."""
        given = self._ordered_inputs(facts, from_logits=from_logits)
        if from_logits:
            logs, rest = (nn.functional.logsigmoid(sign * given) for sign in (1, -1))
        else:
            kind = torch.float64 if facts.dtype == torch.float64 else torch.float32
            logs = held_log(given, torch.finfo(kind).tiny)
            rest = held_log(1 - given, ROUNDED_COMPLEMENT)
        if not self.has_evidence:
            found = self.methods.log_probabilities(
                logs,
                self.inference.worlds,
                self._generator(logs.device),
                log_complements=rest,
            )
            odds = self.methods.log_odds(found, logs, rest)
        elif self.diagram is not None:
            odds, found = (
                self._by_diagram(given, read, from_logits=from_logits)
                for read in (lambda odds: odds, nn.functional.logsigmoid)
            )
        elif not self.methods.exact:
            value = self._probabilities(given, hard=hard, from_logits=from_logits)
            found = held_log(value, torch.finfo(torch.float64).tiny)
            odds = log_odds_of_log(found)
        else:
            if not from_logits:  # the logarithms do not say which values are zero
                self._probabilities(given.detach(), hard=hard, from_logits=False)
            found, odds = self._given_evidence(self._log_normalised(logs), rest)
        most = min(1e30, torch.finfo(facts.dtype).max / 2)
        return found.to(facts.dtype), hold(odds, -most, most).to(facts.dtype)

    def _ordered_inputs(self, facts: Tensor, *, from_logits: bool) -> Tensor:
        """Return the inputs in the order of the variables, in float64."""
        if self.diagram is None and self.methods.sampled and not can_leave_torch(facts):
            raise ModelError(
                "sampled worlds have no transforms of torch.func and no forward-mode derivatives; "
                'lg.Inference(method="table") has'
            )
        given = (facts[:, self._order] if self._reordered else facts).double()
        if not (from_logits and self.has_evidence):
            return given
        # Infinite log-odds were held at the end of the range of their dtype.
        end = finite_log_odds(torch.full_like(facts[:1, :1], torch.inf))
        return given + torch.where(given.abs() >= end, CERTAIN_ODDS * given.detach().sign(), 0)

    def _probabilities(self, given: Tensor, *, hard: bool, from_logits: bool) -> Tensor:
        if self.diagram is not None:
            return self._by_diagram(given, probability, from_logits=from_logits)
        if self.has_evidence and from_logits and self.methods.exact:
            # From logarithms: one minus the probability of an almost certain input has no digits.
            logs, rest = (nn.functional.logsigmoid(sign * given) for sign in (1, -1))
            return hold(self._given_evidence(self._log_normalised(logs), rest)[0].exp(), 0, 1)
        # In float32 an atom with log-odds of 20 would be certain.
        values = torch.sigmoid(given) if from_logits else given
        if self.has_evidence:
            values = self._normalised(values)
        if hard and self.inference.error is not None and not torch.is_grad_enabled():
            found = self.estimate(values)[0]
        else:
            found = self.methods.probabilities(
                values, self.inference.worlds, self._generator(values.device)
            )
        if self.has_evidence:
            refuse_impossible(found[:, 0].detach() <= 0, sampled=0 in self.methods.sampled)
            found = found[:, 1:] / found[:, :1]
        # Rounding may leave [0, 1]; the slope of a clamp would be zero there.
        return hold(found, 0, 1)

    def _by_diagram(
        self, given: Tensor, read: Callable[[Tensor], Tensor], *, from_logits: bool
    ) -> Tensor:
        """Return a function of the log-odds of the outputs given the evidence, (B, O)."""
        facts, run = len(self.variables.facts), cast("EvidenceDiagram", self.diagram)
        if from_logits:
            logs = self._log_normalised(nn.functional.logsigmoid(given))
            return read(run(torch.cat([given[:, :facts], logs[:, facts:]], 1)))
        values = self._normalised(given)
        found = read(run(input_log_odds(values, facts)))
        certain = (values.detach() <= 0) | (values.detach() >= 1)
        if not torch.is_grad_enabled() or not may_be_any(certain):
            return found
        # The log-odds of a certain input are infinite: the slope is that of a nearby input.
        near = read(run(input_log_odds(values, facts, certain=False)))
        return near + (found - near).detach()

    def _given_evidence(self, logs: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities and log-odds (B, O) of the outputs given the evidence."""
        joint = self.methods.log_probabilities(logs, log_complements=rest)
        refuse_impossible(joint[:, 0].detach() < IMPOSSIBLE)
        found = joint[:, 1:] - joint[:, :1]
        odds = log_odds_of_log(found)
        likely = found.detach() > np.log1p(-LEAST_COMPLEMENT)
        if may_be_any(likely) and self._negations.exact:
            none = self._negations.log_probabilities(logs, log_complements=rest)
            pair = (joint[:, 1:] - none).nan_to_num(torch.nan, posinf=1e30)
            odds = torch.where(likely, pair, odds)
        return found, odds

    @cached_property
    def _negations(self) -> ProbabilityMethods:
        """How the evidence together with the negation of each output is computed."""
        return self._find_negations()

    def joint(self, facts: Tensor, *, from_logits: bool) -> Tensor:
        """Return the probability of the evidence, and of each output together with it. (B, 1 + O).

        Without evidence the first is one. Both are linear in the distribution of each variable.
        """
        values = self.in_order(facts, from_logits=from_logits).double()
        if not self.has_evidence:
            found = self.methods.probabilities(values)
            return torch.cat((found.new_ones(len(found), 1), found), 1)
        return self.methods.probabilities(self._normalised(values))

    def estimate(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities of the outputs and their standard errors, each (B, O).

        `values` (B, I) are the probabilities of the inputs in the order of the variables.
        """
        return self.methods.estimate(
            values,
            self.inference.worlds,
            self._generator(values.device),
            error=self.inference.error,
            most_worlds=self.inference.most_worlds,
        )

    def in_order(self, facts: Tensor, *, from_logits: bool) -> Tensor:
        """Return the probabilities of the inputs (B, I), in the order of the variables."""
        given = facts[:, self._order]
        return torch.sigmoid(given.double()) if from_logits else given

    def _normalised(self, values: Tensor) -> Tensor:
        """Return the probabilities of the inputs (B, I), those of a group divided by their sum."""
        return self._by_group(values, lambda part: part / part.sum(1, keepdim=True))

    def _log_normalised(self, logs: Tensor) -> Tensor:
        """Return the same from logarithms."""
        return self._by_group(logs, lambda part: part.log_softmax(1))

    def _by_group(self, values: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        sizes = [len(group) for group in self.variables.groups]
        facts, *groups = torch.split(values, [len(self.variables.facts), *sizes], dim=1)
        return torch.cat([facts, *map(function, groups)], 1)

    def _generator(self, device: torch.device) -> torch.Generator | None:
        if self.inference.seed is None:
            return None
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.inference.seed)
        return self._generators[device]

    def __getstate__(self) -> dict[str, object]:
        # A generator can neither be copied nor pickled.
        return {**self.__dict__, "_generators": {}}


# ---- What an answer says about the inputs: their posterior, and the most likely proofs


def input_posterior(
    semantics: ProbabilitySemantics, facts: Tensor, atom: int, *, from_logits: bool
) -> Tensor:
    """Return the probability of each input given that an atom is true, (B, I).

    The probability of the atom is linear in each variable: P = Σ_k p_k c_k + c_0 with c_k its
    derivative, so that P(value k | atom) = p_k (c_k + c_0) / P. The values of a fact are that it is
    true and that it is false.

    Raises:
        ModelError: if the probability of the atom is not computed exactly.
        StateError: if it is zero.
    """
    methods = choose_methods(
        semantics.methods.program,
        semantics.variables,
        [atom],
        true=semantics.methods.true,
        budget=semantics.inference.budget,
    )
    if not methods.exact:
        raise ModelError(
            "a posterior needs an exact probability, and this one would be sampled: raise budget="
        )
    given = facts.detach()[:, semantics._order].double()
    p, q = (torch.sigmoid(given), torch.sigmoid(-given)) if from_logits else (given, 1 - given)
    with torch.enable_grad():
        leaves = p.requires_grad_(), q.requires_grad_()
        value = methods.probabilities(p, complements=q)[:, 0]
        if value.requires_grad:
            grads = torch.autograd.grad(value.sum(), leaves, materialize_grads=True)
        else:
            grads = torch.zeros_like(p), torch.zeros_like(q)
    total, p = value.detach(), p.detach()
    if bool((total <= 0).any()):
        row = int((total <= 0).nonzero()[0, 0])
        raise StateError(
            f"the atom has probability zero in example {row}, or one too small for a posterior"
        )
    parts = p * grads[0]
    used = semantics._by_group(
        parts + q.detach() * grads[1], lambda part: part.sum(1, keepdim=True).expand_as(part)
    )
    found = (parts + p * (total[:, None] - used)) / total[:, None]
    return torch.empty_like(found).index_copy(1, semantics._order, found.clamp(0, 1))


def proofs_of(
    semantics: ProbabilitySemantics, values: Tensor, atom: int, most: int, budget: int
) -> tuple[LikelyProof, ...]:
    """Return the most likely proofs of an atom for one example, (I,) probabilities of the inputs.

    Raises:
        ModelError: if the program has negation, or the budget is spent.
        ArgumentError: if a number is not one.
    """
    for name, number in (("most", most), ("budget", budget)):
        whole_number(name, number)
    program = semantics.methods.program
    if not program.definite:
        raise ModelError("likely proofs are for programs without negation")
    return likely_proofs(
        program,
        semantics.variables,
        values.detach().double().cpu().numpy(),
        atom,
        true=semantics.methods.true,
        most=most,
        budget=budget,
    )
