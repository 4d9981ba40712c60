"""The explorer in a real browser: what its page computes is what the library computes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.cli.main import main
from latentgamma.explore.server import new_server
from random_programs import random_program
from reference import every_fact_set

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here: apt-get install chromium to run this test"
)


def evaluate(page: str, script: str, tmp_path: Path, width: int = 1280) -> Any:
    """The value of a script that runs at the end of a page; any error or request fails."""
    probe = """
    <script>
    const failures = [];
    addEventListener("error", event => failures.push(event.message));
    addEventListener("securitypolicyviolation", event => failures.push(event.blockedURI));
    </script>"""
    report = f"""
    <script>
    addEventListener("load", () => {{
      let value = null;
      try {{ value = (() => {{ {script} }})(); }} catch (error) {{ failures.push(String(error)); }}
      const requests = performance.getEntriesByType("resource").map((one) => one.name);
      document.body.dataset.seen = JSON.stringify({{ value, failures, requests }});
    }});
    </script></body>"""
    text = page.replace("<style>", probe + "<style>", 1)
    head, _, tail = text.rpartition("</body>")
    path = tmp_path / "page.html"
    path.write_text(head + report + tail, encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
        "--virtual-time-budget=3000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found is not None, "the page's script did not run to its end"
    seen = json.loads(unescape(found[1]))
    assert seen["failures"] == []
    assert seen["requests"] == []
    return seen["value"]


@needs_browser
def test_clicking_a_fact_lights_up_what_follows(tmp_path: Path) -> None:
    program = lg.parse("bird :- feathers. penguin :- bird, swims. ice :- penguin.")
    seen = evaluate(
        lg.explore.render(program, facts=["feathers"]),
        """
        const lit = () => engine.atoms.filter((_, i) => graph.atoms[i].matches(".true, .fact")).sort();
        const fired = () => new Set(graph.lines.filter((line) => line.node.matches(".on")).map((line) => line.rule)).size;
        const before = lit();
        const rules = [fired()];
        const first = graph.atoms.map((node) => node.getAttribute("aria-label"));
        document.querySelector(`#facts input[data-atom="${engine.atoms.indexOf("swims")}"]`).click();
        const after = lit();
        select(engine.atoms.indexOf("ice"));
        const proof = document.getElementById("atom-detail").textContent;
        rules.push(fired());
        const swims = graph.atoms[engine.atoms.indexOf("swims")];
        const spoken = swims.getAttribute("aria-label");
        const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key }));
        swims.focus();
        press("Enter");
        rules.push(fired());
        press("ArrowRight");
        const next = document.activeElement.getAttribute("aria-label");
        select(engine.atoms.indexOf("ice"));
        document.getElementById("none").click();
        const repair = document.querySelector(".repair").textContent;
        document.querySelector(".repair").click();
        return { before, first, after, rules, proof, spoken, next, repair, repaired: lit() };
        """,
        tmp_path,
    )
    assert seen["before"] == ["bird", "feathers"]
    assert seen["first"][:2] == ["bird, derived", "feathers, given fact"]
    assert seen["first"][2:] == [f"{name}, not derived" for name in ("penguin", "swims", "ice")]
    assert seen["after"] == ["bird", "feathers", "ice", "penguin", "swims"]
    assert seen["rules"] == [1, 3, 1]
    assert "Derived at step 3" in seen["proof"]
    assert seen["spoken"] == "swims, given fact"
    assert seen["next"] == "penguin, not derived"
    assert seen["repair"] == "Add swims, feathers" or seen["repair"] == "Add feathers, swims"
    assert "ice" in seen["repaired"]


def compute(page: str, script: str, tmp_path: Path) -> Any:
    """The value of a script that uses the page's engine, in a browser or else in node."""
    if BROWSER is not None:
        return evaluate(page, script, tmp_path)
    if shutil.which("node") is None:
        pytest.skip("neither Chromium nor node here: apt-get install chromium to run this test")
    engine = files("latentgamma.explore") / "assets" / "engine.js"
    (data,) = re.findall(r"<script>const DATA = (.*);</script>", page)
    code = f"{engine.read_text(encoding='utf-8')}\nconst engine = new Engine({data});\n"
    path = tmp_path / "engine.js"
    path.write_text(f"{code}console.log(JSON.stringify((() => {{ {script} }})()));", "utf-8")
    done = subprocess.run(["node", path], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def with_negation(seed: int) -> lg.Program:
    """A random program in which only atoms before the head are negated."""
    rng = np.random.default_rng(seed)
    rules = [lg.Rule(("a3",), frozenset(), frozenset({"a1"}))]
    for _ in range(14):
        head = int(rng.integers(9))
        body = [i for i in rng.permutation(9)[: rng.integers(1, 4)].tolist() if i <= head]
        negated = {i for i in body if i < head and rng.random() < 0.5}
        names = frozenset(f"a{i}" for i in body if i not in negated)
        rules.append(lg.Rule((f"a{head}",), names, frozenset(f"a{i}" for i in negated)))
    return lg.Program.from_rules(rules, [f"a{i}" for i in range(9)])


def fewest_changes(program: lg.Program, row: np.ndarray) -> np.ndarray:
    """For each atom the fewest facts to change for it to hold, by trying all; M + 1 if none do."""
    roots = program.mask(program.underivable)
    free = np.flatnonzero(roots & ~row if program.definite else roots | row)
    chosen = every_fact_set(len(free))
    facts = np.tile(row, (len(chosen), 1))
    facts[:, free] ^= chosen
    holds = lg.closures(program, facts)
    return np.where(holds, chosen.sum(1)[:, None], program.M + 1).min(0)


def min_max(program: lg.Program, value: np.ndarray) -> np.ndarray:
    """The min/max closure of values 0 to 3, where 3 is true, stratum by stratum."""
    value = value.copy()
    for stratum in program.strata:
        local = np.where(stratum.negated, 3 - value[stratum.atom], value[stratum.atom])
        for _ in range(stratum.program.M + 1):
            for j in range(stratum.program.R):
                worth = local[stratum.program.body_of(j)].min(initial=3)
                heads = stratum.program.heads_of(j)
                local[heads] = np.maximum(local[heads], worth)
        value[stratum.atom[stratum.derived]] = local[stratum.derived]
    return value


@pytest.mark.quick_first
@pytest.mark.parametrize("negation", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_page_computes_what_the_library_computes(
    seed: int, negation: bool, tmp_path: Path
) -> None:
    program = with_negation(seed) if negation else random_program(seed, atoms=9, rules=12, body=3)
    rng = np.random.default_rng(seed)
    rows = rng.random((20, program.M)) < 0.3
    sets = [np.flatnonzero(row).tolist() for row in rows]
    seen = compute(
        lg.explore.render(program),
        f"""
        const sets = {json.dumps(sets)}.map((set) => new Set(set));
        const goals = [...engine.atoms.keys()];
        return sets.map((facts) => {{
          const level = engine.closure(facts);
          return {{
            level: [...level],
            early: [...engine.closure(facts, 1)].map((one) => one >= 0),
            states: [0, 1, 6].map((t) => [...engine.run(facts, 6)[t]]),
            proofs: goals.filter((g) => level[g] >= 0).map((g) => engine.proof(level, g)),
            repairs: goals.map((g) => engine.repairs(facts, g)),
            blame: goals.map((g) => [...engine.blame(facts, g)]),
          }};
        }});
        """,
        tmp_path,
    )
    model = lg.oracle(program, form="sparse", dtype=torch.float64)
    states = [model(model.state(rows), t).detach() for t in (0, 1, 6)]
    for n, (row, page) in enumerate(zip(rows, seen, strict=True)):
        closed = lg.closure(program, row)
        assert page["level"] == closed.level.tolist()
        if not negation:
            assert page["early"] == program.mask(lg.logic.step(program, row)).tolist()
        for state, found in zip(states, page["states"], strict=True):
            np.testing.assert_allclose(found, state[n], atol=1e-9)
        for lines in page["proofs"]:
            for line in lines:
                if line["rule"] >= 0:
                    rule, head = program.rule(line["rule"]), program.atoms[line["atom"]]
                    assert head in rule.heads
                    assert all(closed.level[program.index[i]] < closed.level[line["atom"]] for i in rule.body)  # fmt: skip
                    assert rule.body <= closed.atoms
                    assert not rule.negated & closed.atoms
                elif line["rule"] == -2:
                    assert not closed.state[line["atom"]]
                else:
                    assert row[line["atom"]]
        fewest = fewest_changes(program, row)
        for goal, repair in enumerate(page["repairs"]):
            if closed.state[goal]:
                continue
            for changed in repair["sets"]:
                mask = row.copy()
                mask[changed] ^= True
                assert lg.closure(program, mask).state[goal]
            assert repair["smallest"]
            assert min(map(len, repair["sets"]), default=program.M + 1) == fewest[goal]
        # Where all facts move by ε away from one half, the goal moves by ε, or does not depend on
        # them: whichever of equally good proofs the gradient goes along.
        roots = program.mask(program.underivable)
        value = min_max(program, np.where(row, 2, np.where(roots, 1, 0)))
        for goal, blame in enumerate(page["blame"]):
            assert np.abs(blame).sum() <= 1 + 1e-9
            assert np.dot(blame, np.where(row, 1, -1)) == pytest.approx([0, -1, 1, 0][value[goal]])


@pytest.mark.slow
@needs_browser
def test_rules_with_negation_are_drawn_proved_and_repaired(tmp_path: Path) -> None:
    program = lg.parse("bird :- penguin. fly :- bird, not penguin. nest :- fly, not winter.")
    seen = evaluate(
        lg.explore.render(program, facts=["bird"]),
        """
        const lit = () => engine.atoms.filter((_, i) => graph.atoms[i].matches(".true, .fact")).sort();
        const text = () => document.getElementById("atom-detail").textContent;
        const before = lit();
        select(engine.atoms.indexOf("nest"));
        const proof = text();
        const calm = document.getElementById("collapse").textContent;
        document.querySelector(`#facts input[data-atom="${engine.atoms.indexOf("penguin")}"]`).click();
        const after = lit();
        const repair = document.querySelector(".repair").textContent;
        document.querySelector(".repair").click();
        const x = (name) => graph.layout.atoms[engine.atoms.indexOf(name)][0];
        const count = (selector) => document.querySelectorAll(`#graph ${selector}`).length;
        return { before, proof, calm, after, repair, repaired: lit(),
                 dashed: graph.lines.filter((line) => line.node.matches(".negated")).map((line) => line.rule).sort(),
                 edges: count(".edge"), junctions: count(".junction"), wrong: count(".wrong"),
                 rising: x("penguin") < x("bird") && x("bird") < x("fly") && x("fly") < x("nest"),
                 key: !document.getElementById("negation-key").hidden };
        """,
        tmp_path,
    )
    assert seen["before"] == ["bird", "fly", "nest"]
    assert "not penguin  (not derived)" in seen["proof"]
    assert "not winter  (not derived)" in seen["proof"]
    assert seen["calm"].startswith("All 5 atoms agree")
    assert seen["after"] == ["bird", "penguin"]
    assert seen["repair"] == "Withdraw penguin"
    assert seen["repaired"] == seen["before"]
    assert seen["dashed"] == [1, 2]
    assert (seen["edges"], seen["junctions"]) == (7, 2)
    assert seen["wrong"] == 0
    assert seen["rising"]
    assert seen["key"]


def test_a_model_with_negation_is_compared_stratum_by_stratum() -> None:
    program = lg.parse("fly :- bird, not penguin. bird :- penguin.")
    model = lg.oracle(program)
    assert "are equivalent to the program in each stratum" in lg.explore.render(
        program, model=model
    )
    with torch.no_grad():
        model.parts[1].offset -= 100  # everything holds
    page = lg.explore.render(program, model=model)
    assert "are not equivalent to the program in each stratum" in page
    assert '["\\u2013", "fly :- bird, not penguin."]' in page
    with pytest.raises(lg.errors.ModelError, match="other atoms than those of the program"):
        lg.explore.render(
            lg.parse("a :- not b. d :- a, not c. c :- b."),
            model=lg.oracle(lg.parse("a :- b, c, d.")),
        )


@pytest.mark.slow
@needs_browser
def test_noise_shows_the_collapse_and_a_learned_model_its_rules(tmp_path: Path) -> None:
    program = lg.generators.g1()
    seen = evaluate(
        lg.explore.render(program, facts=program.roots, model=lg.oracle(program, form="sparse")),
        """
        const text = () => document.getElementById("collapse").textContent;
        const calm = text();
        document.getElementById("noise").value = 8;
        document.getElementById("noise").dispatchEvent(new Event("input"));
        const rows = document.querySelectorAll("#learned tr").length;
        return { calm, noisy: text(), rows, width: document.documentElement.scrollWidth };
        """,
        tmp_path,
        width=500,
    )
    assert seen["calm"].startswith("All 33 atoms agree")
    assert "differ from the closure" in seen["noisy"]
    assert seen["rows"] == program.R
    assert seen["width"] <= 500


def test_rules_with_variables_are_shown_as_they_were_written() -> None:
    program = lg.parse(
        "edge(a,b). edge(b,c). path(X,Y) :- edge(X,Y). path(X,Z) :- path(X,Y), edge(Y,Z)."
    )
    page = lg.explore.render(program)
    assert "path(a,c) :- edge(b,c), path(a,b)." in page
    assert "line 1 with X=a, Y=b, Z=c" in page


def test_notes_are_shown_with_their_rules() -> None:
    program = lg.parse("b :- a.  c :- b.")
    assert "support 12" in lg.explore.render(program, notes=["support 12", "support 3"])
    with pytest.raises(lg.errors.ArgumentError, match="has 1 texts, but the program has 2 rules"):
        lg.explore.render(program, notes=["support 12"])


@pytest.mark.slow
@needs_browser
def test_a_large_program_is_drawn_as_a_grid(tmp_path: Path) -> None:
    program = lg.generators.chain(800)
    seen = evaluate(
        lg.explore.render(program, facts=program.roots),
        """
        select(7);
        return { atoms: graph.atoms.length, edges: document.querySelectorAll("#graph .edge").length,
                 text: document.getElementById("atom-detail").textContent };
        """,
        tmp_path,
    )
    assert seen["atoms"] == program.M
    assert seen["edges"] == 2
    assert "Derived at step" in seen["text"]


def test_names_cannot_break_out_of_the_page() -> None:
    program = lg.Program.from_rules([("</script><b>", ["{title}"])])
    page = lg.explore.render(program, title="<b>{style}")
    assert "</script><b>" not in page
    assert "<h1>&lt;b&gt;{style}</h1>" in page


def test_a_page_that_is_too_large_is_refused() -> None:
    with pytest.raises(lg.errors.ModelError, match="explore a part of it"):
        lg.explore.render(lg.generators.chain(30_000))


def test_the_server_answers_only_with_its_token() -> None:
    with new_server("<p>page</p>") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(server.address) as answer:
            assert answer.read() == b"<p>page</p>"
        bare = server.address.split("?")[0]
        for address, headers, status in (
            (bare, {}, 404),
            (bare + "?token=guess", {}, 404),
            (server.address, {"Host": "example.org"}, 403),
        ):
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(urllib.request.Request(address, headers=headers))
            assert error.value.code == status
            error.value.close()
        server.shutdown()


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.lp"
    rules.write_text("b :- a.\n")
    out = tmp_path / "page.html"
    assert main(["explore", str(rules), "--facts", "a", "--export", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    rules.write_text("b :- not a.\n")
    assert main(["explore", str(rules), "--export", str(out)]) == 0
    assert '"negated": [1]' in out.read_text(encoding="utf-8")
    assert main(["explore", str(rules), "--export", str(rules)]) == 2
    assert "same file" in capsys.readouterr().err


@needs_browser
def test_a_count_is_drawn_as_one_atom(tmp_path: Path) -> None:
    program = lg.parse("p :- 2 { a; b; not c }, not d.")
    page = lg.explore.render(program, facts=["a", "b"])
    seen = evaluate(
        page,
        """select(engine.atoms.indexOf("p"));
        return {labels: [...document.querySelectorAll(".atom text")].map((one) => one.textContent),
                lines: graph.lines.filter((one) => one.rule >= engine.rules.length)
                    .map((one) => one.node.classList.contains("proof")),
                proof: [...document.querySelectorAll("#atom-detail .proof li")].map((one) => one.textContent),
                summary: document.getElementById("summary").textContent};""",
        tmp_path,
    )
    assert sorted(seen["labels"]) == ["a", "at least 2 of 3", "b", "c", "d", "p"]
    assert True in seen["lines"]
    assert False in seen["lines"]
    assert not any("#count" in line for line in seen["proof"])
    assert seen["summary"] == "6 atoms, 1 rule. From 2 given facts, 4 atoms hold."
