"""How the HTML report looks and moves: its style sheet and its few lines of script."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ground: #fbfaf7; --card: #ffffff; --ink: #1d2430;
  --soft: #5c6675; --line: #dfe2e6; --grid: #eceef0; --ours: #1f6fd0; --paper: #d9711a;
  --bound: #7b8491; --promise: #b3364b; --good: #1b7f4d; --good-soft: #e2f3ea;
  --odd: #9a5b00; --odd-soft: #fdf0d9; --bad: #b3261e; --bad-soft: #fbe4e2; }
@media (prefers-color-scheme: dark) { :root { --ground: #12161c; --card: #1a2028; --ink: #e6e9ee;
  --soft: #9aa5b4; --line: #303946; --grid: #262e39; --ours: #6aa9f5; --paper: #f2a15b;
  --bound: #8e99a8; --promise: #f0788b; --good: #6fd3a0; --good-soft: #17352a;
  --odd: #f1c27d; --odd-soft: #3a2d17; --bad: #ff9d95; --bad-soft: #421f1d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 0 20px 64px; }
header { padding: 40px 0 8px; }
h1 { font-size: clamp(1.7rem, 4.5vw, 2.6rem); line-height: 1.15; margin: 0 0 8px;
  letter-spacing: -0.02em; }
h2 { font-size: 1.45rem; margin: 0; letter-spacing: -0.01em; }
h3 { font-size: 1.02rem; margin: 26px 0 8px; }
p { max-width: 46em; margin: 10px 0; }
.lead { font-size: 1.1rem; color: var(--soft); }
.key-line { max-width: none; }
.soft, figcaption, .note { color: var(--soft); font-size: 0.9rem; }
nav { display: flex; flex-wrap: wrap; gap: 8px; margin: 20px 0 0; }
nav a { border: 1px solid var(--line); border-radius: 999px; padding: 4px 13px; color: inherit;
  text-decoration: none; background: var(--card); font-size: 0.92rem; }
nav a:hover, nav a:focus-visible { border-color: var(--ours); color: var(--ours); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px;
  margin: 26px 0 0; padding: 0; list-style: none; }
.tiles li { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 14px 16px; }
.tiles b { display: block; font-size: 1.55rem; line-height: 1.2; letter-spacing: -0.02em; }
.tiles span { color: var(--soft); font-size: 0.9rem; }
section { margin-top: 54px; scroll-margin-top: 12px; }
.top { display: flex; flex-wrap: wrap; align-items: baseline; gap: 6px 14px;
  border-bottom: 1px solid var(--line); padding-bottom: 8px; }
.letter { font-weight: 700; color: var(--ours); }
.badge { border-radius: 999px; padding: 2px 11px; font-size: 0.85rem; font-weight: 600; }
.badge.good { background: var(--good-soft); color: var(--good); }
.badge.odd { background: var(--odd-soft); color: var(--odd); }
.badge.bad { background: var(--bad-soft); color: var(--bad); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px;
  background: var(--card); }
.scroll:focus-visible { outline: 2px solid var(--ours); }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 12px; white-space: nowrap; vertical-align: top;
  border-bottom: 1px solid var(--grid); }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 600; border-bottom-color: var(--line); }
td.differs { background: var(--odd-soft); color: var(--odd); font-weight: 600; }
td.bad { background: var(--bad-soft); color: var(--bad); font-weight: 600; }
.scroll { background: linear-gradient(to right, var(--card) 30%, transparent) left / 36px 100% local,
  linear-gradient(to left, var(--card) 30%, transparent) right / 36px 100% local,
  linear-gradient(to right, var(--line), transparent) left / 10px 100%,
  linear-gradient(to left, var(--line), transparent) right / 10px 100%;
  background-repeat: no-repeat; background-color: var(--card); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 14px; }
.cards article { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 14px 18px; }
.cards h3 { margin: 0 0 8px; }
.cards dl { display: grid; grid-template-columns: auto 1fr; gap: 2px 12px; margin: 0; }
.cards dt { color: var(--soft); } .cards dd { margin: 0; font-variant-numeric: tabular-nums; }
.cards dd.ours-text { color: var(--ours); font-weight: 600; }
.cards dd.paper-text { color: var(--paper); font-weight: 600; }
.cards p { margin: 10px 0 0; font-size: 0.93rem; }
@media (max-width: 560px) { main { padding: 0 14px 48px; }
  .tiles { grid-template-columns: 1fr 1fr; } .tiles b { font-size: 1.25rem; }
  label { flex-wrap: wrap; } }
.four { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr));
  gap: 14px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 12px 14px; min-width: 0; }
figure.map { margin-top: 14px; }
figcaption { margin-bottom: 6px; }
figcaption b { color: var(--ink); }
.map .scroll { border: 0; }
.map svg { min-width: 640px; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, -apple-system, "DejaVu Sans", sans-serif; fill: var(--soft); }
svg .word { font-size: 10.5px; }
.grid { stroke: var(--grid); } .axis { stroke: var(--bound); } .dashed { stroke-dasharray: 4 4; }
.ours { stroke: var(--ours); stroke-width: 2; } .paper { stroke: var(--paper); stroke-width: 2; }
.bound { stroke: var(--bound); stroke-width: 1.6; } .thin { stroke-width: 1.2; }
.promise { stroke: var(--promise); stroke-width: 1.4; }
svg .promise-text { fill: var(--promise); } svg .bound-text { fill: var(--bound); }
circle.hollow { fill: var(--card); } circle.ours.solid { fill: var(--ours); }
circle.paper.solid { fill: var(--paper); }
.ground { fill: var(--ground); stroke: var(--line); } .pixels { image-rendering: pixelated; }
.along { stroke: var(--bound); stroke-width: 1.4; fill: none; }
.across { stroke: var(--bound); stroke-width: 0.7; fill: none; opacity: 0.4; }
.atom { fill: var(--card); stroke: var(--bound); stroke-width: 1; }
.atom.true { fill: var(--ours); stroke: var(--ours); }
.atom.fact { fill: var(--paper); stroke: var(--paper); }
.key { display: inline-block; width: 0.75em; height: 0.75em; border-radius: 50%; margin: 0 3px 0 10px;
  border: 2px solid; vertical-align: -0.05em; }
.key:first-child { margin-left: 0; }
.key.o { border-color: var(--ours); background: var(--ours); }
.key.h { border-color: var(--ours); } .key.p { border-color: var(--paper); }
.key.q { border-color: var(--paper); background: var(--paper); }
.key.l { width: 1.3em; height: 0; border: 0; border-top: 2px solid var(--bound); border-radius: 0;
  vertical-align: 0.25em; }
.key.r { width: 1.3em; height: 0; border: 0; border-top: 2px dashed var(--promise);
  border-radius: 0; vertical-align: 0.25em; }
label { display: flex; align-items: center; gap: 10px; color: var(--soft); font-size: 0.9rem;
  margin-top: 6px; }
input[type=range] { flex: 1; max-width: 420px; accent-color: var(--ours); }
output { min-width: 9em; font-variant-numeric: tabular-nums; }
footer { margin-top: 60px; color: var(--soft); font-size: 0.88rem; }
"""

SCRIPT = """
for (const slider of document.querySelectorAll("input[type=range]")) {
  const figure = slider.closest("figure");
  const atoms = [...figure.querySelectorAll("circle.atom:not(.fact)")];
  const facts = figure.querySelectorAll("circle.fact").length;
  const shown = figure.querySelector("output");
  const draw = () => {
    let count = facts;
    for (const atom of atoms) {
      const at = Number(atom.dataset.t);
      const on = at >= 0 && at <= Number(slider.value);
      atom.classList.toggle("true", on);
      count += on;
    }
    shown.textContent = "step " + slider.value + ": " + count + " atoms true";
  };
  slider.addEventListener("input", draw);
  draw();
}
"""
