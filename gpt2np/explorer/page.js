// What lets the page be played with. Without it the page is a document that is complete.
//
// `state` is all that can be chosen. `views` are the parts of the page that follow it: what of the
// state each is about, and a function that draws it. Nothing else changes the page.
"use strict";

// Small tools

const $ = id => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const range = n => Array.from({ length: n }, (_, i) => i);

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

const token = text => create("span", { className: "token", textContent: text });
const pair = (name, value) =>
  create("span", { className: "pair" }, name, " ", create("span", {}, number(value)));
const share = (element, value) => element.style.setProperty("--share", value);

// Four significant digits, as figures.py prints them.
function number(x) {
  const size = Math.abs(x);
  if (size >= 1e4) return x.toFixed(0);
  if (size && size < 1e-4) return x > 0 ? "< 0.0001" : "> -0.0001";
  return size ? x.toPrecision(4) : "0";
}

// Fill numbers at the right of their cells, so that their points meet; as figures.py does.
function aligned(texts) {
  const behind = texts.map(text => (text.split(".")[1] ?? "").length), most = Math.max(...behind);
  return texts.map((text, i) => text + (most && !text.includes(".") ? "\u2008" : "")
                                + "\u2007".repeat(most - behind[i]));
}

// The run: what was computed, and how it is asked for

const WIDTH = { u1: 1, i4: 4, f4: 4 };
const KIND = { u1: Uint8Array, i4: Int32Array, f4: Float32Array };

// Unpack what data.py packed. Of an array, at(i, j, ...) is an entry, or a row of them.
async function unpack(entries, base64) {
  const packed = Uint8Array.from(atob(base64), character => character.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  const arrays = {};
  let start = 0;
  for (const [name, type, shape] of entries) {
    const n = shape.reduce((a, b) => a * b, 1), width = WIDTH[type];
    const own = new Uint8Array(n * width);
    for (let k = 0; k < width; k++)
      for (let i = 0; i < n; i++) own[i * width + k] = bytes[start++];
    arrays[name] = array(new KIND[type](own.buffer), shape);
  }
  return arrays;
}

function array(values, shape) {
  const at = (...index) => {
    let start = 0, size = values.length;
    index.forEach((i, axis) => { size /= shape[axis]; start += i * size; });
    return index.length === shape.length ? values[start] : values.subarray(start, start + size);
  };
  return { shape, values, at };
}

const pairs = (keys, values) => Array.from(keys, (key, i) => [key, values[i]]);

// A run that is written in the page.
function storedRun(facts, arrays) {
  const [L, H] = arrays.nearest.shape, { pattern } = arrays;
  if (facts.shades !== 255)
    pattern.values.forEach((shade, i) => { pattern.values[i] = 255 / facts.shades * shade; });
  return {
    ...facts, L, H, T: facts.tokens.length, logits: arrays.logits.values,
    name: id => facts.names[id],
    // Of 255, what token t takes of those up to itself.
    shades: (block, head, t) => pattern.at(block, head).subarray(t * (t + 1) / 2,
                                                                 (t + 1) * (t + 2) / 2),
    nearest: (block, head, t) => pairs(arrays.nearest.at(block, head, t),
                                       arrays.weights.at(block, head, t)).filter(([s]) => s <= t),
    norm(name, block, t) {
      const norms = arrays[`norm ${name}`] ?? arrays[`norm h.{i}.${name}`];
      return norms?.at(norms.shape[0] > 1 ? block : 0, t);    // outside of the blocks there is one
    },
    stream: (kind, t) => range(2 * L + 1).map(point => arrays.stream.at(kind, point, t)),
    units: (block, t) => pairs(arrays.units.at(block, t), arrays.activations.at(block, t)),
    active: (block, t) => arrays.active.at(block, t),
    unitShades: (block, t) => arrays.mlp.at(block, t),
    peak: block => arrays.peaks.values[block],
    lens: (point, t) => pairs(arrays.lens.at(point, t), arrays.chances.at(point, t)),
  };
}

// State and views

const dark = matchMedia("(prefers-color-scheme: dark)");
const state = {
  run: null, token: 0, block: 0, head: 0,
  open: null,       // the block whose box is open
  pointed: null,    // the token that is pointed at, which is shown for as long
  temperature: 1, topK: Infinity, topP: 1,
  dark: dark.matches, width: 0,
};
const shown = s => s.pointed ?? s.token;

const views = [];

// `about` gives what of the state the view shows: it is drawn again when that has changed.
function view(place, about, draw) {
  const view = { place, about, draw, drawn: [] };
  views.push(view);
  return view;
}

function stale() {
  return views.filter(view => {
    const now = view.about(state);
    return now.length !== view.drawn.length || now.some((x, i) => x !== view.drawn[i]);
  });
}

function redraw(view) {
  view.drawn = view.about(state);
  view.draw(state);
}

// What can be seen is drawn in the next frame, the rest when there is time.
const whenIdle = window.requestIdleCallback ?? (call => setTimeout(call, 30));
let frame = 0, idle = 0;

function set(change) {
  Object.assign(state, change);
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    stale().filter(isSeen).forEach(redraw);
    idle ||= whenIdle(drawRest);
  });
}

function isSeen({ place }) {
  const box = place.getBoundingClientRect();
  return box.bottom > 0 && box.top < innerHeight && box.height > 0;
}

function drawRest(deadline) {
  idle = 0;
  const waiting = stale();
  do if (waiting.length) redraw(waiting.shift());
  while (waiting.length && deadline?.timeRemaining() > 4);
  if (waiting.length) idle = whenIdle(drawRest);
}

// The block that is open in the flow follows one that is chosen elsewhere.
function choose(change) {
  set("block" in change && state.open !== null ? { ...change, open: change.block } : change);
}

// Choosers: radio buttons for a token, a block, a head

function chooser(fieldset, key, labels) {
  const legend = fieldset.querySelector("legend");
  view(fieldset, s => [s.run], ({ run }) => fieldset.replaceChildren(
    legend, ...labels(run).map((label, value) => create("label", {},
      create("input", { type: "radio", name: fieldset.id, value }), create("span", {}, ...label)))));
  view(fieldset, s => [s.run, s[key]], s => {
    const input = fieldset.querySelector(`[value="${s[key]}"]`);
    input.checked = true;
    if (fieldset.matches(".strip")) {
      const label = input.parentElement, middle = label.offsetLeft + label.offsetWidth / 2;
      fieldset.scrollTo({ left: middle - fieldset.clientWidth / 2 });
    }
  });
  fieldset.addEventListener("change", event => choose({ [key]: Number(event.target.value) }));
}

// A token that occurs again tells where it stands to those who cannot see it.
function tokenLabels(run) {
  const away = text => create("span", { className: "away", textContent: text });
  return run.tokens.map((text, t) => [text, away(`, ${t + 1} of ${run.T}`)]);
}

const blockLabels = run => range(run.L).map(i => [`h.${i}`]);
const headLabels = run => range(run.H).map(h => [String(h)]);

// Whatever stands for a token shows it for as long as it is pointed at.
function pointAt(element, t) {
  element.addEventListener("pointerenter", () => set({ pointed: t }));
  element.addEventListener("pointerleave", () => set({ pointed: null }));
}

// The flow

const inside = $("inside");
const boxes = all(".block > details");

const likeliest = (run, point, t) => {
  const [id, p] = run.lens(point, t)[0];
  return ["next ", pair(token(run.name(id)), p)];
};

const READINGS = {
  tokenizer: ({ run }, t) => [token(run.tokens[t]), ` is ${run.ids[t]}`],
  "attn.pattern"({ run, open, head }, t) {
    const [s, weight] = run.nearest(open ?? 0, head, t)[0];
    return [`head ${head}: `, pair(token(run.tokens[s]), weight)];
  },
  logits: ({ run }, t) => likeliest(run, run.L, t),
};

function reading(place) {
  const { name, block } = place.dataset;
  if (block) {
    view(place, s => [s.run, shown(s)], s =>
      place.replaceChildren(...likeliest(s.run, Number(block) + 1, shown(s))));
  } else if (name in READINGS) {
    view(place, s => [s.run, shown(s), s.open, s.head], s =>
      place.replaceChildren(...READINGS[name](s, shown(s))));
  } else {
    view(place, s => [s.run, shown(s), s.open], s => {
      const norm = s.run.norm(name, s.open ?? 0, shown(s));
      if (norm !== undefined) place.textContent = `norm ${number(norm)}`;
    });
  }
}

// The steps inside of a block are there once, and move to the block that is opened. What was
// clicked stays where it is, though a block above it closes.
boxes.forEach((box, block) => box.querySelector("summary").addEventListener("click", event => {
  event.preventDefault();
  const { top } = box.getBoundingClientRect();
  set(state.open === block ? { open: null } : { open: block, block });
  redraw(flowView);
  scrollBy({ top: box.getBoundingClientRect().top - top, behavior: "instant" });
}));
const flowView = view($("the-flow"), s => [s.open], ({ open }) => {
  if (open !== null) {
    boxes[open].append(inside);
    inside.querySelector(".flat .name").textContent = `h.${open}`;
  }
  boxes.forEach((box, i) => { box.open = i === open; });
});

// Maps: one pixel for a number

// The 256 shades from the canvas's background to its colour, as pixels.
function palette(canvas) {
  const style = getComputedStyle(canvas);
  const [to, from] = [style.color, style.backgroundColor].map(c => c.match(/\d+/g).map(Number));
  return Uint32Array.from(range(256), shade => {
    const [r, g, b] = [0, 1, 2].map(k => Math.round(from[k] + shade / 255 * (to[k] - from[k])));
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  });
}

// Draw shades 0 ... 255, row by row.
function draw(canvas, rows, columns, shadesOf) {
  const colours = palette(canvas), pixels = new Uint32Array(rows * columns).fill(colours[0]);
  for (let r = 0; r < rows; r++) {
    const shades = shadesOf(r);
    for (let c = 0; c < shades.length; c++) pixels[r * columns + c] = colours[shades[c]];
  }
  Object.assign(canvas, { width: columns, height: rows });
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), columns, rows);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// A map whose rows are tokens, and whose columns are tokens too where it is square.
function buildMap(place) {
  const canvas = create("canvas", { role: "img" }), mark = create("i");
  const plot = create("div", { className: "plot" }, canvas, mark);
  const lists = (place.matches(".square") ? ["columns", "rows"] : ["rows"]).map(className =>
    create("div", { className, ariaHidden: "true" }));
  place.replaceChildren(...lists, plot);
  view(place, s => [s.run], ({ run }) => {
    place.style.setProperty("--rows", run.T);
    for (const list of lists)
      list.replaceChildren(...run.tokens.map((text, t) => {
        const name = create("span", { textContent: text });
        name.style.setProperty("--at", (t + 0.5) / run.T);
        pointAt(name, t);
        name.addEventListener("click", () => set({ token: t }));
        return name;
      }));
  });
  // Where there is not room for all names, every so many have theirs, and the chosen one.
  view(place, s => [s.run, s.width, shown(s)], s => {
    const t = shown(s), every = Math.ceil(13 * s.run.T / (plot.clientHeight || 1));
    mark.style.top = `${100 * t / s.run.T}%`;
    for (const list of lists)
      [...list.children].forEach((name, i) => {
        name.className = i === t ? "current"
                       : i % every || Math.abs(i - t) < every && every > 1 ? "left" : "";
      });
  });
  const row = event => {
    const box = canvas.getBoundingClientRect(), { T } = state.run;
    return Math.min(T - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * T)));
  };
  plot.addEventListener("pointermove", event => set({ pointed: row(event) }));
  plot.addEventListener("pointerleave", () => set({ pointed: null }));
  plot.addEventListener("click", event => set({ token: row(event) }));
  return canvas;
}

// Attention

const attentionMap = buildMap($("attention-map"));
view(attentionMap, s => [s.run, s.block, s.head, s.dark], ({ run, block, head }) => {
  draw(attentionMap, run.T, run.T, t => run.shades(block, head, t));
  attentionMap.ariaLabel = `Attention pattern of block h.${block}, head ${head}`;
});

// All patterns at once. Those of very deep models are drawn smaller: each pixel the largest of
// several.
const overview = $("all-heads"), overviewMark = create("i");
const overviewCanvas = create("canvas", { role: "img" });
overview.append(overviewCanvas, overviewMark);

function smaller(run, block, head, n) {
  const step = Math.ceil(run.T / n), side = Math.ceil(run.T / step);
  const map = range(side).map(() => new Uint8Array(side));
  for (let t = 0; t < run.T; t++) {
    const row = map[Math.floor(t / step)];
    run.shades(block, head, t).forEach((shade, s) => {
      const column = Math.floor(s / step);
      if (shade > row[column]) row[column] = shade;
    });
  }
  return map;
}

view(overview, s => [s.run, s.dark], ({ run }) => {
  const most = run.L * run.H > 400 ? 24 : 64;
  const side = smaller(run, 0, 0, most).length, gap = Math.ceil(side / 12);
  const canvas = overviewCanvas, colours = palette(canvas);
  const columns = run.H * (side + gap) - gap, rows = run.L * (side + gap) - gap;
  const pixels = new Uint32Array(rows * columns);    // the gaps are transparent
  for (let block = 0; block < run.L; block++)
    for (let head = 0; head < run.H; head++)
      smaller(run, block, head, most).forEach((row, r) => {
        const start = (block * (side + gap) + r) * columns + head * (side + gap);
        row.forEach((shade, c) => { pixels[start + c] = colours[shade]; });
      });
  Object.assign(canvas, { width: columns, height: rows });
  canvas.getContext("2d").putImageData(
    new ImageData(new Uint8ClampedArray(pixels.buffer), columns, rows), 0, 0);
  canvas.ariaLabel = `Attention patterns of all heads: ${run.L} rows of ${run.H}`;
  overview.style.setProperty("--heads", run.H);
  overview.style.setProperty("--blocks", run.L);
});
view(overview, s => [s.run, s.block, s.head], ({ run, block, head }) => {
  Object.assign(overviewMark.style, {
    left: `${100 * head / run.H}%`, top: `${100 * block / run.L}%`,
    width: `${100 / run.H}%`, height: `${100 / run.L}%` });
});
overviewCanvas.addEventListener("click", event => {
  const box = overviewCanvas.getBoundingClientRect(), { L, H } = state.run;
  choose({ block: Math.min(L - 1, Math.floor((event.clientY - box.top) / box.height * L)),
           head: Math.min(H - 1, Math.floor((event.clientX - box.left) / box.width * H)) });
});

view($("gaze"), s => [s.run], ({ run }) => $("gaze").replaceChildren(...run.tokens.map((text, t) => {
  const span = create("span", { textContent: text });
  pointAt(span, t);
  return span;
})));
view($("gaze"), s => [s.run, shown(s), s.block, s.head], s => {
  const t = shown(s), shades = s.run.shades(s.block, s.head, t);
  [...$("gaze").children].forEach((span, i) => {
    span.className = i === t ? "current" : i > t ? "later" : "";
    share(span, (shades[i] ?? 0) / 255);
  });
});
view($("attention-readout"), s => [s.run, shown(s), s.block, s.head], s => {
  const t = shown(s), { run, block, head } = s;
  $("attention-readout").replaceChildren(
    `In block h.${block}, head ${head}, `, token(run.tokens[t]), " takes most from ",
    ...run.nearest(block, head, t).flatMap(([at, weight], k) =>
      [k ? ", " : "", token(run.tokens[at]), ` ${number(weight)}`]), ".");
});
view($("attention-table"), s => [s.run, s.token], ({ run, token: t }) => {
  const table = $("attention-table");
  table.caption.replaceChildren("What ", token(run.tokens[t]), " takes most from, in every head");
  [...table.tBodies[0].rows].forEach((row, block) => [...row.cells].slice(1).forEach((cell, head) => {
    const [s, weight] = run.nearest(block, head, t)[0];
    cell.replaceChildren(pair(token(run.tokens[s]), weight));
    share(cell, weight);
  }));
});
view($("attention-table"), s => [s.run, s.block, s.head], ({ block, head }) => {
  for (const cell of all(".chosen", $("attention-table"))) cell.classList.remove("chosen");
  $("attention-table").tBodies[0].rows[block].cells[head + 1].classList.add("chosen");
});

// The row of the token in every table of tokens
for (const table of ["tokens-table", "table-norm", "table-mean", "table-scale", "mlp-table",
                     "lens-table"].map($))
  view(table, s => [s.run, shown(s)], s => {
    for (const row of all(".current", table)) row.classList.remove("current");
    table.tBodies[0].rows[shown(s)].classList.add("current");
  });

// The MLPs

const mlpMap = buildMap($("mlp-map"));
view(mlpMap, s => [s.run, s.block, s.dark], ({ run, block }) => {
  draw(mlpMap, run.T, run.unitShades(block, 0).length, t => run.unitShades(block, t));
  mlpMap.ariaLabel = `Units of the MLP of block h.${block}`;
  $("mlp-largest").textContent = number(run.peak(block));
});
view($("mlp-readout"), s => [s.run, shown(s), s.block], s => {
  const t = shown(s), { run, block } = s;
  $("mlp-readout").replaceChildren(
    `In block h.${block}, ${number(100 * run.active(block, t))}% of the units are above 0 at `,
    token(run.tokens[t]), ". The strongest are ",
    run.units(block, t).map(([unit, value]) => `unit ${unit} (${number(value)})`).join(", "), ".");
});

// The stream: lines over its points, one for each token

["norm", "mean", "scale"].forEach((name, kind) => {
  const place = $(`chart-${name}`), log = name !== "mean";
  const scale = log ? x => Math.log10(Math.max(x, 1e-9)) : x => x;
  view(place, s => [s.run, s.width], ({ run }) => {
    const rows = range(run.T).map(t => run.stream(kind, t));
    const width = place.clientWidth, height = place.clientHeight, left = 56, bottom = 20;
    const values = rows.flat().map(scale);
    const low = Math.min(...values), high = Math.max(...values, low + 1e-9);
    const x = n => left + (width - left - 6) * n / (run.points.length - 1);
    const y = value => (height - bottom) * (1 - (scale(value) - low) / (high - low));
    const ends = [low, (low + high) / 2, high].map(v => log ? 10 ** v : v);
    place.setAttribute("viewBox", `0 0 ${width} ${height}`);
    place.replaceChildren(
      ...ends.flatMap(value => [
        svg("line", { class: "axis", x1: left, x2: width, y1: y(value), y2: y(value) }),
        svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)),
      ]),
      svg("text", { x: left, y: height - 2 }, "embedding"),
      svg("text", { x: width, y: height - 2, "text-anchor": "end" }, run.points.at(-1)),
      ...rows.map(row => svg("polyline", {
        class: "line", points: row.map((value, n) => `${x(n)},${y(value)}`).join(" ") })),
    );
  });
  view(place, s => [s.run, s.width, shown(s)], s => {
    for (const line of all(".current", place)) line.classList.remove("current");
    all(".line", place)[shown(s)].classList.add("current");
  });
});
view($("stream-readout"), s => [s.run, shown(s)], s => {
  const t = shown(s), [norm, mean, scale] = [0, 1, 2].map(kind => s.run.stream(kind, t));
  $("stream-readout").replaceChildren(
    "The vector of ", token(s.run.tokens[t]), ` has norm ${number(norm[0])} as it enters the first `
    + `block and ${number(norm.at(-1))} as it leaves the last. There its mean is `
    + `${number(mean.at(-1))}, and its standard deviation ${number(scale.at(-1))}.`);
});

// The logit lens

view($("lens-table"), s => [s.run], ({ run }) => {
  [...$("lens-table").tBodies[0].rows].forEach((row, t) => [...row.cells].slice(1).forEach(
    (cell, n) => share(cell, run.lens(n ? run.tabled[n - 1] + 1 : 0, t)[0][1])));
});
view($("lens-now"), s => [s.run, shown(s)], s => {
  const t = shown(s), { run } = s;
  $("lens-caption").replaceChildren("The five likeliest after ", token(run.tokens[t]));
  $("lens-now").replaceChildren(...range(run.L + 1).map(point => create("tr", {},
    create("th", { scope: "row", textContent: point ? `h.${point - 1}` : "wte + wpe" }),
    ...run.lens(point, t).map(([id, chance]) => {
      const cell = create("td", {}, pair(token(run.name(id)), chance));
      share(cell, chance);
      return cell;
    }))));
});

// Sampling. The sliders change no order: the likeliest token stays the likeliest, and what is left
// out is left out from the end.

const TOP_K = [1, 2, 3, 5, 10, 20, 40, 100, 200, 500, 1000, 5000, Infinity];

const orders = new WeakMap();    // of each run, the tokens from the likeliest down
function orderOf({ logits }) {
  if (!orders.has(logits))
    orders.set(logits, Uint32Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b));
  return orders.get(logits);
}

// The probabilities of the tokens that are kept, in that order: temperature, top-k, top-p.
function distribution({ run, temperature, topK, topP }) {
  if (temperature === 0) return [1];
  const weights = [], order = orderOf(run);
  for (const id of order.subarray(0, topK)) {
    const weight = Math.exp((run.logits[id] - run.logits[order[0]]) / temperature);
    if (weight === 0) break;
    weights.push(weight);
  }
  const total = weights.reduce((a, b) => a + b);
  let kept = 1, mass = weights[0];
  while (kept < weights.length && (topP === 1 || mass < topP * total)) mass += weights[kept++];
  return weights.slice(0, kept).map(weight => weight / mass);
}

const aboutSampling = s => [s.run, s.temperature, s.topK, s.topP];

view($("sampling-form"), aboutSampling, s => {
  const topK = s.topK === Infinity ? "all" : String(s.topK);
  $("temperature").value = s.temperature;
  $("top-k").value = TOP_K.indexOf(s.topK);
  $("top-p").value = s.topP;
  $("temperature-value").textContent = s.temperature || "0, the likeliest";
  $("top-k-value").textContent = topK;
  $("top-k").setAttribute("aria-valuetext", topK);
  $("top-p-value").textContent = s.topP;
});
view($("sampling-readout"), aboutSampling, s => {
  const p = distribution(s), entropy = -p.reduce((sum, x) => sum + x * Math.log2(x), 0);
  const [kept, V] = [p.length, s.run.logits.length].map(n => n.toLocaleString("en"));
  $("sampling-readout").textContent =
    `${kept} of ${V} tokens can be drawn, with ${number(entropy)} bits of entropy.`;
});
view($("next-table"), aboutSampling, s => {
  const p = distribution(s), rows = [...$("next-table").tBodies[0].rows];
  const chances = aligned(rows.map((_, rank) => number(p[rank] ?? 0)));
  rows.forEach((row, rank) => {
    row.classList.toggle("left-out", rank >= p.length);
    row.querySelector("rect").setAttribute("width", 100 * (p[rank] ?? 0));
    row.cells[3].textContent = chances[rank];
  });
});

$("top-k").max = TOP_K.length - 1;
$("sampling-form").addEventListener("input", () => set({
  temperature: Number($("temperature").value), topK: TOP_K[$("top-k").value],
  topP: Number($("top-p").value) }));
$("sampling-form").addEventListener("reset", event => {
  event.preventDefault();
  set({ temperature: 1, topK: Infinity, topP: 1 });
});

function pick(p) {
  let rank = 0;
  for (let u = Math.random(); rank < p.length - 1 && u >= p[rank]; rank++) u -= p[rank];
  return rank;
}

$("draw").addEventListener("click", () => {
  const p = distribution(state), rank = pick(p), id = orderOf(state.run)[rank];
  const name = state.run.name(id);
  $("drawn").replaceChildren(name === undefined ? "token" : token(name),
                             ` (${id}), p = ${number(p[rank])}`);
});

// Begin

chooser($("choose-token"), "token", tokenLabels);
chooser($("choose-block"), "block", blockLabels);
chooser($("choose-mlp-block"), "block", blockLabels);
chooser($("choose-head"), "head", headLabels);
view($("choose-token"), s => [s.run], ({ run }) =>
  all("label", $("choose-token")).forEach((label, t) => {
    pointAt(label, t);
    share(label.lastChild, run.surprisal[t] / 20);
  }));
all(".reading[data-name], .reading[data-block]").forEach(reading);

async function begin() {
  const facts = JSON.parse($("run").textContent);
  const run = storedRun(facts, await unpack(facts.arrays, $("arrays").textContent));
  document.documentElement.classList.add("js");
  for (const element of all(".live")) element.hidden = false;
  for (const details of all(".numbers")) details.open = false;
  dark.addEventListener("change", () => set({ dark: dark.matches }));
  new ResizeObserver(([{ contentRect }]) => set({ width: contentRect.width })).observe($("stream"));
  set({ run, ...run.opening, open: 0 });
}
begin();
