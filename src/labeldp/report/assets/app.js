"use strict";
// Draws what the server computed. There is no formula of a mechanism here, and there must be none.
const form = document.getElementById("controls");
const percent = (share) => (100 * share).toFixed(1) + "%";
let shown = "RR";
let facts = null;
let newest = 0;

function make(kind, text, attributes) {
  const node = document.createElement(kind);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  return node;
}

function drawRows() {
  const rows = facts.mechanisms.map((one) => {
    const row = document.createElement("tr");
    const all = one.candidates.length === facts.prior.length;
    row.append(
      make("th", one.name, { scope: "row" }),
      make("td", percent(one.accuracy), { class: "number" }),
      make("td", all ? "all " + facts.prior.length : one.candidates.map((label) => label + 1).join(", ")),
      make("td", percent(one.guess), { class: "number" }),
      make("td", percent(one.gain), { class: "number" }),
      make("td", percent(one.gain_bound), { class: "number" }),
      make("td", one.trusts),
    );
    return row;
  });
  document.getElementById("rows").replaceChildren(...rows);
}

function drawTabs() {
  const buttons = facts.mechanisms.map((one) => {
    const button = make("button", one.name, { type: "button", "aria-pressed": String(one.name === shown) });
    button.addEventListener("click", () => { shown = one.name; drawChannel(); });
    return button;
  });
  document.querySelector(".tabs").replaceChildren(...buttons);
}

function drawChannel() {
  for (const button of document.querySelectorAll(".tabs button")) {
    button.setAttribute("aria-pressed", String(button.textContent === shown));
  }
  const one = facts.mechanisms.find((each) => each.name === shown);
  const table = document.createElement("table");
  table.className = "channel";
  table.append(make("caption", "Channel of " + one.name + ", in percent"));
  const head = table.createTHead().insertRow();
  head.append(make("th", "true", { scope: "col" }));
  one.matrix.forEach((_, output) => head.append(make("th", "out " + (output + 1), { scope: "col", class: "number" })));
  head.append(make("th", "flipped", { scope: "col", class: "number" }));
  const body = table.createTBody();
  one.matrix.forEach((chances, label) => {
    const row = body.insertRow();
    row.append(make("th", "label " + (label + 1), { scope: "row" }));
    chances.forEach((chance, output) => {
      const cell = make("td", (100 * chance).toFixed(1), { class: output === label ? "number kept" : "number" });
      cell.style.setProperty("--share", (100 * chance).toFixed(2) + "%");
      row.append(cell);
    });
    row.append(make("td", percent(one.flips[label]), { class: "number" }));
  });
  document.getElementById("channel").replaceChildren(table);
}

function drawWords() {
  const best = facts.mechanisms.reduce((one, other) => (other.accuracy >= one.accuracy ? other : one));
  document.getElementById("summary").textContent =
    "At epsilon " + facts.settings.epsilon + ", " + best.name + " keeps most labels right: " + percent(best.accuracy) +
    ". Whatever is released, the outputs of two labels differ by at most " + percent(facts.two_label_bound) + " in any event.";
  document.getElementById("prior-words").textContent =
    "Prior, likeliest label first: " + facts.prior.map(percent).join(", ") +
    ". Without the release the attacker guesses right " + percent(facts.mechanisms[0].guess_before) + " of the time.";
}

async function update() {
  const number = ++newest;
  const query = new URLSearchParams(new FormData(form));
  for (const [name, value] of query) document.getElementById(name + "-value").textContent = value;
  const answer = await fetch("facts?" + query);
  const found = await answer.json();
  if (number !== newest) return; // an older answer that came late
  if (!answer.ok) { document.getElementById("summary").textContent = found.error; return; }
  facts = found;
  drawRows();
  drawTabs();
  drawChannel();
  drawWords();
  document.documentElement.dataset.drawn = String(number);
}

form.addEventListener("input", update);
form.addEventListener("reset", () => setTimeout(update));
form.addEventListener("submit", (event) => event.preventDefault());
update();
