// What lets the page be played with. Without it the page is a document that is complete: tables are
// there already, and the charts are drawn from what they say.
"use strict";

const run = JSON.parse(document.getElementById("run").textContent);
const T = run.tokens.length;
const state = { token: T - 1, block: 0, head: 0 };

// Small tools

const $ = id => document.getElementById(id);
const all = selector => [...document.querySelectorAll(selector)];

function create(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The cells of a table's rows, without those that name them.
const cellsOf = table => [...table.tBodies[0].rows].map(row => [...row.cells].slice(1));

const token = text => create("span", { className: "token", textContent: text });

// Four significant digits, as figures.py prints them.
function number(x) {
  const size = Math.abs(x);
  return size >= 1e4 ? x.toFixed(0) : size && size < 1e-4 ? x.toExponential(3) : x.toPrecision(4);
}

// An array of the run: its numbers from base64, and at(i, j, ...) for an entry or a row of them.
function array({ type, shape, data }) {
  const bytes = Uint8Array.from(atob(data), character => character.charCodeAt(0));
  const values = new { u1: Uint8Array, i4: Int32Array, f4: Float32Array }[type](bytes.buffer);
  const at = (...index) => {
    let start = 0, size = values.length;
    index.forEach((i, axis) => { size /= shape[axis]; start += i * size; });
    return size === 1 && index.length === shape.length ? values[start]
                                                       : values.subarray(start, start + size);
  };
  return { shape, values, at };
}

const arrays = {};
for (const [name, value] of Object.entries(run)) if (value.data) arrays[name] = array(value);
const norms = {};
for (const [name, value] of Object.entries(run.norms)) norms[name] = array(value);
const [L, H] = arrays.nearest.shape;

// Choosing a token, a block and a head

function chooser(fieldset, labels, key) {
  labels.forEach((label, value) => {
    const input = create("input", { type: "radio", name: fieldset.id, value,
                                    checked: value === state[key] });
    fieldset.append(create("label", {}, input, create("span", {}, label)));
  });
  fieldset.addEventListener("change", event => choose({ [key]: Number(event.target.value) }));
}

function choose(change) {
  Object.assign(state, change);
  for (const [id, key] of [["choose-token", "token"], ["choose-attention-block", "block"],
                           ["choose-mlp-block", "block"], ["choose-head", "head"]])
    $(id).querySelector(`[value="${state[key]}"]`).checked = true;
  if ("block" in change) {
    drawMaps();
    if (boxes.some(box => box.open)) boxes[state.block].open = true;    // which closes the other
  }
  if ("head" in change) drawAttention();
  show(state.token);
}

// All that depends on the token: `t` is the chosen one, or the one that is pointed at.
function show(t) {
  showReadings(t);
  showGaze(t);
  showMlp(t);
  showStream(t);
  showLens(t);
  markRows(t);
}

// The flow

const inside = $("inside");
const boxes = all(".block > details");

function norm(name, t) {
  const block = norms[name].shape[0] > 1 ? state.block : 0;    // outside of the blocks there is one
  return [`norm ${number(norms[name].at(block, t))}`];
}

function likeliest(point, t) {
  const id = arrays.lens.at(point, t, 0);
  return ["next ", token(run.names[id]), ` ${number(arrays.chances.at(point, t, 0))}`];
}

const READINGS = {
  tokenizer: t => [token(run.tokens[t]), ` is ${run.ids[t]}`],
  "attn.pattern": t => [`head ${state.head}: `, ...strongest(t, 1)],
  logits: t => likeliest(L, t),
};

function showReadings(t) {
  for (const place of all(".reading[data-name]")) {
    const name = place.dataset.name;
    const point = [name, `h.{i}.${name}`].find(point => point in norms);
    if (name in READINGS) place.replaceChildren(...READINGS[name](t));
    else if (point) place.replaceChildren(...norm(point, t));
  }
  for (const place of all(".reading[data-block]"))
    place.replaceChildren(...likeliest(Number(place.dataset.block) + 1, t));
}

// The steps inside of a block are there once, and move to the block that is opened.
boxes.forEach((details, block) => details.addEventListener("toggle", () => {
  if (!details.open) return;
  details.append(inside);
  inside.querySelector(".flat .name").textContent = `h.${block}`;
  choose({ block });
}));

// Attention

function strongest(t, n) {
  const at = arrays.nearest.at(state.block, state.head, t);
  const weights = arrays.weights.at(state.block, state.head, t);
  return [...at].slice(0, n).flatMap((s, k) =>
    s > t ? [] : [k ? ", " : "", token(run.tokens[s]), ` ${number(weights[k])}`]);
}

function weightsOf(block, head, t) {
  return arrays.pattern.at(block, head).subarray(t * (t + 1) / 2, (t + 1) * (t + 2) / 2);
}

function showGaze(t) {
  const weights = weightsOf(state.block, state.head, t);
  [...$("gaze").children].forEach((span, s) => {
    span.className = s === t ? "current" : s > t ? "later" : "";
    span.style.setProperty("--share", (weights[s] ?? 0) / 255);
  });
  $("attention-readout").replaceChildren(
    `In block h.${state.block}, head ${state.head}, `, token(run.tokens[t]), " takes most from ",
    ...strongest(t, 3), ".");
  const table = $("attention-table");
  table.caption.replaceChildren("What ", token(run.tokens[t]), " takes most from, in every head");
  cellsOf(table).forEach((cells, block) => cells.forEach((cell, head) => {
    const weight = arrays.weights.at(block, head, t, 0);
    cell.replaceChildren(token(run.tokens[arrays.nearest.at(block, head, t, 0)]),
                         ` ${number(weight)}`);
    cell.style.setProperty("--share", weight);
    cell.classList.toggle("chosen", block === state.block && head === state.head);
  }));
}

// Maps

// Draw numbers 0 ... 255 as so much of the canvas's colour over its background.
function draw(canvas, rows, columns, value) {
  const style = getComputedStyle(canvas);
  const [to, from] = [style.color, style.backgroundColor].map(c => c.match(/\d+/g).map(Number));
  Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let r = 0, i = 0; r < rows; r++)
    for (let c = 0; c < columns; c++, i += 4) {
      const share = value(r, c) / 255;
      image.data.set([0, 1, 2].map(k => from[k] + share * (to[k] - from[k])).concat(255), i);
    }
  context.putImageData(image, 0, 0);
}

const drawPattern = (canvas, head) =>
  draw(canvas, T, T, (t, s) => s > t ? 0 : weightsOf(state.block, head, t)[s]);

function drawAttention() {
  const canvas = $("attention-map").querySelector("canvas");
  drawPattern(canvas, state.head);
  canvas.ariaLabel = `Attention pattern of block h.${state.block}, head ${state.head}`;
}

function drawMaps() {
  all("#choose-head canvas").forEach(drawPattern);
  drawAttention();
  const canvas = $("mlp-map").querySelector("canvas"), map = arrays.mlp.at(state.block);
  const columns = arrays.mlp.shape[2];
  draw(canvas, T, columns, (t, c) => map[t * columns + c]);
  canvas.ariaLabel = `Units of the MLP of block h.${state.block}`;
  $("mlp-largest").textContent = number(arrays.peaks.values[state.block]);
}

function buildMap(place) {
  const names = () => run.tokens.map(text => create("span", { textContent: text }));
  const canvas = create("canvas", { role: "img" });
  const plot = create("div", { className: "plot" }, canvas, create("i"));
  if (place.classList.contains("square"))
    place.append(create("div", { className: "columns", ariaHidden: "true" }, ...names()));
  place.append(create("div", { className: "rows", ariaHidden: "true" }, ...names()), plot);
  place.style.setProperty("--rows", T);
  const row = event => {
    const box = canvas.getBoundingClientRect();
    return Math.min(T - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * T)));
  };
  plot.addEventListener("pointermove", event => show(row(event)));
  plot.addEventListener("pointerleave", () => show(state.token));
  plot.addEventListener("click", event => choose({ token: row(event) }));
}

function markRows(t) {
  for (const map of all(".map")) map.style.setProperty("--row", t);
  for (const rows of all(".map .rows, .map .columns, #tokens tbody, #stream tbody, #mlp tbody, "
                         + "#lens-table tbody"))
    [...rows.children].forEach((row, i) => row.classList.toggle("current", i === t));
}

// The MLPs

function showMlp(t) {
  const units = arrays.units.at(state.block, t), values = arrays.activations.at(state.block, t);
  const share = 100 * arrays.active.at(state.block, t);
  $("mlp-readout").replaceChildren(
    `In block h.${state.block}, ${number(share)}% of the units are above 0 at `,
    token(run.tokens[t]), ". The strongest are ",
    [...units].map((unit, k) => `unit ${unit} (${number(values[k])})`).join(", "), ".");
}

// The stream

const charts = ["norm", "mean", "scale"].map(kind => ({
  svg: $(`chart-${kind}`),
  rows: cellsOf($(`table-${kind}`)).map(cells => cells.map(cell => Number(cell.textContent))),
  log: kind !== "mean",
}));
const points = [...$("table-norm").tHead.rows[0].cells].slice(1).map(cell => cell.textContent);

// Lines over the points of the stream, one for each token.
function drawChart({ svg: place, rows, log }) {
  const width = place.clientWidth, height = place.clientHeight, left = 56, bottom = 20;
  const scale = log ? x => Math.log10(Math.max(x, 1e-9)) : x => x;
  const values = rows.flat().map(scale);
  const low = Math.min(...values), high = Math.max(...values, low + 1e-9);
  const x = n => left + (width - left - 6) * n / (points.length - 1);
  const y = value => (height - bottom) * (1 - (scale(value) - low) / (high - low));
  const ends = [low, (low + high) / 2, high].map(v => log ? 10 ** v : v);
  place.setAttribute("viewBox", `0 0 ${width} ${height}`);
  place.replaceChildren(
    ...ends.flatMap(value => [
      svg("line", { class: "axis", x1: left, x2: width, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" },
          number(value)),
    ]),
    svg("text", { x: left, y: height - 2 }, "embedding"),
    svg("text", { x: width, y: height - 2, "text-anchor": "end" }, points.at(-1)),
    ...rows.map(row => svg("polyline", {
      class: "line", points: row.map((value, n) => `${x(n)},${y(value)}`).join(" ") })),
  );
}

function showStream(t) {
  for (const { svg: place } of charts) {
    const lines = [...place.querySelectorAll(".line")];
    lines.forEach((line, i) => line.classList.toggle("current", i === t));
  }
  const [length, mean, scale] = charts.map(({ rows }) => rows[t]);
  $("stream-readout").replaceChildren(
    "The vector of ", token(run.tokens[t]), ` has norm ${number(length[0])} as it enters the first `
    + `block and ${number(length.at(-1))} as it leaves the last. There its mean is `
    + `${number(mean.at(-1))}, and its standard deviation ${number(scale.at(-1))}.`);
}

// The logit lens

function showLens(t) {
  $("lens-caption").replaceChildren("The five likeliest after ", token(run.tokens[t]));
  $("lens-now").replaceChildren(...Array.from({ length: L + 1 }, (_, point) => {
    const at = arrays.lens.at(point, t), chances = arrays.chances.at(point, t);
    return create("tr", {},
      create("th", { scope: "row", textContent: point ? `h.${point - 1}` : "wte + wpe" }),
      ...[...at].map((id, k) => {
        const cell = create("td", {}, token(run.names[id]), ` ${number(chances[k])}`);
        cell.style.setProperty("--share", chances[k]);
        return cell;
      }));
  }));
}

// Sampling. The sliders change no order: the likeliest token stays the likeliest, and what is left
// out is left out from the end.

const logits = arrays.logits.values;
const order = Uint32Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
const TOP_K = [1, 2, 3, 5, 10, 20, 40, 100, 200, 500, 1000, 5000, Infinity];

// The probabilities of the tokens that are kept, in that order: temperature, top-k, top-p.
function distribution(temperature, topK, topP) {
  if (temperature === 0) return [1];
  const weights = [];
  for (const id of order.subarray(0, topK)) {
    const weight = Math.exp((logits[id] - logits[order[0]]) / temperature);
    if (weight === 0) break;
    weights.push(weight);
  }
  const total = weights.reduce((a, b) => a + b);
  let kept = 1, mass = weights[0];
  while (kept < weights.length && (topP === 1 || mass < topP * total)) mass += weights[kept++];
  return weights.slice(0, kept).map(weight => weight / mass);
}

function settings() {
  return [Number($("temperature").value), TOP_K[$("top-k").value], Number($("top-p").value)];
}

function showSampling() {
  const [temperature, topK, topP] = settings();
  const p = distribution(temperature, topK, topP);
  const entropy = -p.reduce((sum, x) => sum + x * Math.log2(x), 0);
  $("temperature-value").textContent = temperature ? temperature : "0, the likeliest";
  $("top-k-value").textContent = topK === Infinity ? "all" : topK;
  $("top-k").setAttribute("aria-valuetext", $("top-k-value").textContent);
  $("top-p-value").textContent = topP;
  const [kept, V] = [p.length, logits.length].map(n => n.toLocaleString("en"));
  $("sampling-readout").textContent =
    `${kept} of ${V} tokens can be drawn, with ${number(entropy)} bits of entropy.`;
  [...$("next-table").tBodies[0].rows].forEach((row, rank) => {
    row.classList.toggle("left-out", rank >= p.length);
    row.querySelector("rect").setAttribute("width", 100 * (p[rank] ?? 0));
    row.cells[3].lastChild.textContent = rank < p.length ? number(p[rank]) : "0";
  });
}

function drawToken() {
  const p = distribution(...settings());
  let rank = 0;
  for (let u = Math.random(); rank < p.length - 1 && u >= p[rank]; rank++) u -= p[rank];
  const id = order[rank];
  $("drawn").replaceChildren(id in run.names ? token(run.names[id]) : "token",
                             ` (${id}), p = ${number(p[rank])}`);
}

// Begin

cellsOf($("lens-table")).forEach((cells, t) => cells.forEach((cell, point) =>
  cell.style.setProperty("--share", arrays.chances.at(point, t, 0))));
document.documentElement.classList.add("js");
for (const element of all(".live")) element.hidden = false;
for (const details of all(".numbers")) details.open = false;

const blocks = Array.from({ length: L }, (_, i) => `h.${i}`);
chooser($("choose-token"), run.tokens, "token");
chooser($("choose-attention-block"), blocks, "block");
chooser($("choose-mlp-block"), blocks, "block");
chooser($("choose-head"), Array.from({ length: H }, (_, h) =>
  create("canvas", { role: "img", ariaLabel: `head ${h}` })), "head");
[$("attention-map"), $("mlp-map")].forEach(buildMap);
$("gaze").append(...run.tokens.map(text => create("span", { textContent: text })));
const bars = all("#tokens rect");
all("#choose-token label span").forEach((span, t) =>
  span.style.setProperty("--share", bars[t].getAttribute("width") / 100));
for (const names of ["#choose-token label", "#gaze span", "#attention-map .rows span",
                     "#mlp-map .rows span"])
  all(names).forEach((name, t) => {
    name.addEventListener("pointerenter", () => show(t));
    name.addEventListener("pointerleave", () => show(state.token));
  });

$("top-k").max = TOP_K.length - 1;
$("top-k").value = $("top-k").defaultValue = TOP_K.length - 1;
$("sampling-form").addEventListener("input", showSampling);
$("sampling-form").addEventListener("reset", () => setTimeout(showSampling));
$("draw").addEventListener("click", drawToken);

const drawCharts = () => { charts.forEach(drawChart); showStream(state.token); };
new ResizeObserver(drawCharts).observe($("chart-norm"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMaps);
drawCharts();
drawMaps();
show(state.token);
showSampling();
