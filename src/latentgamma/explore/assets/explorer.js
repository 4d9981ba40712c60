// The page: it draws what the engine computes and passes on what the user does.
"use strict";

const engine = new Engine(DATA);
const byId = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const LARGE = 1500; // with more edges only those of the selected atom are shown

const view = {
  facts: new Set(DATA.facts),
  selected: -1,
  step: 0,
  playing: 0,
  level: null,
  states: [],
};

// ---------------------------------------------------------------- the graph

function layers() {
  const level = engine.depths();
  const deepest = Math.max(...level, 0);
  const columns = Array.from({ length: deepest + 2 }, () => []);
  engine.atoms.forEach((_, i) => columns[level[i] < 0 ? deepest + 1 : level[i]].push(i));
  return columns.filter((column) => column.length);
}

// Columns of atoms by depth, ordered by the mean place of their neighbours; tall columns wrap.
function positions() {
  const columns = layers();
  const place = new Float64Array(engine.M);
  columns.forEach((column) => column.forEach((i, row) => { place[i] = row / column.length; }));
  const neighbours = (i) => [
    ...engine.derivers[i].flatMap((j) => [...engine.rules[j].body, ...engine.rules[j].negated]),
    ...engine.uses[i].flatMap((j) => engine.rules[j].heads),
  ];
  for (let sweep = 0; sweep < 4; sweep++) {
    for (const column of columns) {
      const mean = new Map(column.map((i) => {
        const around = neighbours(i);
        return [i, around.length ? around.reduce((sum, n) => sum + place[n], 0) / around.length : place[i]];
      }));
      column.sort((a, b) => mean.get(a) - mean.get(b));
      column.forEach((i, row) => { place[i] = (row + 0.5) / column.length; });
    }
  }
  const tallest = Math.max(12, Math.ceil(Math.sqrt(engine.M) * 1.5));
  const wide = Math.max(8, Math.ceil(Math.sqrt(engine.M))); // columns in a band, so that chains wrap
  const at = new Array(engine.M);
  let x = 0;
  let top = 0;
  let used = 0;
  let height = 0;
  for (const column of columns) {
    const parts = Math.ceil(column.length / tallest);
    if (used && used + parts > wide) { x = 0; used = 0; top += (height + 1.5) * 44; height = 0; }
    column.forEach((i, row) => {
      const inside = row % tallest;
      const rows = Math.min(tallest, column.length);
      at[i] = { x: (x + Math.floor(row / tallest)) * 170, y: top + (inside - (columns.length > wide ? 0 : rows / 2)) * 44 };
    });
    height = Math.max(height, Math.min(tallest, column.length));
    x += parts;
    used += parts;
  }
  return at;
}

function elements() {
  const at = positions();
  const nodes = engine.atoms.map((name, i) => ({
    data: { id: `a${i}`, atom: i, label: name.length > 22 ? `${name.slice(0, 21)}…` : name },
    position: at[i],
  }));
  const edges = [];
  engine.rules.forEach((rule, j) => rule.heads.forEach((head) => {
    const add = (i, classes) => {
      if (i !== head) edges.push({ classes, data: { id: `e${j}_${i}_${head}${classes}`, source: `a${i}`, target: `a${head}`, rule: j } });
    };
    rule.body.forEach((i) => add(i, ""));
    rule.negated.forEach((i) => add(i, "negated"));
  }));
  return { nodes, edges };
}

const { nodes, edges } = elements();
const many = edges.length > LARGE;
const graph = cytoscape({
  container: byId("graph"),
  elements: many ? nodes : [...nodes, ...edges],
  layout: { name: "preset", fit: true, padding: 30 },
  minZoom: 0.02,
  maxZoom: 4,
  pixelRatio: 1,
  textureOnViewport: many,
  hideEdgesOnViewport: edges.length > 400,
  style: style(),
});

function style() {
  const ink = color("ink");
  return [
    { selector: "node", style: {
      label: many ? "" : "data(label)", "font-size": 13, color: ink, "text-valign": "center", shape: many ? "rectangle" : "round-rectangle",
      width: many ? 60 : 150, height: 26, "background-color": color("false"), "min-zoomed-font-size": 7, "border-width": 0 } },
    { selector: "node.true", style: { "background-color": color("true") } },
    { selector: "node.fact", style: { "background-color": color("fact"), color: color("paper") } },
    { selector: "node.wrong", style: { "border-width": 5, "border-color": color("wrong") } },
    { selector: "node.selected", style: { "border-width": 5, "border-color": color("focus"), label: "data(label)" } },
    { selector: "edge", style: {
      width: 1.5, "line-color": color("line"), "target-arrow-color": color("line"), "target-arrow-shape": "triangle",
      "curve-style": "straight", "arrow-scale": 0.9 } },
    { selector: "edge.negated", style: { "line-style": "dashed", "target-arrow-shape": "tee" } },
    { selector: "edge.proof", style: { width: 3.5, "line-color": color("focus"), "target-arrow-color": color("focus") } },
  ];
}

graph.on("tap", "node", (event) => {
  const atom = event.target.data("atom");
  if (engine.derivers[atom].length === 0) toggle(atom);
  select(atom);
});

// Change only the classes that differ, so that a toggle redraws once.
const shown = new Array(engine.M).fill("");
function paint() {
  const state = view.states[view.step];
  const closed = engine.closure(view.facts, view.step);
  graph.batch(() => {
    for (let i = 0; i < engine.M; i++) {
      const operator = state[i] > 0.5;
      let name = view.facts.has(i) ? "fact" : operator ? "true" : "";
      if (operator !== (closed[i] >= 0)) name += " wrong";
      if (i === view.selected) name += " selected";
      if (shown[i] !== name) { graph.$id(`a${i}`).classes(name); shown[i] = name; }
    }
  });
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
  graph.elements("edge.proof").removeClass("proof");
  if (many) graph.edges().remove();
  if (many) {
    const near = edges.filter((e) => e.data.source === `a${atom}` || e.data.target === `a${atom}`);
    graph.add(near.slice(0, 400));
  }
  if (view.level[atom] >= 0) {
    add("p", view.level[atom] === 0 ? "A given fact." : `Derived at step ${view.level[atom]}. Proof:`);
    const list = add("ul", "");
    list.className = "proof";
    const lines = engine.proof(view.level, atom);
    for (const line of lines.slice(0, 200)) {
      const denied = line.rule === -2;
      const why = denied ? "not derived" : line.rule < 0 ? "fact" : line.repeated ? "shown above" : engine.rules[line.rule].label ?? `rule ${line.rule + 1}`;
      const item = add("li", `${"  ".repeat(line.indent)}${denied ? "not " : ""}${engine.atoms[line.atom]}  (${why})`, list);
      item.style.whiteSpace = "pre-wrap";
    }
    if (lines.length > 200) add("li", `… ${lines.length - 200} more lines`, list);
    if (!many) {
      const rules = new Set(lines.map((line) => line.rule));
      graph.edges().filter((e) => rules.has(e.data("rule"))).addClass("proof");
    }
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
  const blame = engine.blame(view.facts, atom);
  const inputs = [...blame.keys()].filter((i) => blame[i]).sort((a, b) => Math.abs(blame[b]) - Math.abs(blame[a]));
  if (inputs.length) {
    add("p", "Gradient of this atom with respect to the facts:");
    for (const i of inputs.slice(0, 12)) {
      const row = add("div", "");
      row.className = "blame";
      const bar = add("span", "", row);
      bar.className = "bar";
      bar.style.width = `${Math.round(90 * Math.abs(blame[i]))}px`;
      add("span", `${blame[i].toFixed(2)}  ${engine.atoms[i]}`, row);
    }
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
  const wrong = engine.atoms.filter((_, i) => (end[i] > 0.5) !== (view.level[i] >= 0));
  byId("collapse").textContent = wrong.length
    ? `${wrong.length} of ${engine.M} atoms differ from the closure after ${last} steps: ${wrong.slice(0, 5).join(", ")}${wrong.length > 5 ? ", …" : ""}`
    : `All ${engine.M} atoms agree with the closure after ${last} steps.`;
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
  const derived = view.level.reduce((n, d) => n + (d >= 0), 0);
  byId("summary").textContent = `${engine.M} atoms, ${engine.rules.length} rules. ${view.facts.size} facts derive ${derived} atoms, depth ${Math.max(...view.level, 0)}.`;
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
byId("fit").addEventListener("click", () => graph.fit(undefined, 30));
byId("zoom-in").addEventListener("click", () => graph.zoom({ level: graph.zoom() * 1.3, renderedPosition: { x: graph.width() / 2, y: graph.height() / 2 } }));
byId("zoom-out").addEventListener("click", () => graph.zoom({ level: graph.zoom() / 1.3, renderedPosition: { x: graph.width() / 2, y: graph.height() / 2 } }));
byId("search").addEventListener("change", (event) => {
  const atom = engine.atoms.indexOf(event.target.value);
  if (atom < 0) return;
  select(atom);
  graph.animate({ center: { eles: graph.$id(`a${atom}`) }, zoom: Math.max(graph.zoom(), 0.8), duration: 200 });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { graph.style(style()); heat(); });
window.addEventListener("resize", heat);
for (const name of engine.atoms.slice(0, 5000)) {
  const option = document.createElement("option");
  option.value = name;
  byId("atom-names").append(option);
}
byId("negation-key").hidden = engine.definite;
byId("window-text").textContent = DATA.window.text;
listFacts();
learned();
update();
