// The page: it draws what the engine computes and passes on what the user does.
"use strict";

const engine = new Engine(DATA);
const byId = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const [ATOMS, RULES] = DATA.written; // what is shown; atoms and rules that counts are compiled into come after it
const some = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

const view = {
  facts: new Set(DATA.facts),
  selected: -1,
  step: 0,
  playing: 0,
  level: null,
  states: [],
  proof: new Set(), // the rules of the proof that is shown
};

// ---------------------------------------------------------------- the graph

// What is drawn: the layout that Python computed, or a grid of atoms by depth if all facts are given.
function drawing() {
  if (DATA.layout) return DATA.layout;
  const level = Array.from(engine.closure(new Set(engine.roots)), (depth) => (depth < 0 ? engine.M : depth));
  const order = [...level.keys()].slice(0, ATOMS).sort((a, b) => level[a] - level[b] || a - b);
  const wide = Math.ceil(Math.sqrt(ATOMS) * 0.8);
  const atoms = new Array(ATOMS);
  order.forEach((i, n) => { atoms[i] = [40 + 80 * (n % wide), 30 + 44 * Math.floor(n / wide)]; });
  return { size: [80 * wide, 44 * Math.ceil(ATOMS / wide) + 16], widths: atoms.map(() => 60), atoms, junctions: [], edges: [] };
}

const SVG = "http://www.w3.org/2000/svg";
function shape(tag, attributes, parent) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

// A line through points, horizontal at each of them.
function curve(points) {
  let path = `M${points[0]}`;
  for (let n = 1; n < points.length; n++) {
    const [[x, y], [u, v]] = [points[n - 1], points[n]];
    path += `C${(x + u) / 2},${y} ${(x + u) / 2},${v} ${u},${v}`;
  }
  return path;
}

const graph = { layout: drawing(), zoom: 1, atoms: [], lines: [] };
const BOX = 26; // the height of a box

function draw() {
  const { size: [width, height], widths, labels, atoms, junctions, edges } = graph.layout;
  graph.svg = shape("svg", { viewBox: `-12 -12 ${width + 24} ${height + 24}`, role: "group", "aria-label": "Atoms and rules" }, byId("graph"));
  graph.under = shape("g", {}, graph.svg);
  for (const edge of edges) addLine(edge);
  for (const [rule, x, y] of junctions) graph.lines.push({ rule, node: shape("circle", { class: "junction", cx: x, cy: y, r: 4 }, graph.svg) });
  graph.atoms = atoms.map(([x, y], i) => {
    const node = shape("g", { class: "atom", tabindex: i ? -1 : 0, role: "button", transform: `translate(${x},${y})` }, graph.svg);
    shape("rect", { x: -widths[i] / 2, y: -BOX / 2, width: widths[i], height: BOX, rx: 7 }, node);
    if (DATA.layout) shape("text", {}, node).textContent = labels[i];
    shape("title", {}, node).textContent = engine.atoms[i];
    node.addEventListener("click", () => choose(i));
    node.addEventListener("keydown", (event) => keys(event, i));
    return node;
  });
}

function addLine({ rule, points, arrow, negated }) {
  const classes = negated ? "edge negated" : "edge";
  graph.lines.push({ rule, node: shape("path", { class: classes, d: curve(points) }, graph.under) });
  if (!arrow) return;
  const [x, y] = arrow > 0 ? points[points.length - 1] : points[0];
  const from = arrow > 0 ? points[points.length - 2] : points[1];
  const back = from[0] > x ? 8 : -8;
  graph.lines.push({ rule, node: shape("path", { class: "tip", d: `M${x},${y}l${back},-4v8z` }, graph.svg) });
}

function resize(zoom) {
  graph.zoom = Math.min(4, Math.max(0.05, zoom));
  const [width, height] = graph.layout.size;
  graph.svg.setAttribute("width", (width + 24) * graph.zoom);
  graph.svg.setAttribute("height", (height + 24) * graph.zoom);
}

function fit() {
  const box = byId("graph");
  const [width, height] = graph.layout.size;
  return Math.min(box.clientWidth / (width + 26), box.clientHeight / (height + 26));
}

// Enter and space choose an atom; arrow keys move to the nearest one in their direction.
function keys(event, i) {
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(i); return; }
  const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
  if (!way) return;
  event.preventDefault();
  const [x, y] = graph.layout.atoms[i];
  let best = -1;
  let least = Infinity;
  graph.layout.atoms.forEach(([u, v], other) => {
    const along = (u - x) * way[0] + (v - y) * way[1];
    const aside = Math.abs((u - x) * way[1]) + Math.abs((v - y) * way[0]);
    if (along > 1 && along + 3 * aside < least) { least = along + 3 * aside; best = other; }
  });
  if (best >= 0) focus(best);
}

function focus(i) {
  graph.atoms.forEach((node, other) => { if (node.tabIndex === 0 && other !== i) node.setAttribute("tabindex", -1); });
  graph.atoms[i].setAttribute("tabindex", 0);
  graph.atoms[i].focus();
  graph.atoms[i].scrollIntoView({ block: "center", inline: "center" });
}

function choose(atom) {
  if (engine.derivers[atom].length === 0) toggle(atom);
  select(atom);
}

// Change only what differs.
const shown = [];
const stated = new Set(DATA.rules.filter((rule) => !rule.body.length && !rule.negated.length).flatMap((rule) => rule.heads));
function paint() {
  const state = view.states[view.step];
  const closed = engine.closure(view.facts, view.step);
  for (let i = 0; i < graph.atoms.length; i++) {
    const operator = state[i] > 0.5;
    let name = view.facts.has(i) ? "fact" : operator ? (stated.has(i) ? "stated" : "true") : "";
    if (operator !== (closed[i] >= 0)) name += " wrong";
    if (i === view.selected) name += " selected";
    if (shown[i] === name) continue;
    shown[i] = name;
    graph.atoms[i].setAttribute("class", `atom ${name}`);
    const told = view.facts.has(i) ? "given fact" : operator ? "derived" : "not derived";
    graph.atoms[i].setAttribute("aria-label", `${engine.atoms[i]}, ${told}`);
  }
  const fires = engine.rules.map((rule) => rule.body.every((i) => closed[i] >= 0) && rule.negated.every((i) => closed[i] < 0));
  // A line from a literal (~i is its negation) to a count.
  if (DATA.layout) for (const [i, count] of DATA.layout.counts) fires.push((i < 0 ? closed[~i] < 0 : closed[i] >= 0) && closed[count] >= 0);
  for (const { rule, node } of graph.lines) {
    node.classList.toggle("on", fires[rule]);
    node.classList.toggle("proof", view.proof.has(rule));
  }
}

// ---------------------------------------------------------------- facts

function listFacts() {
  const filter = byId("filter").value.toLowerCase();
  const box = byId("facts");
  box.replaceChildren();
  const inputs = engine.roots.filter((i) => engine.atoms[i].toLowerCase().includes(filter)).slice(0, 300);
  for (const i of inputs) {
    const label = document.createElement("label");
    const check = document.createElement("input");
    check.type = "checkbox";
    check.checked = view.facts.has(i);
    check.dataset.atom = i;
    check.addEventListener("change", () => { toggle(i); });
    label.append(check, engine.atoms[i]);
    box.append(label);
  }
}

function toggle(atom) {
  if (!view.facts.delete(atom)) view.facts.add(atom);
  const check = document.querySelector(`#facts input[data-atom="${atom}"]`);
  if (check) check.checked = view.facts.has(atom);
  update();
}

// ---------------------------------------------------------------- the selected atom

function select(atom) {
  view.selected = atom;
  detail();
  paint();
}

function detail() {
  const atom = view.selected;
  if (atom < 0) return;
  byId("atom-name").textContent = engine.atoms[atom];
  const box = byId("atom-detail");
  box.replaceChildren();
  const add = (tag, text, parent = box) => {
    const node = document.createElement(tag);
    node.textContent = text;
    parent.append(node);
    return node;
  };
  view.proof = new Set();
  if (!DATA.layout) linesOf(atom);
  if (view.level[atom] >= 0) {
    add("p", view.level[atom] === 0 ? "A given fact." : `Derived at step ${view.level[atom]}. Proof:`);
    const list = add("ul", "");
    list.className = "proof";
    const proof = engine.proof(view.level, atom);
    const above = [0]; // by indent, the lines that are shown above
    for (const line of proof) above[line.indent + 1] = above[line.indent] + (line.atom < ATOMS ? 1 : 0), line.indent = above[line.indent];
    const lines = proof.filter((line) => line.atom < ATOMS);
    for (const line of lines.slice(0, 200)) {
      const denied = line.rule === -2;
      const why = denied ? "not derived" : line.rule < 0 ? "fact" : line.rule >= RULES ? "count" : line.repeated ? "shown above" : engine.rules[line.rule].label;
      const item = add("li", `${"  ".repeat(line.indent)}${denied ? "not " : ""}${engine.atoms[line.atom]}  (${why})`, list);
      item.style.whiteSpace = "pre-wrap";
    }
    if (lines.length > 200) add("li", `… ${lines.length - 200} more lines`, list);
    view.proof = new Set(proof.map((line) => line.rule));
    const proved = new Set(lines.map((line) => line.atom));
    if (DATA.layout) DATA.layout.counts.forEach(([i, count], n) => { if (proved.has(count) && proved.has(i < 0 ? ~i : i)) view.proof.add(engine.rules.length + n); });
  } else {
    const { sets, smallest } = engine.repairs(view.facts, atom);
    if (!sets.length) {
      add("p", smallest ? "Not derived. No set of facts derives it."
        : "Not derived. No small repair was found; there may be larger ones.");
    }
    else {
      add("p", `Not derived. ${smallest ? "The smallest repairs" : "A repair"}:`);
      for (const set of sets) {
        const names = (given) => set.filter((i) => view.facts.has(i) === given).map((i) => engine.atoms[i]).join(", ");
        const added = names(false) ? `Add ${names(false)}` : "";
        const withdrawn = names(true) ? `${added ? "; withdraw" : "Withdraw"} ${names(true)}` : "";
        const button = add("button", added + withdrawn);
        button.className = "repair";
        button.addEventListener("click", () => { view.facts = engine.changed(view.facts, set); listFacts(); update(); });
      }
    }
  }
  rulesOf(atom, add);
  const blame = engine.blame(view.facts, atom);
  const inputs = [...blame.keys()].filter((i) => blame[i]).sort((a, b) => Math.abs(blame[b]) - Math.abs(blame[a]));
  if (inputs.length) {
    add("p", "Gradient of this atom with respect to the facts:");
    for (const i of inputs.slice(0, 12)) {
      const row = add("div", "");
      row.className = "blame";
      const bar = add("span", "", row);
      bar.className = blame[i] < 0 ? "bar against" : "bar";
      bar.style.width = `${Math.round(90 * Math.abs(blame[i]))}px`;
      add("span", `${blame[i].toFixed(2)}  ${engine.atoms[i]}`, row);
    }
  }
}

// The rules that derive an atom, with their notes.
function rulesOf(atom, add) {
  const rules = engine.derivers[atom].filter((j) => j < RULES).slice(0, 50);
  if (!rules.length) return;
  add("p", rules.length === 1 ? "The rule for it:" : "The rules for it:");
  const list = add("ul", "");
  list.className = "proof";
  for (const j of rules) {
    const { text, label, note } = engine.rules[j];
    const item = add("li", `${text}  (${label})`, list);
    if (note) add("div", note, item).className = "note";
  }
}

// In a grid of atoms only the lines of the selected one are drawn.
function linesOf(atom) {
  graph.under.replaceChildren();
  graph.lines = [];
  const at = graph.layout.atoms;
  const rules = [...new Set([...engine.derivers[atom], ...engine.uses[atom]])].slice(0, 200);
  for (const j of rules) {
    const { body, negated, heads } = engine.rules[j];
    const add = (i, denied) => heads.forEach((head) => {
      if (i !== head && i < ATOMS && head < ATOMS && graph.lines.length < 400) addLine({ rule: j, points: [at[i], at[head]], arrow: 0, negated: denied });
    });
    body.forEach((i) => add(i, false));
    negated.forEach((i) => add(i, true));
  }
}

// ---------------------------------------------------------------- the operator

function steps() {
  const wanted = Math.max(4, Math.min(200, Math.max(...view.level, 0) + 4));
  if (engine.strata.length < 2) return wanted;
  // Later strata run anew for each number of steps: keep the work of a toggle in bounds.
  const size = engine.strata.reduce((n, stratum) => n + stratum.model.body_rule.length + stratum.atom.length, 0);
  return Math.max(4, Math.min(wanted, Math.floor(Math.sqrt(1e8 / size))));
}

function runOperator() {
  const noise = Number(byId("noise").value);
  const sharpness = 10 ** Number(byId("sharpness").value);
  byId("noise-value").textContent = noise.toFixed(1);
  byId("sharpness-value").textContent = sharpness.toFixed(2);
  view.states = engine.run(view.facts, steps(), { noise, sharpness });
  const slider = byId("step");
  const last = view.states.length - 1;
  if (Number(slider.max) !== last || !view.playing) view.step = last;
  slider.max = last;
  slider.value = view.step;
  byId("step-number").textContent = view.step;
  const end = view.states[last];
  const wrong = engine.atoms.slice(0, ATOMS).filter((_, i) => (end[i] > 0.5) !== (view.level[i] >= 0));
  byId("collapse").textContent = wrong.length
    ? `${wrong.length} of ${ATOMS} atoms differ from the closure after ${last} steps: ${wrong.slice(0, 5).join(", ")}${wrong.length > 5 ? ", …" : ""}`
    : `All ${ATOMS} atoms agree with the closure after ${last} steps.`;
  heat();
}

function heat() {
  const canvas = byId("heat");
  const width = canvas.clientWidth || 340;
  canvas.width = width;
  const draw = canvas.getContext("2d");
  const columns = view.states.length;
  const rows = [...engine.atoms.keys()].sort((a, b) => order(a) - order(b)).slice(0, 400);
  const w = width / columns;
  const h = (canvas.height - 16) / rows.length;
  draw.fillStyle = color("paper");
  draw.fillRect(0, 0, width, canvas.height);
  draw.fillStyle = color("true");
  view.states.forEach((state, t) => rows.forEach((i, row) => {
    if (state[i] < 0.004) return;
    draw.globalAlpha = state[i];
    draw.fillRect(t * w, row * h, Math.ceil(w), Math.ceil(h));
  }));
  draw.globalAlpha = 1;
  const { t_min: first, t_max: last } = DATA.window;
  if (first !== null) {
    draw.fillStyle = color("fact");
    draw.fillRect(first * w, canvas.height - 12, Math.min(columns, last + 1) * w - first * w, 8);
  }
  draw.strokeStyle = color("focus");
  draw.strokeRect(view.step * w, 0, w, canvas.height - 16);
}

function order(i) {
  return view.level[i] < 0 ? 1e9 : view.level[i];
}

function showStep(t) {
  view.step = t;
  byId("step").value = t;
  byId("step-number").textContent = t;
  heat();
  paint();
}

function play() {
  if (view.playing) { clearInterval(view.playing); view.playing = 0; byId("play").textContent = "Play"; return; }
  byId("play").textContent = "Pause";
  if (view.step >= view.states.length - 1) showStep(0);
  view.playing = setInterval(() => {
    if (view.step >= view.states.length - 1) play();
    else showStep(view.step + 1);
  }, 350);
}

// ---------------------------------------------------------------- together

function update() {
  view.level = engine.closure(view.facts);
  runOperator();
  detail();
  paint();
  const derived = view.level.slice(0, ATOMS).reduce((n, d) => n + (d >= 0), 0);
  byId("summary").textContent = `${some(ATOMS, "atom")}, ${some(RULES, "rule")}. From ${some(view.facts.size, "given fact")}, ${some(derived, "atom")} ${derived === 1 ? "holds" : "hold"}.`;
}

function learned() {
  if (!DATA.learned) return;
  byId("learned-panel").hidden = false;
  byId("learned-text").textContent = DATA.learned.text;
  for (const row of DATA.learned.rows) {
    const line = byId("learned").insertRow();
    row.forEach((cell) => { line.insertCell().textContent = cell; });
  }
}

byId("step").addEventListener("input", (event) => showStep(Number(event.target.value)));
byId("play").addEventListener("click", play);
byId("noise").addEventListener("input", () => { runOperator(); paint(); });
byId("sharpness").addEventListener("input", () => { runOperator(); paint(); });
byId("filter").addEventListener("input", listFacts);
byId("all").addEventListener("click", () => { engine.roots.forEach((i) => view.facts.add(i)); listFacts(); update(); });
byId("none").addEventListener("click", () => { view.facts.clear(); listFacts(); update(); });
byId("fit").addEventListener("click", () => resize(fit()));
byId("zoom-in").addEventListener("click", () => resize(graph.zoom * 1.3));
byId("zoom-out").addEventListener("click", () => resize(graph.zoom / 1.3));
byId("search").addEventListener("change", (event) => {
  const atom = engine.atoms.indexOf(event.target.value);
  if (atom < 0) return;
  select(atom);
  focus(atom);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", heat);
window.addEventListener("resize", heat);
for (const name of engine.atoms.slice(0, Math.min(ATOMS, 5000))) {
  const option = document.createElement("option");
  option.value = name;
  byId("atom-names").append(option);
}
byId("negation-key").hidden = engine.definite;
byId("facts-panel").hidden = !engine.roots.length;
byId("window-text").textContent = DATA.window.text;
draw();
resize(DATA.layout ? Math.min(1.6, Math.max(0.9, fit())) : fit()); // labels stay readable; the rest is scrolled to
listFacts();
learned();
update();
