"use strict";
// The mechanisms as the library computes them: plain functions of numbers, no page. tests/report/test_explorer.py compares each
// with the library. transition[label][answer], rows sum to one. Up to 16 classes, as the few labels of labeldp.channel.sets.
const FEW = 16, UNIT = 2 ** 40, BINS = 16, TAILS = 4, TABLE = 1024, SLACK = 0.003, MIX = 0.1;
const TAU_SHARE = 0.1, CLUSTERS = 40, ROUND_UP = 1 + 2 ** -50;
const OVERLAPPING = [
  [5, 2], [7, 2], [9, 2], [11, 2], [12, 2], [13, 2], [15, 2], [7, 3], [8, 3], [10, 3], [11, 3], [12, 3], [14, 3],
  [16, 3], [9, 4], [11, 4], [13, 4], [15, 4], [11, 5], [12, 5], [13, 5], [16, 5], [13, 6], [15, 7], [16, 7],
];
const sum = (values) => values.reduce((total, value) => total + value, 0);
const range = (n) => Array.from({ length: n }, (_, i) => i);

// ------------------------------------------------------------------------------------------------------- shares as text

// labeldp.display.percent: estimates to the nearest tenth, bounds on a risk up.
function percent(share, up) {
  const at = (digits) => {
    const scaled = share * 100 * 10 ** digits;
    return (up ? Math.ceil(scaled - 1e-9) : Math.round(scaled)) / 10 ** digits;
  };
  let digits = 1;
  while (share < 1 && at(digits) >= 100 && digits < 6) digits += 1;
  return String(Number(at(digits).toFixed(digits))) + "%";
}

// ------------------------------------------------------------------------------------------------------------- channels

const safeOdds = (epsilon) => Math.expm1(Math.min(epsilon, 700) * (1 - 2 ** -50)) * (1 - 2 ** -48);
const advantageBound = (epsilon) => Math.min(1, Math.tanh(epsilon / 2) * ROUND_UP);

function geometricPrior(size, sharpness) {
  const weights = range(size).map((j) => Math.exp(-sharpness * j));
  return weights.map((weight) => weight / sum(weights));
}

// Keep a label of the support, or redraw it from the base; a label outside is always redrawn.
function keepOrRedraw(keep, redraw, base) {
  return base.map((own, y) => base.map((share, o) => (own > 0 ? (o === y ? keep : 0) + redraw * share : share)));
}

function topK(epsilon, prior, k) {
  const odds = safeOdds(epsilon);
  const order = range(prior.length).sort((a, b) => prior[b] - prior[a] || a - b).slice(0, k);
  const base = prior.map((_, label) => (order.includes(label) ? 1 / k : 0));
  return keepOrRedraw(odds / (odds + k), k / (odds + k), base);
}

const randomizedResponse = (epsilon, prior) => topK(epsilon, prior, prior.length);

// k grows while the next label is worth its noise: p_(k+1) (E + k - 1) > p_(1) + ... + p_(k).
function withPrior(epsilon, prior) {
  const odds = safeOdds(epsilon), falling = [...prior].sort((a, b) => b - a);
  let k = 1, total = falling[0];
  while (k < falling.length && falling[k] * (odds + k) > total) { total += falling[k]; k += 1; }
  return topK(epsilon, prior, k);
}

// ClusterRR of one cluster, from its noisy counts: half of epsilon was spent on them.
function clusterResponse(epsilon, counts, rows) {
  const odds = safeOdds(epsilon / 2), floor = TAU_SHARE / counts.length;
  const between = (value) => Math.min(1, Math.max(floor, value));
  const clipped = counts.map((count) => between(count / rows));
  const missing = 1 - sum(clipped);
  const room = clipped.map((share) => (missing < 0 ? share - floor : 1 - share)), total = sum(room);
  const base = clipped.map((share, j) => between(share + (total > 0 ? (room[j] / total) * missing : 0)));
  const least = odds * Math.min(...base);
  return keepOrRedraw(least / (1 + least), 1 / (1 + least), base);
}

// Uniform numbers that are the same at each visit, so that dragging a slider moves smoothly: a simulation, no one's noise.
function uniforms(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
}

// The channels of simulated clusters of `rows` labels in the prior's proportions.
function clusterChannels(epsilon, prior, rows) {
  const draw = uniforms(20), two = prior.length === 2, rate = epsilon / (two ? 2 : 4);
  const geometric = () => Math.floor(Math.log(draw()) / -rate);
  let done = 0, before = 0;
  const exact = prior.map((share) => {
    done += share;
    const edge = Math.round(done * rows), count = edge - before;
    before = edge;
    return count;
  });
  return range(CLUSTERS).map(() => {
    const noisy = exact.map((count) => count + geometric() - geometric());
    return clusterResponse(epsilon, two ? [rows - noisy[1], noisy[1]] : noisy, rows);
  });
}

// --------------------------------------------------------------------------------------------------- answers that are sets

function arcSize(odds, size) {
  const worth = range(size - 1).map((i) => ((i + 1) * (size - i - 1)) / ((i + 1) * odds + size));
  return worth.indexOf(Math.max(...worth)) + 1;
}

const scoreMass = (mass, odds) => mass * (1 + odds) * Math.log1p(odds) - (1 + mass * odds) * Math.log1p(mass * odds);

function blockShapes(odds, size) {
  const found = range(size - 1).map((i) => [i + 2, 1]).concat(size === 2 ? [] : OVERLAPPING);
  found.sort((a, b) => a[0] * a[1] - b[0] * b[1] || a[0] - b[0] || a[1] - b[1]);
  const arc = [size, arcSize(odds, size)];
  return found.some((one) => one[0] === arc[0] && one[1] === arc[1]) ? found : [...found, arc];
}

// Labels, in their order, go into the d lightest blocks; masks[label] lists its blocks.
function fillBlocks(units, order, b, d) {
  const masks = units.map(() => []), masses = Array(b).fill(0), filled = Math.min(Math.floor(b / d), order.length);
  order.forEach((label, t) => {
    const lightest = t < filled
      ? range(d).map((i) => b - (t + 1) * d + i)
      : range(b).sort((x, y) => masses[x] - masses[y] || x - y).slice(0, d);
    for (const block of lightest) { masks[label].push(block); masses[block] += units[label]; }
  });
  return { masks, masses };
}

function scoreBlocks(masses, table) {
  return sum(masses.map((mass) => {
    const place = Math.sqrt(Math.min(mass / UNIT, 1)) * TABLE, low = Math.min(Math.floor(place), TABLE - 1);
    return table[low] + (place - low) * (table[low + 1] - table[low]);
  }));
}

const toUnits = (masses) => masses.map((mass) => Math.max(Math.floor(mass * UNIT), 1));

// The shapes that are tried for a prior: one for each way in which masses after the third may go on.
function suggestShapes(masses, order, shapes, norms, table) {
  const size = masses.length, digits = Math.min(3, size - 1);
  const bins = [];
  let left = 1;
  for (let t = 0; t < digits; t += 1) {
    const mass = masses[order[t]], least = 1 / (size - t), share = left > mass ? mass / left : 1;
    bins.push(Math.min(Math.max(Math.floor(((share - least) / (1 - least)) * BINS), 0), BINS - 1));
    left -= mass;
  }
  const chosen = [];
  for (let tail = 0; tail < TAILS; tail += 1) {
    const made = [];
    let rest = 1, share = 0;
    for (let t = 0; t < size; t += 1) {
      const least = 1 / (size - t);
      let mass;
      if (t < digits) { share = least + ((bins[t] + 0.5) / BINS) * (1 - least); mass = rest * share; }
      else if (tail === 0) mass = rest * Math.max(share, least);
      else if (tail === 3) mass = (rest * 2) / (size - t + 1);
      else if (tail === 1 || t >= 6) mass = rest * least;
      else mass = rest * Math.max(0.9 / (6 - t), least);
      if (t > 0) mass = Math.min(mass, made[t - 1]);
      made.push(mass);
      rest -= mass;
    }
    const units = toUnits(made.map((mass) => mass / (1 - rest)));
    const values = shapes.map(([b, d], s) => scoreBlocks(fillBlocks(units, range(size), b, d).masses, table) / norms[s]);
    const enough = Math.max(0, ...values) * (1 - SLACK);
    if (!chosen.some((s) => values[s] >= enough)) chosen.push(values.findIndex((value) => value >= enough));
  }
  return chosen;
}

// InformativeResponse that is given the prior: the channel of a row, an answer for each block.
function informed(epsilon, prior) {
  const size = prior.length, odds = safeOdds(epsilon);
  if (size === 2) return randomizedResponse(epsilon, prior);
  const shapes = blockShapes(odds, size), norms = shapes.map(([b, d]) => d * (1 + odds) + b - d);
  const table = range(TABLE + 1).map((i) => scoreMass((i / TABLE) ** 2, odds));
  const masses = prior.map((share) => (1 - MIX) * share + MIX / size);
  const units = toUnits(masses);
  const coarse = units.map((unit) => Math.floor(unit / 2 ** 20));
  const order = range(size).sort((a, b) => coarse[b] - coarse[a] || b - a);
  let best = -1, kept = null;
  for (const s of suggestShapes(masses, order, shapes, norms, table)) {
    const [b, d] = shapes[s], filled = fillBlocks(units, order, b, d);
    const value = scoreBlocks(filled.masses, table) / norms[s];
    if (value > best) { best = value; kept = { s, b, masks: filled.masks }; }
  }
  return prior.map((_, y) => range(kept.b).map((j) => (kept.masks[y].includes(j) ? 1 + odds : 1) / norms[kept.s]));
}

// All sets of d labels, as lists of labels.
function subsets(size, d) {
  const found = [];
  const grow = (chosen, next) => {
    if (chosen.length === d) { found.push(chosen); return; }
    for (let label = next; label <= size - d + chosen.length; label += 1) grow([...chosen, label], label + 1);
  };
  grow([], 0);
  return found;
}
const known = new Map();
function allSubsets(size, d) {
  const key = size * 100 + d;
  if (!known.has(key)) known.set(key, subsets(size, d));
  return known.get(key);
}

// -------------------------------------------------------------------------------------------------- what an answer is worth

const mostInformation = (epsilon) => {
  if (epsilon < 1e-4) return (epsilon * epsilon) / 8;
  const x = epsilon / -Math.expm1(-epsilon);
  return x - 1 - Math.log(x);
};

// No answer tells more than there is to know: the entropy of the prior is a bound too.
const informationBound = (epsilon, prior) =>
  Math.min(mostInformation(epsilon), -sum(prior.map((share) => (share > 0 ? share * Math.log(share) : 0))));

// labeldp.mechanisms.answer_worth, and how often someone who knows prior and channel guesses right from the answer.
function worth(transition, prior) {
  const answers = transition[0].length;
  let information = 0, guess = 0, explained = 0;
  for (let o = 0; o < answers; o += 1) {
    const column = transition.map((row) => row[o]), joint = column.map((chance, y) => prior[y] * chance);
    const law = sum(joint);
    joint.forEach((mass, y) => { if (mass > 0) information += mass * Math.log(column[y] / law); });
    guess += Math.max(...joint);
    for (let a = 0; a < prior.length; a += 1) {
      for (let b = 0; b < prior.length; b += 1) {
        const total = column[a] + column[b];
        if (a !== b && total > 0) explained += (prior[a] * prior[b] * (column[a] - column[b]) ** 2) / (2 * total);
      }
    }
  }
  const weight = 1 - sum(prior.map((share) => share * share));
  return { information: Math.max(information, 0), guess, cleanLabels: weight > 0 ? explained / weight : 0 };
}

// InformativeResponse without a prior. An arc of a random circle is a uniform d-subset, so a mean over circles is K times a mean
// over all subsets. What an answer says of two labels does not depend on the prior: labeldp.mechanisms.subset_worth has it.
function uninformedWorth(epsilon, prior) {
  const size = prior.length, odds = safeOdds(epsilon), d = arcSize(odds, size), sets = allSubsets(size, d);
  const norm = d * odds + size, falling = range(size).sort((a, b) => prior[b] - prior[a]);
  let information = 0, guess = 0;
  for (const set of sets) {
    let mass = 0, inside = 0;
    for (const label of set) { mass += prior[label]; inside = Math.max(inside, prior[label]); }
    const outside = prior[falling.find((label) => !set.includes(label))];
    information += scoreMass(Math.min(mass, 1), odds);
    guess += Math.max(inside * (1 + odds), outside);
  }
  const cleanLabels = ((d * (size - d)) / (size - 1)) * (odds / norm) * (odds / (odds + 2));
  const each = size / sets.length / norm;
  return { information: Math.max(information * each, 0), guess: guess * each, cleanLabels };
}

const meanOf = (rows, name) => sum(rows.map((row) => row[name])) / rows.length;

// One line of the table. `accuracy` is the share of released labels that are right; null where answers are sets.
function describe(name, trusts, worths, matrix, { prior, epsilon }) {
  const found = { information: meanOf(worths, "information"), guess: meanOf(worths, "guess"), cleanLabels: meanOf(worths, "cleanLabels") };
  const before = Math.max(...prior);
  return {
    name, trusts, matrix, before, ...found,
    accuracy: matrix === null ? null : sum(prior.map((share, y) => share * matrix[y][y])),
    gain: Math.max(0, found.guess - before), // no answer can lower it; rounding can
    gainBound: (1 - before) * advantageBound(epsilon),
  };
}

function describeLabels(name, trusts, channels, settings) {
  const mean = channels[0].map((row, y) => row.map((_, o) => sum(channels.map((one) => one[y][o])) / channels.length));
  return describe(name, trusts, channels.map((one) => worth(one, settings.prior)), mean, settings);
}

// All mechanisms side by side, for settings { epsilon, prior, rows, k }.
function describeAll(settings) {
  const { epsilon, prior, rows, k } = settings, few = prior.length === 2;
  const one = (name, channel) => describeLabels(name, "no one", [channel], settings);
  const plain = randomizedResponse(epsilon, prior), blocks = informed(epsilon, prior);
  return [
    one("RR", plain),
    one("RRTop-k", topK(epsilon, prior, Math.min(k, prior.length))),
    one("RRWithPrior", withPrior(epsilon, prior)),
    describeLabels("ClusterRR", "a curator", clusterChannels(epsilon, prior, rows), settings),
    few || arcSize(safeOdds(epsilon), prior.length) === 1 ? one("Informative, no prior", plain) // a set of one is a label
      : describe("Informative, no prior", "no one", [uninformedWorth(epsilon, prior)], null, settings),
    few ? one("Informative, this prior", plain)
      : describe("Informative, this prior", "no one", [worth(blocks, prior)], null, settings),
  ];
}
