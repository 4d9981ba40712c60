"""Learns from images and labels of examples what the images show and which rules give the labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid

from latentgamma._arguments import one_of, real_number, whole_number, wrong
from latentgamma._progress import ProgressBar
from latentgamma._text import quantity
from latentgamma.certificate.certify import Certificate
from latentgamma.datalog.programs import parse
from latentgamma.errors import ArgumentError, DataError, ModelError
from latentgamma.layer.annealing import Annealing
from latentgamma.layer.groups import (
    UNNAMED,
    Categorical,
    GroupsOfAtoms,
    named_groups,
    read_groups,
    refuse_overlap,
)
from latentgamma.layer.inference import Inference
from latentgamma.layer.layer import Layer
from latentgamma.layer.shortcuts import (
    Shortcuts,
    concept_mapping,
    positions_of,
    shortcuts,
    worlds_of,
)
from latentgamma.logic.closures import closures
from latentgamma.program.names import quote
from latentgamma.program.program import Program, Rule

# ---- Candidate rules with trainable weights

#: Rules that are no sum-product pass are summed over all subsets of the candidates, and all values
#: of the inputs.
_MOST_CANDIDATES = 12
_MOST_WORLDS = 1 << 21
#: Closures computed in one call.
_CHUNK = 1 << 14


@final
class CandidateRules(nn.Module):
    """Candidate rules with trainable weights, as a layer behind a network.

    Each candidate has one more body atom, `use(0)`, `use(1)` and so on, whose log-odds are the
    parameter `weights`, shared by all examples. `extract` returns the rules in use at the end.

    With `semantics="probability"` the outputs are exact: one sum-product pass where that is proved
    exact, such as for a table, otherwise a sum over all subsets of up to 12 candidates.

    >>> import latentgamma as lg
    >>> rules = CandidateRules(
    ...     ["alarm :- smoke.", "alarm :- heat.", "alarm :- smoke, heat."],
    ...     inputs=["smoke", "heat"],
    ...     outputs="alarm",
    ... )
    >>> _ = torch.nn.init.constant_(rules.weights, -9.0)
    >>> with torch.no_grad():
    ...     rules.weights[1] = 9.0
    >>> (rules(torch.tensor([[1.0, 0.0], [0.0, 1.0]])) > 0.5).tolist()
    [False, True]
    >>> rules.in_use
    ('alarm :- heat.',)

    Args:
        candidates: rules as text, one each; a rule with variables is one candidate.
        inputs: the atoms that a network predicts, as in `Layer`; not named "use".
        outputs: the atoms that are labelled, as in `Layer`.
        background: rules and facts that are always used, as text.
        semantics: `"probability"` or `"godel"`.
        seed: of the weights, which begin at normal random numbers: equal weights give the network
            no gradient where the rules are symmetric, as for exclusive or.

    Raises:
        ParseError: if a rule cannot be read.
        ModelError: if probabilities of these candidates cannot be computed exactly.
    """

    _signs: Tensor
    _holds: Tensor

    def __init__(
        self,
        candidates: Sequence[str],
        inputs: GroupsOfAtoms,
        outputs: GroupsOfAtoms,
        *,
        background: str | None = None,
        semantics: str = "probability",
        seed: int = 0,
    ) -> None:
        super().__init__()
        one_of("semantics", semantics, ("probability", "godel"))
        if isinstance(candidates, str) or not all(isinstance(c, str) for c in candidates):
            raise wrong("candidates", "a list of rules, one string each", candidates)
        if not candidates:
            raise ArgumentError("candidates needs at least one rule")
        if not isinstance(background, str | None):
            raise wrong("background", "rules as text", background)
        whole_number("seed", seed)
        self.candidates = tuple(text.strip() for text in candidates)
        self.background = background or ""
        self.is_table = False
        names = [f"use({c})" for c in range(len(self.candidates))]
        groups = inputs if isinstance(inputs, Mapping) else {UNNAMED: inputs}
        given = {name: np.asarray(_names(atoms)) for name, atoms in groups.items()}
        fed = [str(atom) for atoms in given.values() for atom in atoms.flat]
        if "use" in groups or re.search(r"\buse\(", " ".join((*fed, *candidates, self.background))):
            raise ArgumentError('the name "use" is for weights of rules: choose another one')
        declared = "".join(f"#external {quote(atom)}. " for atom in (*fed, *names))
        used = "\n".join(
            _with_atom(text, name) for text, name in zip(self.candidates, names, strict=True)
        )
        self.program = parse(f"{declared}\n{self.background}\n{used}")
        self.weights = nn.Parameter(
            torch.randn(len(names), generator=torch.Generator().manual_seed(seed))
        )
        self.inputs = read_groups(self.program, inputs, "inputs")
        self.outputs = read_groups(self.program, outputs, "outputs")
        refuse_overlap(self.program, self.inputs, ())
        self._use = [self.program.index[name] for name in names]
        inference = Inference(method="pass") if semantics == "probability" else None
        self._by_subsets = False
        try:
            self.layer = Layer(
                self.program,
                {**groups, "use": names},
                outputs,
                semantics=semantics,  # type: ignore[arg-type]
                inference=inference,
            )
        except ModelError:
            if semantics != "probability":
                raise
            self._sum_over_subsets(groups)

    @classmethod
    def table(
        cls,
        inputs: GroupsOfAtoms,
        outputs: GroupsOfAtoms,
        *,
        semantics: str = "probability",
        seed: int = 0,
    ) -> CandidateRules:
        """Return one candidate for each output and each combination of values of the inputs.

        Any function of the inputs is a subset of these rules.

        >>> import latentgamma as lg
        >>> rules = CandidateRules.table(lg.Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]]), "c")
        >>> rules.candidates
        ('c :- a(0), b(0).', 'c :- a(0), b(1).', 'c :- a(1), b(0).', 'c :- a(1), b(1).')

        Args:
            inputs: the atoms that a network predicts: all in `Categorical` groups.
            outputs: the atoms that are labelled.
            semantics: as in the constructor.
            seed: as in the constructor.

        Raises:
            ArgumentError: if an input is not in a `Categorical` group.
        """
        groups = inputs if isinstance(inputs, Mapping) else {UNNAMED: inputs}
        if not all(isinstance(atoms, Categorical) for atoms in groups.values()):
            raise ArgumentError("the inputs of a table are Categorical groups")
        rows = [
            [quote(str(atom)) for atom in row]
            for atoms in groups.values()
            for row in _names(atoms).reshape(-1, _names(atoms).shape[-1])
        ]
        named = outputs if isinstance(outputs, Mapping) else {UNNAMED: outputs}
        heads = [quote(str(a)) for atoms in named.values() for a in np.asarray(_names(atoms)).flat]
        texts = [f"{head} :- {', '.join(body)}." for body in product(*rows) for head in heads]
        rules = cls(texts, inputs, outputs, semantics=semantics, seed=seed)
        rules.is_table = True
        return rules

    def _sum_over_subsets(self, groups: Mapping[str, Any]) -> None:
        """Prepare the outputs of every subset of candidates on every combination of inputs."""
        sizes = [
            group.shape[-1] if group.categorical else 2
            for group in self.inputs
            for _ in range(positions_of(group))
        ]
        count, total = len(self.candidates), prod(sizes) << len(self.candidates)
        if count > _MOST_CANDIDATES or total > _MOST_WORLDS:
            raise ModelError(
                f"the probability of these {count} candidates cannot be computed in one pass, and a sum over their "
                f"subsets is for at most {_MOST_CANDIDATES} candidates and {_MOST_WORLDS:,} worlds, "
                f'not {total:,}: use fewer candidates, or semantics="godel"'
            )
        values = np.array(list(product(*map(range, sizes))), np.int64)
        worlds = worlds_of(self.program.M, self.inputs, values)  # (W, M)
        read = np.concatenate([group.atoms for group in self.outputs])
        subsets = np.arange(1 << count)[:, None] >> np.arange(count) & 1 == 1  # (2^C, C)
        holds = np.empty((len(worlds), len(subsets), len(read)), np.bool_)
        step = max(1, _CHUNK // len(worlds))
        for start in range(0, len(subsets), step):
            chunk = subsets[start : start + step]
            facts = np.repeat(worlds[:, None], len(chunk), 1)
            facts[:, :, self._use] = chunk
            derived = closures(self.program, facts.reshape(-1, self.program.M))[:, read]
            holds[:, start : start + step] = derived.reshape(len(worlds), len(chunk), -1)
        self._by_subsets = True
        signs = torch.from_numpy(np.where(subsets, 1.0, -1.0)).float()
        self.register_buffer("_signs", signs, persistent=False)
        table = torch.from_numpy(holds.transpose(0, 2, 1).reshape(-1, len(subsets))).float()
        self.register_buffer("_holds", table, persistent=False)  # (W O, 2^C)
        # Given the probability of each output for each combination of inputs, a table is left.
        names = [f"use({n})" for n in range(len(worlds) * len(read))]
        fed = [i for group in self.inputs for i in group.atoms.tolist()]
        atoms = self.program.atoms
        rules = [
            Rule(
                (atoms[output],),
                frozenset([atoms[i] for i in fed if world[i]] + [names[w * len(read) + o]]),
                frozenset(atoms[i] for i in fed if not world[i] and not self._exclusive(i)),
            )
            for w, world in enumerate(worlds)
            for o, output in enumerate(read)
        ]
        self.layer = Layer(
            Program.from_rules(
                rules, [*(atoms[i] for i in fed), *names, *(atoms[i] for i in read)]
            ),
            {**groups, "use": names},
            named_groups(self.program, self.outputs),
            semantics="probability",
            inference=Inference(method="pass"),
        )

    def _exclusive(self, atom: int) -> bool:
        return any(group.categorical and atom in group.atoms for group in self.inputs)

    def forward(self, given: Tensor | Mapping[str, Tensor], *, logits: bool = False) -> Any:
        """Return the values of the outputs, each (B, *shape), as `Layer` does.

        Args:
            given: the values of the inputs between 0 and 1: `{"name": tensor}`, or a tensor where
                there is one group.
            logits: whether to return log-odds.

        Raises:
            StateError: if an input is missing, not in [0, 1], NaN, or of a wrong shape.
        """
        tensors = dict(given) if isinstance(given, Mapping) else {self.inputs[0].name: given}
        use = torch.sigmoid(self.weights)
        if self._by_subsets:
            subsets = logsigmoid(self._signs * self.weights).sum(1).exp()  # (2^C,)
            use = (self._holds @ subsets).clamp(0, 1)
        group = self.inputs[0]
        first = tensors.get(group.name)
        batch: tuple[int, ...] = (1,)
        if isinstance(first, Tensor) and first.dim() > len(group.shape):
            batch = tuple(first.shape[: first.dim() - len(group.shape)])
        found = self.layer({**tensors, "use": use.expand(*batch, -1)}, logits=logits)
        if isinstance(found, dict) and len(found) == 1 and not isinstance(given, Mapping):
            return next(iter(found.values()))
        return found

    @property
    def output_atoms(self) -> list[str]:
        """The names of all outputs."""
        return [self.program.atoms[i] for group in self.outputs for i in group.atoms]

    def functions(self) -> list[npt.NDArray[np.bool_]]:
        """Return a smallest subset of the candidates for each function of the inputs.

        Empty where probabilities are not summed over subsets. Each is of shape (C,).
        """
        if not self._by_subsets:
            return []
        subsets = self._signs.cpu().numpy() > 0
        order = np.argsort(subsets.sum(1), kind="stable")
        columns = self._holds.cpu().numpy().T[order]  # (2^C, W O)
        first = np.sort(np.unique(columns, axis=0, return_index=True)[1])
        return [subsets[n] for n in order[first]]

    @property
    def in_use(self) -> tuple[str, ...]:
        """The candidates whose weight is above 0."""
        return tuple(
            text for text, w in zip(self.candidates, self.weights.tolist(), strict=True) if w > 0
        )

    def extract(self) -> Program:
        """Return the program of the background and of the candidates whose weight is above 0."""
        return self.program_with((self.weights.detach() > 0).cpu().numpy())

    def program_with(self, chosen: npt.NDArray[np.bool_]) -> Program:
        """Return the ground program of the background and of the chosen candidates.

        Args:
            chosen: which candidates are in use, shape (C,).
        """
        number = {self.program.atoms[atom]: n for n, atom in enumerate(self._use)}
        rules = []
        for rule in self.program.rules:
            use = [number[atom] for atom in rule.body if atom in number]
            if all(chosen[n] for n in use):
                rules.append(Rule(rule.heads, frozenset(rule.body - number.keys()), rule.negated))
        return Program.from_rules(rules, [a for a in self.program.atoms if a not in number])


def _names(atoms: Any) -> npt.NDArray[Any]:
    return np.asarray(atoms.atoms if isinstance(atoms, Categorical) else atoms)


_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|\.\.""")  # and the dots of 0..9
_END = re.compile(r"%|\.(?!\d)")


def _with_atom(rule: str, atom: str) -> str:
    """Return a rule with one more body atom.

    >>> _with_atom("a :- b.", "use(0)"), _with_atom("a.", "use(1)")
    ('a :- b, use(0).', 'a :- use(1).')
    """
    start = rule.removesuffix(".")
    if not start or _END.search(_QUOTED.sub("", start)):
        raise ArgumentError(
            f"candidates are texts of one rule each, without comments, not {rule!r}"
        )
    return f"{start}{', ' if ':-' in start else ' :- '}{atom}."


# ---- Training: a network that reads images, and rules, from labels of examples alone

#: The balance falls to 0, and the learning rate is constant, in this part of the steps.
_FIRST_PART = 0.7
#: The learning rate of the weights of the rules, relative to that of the network.
_RATE_OF_WEIGHTS = 10.0


@dataclass(frozen=True)
class ConceptAccuracy:
    """How well concepts agree with known values.

    >>> ConceptAccuracy(mapping=(1, 0), accuracy=0.99).mapping[0]  # the concept of the value 0
    1

    Attributes:
        mapping: for each value, the concept that most of its images are read as; −1 for a value
            without images. Two values with one concept are not distinguished.
        accuracy: the share of images that are read as the concept of their value.
    """

    mapping: tuple[int, ...]
    accuracy: float


@dataclass(frozen=True, eq=False)
class ConceptFit:
    """A network and a program that were learned together, as `fit_concepts` returns them.

    >>> rules = CandidateRules.table(Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]]), "c")
    >>> both, every = np.array([False, False, False, True]), np.array([[0, 0], [0, 1], [1, 1]])
    >>> found = ConceptFit(rules, both, nn.Identity(), (0, 1), 1.0, 1, every)
    >>> print(found)
    c :- a(1), b(1).
    2 concepts; the rules derive 100.0% of the training labels
    exact from step 1 on, for every fact set (none is deeper than 1) and inputs within 0.118993 of 0 and 1, in float32
    2 concept mappings agree with all labels, 1 up to renaming: the labels determine the concepts up to renaming

    A *concept* is a class of images that the network tells apart. Concepts have numbers, but no
    names: which number stands for what is known only where images were labelled.

    Attributes:
        rules: the candidate rules; those of a table have the concepts that are left.
        chosen: which of them are in use, shape (C,).
        network: the trained network.
        merged: for each output of the network, the number of its concept.
        accuracy: the share of training labels that the rules in use derive from the concepts.
        attempt: the number of the attempt that gave this, from 1 on.
        examples: the concepts of the training examples, without repetition.
    """

    rules: CandidateRules
    chosen: npt.NDArray[np.bool_]
    network: nn.Module
    merged: tuple[int, ...]
    accuracy: float
    attempt: int
    examples: npt.NDArray[np.int64]

    @cached_property
    def program(self) -> Program:
        """The learned rules."""
        return self.rules.program_with(self.chosen)

    @property
    def text(self) -> str:
        """The learned rules as text, those with variables as they were given."""
        used = [c for c, use in zip(self.rules.candidates, self.chosen, strict=True) if use]
        return "\n".join(filter(None, (self.rules.background.strip(), *used)))

    @property
    def inputs(self) -> Categorical:
        """The atoms of the concepts, as in `Layer`."""
        return _concept_atoms(self.rules)

    def concepts(self, images: Tensor) -> npt.NDArray[np.int64]:
        """Return the number of the concept of each image. (N, ...) -> (N,)."""
        return np.array(self.merged)[_most_likely(self.network, images)]

    def derive(self, concepts: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which outputs follow from concepts of examples. (E, positions) -> (E, O).

        Args:
            concepts: numbers of concepts, shape (E, positions).

        Raises:
            DataError: if these are not numbers of concepts, or of another shape.
        """
        values, shape = np.asarray(concepts), (1, *self.inputs.atoms.shape)[-2:]
        if values.ndim != 2 or values.shape[1] != shape[0] or values.dtype.kind not in "iu":
            raise DataError(f"concepts are whole numbers of shape (E, {shape[0]})")
        if values.size and not 0 <= values.min() <= values.max() < shape[1]:
            raise DataError(f"concepts are numbers from 0 to {shape[1] - 1}")
        return _derived(self.rules, self.program, values.astype(np.int64))

    def concept_accuracy(self, images: Tensor, values: npt.ArrayLike) -> ConceptAccuracy:
        """Return how well the concepts agree with known values, after renaming.

        Args:
            images: images that the network reads, shape (N, ...).
            values: what they show: numbers from 0 on, shape (N,).

        Raises:
            DataError: if there are not as many values as images.
        """
        found, true = self.concepts(images), np.asarray(values)
        mapping = concept_mapping(true, found)[UNNAMED]
        right = np.array(mapping)[true.astype(np.int64)] == found
        return ConceptAccuracy(mapping, float(right.mean()))

    @cached_property
    def certificate(self) -> Certificate:
        """The proof that the operator of this program computes the rules on all concepts."""
        return Layer(self.program, self.inputs, self.rules.output_atoms).certified().certificate

    def shortcuts(self) -> Shortcuts:
        """Return the concept mappings that agree with all labels as well as the learned one.

        Each together with rules that candidates can express: any rules for a table; for candidates
        that were summed over their subsets, one program for each function that they can express;
        otherwise the learned rules alone.
        """
        given = (self.program, self.inputs, self.rules.output_atoms, self.examples)
        if self.rules.is_table:
            return shortcuts(*given, rules="any")
        programs = [self.rules.program_with(subset) for subset in self.rules.functions()]
        return shortcuts(*given, rules=programs or "given")

    def __str__(self) -> str:
        concepts = quantity(self.inputs.atoms.shape[-1], "concept")
        return "\n".join(
            (
                self.text,
                f"{concepts}; the rules derive {self.accuracy:.1%} of the training labels",
                str(self.certificate),
                str(self.shortcuts()),
            )
        )


def fit_concepts(
    network: Callable[[], nn.Module],
    rules: CandidateRules,
    images: Tensor,
    examples: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    labelled: Mapping[int, int] | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    steps: int = 3000,
    batch: int = 256,
    rate: float = 3e-3,
    balance: float = 2.0,
    attempts: int = 3,
    enough: float = 0.995,
    tolerance: float = 0.003,
    seed: int = 0,
    progress: ProgressBar | None = None,
) -> ConceptFit:
    """Return a network that reads images and the rules that give the labels, learned together.

    >>> import latentgamma as lg
    >>> generator = torch.Generator().manual_seed(0)
    >>> images = torch.randn(200, 2, generator=generator)  # what they show: is the first number > 0?
    >>> examples = torch.randint(200, (1000, 2), generator=generator).numpy()
    >>> labels = (images[examples][:, :, 0] > 0).all(1)
    >>> inputs = lg.Categorical([["left(0)", "left(1)"], ["right(0)", "right(1)"]])
    >>> rules = CandidateRules.table(inputs, "both")
    >>> found = fit_concepts(
    ...     lambda: nn.Linear(2, 2), rules, images, examples, labels, steps=150, rate=0.03
    ... )
    >>> positive = found.concepts(torch.tensor([[1.0, 0.0]]))[0]  # the number of that concept
    >>> found.text == f"both :- left({positive}), right({positive})."
    True

    An example is a few images, such as two digits, and its label says which outputs are true, such
    as whether the first digit is less than the second. No image needs a label of its own. The loss
    is the cross-entropy of the labels, minus `balance` times the entropy of the mean distribution of
    concepts: without that term, the network often uses few concepts and stays there.

    In the end concepts that the labels do not distinguish are merged, if the candidates are a table,
    and candidates that no label needs are dropped.

    Args:
        network: makes a new network, from images (N, ...) to scores of concepts (N, K).
        rules: the candidate rules; the inputs are one `Categorical` group of shape
            (positions, K) or (K,). Its weights are trained.
        images: all images, shape (N, ...).
        examples: the numbers of the images of each example, shape (E, positions).
        labels: which outputs are true, shape (E, O), or (E,) for one output.
        labelled: the outputs of the network that some images should have, by the number of the
            image; `merged` says which concept an output is in the end.
        augment: changes the images of a batch, for instance shifts them.
        steps: of Adam, for each attempt.
        batch: the number of examples of a step.
        rate: the learning rate of the network: constant at first, then falling to 0.
        balance: the weight of the entropy at first; it falls to 0.
        attempts: how often training is started at most; the best attempt counts.
        enough: an attempt that derives this share of the training labels is the last one.
        tolerance: the share of the training labels that merging concepts may make wrong.
        seed: of the networks, the weights and the batches.
        progress: shows how far the training is.

    Returns:
        The network, the rules and the concepts of the best attempt.

    Raises:
        ArgumentError: if an option is out of its range.
        DataError: if the data do not fit together.
    """
    for name, number in (("steps", steps), ("batch", batch), ("attempts", attempts)):
        whole_number(name, number, 1)
    whole_number("seed", seed)
    real_number("rate", rate, "a number above 0", lambda x: x > 0)
    real_number("balance", balance, "a number from 0 on", lambda x: x >= 0)
    for name, share in (("enough", enough), ("tolerance", tolerance)):
        real_number(name, share, "a number from 0 to 1", lambda x: 0 <= x <= 1)
    if not isinstance(rules, CandidateRules):
        raise wrong("rules", "CandidateRules", rules)
    if isinstance(network, nn.Module) or not callable(network):
        raise wrong("network", "a function that makes a new network", network)
    if not isinstance(labelled, Mapping | None):
        raise wrong("labelled", "a dictionary from images to concepts", labelled)
    for name, function in (("augment", augment), ("progress", progress)):
        if function is not None and not callable(function):
            raise wrong(name, "a function", function)
    data = _read_data(rules, images, examples, labels, {} if labelled is None else labelled)
    best: ConceptFit | None = None
    with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
        torch.manual_seed(seed)
        for attempt in range(attempts):
            model = network()
            nn.init.normal_(rules.weights)
            for step in _training(model, rules, data, augment, steps, batch, rate, balance):
                if progress is not None:
                    progress(f"attempt {attempt + 1}", step, steps)
            found = _read_back(model.eval(), rules, data, tolerance, attempt + 1)
            if best is None or found.accuracy > best.accuracy:
                best = found
            if best.accuracy >= enough:
                break
    if progress is not None:
        progress.close()
    assert best is not None
    return best


@dataclass(frozen=True)
class _Data:
    images: Tensor
    examples: Tensor  # (E, positions)
    labels: Tensor  # (E, O) of 0 and 1
    labelled: Tensor  # (L,) numbers of images
    known: Tensor  # (L,) their concepts


def _read_data(
    rules: CandidateRules,
    images: Any,
    examples: npt.ArrayLike,
    labels: npt.ArrayLike,
    labelled: Mapping[int, int],
) -> _Data:
    """Return the data as tensors, checked."""
    group = rules.inputs[0]
    if len(rules.inputs) > 1 or not group.categorical or len(group.shape) > 2:
        raise ModelError(
            "fit_concepts takes rules whose inputs are one Categorical group of shape "
            "(positions, concepts) or (concepts,)"
        )
    if not isinstance(images, Tensor) or images.dim() < 2 or not images.is_floating_point():
        raise DataError("images are a tensor of floating-point numbers of shape (N, ...)")
    positions, outputs = group.shape[0] if len(group.shape) == 2 else 1, len(rules.output_atoms)
    chosen, truth = np.asarray(examples), np.asarray(labels)
    if chosen.ndim != 2 or chosen.shape[1] != positions or chosen.dtype.kind not in "iu":
        raise DataError(
            f"examples are numbers of images of shape (E, {positions}), not {chosen.dtype} of shape "
            f"{chosen.shape}"
        )
    if not len(chosen) or chosen.min() < 0 or chosen.max() >= len(images):
        raise DataError(
            f"examples are at least one row of numbers of images, 0 to {len(images) - 1}"
        )
    truth = truth[:, None] if truth.ndim == 1 else truth
    if truth.shape != (len(chosen), outputs) or not np.isin(truth, (0, 1)).all():
        raise DataError(
            f"labels are 0 or 1, of shape ({len(chosen)}, {outputs}): one row for each example, one "
            f"column for each output; these have the shape {np.shape(labels)}"
        )
    known = np.array([*labelled.items()]).reshape(-1, 2)
    most = (len(images), group.shape[-1])
    if len(known) and (known.dtype.kind not in "iu" or (known < 0).any() or (known >= most).any()):
        raise DataError(f"labelled maps images 0 to {most[0] - 1} to concepts 0 to {most[1] - 1}")
    where = images.device
    return _Data(
        images,
        torch.from_numpy(chosen.astype(np.int64)).to(where),
        torch.from_numpy(truth.astype(np.float32)).to(where),
        *torch.from_numpy(known.T.astype(np.int64)).to(where),
    )


def _training(
    model: nn.Module,
    rules: CandidateRules,
    data: _Data,
    augment: Callable[[Tensor], Tensor] | None,
    steps: int,
    batch: int,
    rate: float,
    balance: float,
) -> Iterator[int]:
    """Train a network and the weights of rules, and yield the number of each step."""
    model.train()
    rules.train()
    shape = rules.inputs[0].shape
    groups = [
        {"params": list(model.parameters()), "lr": rate},
        {"params": [rules.weights], "lr": rate * _RATE_OF_WEIGHTS},
    ]
    optimiser = torch.optim.Adam(groups)
    last = 1 - _FIRST_PART
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (1 - step / steps) / last)
    )
    annealing = Annealing(rules, steps)
    for step in range(steps):
        rows = torch.randint(len(data.examples), (batch,), device=data.images.device)
        seen = data.images[data.examples[rows].flatten()]
        scores = model(seen if augment is None else augment(seen))
        if scores.shape != (len(seen), shape[-1]):
            raise DataError(
                f"the network gives scores of shape ({len(seen)}, {shape[-1]}) for {len(seen)} "
                f"images, not {tuple(scores.shape)}"
            )
        concepts = torch.softmax(scores, -1)
        odds = rules(concepts.reshape(batch, *shape), logits=True)
        loss = binary_cross_entropy_with_logits(odds.reshape(batch, -1), data.labels[rows])
        mean = concepts.mean(0)
        weight = balance * max(0.0, 1 - step / (steps * _FIRST_PART))
        loss = loss + weight * (mean * mean.clamp(min=1e-9).log()).sum()
        if len(data.labelled):
            shown = data.images[data.labelled]
            shown = shown if augment is None else augment(shown)
            loss = loss + cross_entropy(model(shown), data.known)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        annealing.step()
        yield step + 1


@torch.no_grad()
def _most_likely(network: nn.Module, images: Tensor) -> npt.NDArray[np.int64]:
    """Return the concept with the highest score of each image."""
    found = [network(part).argmax(-1).cpu() for part in torch.split(images, 4096)]
    return torch.cat(found).numpy().astype(np.int64)


def _concept_atoms(rules: CandidateRules) -> Categorical:
    group = rules.inputs[0]
    return Categorical(np.array([rules.program.atoms[i] for i in group.atoms]).reshape(group.shape))


def _derived(
    rules: CandidateRules, program: Program, values: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which outputs follow from values of the inputs. (E, positions) -> (E, O)."""
    rows, inverse = np.unique(values, axis=0, return_inverse=True)
    facts = worlds_of(program.M, read_groups(program, _concept_atoms(rules), "inputs"), rows)
    read = [program.index[atom] for atom in rules.output_atoms]
    return closures(program, facts)[:, read][inverse.reshape(-1)]


def _read_back(
    network: nn.Module, rules: CandidateRules, data: _Data, tolerance: float, attempt: int
) -> ConceptFit:
    """Return the concepts and the rules that a trained network and trained weights stand for."""
    size = rules.inputs[0].shape[-1]
    labels = data.labels.cpu().numpy() > 0.5
    found = _most_likely(network, data.images)[data.examples.cpu().numpy()]  # (E, positions)
    merged = np.arange(size)
    weights = rules.weights.detach().cpu().numpy()
    chosen = weights > 0
    if rules.is_table:
        merged = _merge(found, labels, size, tolerance)
        size, found = max(2, int(merged.max()) + 1), merged[found]  # a Categorical has two atoms
        names = _concept_atoms(rules).atoms[..., :size]
        rules = CandidateRules.table(Categorical(names), rules.output_atoms)
        chosen = _majority(found, labels, size)[1].reshape(-1)

    def right(chosen: npt.NDArray[np.bool_]) -> float:
        return float((_derived(rules, rules.program_with(chosen), found) == labels).mean())

    accuracy = right(chosen)
    for c in () if rules.is_table else np.argsort(weights):  # each rule of a table is needed
        fewer = chosen & (np.arange(len(chosen)) != c)
        if chosen[c] and (without := right(fewer)) >= accuracy:
            chosen, accuracy = fewer, without
    examples = np.unique(found, axis=0)
    return ConceptFit(rules, chosen, network, tuple(merged.tolist()), accuracy, attempt, examples)


def _majority(
    values: npt.NDArray[np.int64], labels: npt.NDArray[np.bool_], size: int
) -> tuple[int, npt.NDArray[np.bool_]]:
    """Return how many labels differ from those of most examples with these values, and those labels.

    Args:
        values: of each example, numbers below `size`, shape (E, positions).
        labels: of each example, shape (E, O).
        size: the number of values.

    Returns:
        The number of labels, and the most frequent label of each combination, (size^positions, O).
    """
    cells = size ** values.shape[1]
    index = values @ size ** np.arange(values.shape[1])[::-1]
    true = np.stack([np.bincount(index[column], minlength=cells) for column in labels.T], 1)
    false = np.bincount(index, minlength=cells)[:, None] - true
    return int(np.minimum(true, false).sum()), true > false


def _merge(
    values: npt.NDArray[np.int64], labels: npt.NDArray[np.bool_], size: int, tolerance: float
) -> npt.NDArray[np.int64]:
    """Return the number of the concept of each value after merging those that labels do not need.

    The two concepts are merged that make the fewest labels wrong, as long as all merges together
    make at most the share `tolerance` wrong.
    """
    merged = np.arange(size)
    most = _majority(values, labels, size)[0] + tolerance * labels.size
    while len(kept := np.unique(merged)) > 1:
        choices = [np.where(merged == b, a, merged) for a, b in combinations(kept, 2)]
        errors = [_majority(choice[values], labels, size)[0] for choice in choices]
        if min(errors) > most:
            break
        merged = choices[int(np.argmin(errors))]
    return np.unique(merged, return_inverse=True)[1]
