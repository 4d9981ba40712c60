// The logic and the operator of one program, without any drawing.
// A program has atoms, rules {body, negated, heads} with atom numbers, and strata that run one after
// another: {rules, atom, negated, derived, model}. `atom` and `negated` say of each atom of a stratum
// which atom of the program it is, and whether it is its negation; `derived` lists those of its atoms
// that it computes; `model` has the parameters of its operator. A definite program has one stratum.
"use strict";

class Engine {
  constructor(data) {
    this.atoms = data.atoms;
    this.rules = data.rules;
    this.strata = data.strata.map((stratum) => {
      const model = { ...stratum.model };
      for (const [name, value] of Object.entries(model)) {
        if (Array.isArray(value)) {
          const numbers = /_(rule|atom)$/.test(name) ? Int32Array : Float64Array;
          model[name] = numbers.from(value);
        }
      }
      return { ...stratum, model };
    });
    this.definite = this.rules.every((rule) => !rule.negated.length);
    this.M = data.atoms.length;
    this.uses = Array.from({ length: this.M }, () => []); // not counting negations
    this.derivers = Array.from({ length: this.M }, () => []);
    this.stratum = new Int32Array(this.M); // of each atom; 0 where no rule derives it
    this.rules.forEach((rule, j) => {
      rule.body.forEach((i) => this.uses[i].push(j));
      rule.heads.forEach((h) => this.derivers[h].push(j));
    });
    this.strata.forEach((stratum, s) => stratum.rules.forEach((j) => {
      this.rules[j].stratum = s;
      this.rules[j].heads.forEach((h) => { this.stratum[h] = s; });
    }));
    this.roots = [...this.atoms.keys()].filter((i) => this.derivers[i].length === 0);
  }

  // The step at which each atom becomes true from the facts (a Set); -1 where it never does. A
  // stratum takes up to `most` steps, and counts them from where the stratum before it has stopped.
  closure(facts, most = Infinity) {
    const level = new Int32Array(this.M).fill(-1);
    facts.forEach((i) => { level[i] = 0; });
    let start = 0;
    this.strata.forEach((stratum) => {
      const missing = new Int32Array(this.rules.length);
      let ready = [];
      for (const j of stratum.rules) {
        const rule = this.rules[j];
        if (rule.negated.some((i) => level[i] >= 0)) continue; // it cannot fire
        const lacking = rule.body.reduce((n, i) => n + (level[i] < 0), 0);
        if (lacking) missing[j] = lacking; else ready.push(j);
      }
      for (let step = 1; ready.length && step <= most; step++) {
        const next = [];
        for (const j of ready) {
          for (const h of this.rules[j].heads) {
            if (level[h] < 0) { level[h] = start + step; next.push(h); }
          }
        }
        if (!next.length) break;
        ready = [];
        for (const i of next) {
          for (const j of this.uses[i]) if (missing[j] > 0 && --missing[j] === 0) ready.push(j);
        }
      }
      start = level.reduce((highest, one) => Math.max(highest, one), start);
    });
    return level;
  }

  // The rule that derives a true atom first; -1 for a given fact.
  deriver(level, atom) {
    if (level[atom] === 0) return -1;
    return this.derivers[atom].find((j) =>
      this.rules[j].body.every((i) => level[i] >= 0 && level[i] < level[atom])
      && this.rules[j].negated.every((i) => level[i] < 0));
  }

  // The atoms of a proof with the rule of each, the goal first. The rule of a given fact is -1, that
  // of a negated atom, which nothing derives, is -2.
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
      this.rules[rule].negated.forEach((i) => {
        lines.push({ atom: i, rule: -2, indent: indent + 1, repeated: false });
      });
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
        for (const i of [...this.rules[j].body, ...this.rules[j].negated]) {
          if (!seen.has(i)) { seen.add(i); stack.push(i); }
        }
      }
    }
    return seen;
  }

  // Sets of facts that would make a false goal true, smallest first: {sets, smallest}. A fact of a
  // set that is given is withdrawn, any other is added. `smallest` says that no smaller set exists,
  // and no set at all where `sets` is empty.
  repairs(facts, goal, most = 6) {
    const needed = this.ancestors(goal);
    const open = this.definite ? this.roots.filter((i) => !facts.has(i))
      : [...new Set([...this.roots, ...facts])];
    const candidates = open.filter((i) => needed.has(i));
    if (!this.derivers[goal].length) return { sets: [[goal]], smallest: true };
    const derives = (changed) => this.closure(this.changed(facts, changed))[goal] >= 0;
    if (this.definite && !derives(candidates)) return { sets: [], smallest: true };
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
    // With negation a set that is too large may fail where a smaller one does not.
    if (!this.definite) return { sets: [], smallest: work <= 4000 };
    // Too many sets to try: drop candidates one by one while the goal stays derivable.
    let kept = [...candidates];
    for (const c of candidates) {
      const rest = kept.filter((i) => i !== c);
      if (derives(rest)) kept = rest;
    }
    return { sets: [kept], smallest: false };
  }

  // The facts with these withdrawn if they are given, and else added.
  changed(facts, atoms) {
    const after = new Set(facts);
    atoms.forEach((i) => { if (!after.delete(i)) after.add(i); });
    return after;
  }

  // The min/max closure of soft facts, and the share of the goal's gradient that each fact gets:
  // negative where the goal would rise if the fact fell. Ties share equally.
  blame(facts, goal) {
    // A value is its place in (0, 0.1, 0.9, 1), so that its complement is exact.
    const given = Int32Array.from(this.atoms, (_, i) => (facts.has(i) ? 2 : this.derivers[i].length ? 0 : 1));
    const value = Int32Array.from(given);
    const order = new Int32Array(this.M).fill(-1);
    const worth = (rule) => Math.min(3, ...rule.body.map((i) => value[i]), ...rule.negated.map((i) => 3 - value[i]));
    let settled = 0;
    this.strata.forEach((stratum, s) => {
      const missing = new Int32Array(this.rules.length);
      for (const j of stratum.rules) {
        const rule = this.rules[j];
        const lacking = rule.body.reduce((n, i) => n + (order[i] < 0), 0);
        missing[j] = lacking;
        if (!lacking) rule.heads.forEach((h) => { value[h] = Math.max(value[h], worth(rule)); });
      }
      // Settle atoms from the largest value down: a settled value can no longer rise.
      const queue = [[], [], [], []];
      for (let i = 0; i < this.M; i++) if (this.stratum[i] === s) queue[value[i]].push(i);
      for (let level = 3; level >= 0; level--) {
        for (let p = 0; p < queue[level].length; p++) {
          const i = queue[level][p];
          if (order[i] >= 0 || value[i] !== level) continue;
          order[i] = settled++;
          for (const j of this.uses[i]) {
            if (!(missing[j] > 0 && --missing[j] === 0)) continue;
            const best = worth(this.rules[j]);
            for (const h of this.rules[j].heads) {
              if (order[h] < 0 && best > value[h]) { value[h] = best; queue[best].push(h); }
            }
          }
        }
      }
    });
    const share = new Float64Array(this.M);
    share[goal] = 1;
    const atoms = [...this.atoms.keys()].sort((a, b) => order[b] - order[a]);
    const result = new Float64Array(this.M);
    for (const atom of atoms) {
      if (!share[atom]) continue;
      const best = this.derivers[atom].filter((j) => this.rules[j].body.length + this.rules[j].negated.length
        && worth(this.rules[j]) === value[atom]
        && this.rules[j].body.every((i) => order[i] < order[atom]));
      const own = given[atom] === value[atom] && (facts.has(atom) || !this.derivers[atom].length);
      const parts = best.length + (own ? 1 : 0);
      if (!parts) continue;
      if (own) result[atom] += share[atom] / parts;
      for (const j of best) {
        const low = this.rules[j].body.filter((i) => value[i] === value[atom]);
        const high = this.rules[j].negated.filter((i) => 3 - value[i] === value[atom]);
        const each = share[atom] / parts / (low.length + high.length);
        low.forEach((i) => { share[i] += each; });
        high.forEach((i) => { share[i] -= each; });
      }
    }
    return result;
  }

  // The body weights of a stratum with noise on their logits.
  weights(stratum, noise, normal) {
    const m = stratum.model;
    const off = Float64Array.from(m.body_background, (logit) => sigmoid(logit + noise * normal()));
    const on = Float64Array.from(m.body_logits, (logit, p) =>
      sigmoid(logit + noise * normal()) - off[m.body_rule[p]]);
    const total = off.map((weight) => weight * stratum.atom.length);
    on.forEach((weight, p) => { total[m.body_rule[p]] += weight; });
    return { off, on, total };
  }

  // The states after 0 to `steps` steps of every stratum, with noise on the body logits and the
  // sharpness multiplied.
  run(facts, steps, { noise = 0, sharpness = 1, seed = 1 } = {}) {
    if (!this.cached || this.cached.noise !== noise || this.cached.seed !== seed) {
      const normal = gaussian(seed);
      const weights = this.strata.map((stratum) => this.weights(stratum, noise, normal));
      this.cached = { noise, seed, weights };
    }
    const start = Float64Array.from(this.atoms, (_, i) => (facts.has(i) ? 1 : 0));
    const states = Array.from({ length: steps + 1 }, () => start);
    // What a stratum is given depends on the steps that those below have taken; the first is given
    // the same each time, so that all its states are those of one run.
    this.strata.forEach((stratum, s) => {
      const weights = this.cached.weights[s];
      let now = this.enter(stratum, start);
      for (let t = 0; t <= steps; t++) {
        if (s > 0) {
          now = this.enter(stratum, states[t]);
          for (let n = 0; n < t; n++) now = this.advance(stratum.model, weights, now, sharpness);
        } else if (t > 0) now = this.advance(stratum.model, weights, now, sharpness);
        const after = Float64Array.from(states[t]);
        for (const i of stratum.derived) after[stratum.atom[i]] = now[i];
        states[t] = after;
      }
    });
    return states;
  }

  // The state of a stratum, from that of the program.
  enter(stratum, state) {
    return Float64Array.from(stratum.atom, (i, place) => (stratum.negated[place] ? 1 - state[i] : state[i]));
  }

  // The state of a stratum after one more step.
  advance(m, { off, on, total }, s, sharpness) {
    const R = off.length;
    const M = s.length;
    const margin = new Float64Array(R);
    const firing = new Float64Array(R);
    const evidence = new Float64Array(M);
    let lacking = 0;
    for (let i = 0; i < M; i++) lacking += 1 - s[i];
    for (let j = 0; j < R; j++) margin[j] = total[j] - m.threshold[j] - off[j] * lacking;
    for (let p = 0; p < on.length; p++) margin[m.body_rule[p]] -= on[p] * (1 - s[m.body_atom[p]]);
    let shared = 0;
    for (let j = 0; j < R; j++) {
      firing[j] = m.amplitude[j] * sigmoid(sharpness * m.sharpness[j] * margin[j]);
      shared += firing[j] * m.head_background[j];
    }
    for (let i = 0; i < M; i++) evidence[i] = shared - m.offset[i];
    for (let p = 0; p < m.head_weight.length; p++) {
      evidence[m.head_atom[p]] += firing[m.head_rule[p]] * m.head_weight[p];
    }
    return s.map((value, i) => value + (1 - value) * this.gate(m, evidence[i]));
  }

  gate(m, evidence) {
    const scaled = m.gate * evidence;
    const open = m.gate_kind === "sigmoid" ? sigmoid(scaled)
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
