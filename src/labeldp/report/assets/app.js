// The page: reads the settings, asks mechanisms.js, draws. The settings stand in the address, after the #.
const EPSILONS = [0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10];
const NAMES = ["epsilon", "n_classes", "sharpness", "k", "rows", "prior"];
const START = JSON.parse(document.getElementById("start").textContent);
const form = document.getElementById("controls");
let shown = "RR";
let facts = null;
let curves = { key: "", points: [] };
let drawn = 0;
let pause = 0;

function make(kind, text, attributes) {
  const node = document.createElement(kind);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  return node;
}

function draw(kind, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// ------------------------------------------------------------------------------------------------------------- settings

// The prior that was written, or null where none was; a sentence where it is not one.
function readPrior(text) {
  if (!text.trim()) return null;
  const shares = text.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (shares.some((share) => !Number.isFinite(share) || share < 0)) return "A prior is a list of numbers that are not negative.";
  if (shares.length < 2 || shares.length > FEW) return "A prior has 2 to 16 classes.";
  const total = sum(shares);
  if (!(total > 0)) return "A prior has a share above 0.";
  return shares.map((share) => share / total);
}

function readSettings() {
  const own = readPrior(form.elements.prior.value), given = Array.isArray(own);
  document.getElementById("fault").textContent = typeof own === "string" ? own : "";
  const number = (name) => Number(form.elements[name].value);
  const rows = Math.min(Math.max(Math.round(number("rows")) || 10, 10), 1e9);
  return {
    epsilon: number("epsilon"), rows, k: number("k"), given,
    prior: given ? own : geometricPrior(number("n_classes"), number("sharpness")),
  };
}

function writeForm(values) {
  for (const name of NAMES) if (values[name] !== undefined) form.elements[name].value = values[name];
}

function fragment() {
  const said = new URLSearchParams();
  for (const name of NAMES) if (form.elements[name].value !== "") said.set(name, form.elements[name].value);
  return "#" + said.toString().replaceAll("%2C", ",").replaceAll("+", "");
}

function readFragment() {
  const said = new URLSearchParams(location.hash.slice(1));
  if (![...said.keys()].some((name) => NAMES.includes(name))) return false;
  writeForm({ prior: "", ...Object.fromEntries(said) });
  return true;
}

// --------------------------------------------------------------------------------------------------------------- drawing

const nats = (value) => value.toFixed(4);
const label = (number) => (START.names && START.names.length === facts.prior.length ? START.names[number] : String(number + 1));

function drawRows() {
  const rows = facts.mechanisms.map((one) => {
    const row = document.createElement("tr");
    const worthAll = Math.round(one.cleanLabels * facts.rows).toLocaleString("en-US");
    row.append(
      make("th", one.name, { scope: "row" }),
      make("td", one.accuracy === null ? "sets" : percent(one.accuracy), { class: "number" }),
      make("td", nats(one.information), { class: "number" }),
      make("td", worthAll, { class: "number" }),
      make("td", percent(one.guess), { class: "number" }),
      make("td", percent(one.gain), { class: "number" }),
      make("td", percent(one.gainBound, true), { class: "number" }),
      make("td", one.trusts),
    );
    return row;
  });
  document.getElementById("rows-shown").replaceChildren(...rows);
}

function drawTabs() {
  const tables = facts.mechanisms.filter((one) => one.matrix !== null);
  if (!tables.some((one) => one.name === shown)) shown = "RR";
  const buttons = tables.map((one) => {
    const button = make("button", one.name, { type: "button", "aria-pressed": String(one.name === shown) });
    button.addEventListener("click", () => { shown = one.name; drawTabs(); drawChannel(); });
    return button;
  });
  document.querySelector(".tabs").replaceChildren(...buttons);
}

function drawChannel() {
  const one = facts.mechanisms.find((each) => each.name === shown);
  const table = document.createElement("table");
  table.className = "channel";
  table.append(make("caption", "Channel of " + one.name + ", in percent"));
  const head = table.createTHead().insertRow();
  head.append(make("th", "true", { scope: "col" }));
  one.matrix.forEach((_, output) => head.append(make("th", label(output), { scope: "col", class: "number" })));
  head.append(make("th", "flipped", { scope: "col", class: "number" }));
  const body = table.createTBody();
  one.matrix.forEach((chances, number) => {
    const row = body.insertRow();
    row.append(make("th", label(number), { scope: "row" }));
    chances.forEach((chance, output) => {
      const cell = make("td", (100 * chance).toFixed(1), { class: output === number ? "number kept" : "number" });
      cell.style.setProperty("--share", (100 * chance).toFixed(2) + "%");
      row.append(cell);
    });
    row.append(make("td", percent(1 - chances[number]), { class: "number" }));
  });
  document.getElementById("channel").replaceChildren(table);
}

function drawWords() {
  const labels = facts.mechanisms.filter((one) => one.accuracy !== null && one.trusts === "no one");
  const right = labels.reduce((one, other) => (other.accuracy >= one.accuracy - 1e-12 ? other : one));
  const told = facts.mechanisms.filter((one) => one.trusts === "no one");
  const most = told.reduce((one, other) => (other.information > one.information + 1e-12 ? other : one));
  document.getElementById("summary").textContent =
    "At epsilon " + facts.epsilon + ", with no one trusted, " + right.name + " keeps most labels right: " +
    percent(right.accuracy) + ". A learner is told most by \"" + most.name + "\": " + nats(most.information) + " nats an answer, and nothing private tells more than " +
    nats(informationBound(facts.epsilon, facts.prior)) + ". Whatever is released, the outputs of two labels differ by at most " +
    percent(advantageBound(facts.epsilon), true) + " in any event.";
  document.getElementById("prior-words").textContent =
    "Prior: " + facts.prior.map((share, number) => label(number) + " " + percent(share)).join(", ") +
    ". Without an answer the attacker guesses right " + percent(facts.mechanisms[0].before) + " of the time.";
  document.getElementById("source").textContent = START.source || "";
}

const WIDTH = 680, HEIGHT = 300, LEFT = 62, RIGHT = 16, TOP = 12, BOTTOM = 46;

// Lines over epsilon on a logarithmic scale, with a mark at the chosen epsilon, a legend, and the numbers in a folded table.
function drawPlot(place, title, unit, series, format) {
  const low = Math.log(EPSILONS[0]), high = Math.log(EPSILONS[EPSILONS.length - 1]);
  const top = Math.max(...series.flatMap((one) => one.values), 1e-9);
  const step = [1, 2, 2.5, 5, 10].map((s) => s * 10 ** Math.floor(Math.log10(top / 4))).find((s) => top / s <= 5.001);
  const ceiling = Math.ceil(top / step - 1e-9) * step;
  const x = (epsilon) => LEFT + ((Math.log(epsilon) - low) / (high - low)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / ceiling) * (HEIGHT - TOP - BOTTOM);
  const svg = draw("svg", { class: "static", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title + ", against epsilon; the numbers are in the table below" });
  for (let tick = 0; tick <= ceiling + 1e-12; tick += step) {
    svg.append(draw("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick), stroke: "var(--rule)" }));
    svg.append(draw("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end", fill: "var(--soft)" }, String(Number(tick.toPrecision(3)))));
  }
  for (const tick of [0.1, 0.2, 0.5, 1, 2, 5, 10]) {
    svg.append(draw("text", { x: x(tick), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle", fill: "var(--soft)" }, String(tick)));
  }
  svg.append(draw("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle", fill: "var(--soft)" }, "epsilon"));
  const here = x(facts.epsilon);
  svg.append(draw("line", { x1: here, x2: here, y1: TOP, y2: HEIGHT - BOTTOM, stroke: "var(--soft)", "stroke-dasharray": "2 3" }));
  series.forEach((one) => {
    const points = EPSILONS.map((epsilon, i) => `${x(epsilon).toFixed(1)},${y(one.values[i]).toFixed(1)}`).join(" ");
    const line = draw("polyline", { points, fill: "none", stroke: one.colour, "stroke-width": 2, "stroke-dasharray": one.dash });
    line.append(draw("title", {}, one.name));
    svg.append(line);
  });
  const box = make("div", "", { class: "scroll", role: "group", tabindex: "0", "aria-label": "Drawing" });
  box.append(svg);
  const legend = make("ul", "", { class: "legend" });
  for (const one of series) {
    const item = make("li", ""), key = draw("svg", { width: 28, height: 10, "aria-hidden": "true" });
    key.append(draw("line", { x1: 0, x2: 28, y1: 5, y2: 5, stroke: one.colour, "stroke-width": 2, "stroke-dasharray": one.dash }));
    item.append(key, document.createTextNode(" " + one.name));
    legend.append(item);
  }
  place.replaceChildren(make("figcaption", title + unit), box, legend, plotNumbers(title, series, format, place));
}

// The numbers of a plot, folded; whether it was open before is kept.
function plotNumbers(title, series, format, place) {
  const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  head.append(make("th", "epsilon", { scope: "col" }), ...series.map((one) => make("th", one.name, { scope: "col", class: "number" })));
  EPSILONS.forEach((epsilon, i) => {
    const row = body.insertRow();
    row.append(make("th", String(epsilon), { scope: "row" }));
    row.append(...series.map((one) => make("td", format(one.values[i], one.up), { class: "number" })));
  });
  const box = make("div", "", { class: "scroll", role: "region", tabindex: "0", "aria-label": title });
  box.append(table);
  const details = document.createElement("details");
  details.open = Boolean(place.querySelector("details")?.open);
  details.append(make("summary", "The numbers of this plot"), box);
  return details;
}

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "12 4"];

function drawCurves() {
  const key = JSON.stringify([facts.prior, facts.rows, facts.k]);
  if (curves.key !== key) curves = { key, points: EPSILONS.map((epsilon) => describeAll({ ...facts, epsilon })) };
  const lines = (value) => facts.mechanisms
    .map((one, i) => ({ name: one.name, colour: `var(--series-${i})`, dash: DASHES[i], values: curves.points.map((at) => value(at[i])) }))
    .filter((one) => one.values.every((v) => v !== null));
  const bound = (name, values) => ({ name, colour: "var(--soft)", dash: "3 4", values, up: true });
  const share = (value, up) => percent(value / 100, up);
  const times = (value) => (value === null ? null : 100 * value);
  drawPlot(document.getElementById("accuracy-plot"), "Labels right", " (%)", lines((one) => times(one.accuracy)), share);
  const most = bound("at most", curves.points.map((at) => 100 * at[0].gainBound));
  drawPlot(document.getElementById("gain-plot"), "The attacker's gain over guessing without an answer", " (percentage points)", [...lines((one) => times(one.gain)), most], share);
  const all = bound("at most", EPSILONS.map((epsilon) => informationBound(epsilon, facts.prior)));
  drawPlot(document.getElementById("information-plot"), "Information of an answer", " (nats)", [...lines((one) => one.information), all], nats);
}

function update() {
  const settings = readSettings();
  for (const name of ["epsilon", "n_classes", "sharpness", "k"]) {
    document.getElementById(name + "-value").textContent = form.elements[name].value;
  }
  form.elements.n_classes.disabled = form.elements.sharpness.disabled = settings.given;
  if (settings.given) { // these two then say nothing
    document.getElementById("n_classes-value").textContent = String(settings.prior.length);
    document.getElementById("sharpness-value").textContent = "";
  }
  facts = { ...settings, mechanisms: describeAll(settings) };
  drawRows();
  drawTabs();
  drawChannel();
  drawWords();
  document.getElementById("address").href = fragment();
  history.replaceState(null, "", fragment());
  clearTimeout(pause); // the curves take longest: they wait until the slider rests
  pause = setTimeout(() => { drawCurves(); drawn += 1; document.documentElement.dataset.drawn = String(drawn); }, drawn ? 150 : 0);
}

let waiting = 0;
function updateSoon() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(update);
}

form.addEventListener("input", updateSoon);
form.addEventListener("reset", () => setTimeout(() => { writeForm(START.settings); update(); }));
form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", () => { if (location.hash !== fragment() && readFragment()) update(); });
if (!readFragment()) writeForm(START.settings);
update();
