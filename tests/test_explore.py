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
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma._cli.main import main
from latentgamma.explore.server import new_server
from random_programs import random_program

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
        const lit = () => graph.nodes(".true, .fact").map((node) => node.data("label")).sort();
        const before = lit();
        document.querySelector(`#facts input[data-atom="${engine.atoms.indexOf("swims")}"]`).click();
        const after = lit();
        select(engine.atoms.indexOf("ice"));
        const proof = document.getElementById("atom-detail").textContent;
        document.getElementById("none").click();
        const repair = document.querySelector(".repair").textContent;
        document.querySelector(".repair").click();
        return { before, after, proof, repair, repaired: lit() };
        """,
        tmp_path,
    )
    assert seen["before"] == ["bird", "feathers"]
    assert seen["after"] == ["bird", "feathers", "ice", "penguin", "swims"]
    assert "Derived at step 3" in seen["proof"]
    assert seen["repair"] == "Add swims, feathers" or seen["repair"] == "Add feathers, swims"
    assert "ice" in seen["repaired"]


@needs_browser
@pytest.mark.parametrize("seed", range(3))
def test_the_page_computes_what_the_library_computes(seed: int, tmp_path: Path) -> None:
    program = random_program(seed, atoms=9, rules=12, body=3)
    rng = np.random.default_rng(seed)
    rows = rng.random((20, program.M)) < 0.3
    sets = [np.flatnonzero(row).tolist() for row in rows]
    seen = evaluate(
        lg.explore.render(program),
        f"""
        const sets = {json.dumps(sets)}.map((set) => new Set(set));
        const goals = [...engine.atoms.keys()];
        return sets.map((facts) => {{
          const level = engine.closure(facts);
          return {{
            level: [...level],
            states: [...engine.run(facts, 6)[6]],
            proofs: goals.filter((g) => level[g] >= 0).map((g) => engine.proof(level, g)),
            repairs: goals.map((g) => engine.repairs(facts, g)),
            blame: goals.map((g) => [...engine.blame(facts, g)]),
          }};
        }});
        """,
        tmp_path,
    )
    model = lg.oracle(program, form="sparse", dtype=torch.float64)
    states = model(model.state(rows), 6)
    for row, page, state in zip(rows, seen, states, strict=True):
        closed = lg.closure(program, row)
        assert page["level"] == closed.level.tolist()
        np.testing.assert_allclose(page["states"], state.detach(), atol=1e-9)
        for lines in page["proofs"]:
            for line in lines:
                if line["rule"] >= 0:
                    body = program.body_of(line["rule"])
                    assert line["atom"] in program.heads_of(line["rule"])
                    assert (closed.level[body] < closed.level[line["atom"]]).all()
                else:
                    assert row[line["atom"]]
        for goal, repair in enumerate(page["repairs"]):
            for added in repair["sets"]:
                mask = row.copy()
                mask[added] = True
                assert lg.closure(program, mask).state[goal]
        for goal, blame in enumerate(page["blame"]):
            # All of the gradient reaches facts, unless the goal holds without any or cannot hold.
            free = lg.closure(program, []).state[goal]
            possible = lg.closure(program, program.roots).state[goal] or closed.state[goal]
            assert sum(blame) == pytest.approx(1.0 if possible and not free else 0.0)


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


def test_names_cannot_break_out_of_the_page() -> None:
    program = lg.Program.from_rules([("</script><b>", ["{title}"])])
    page = lg.explore.render(program, title="<b>")
    assert "</script><b>" not in page
    assert "<h1>&lt;b&gt;</h1>" in page


def test_a_page_that_is_too_large_is_refused() -> None:
    with pytest.raises(lg.ModelError, match="explore a part of it"):
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
    assert main(["explore", str(rules), "--export", str(rules)]) == 2
    assert "same file" in capsys.readouterr().err
