// The logic and the operator of one program, without any drawing.
// A program has atoms, rules {body, heads} with atom numbers, and the parameters of an operator.
"use strict";

class Engine {
  constructor(data) {
    this.atoms = data.atoms;
    this.rules = data.rules;
    this.model = { ...data.model };
    for (const [name, value] of Object.entries(data.model)) {
      if (Array.isArray(value)) {
        const numbers = /_(rule|atom)$/.test(name) ? Int32Array : Float64Array;
        this.model[name] = numbers.from(value);
      }
    }
    this.M = data.atoms.length;
    this.uses = Array.from({ length: this.M }, () => []);
    this.derivers = Array.from({ length: this.M }, () => []);
    this.rules.forEach((rule, j) => {
      rule.body.forEach((i) => this.uses[i].push(j));
      rule.heads.forEach((h) => this.derivers[h].push(j));
    });
    this.roots = [...this.atoms.keys()].filter((i) => this.derivers[i].length === 0);
  }

  // The step at which each atom becomes true from the facts (a Set); -1 where it never does.
  closure(facts) {
    const level = new Int32Array(this.M).fill(-1);
    const missing = Int32Array.from(this.rules, (rule) => rule.body.length);
    let frontier = [...facts];
    frontier.forEach((i) => { level[i] = 0; });
    const fire = (j, step, next) => {
      for (const h of this.rules[j].heads) {
        if (level[h] < 0) { level[h] = step; next.push(h); }
      }
    };
    for (let step = 1; ; step++) {
      const next = [];
      if (step === 1) this.rules.forEach((rule, j) => { if (!rule.body.length) fire(j, 1, next); });
      for (const i of frontier) {
        for (const j of this.uses[i]) if (--missing[j] === 0) fire(j, step, next);
      }
      if (!next.length) return level;
      frontier = next;
    }
  }

  // The rule that derives a true atom first; -1 for a given fact.
  deriver(level, atom) {
    if (level[atom] === 0) return -1;
    return this.derivers[atom].find((j) =>
      this.rules[j].body.every((i) => level[i] >= 0 && level[i] < level[atom]));
  }

  // The atoms of a proof with the rule of each, the goal first.
  proof(level, goal) {
    const lines = [];
    const seen = new Set();
    const visit = (atom, indent) => {
      const rule = this.deriver(level, atom);
      const repeated = seen.has(atom) && rule >= 0;
      lines.push({ atom, rule, indent, repeated });
      if (repeated || rule < 0) return;
      seen.add(atom);
      this.rules[rule].body.forEach((i) => visit(i, indent + 1));
    };
    visit(goal, 0);
    return lines;
  }

  // The atoms that a goal can depend on.
  ancestors(goal) {
    const seen = new Set([goal]);
    const stack = [goal];
    while (stack.length) {
      for (const j of this.derivers[stack.pop()]) {
        for (const i of this.rules[j].body) if (!seen.has(i)) { seen.add(i); stack.push(i); }
      }
    }
    return seen;
  }

  // Sets of facts that would make a false goal true, smallest first: {sets, smallest}.
  // `smallest` says that no smaller set exists.
  repairs(facts, goal, most = 6) {
    const needed = this.ancestors(goal);
    const candidates = this.roots.filter((i) => needed.has(i) && !facts.has(i));
    if (!this.derivers[goal].length) return { sets: [[goal]], smallest: true };
    const derives = (added) => this.closure(new Set([...facts, ...added]))[goal] >= 0;
    if (!derives(candidates)) return { sets: [], smallest: true };
    let work = 0;
    for (let size = 1; size <= candidates.length; size++) {
      const sets = [];
      const choose = (start, chosen) => {
        if (work > 4000 || sets.length >= most) return;
        if (chosen.length === size) {
          work += 1;
          if (derives(chosen)) sets.push([...chosen]);
          return;
        }
        for (let c = start; c < candidates.length; c++) choose(c + 1, [...chosen, candidates[c]]);
      };
      choose(0, []);
      if (sets.length) return { sets, smallest: work <= 4000 };
      if (work > 4000) break;
    }
    // Too many sets to try: drop candidates one by one while the goal stays derivable.
    let kept = [...candidates];
    for (const c of candidates) {
      const rest = kept.filter((i) => i !== c);
      if (derives(rest)) kept = rest;
    }
    return { sets: [kept], smallest: false };
  }

  // The min/max closure of soft facts, and the share of the goal's gradient that each fact gets.
  // Ties share equally.
  blame(facts, goal) {
    const given = Float64Array.from(this.atoms, (_, i) => (facts.has(i) ? 0.9 : this.derivers[i].length ? 0 : 0.1));
    const value = Float64Array.from(given);
    const order = new Int32Array(this.M).fill(-1);
    const done = new Uint8Array(this.M);
    const weakest = (rule) => rule.body.reduce((least, i) => Math.min(least, value[i]), 1);
    const missing = Int32Array.from(this.rules, (rule) => rule.body.length);
    this.rules.forEach((rule) => {
      if (!rule.body.length) rule.heads.forEach((h) => { value[h] = 1; });
    });
    // Settle atoms from the largest value down: a settled value can no longer rise.
    const queue = new Map();
    const put = (i) => {
      if (!queue.has(value[i])) queue.set(value[i], []);
      queue.get(value[i]).push(i);
    };
    for (let i = 0; i < this.M; i++) put(i);
    let settled = 0;
    for (const level of [1, 0.9, 0.1, 0]) {
      const list = queue.get(level) || [];
      for (let p = 0; p < list.length; p++) {
        const i = list[p];
        if (done[i] || value[i] !== level) continue;
        done[i] = 1;
        order[i] = settled++;
        for (const j of this.uses[i]) {
          if (--missing[j] > 0) continue;
          const worth = weakest(this.rules[j]);
          for (const h of this.rules[j].heads) {
            if (!done[h] && worth > value[h]) {
              value[h] = worth;
              if (worth === level) list.push(h); else put(h);
            }
          }
        }
      }
    }
    const share = new Float64Array(this.M);
    share[goal] = 1;
    const atoms = [...this.atoms.keys()].sort((a, b) => order[b] - order[a]);
    const result = new Float64Array(this.M);
    for (const atom of atoms) {
      if (!share[atom]) continue;
      const best = this.derivers[atom].filter((j) => this.rules[j].body.length
        && weakest(this.rules[j]) === value[atom]
        && this.rules[j].body.every((i) => order[i] < order[atom]));
      const own = given[atom] === value[atom] && (facts.has(atom) || !this.derivers[atom].length);
      const parts = best.length + (own ? 1 : 0);
      if (!parts) continue;
      if (own) result[atom] += share[atom] / parts;
      for (const j of best) {
        const low = this.rules[j].body.filter((i) => value[i] === value[atom]);
        low.forEach((i) => { share[i] += share[atom] / parts / low.length; });
      }
    }
    return result;
  }

  // The body weights with noise on their logits: a function of the noise and the seed.
  weights(noise, seed) {
    const m = this.model;
    const normal = gaussian(seed);
    const off = Float64Array.from(m.body_background, (logit) => sigmoid(logit + noise * normal()));
    const on = Float64Array.from(m.body_logits, (logit, p) =>
      sigmoid(logit + noise * normal()) - off[m.body_rule[p]]);
    const total = off.map((weight) => weight * this.M);
    on.forEach((weight, p) => { total[m.body_rule[p]] += weight; });
    return { noise, seed, off, on, total };
  }

  // The states of steps 0 to `steps` of the operator, with noise on the body logits and its
  // sharpness multiplied.
  run(facts, steps, { noise = 0, sharpness = 1, seed = 1 } = {}) {
    const m = this.model;
    if (!this.cached || this.cached.noise !== noise || this.cached.seed !== seed) {
      this.cached = this.weights(noise, seed);
    }
    const { off, on, total } = this.cached;
    const R = off.length;
    const margin = new Float64Array(R);
    const firing = new Float64Array(R);
    const evidence = new Float64Array(this.M);
    const states = [Float64Array.from(this.atoms, (_, i) => (facts.has(i) ? 1 : 0))];
    for (let t = 0; t < steps; t++) {
      const s = states[t];
      let lacking = 0;
      for (let i = 0; i < this.M; i++) lacking += 1 - s[i];
      for (let j = 0; j < R; j++) margin[j] = total[j] - m.threshold[j] - off[j] * lacking;
      for (let p = 0; p < on.length; p++) margin[m.body_rule[p]] -= on[p] * (1 - s[m.body_atom[p]]);
      let shared = 0;
      for (let j = 0; j < R; j++) {
        firing[j] = m.amplitude[j] * sigmoid(sharpness * m.sharpness[j] * margin[j]);
        shared += firing[j] * m.head_background[j];
      }
      for (let i = 0; i < this.M; i++) evidence[i] = shared - m.offset[i];
      for (let p = 0; p < m.head_weight.length; p++) {
        evidence[m.head_atom[p]] += firing[m.head_rule[p]] * m.head_weight[p];
      }
      const next = new Float64Array(this.M);
      for (let i = 0; i < this.M; i++) next[i] = s[i] + (1 - s[i]) * this.gate(evidence[i]);
      states.push(next);
    }
    return states;
  }

  gate(evidence) {
    const scaled = this.model.gate * evidence;
    const open = this.model.gate_kind === "sigmoid" ? sigmoid(scaled)
      : scaled > 1e-3 ? Math.exp(-1 / (scaled * scaled)) : 0;
    return open * sigmoid(evidence);
  }
}

function sigmoid(x) {
  return x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x));
}

// A generator of standard normal numbers (mulberry32 and Box-Muller).
function gaussian(seed) {
  let a = seed >>> 0;
  const uniform = () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = a;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}
