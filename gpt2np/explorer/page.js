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
const beside = (name, text) =>
  create("span", { className: "pair" }, name, " ", create("span", {}, text));
const pair = (name, value) => beside(name, number(value));
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

// Rows of [name, number] as what stands in a table's cells, the points of a column above another.
function alignedPairs(rows) {
  const columns = rows[0].map((_, c) => aligned(rows.map(row => number(row[c][1]))));
  return rows.map((row, r) => row.map(([name], c) => beside(name, columns[c][r])));
}

// The run: what was computed, and how it is asked for

// Of each type, how many bytes are written, how many a number has, and what it is.
const TYPES = { u1: [1, 1, Uint8Array], u2: [2, 2, Uint16Array], i4: [4, 4, Int32Array],
                f2: [2, 2, Uint16Array], f3: [3, 4, Float32Array], f4: [4, 4, Float32Array] };

// Unpack what data.py packed. Of an array, at(i, j, ...) is an entry, or a row of them.
async function unpack(entries, base64) {
  const text = atob(base64), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  const arrays = {};
  let start = 0;
  for (const [name, type, shape] of entries) {
    const n = shape.reduce((a, b) => a * b, 1), [written, width, Numbers] = TYPES[type];
    const own = new Uint8Array(n * width);
    for (let k = width - written; k < width; k++)
      for (let i = 0; i < n; i++) own[i * width + k] = bytes[start++];
    const numbers = new Numbers(own.buffer);
    arrays[name] = array(type === "f2" ? Float32Array.from(numbers, h => HALF[h]) : numbers, shape);
  }
  return arrays;
}

// Numbers of 16 bits: sign, 5 bits of exponent, 10 of fraction.
const HALF = Float32Array.from(range(65536), h => {
  const e = h >> 10 & 31, fraction = (h & 1023) / 1024;
  return (h >> 15 ? -1 : 1) * (e ? 2 ** (e - 15) * (1 + fraction) : 2 ** -14 * fraction);
});

function array(values, shape) {
  const at = (...index) => {
    let start = 0, size = values.length;
    index.forEach((i, axis) => { size /= shape[axis]; start += i * size; });
    return index.length === shape.length ? values[start] : values.subarray(start, start + size);
  };
  return { shape, values, at };
}

const pairs = (keys, values) => Array.from(keys, (key, i) => [key, values[i]]);

// What each map takes.
const INPUT = { "attn.c_attn": "ln_1", "attn.c_proj": "attn.z", "mlp.c_fc": "ln_2",
                "mlp.c_proj": "mlp.act", logits: "ln_f", "attn.scores": "attn.c_attn",
                "attn.z": "attn.c_attn" };
const ofAttention = name => name === "attn.scores" || name === "attn.z";

// A run that is written in the page.
function storedRun(facts, arrays) {
  const [L, H] = arrays.nearest.shape, { pattern } = arrays, T = facts.tokens.length;
  // An array by an activation's name, inside of a block or outside.
  const find = (what, name) => arrays[`${what} ${name}`] ?? arrays[`${what} h.{i}.${name}`];
  const ofBlock = (found, block) => Math.min(block, found.shape[0] - 1);
  // Vectors may be kept of the last token alone.
  const row = t => facts.kept.all ? t : t === T - 1 ? 0 : null;
  if (facts.shades !== 255)
    pattern.values.forEach((shade, i) => { pattern.values[i] = 255 / facts.shades * shade; });
  return {
    ...facts, L, H, T, logits: arrays.logits.values,
    name: id => facts.names[id],
    // Of 255, what token t takes of those up to itself.
    shades: (block, head, t) => pattern.at(block, head).subarray(t * (t + 1) / 2,
                                                                 (t + 1) * (t + 2) / 2),
    nearest: (block, head, t) => pairs(arrays.nearest.at(block, head, t),
                                       arrays.weights.at(block, head, t)).filter(([s]) => s <= t),
    norm(name, block, t) {
      const found = find("norm", name);
      return found?.at(ofBlock(found, block), t);
    },
    vector(name, block, t) {
      if (row(t) === null) return null;
      const found = find("vector", name) ?? find("coarse", name), at = ofBlock(found, block);
      if (facts.kept.type !== "u1") return found.at(at, row(t));
      const [low, high] = find("range", name).at(at, row(t));
      return Float32Array.from(found.at(at, row(t)), shade => low + shade / 255 * (high - low));
    },
    scores: (block, head, t) => row(t) === null ? null
                              : arrays.scores.at(block, head, row(t)).subarray(0, t + 1),
    best(t) {
      const ids = this.marked("logits", 0, 0, t);
      return ids.length ? ids.map(id => {
        const { terms, others } = this.terms("logits", 0, 0, t, id);
        return [id, terms.reduce((sum, [, x, w]) => sum + x * w, others)];
      }) : null;
    },
    // The places of the cells whose terms are kept, and those of one cell.
    marked(name, block, head, t) {
      const cells = row(t) === null ? null : find("cell", name);
      return !cells ? [] : [...cells.at(ofBlock(cells, block), ofAttention(name) ? head : row(t))];
    },
    terms(name, block, head, t, cell) {
      const n = this.marked(name, block, head, t).indexOf(cell);
      if (n < 0) return null;
      const at = what => {
        const found = find(what, name);
        return found?.at(ofBlock(found, block), ofAttention(name) ? head : row(t), n);
      };
      const x = this.vector(INPUT[name], block, t);
      const w = at("w"), stored = at("x"), bias = at("bias"), others = at("others");
      return { terms: Array.from(at("at"), (i, m) => [i, stored ? stored[m] : x[i], w[m]]),
               others, bias };
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
  cell: null,       // the cell of a vector that is pointed at, as [box, row, index]
  taken: null,      // the cell that is taken apart
  step: null,       // of the guided way
  off: new Set(),   // heads that are switched off, as "block,head", where the page is live
  other: null,      // the run of another text, there
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

// Cells: the chosen token's vectors under the box that makes them

const softmax = x => {
  const largest = x.reduce((a, b) => Math.max(a, b)), e = Array.from(x, v => Math.exp(v - largest));
  const sum = e.reduce((a, b) => a + b);
  return e.map(v => v / sum);
};
const vector = name => (s, t) => s.run.vector(name, s.open ?? 0, t);
const part = n => (s, t) =>
  s.run.vector("attn.c_attn", s.open ?? 0, t)?.subarray(n * s.run.D, (n + 1) * s.run.D);
const scores = (s, t) => s.run.scores(s.open ?? 0, s.head, t);
const input = (s, t) =>    // of a block
  s.open ? s.run.vector("h.{i}", s.open - 1, t) : s.run.vector("embed", 0, t);

// Of each box its rows of cells: a label, the numbers, and whether they lie head by head.
const CELLS = {
  wte: [["E_t", vector("wte")]],
  wpe: [["E_pos", vector("wpe")]],
  embed: [["E_t + E_pos", vector("embed")]],
  ln_1: [["before", input], ["after", vector("ln_1")]],
  "attn.c_attn": [["q", part(0), true], ["k", part(1), true], ["v", part(2), true]],
  "attn.scores": [
    ["q · k", (s, t) => scores(s, t)?.map(x => x / s.run.scales[s.open ?? 0])],
    ["÷ √K + mask", scores],
  ],
  "attn.pattern": [["softmax", (s, t) => { const x = scores(s, t); return x && softmax(x); }]],
  "attn.z": [["z", vector("attn.z"), true]],
  "attn.c_proj": [["z W + b", vector("attn.c_proj")]],
  resid_mid: [["x + attn", vector("resid_mid")]],
  ln_2: [["before", vector("resid_mid")], ["after", vector("ln_2")]],
  "mlp.c_fc": [["x W + b", vector("mlp.c_fc")]],
  "mlp.act": [["gelu", vector("mlp.act")]],
  "mlp.c_proj": [["x W + b", vector("mlp.c_proj")]],
  "h.{i}": [["x + mlp", vector("h.{i}")]],
  logits: [["likeliest", (s, t) => s.run.best(t)?.map(([, logit]) => logit)]],
  ln_f: [["before", (s, t) => s.run.vector("h.{i}", s.run.L - 1, t)], ["after", vector("ln_f")]],
};

// What of the state the cells in a box are about.
const aboutCells = s => [s.run, shown(s), s.open, s.head];
const here = (cell, name) => cell?.[0] === name ? cell : null;
// Scores and patterns have a cell for each token, of which the later ones are masked.
const lengthOf = (name, numbers, run) => /scores|pattern/.test(name) ? run.T : numbers.length;
const columnsOf = n => n <= 256 ? n : n <= 1024 ? 128 : 256;
const printed = (x, run) => run.kept.type === "u1" ? `about ${x.toPrecision(2)}` : number(x);

function cells(place) {
  const name = place.dataset.cells, rows = CELLS[name];
  if (!rows) return;
  const lines = rows.map(([label], row) => line(name, label, row));
  const told = create("p", { className: "told", ariaLive: "polite" }), sum = create("div", {});
  place.append(...lines, told, sum);
  view(place, s => [s.run, shown(s), s.open, s.head, here(s.cell, name)], s => {
    const t = shown(s), at = here(s.cell, name);
    const numbers = rows[at ? at[1] : 0][1](s, t);
    for (const element of lines) element.hidden = !numbers;
    told.replaceChildren(...!numbers ? ["The page has the vectors of the last token alone."]
                       : at ? tell(s, t, name, at, numbers) : []);
  });
  view(place, s => [...aboutCells(s), here(s.taken, name)], s =>
    sum.replaceChildren(...here(s.taken, name) ? [apart(s, shown(s), s.taken)] : []));
}

// A row of cells, which is a slider over them.
function line(name, label, row) {
  const [, numbersOf, byHead] = CELLS[name][row];
  const canvas = create("canvas", {}), mark = create("i", { hidden: true });
  const frame = create("i", { className: "head", hidden: true }), marks = create("span", {});
  const slider = create("div", { role: "slider", tabIndex: 0, ariaLabel: `${name}, ${label}`,
                                 ariaValueMin: 0, ariaValueNow: 0 }, canvas, frame, marks, mark);
  const put = (element, run, n, index, count = 1) => {
    const columns = columnsOf(n), lines = Math.ceil(n / columns);
    Object.assign(element.style, {
      left: `${100 * (index % columns) / columns}%`, width: `${100 * count / columns}%`,
      top: `${100 * Math.floor(index / columns) / lines}%`, height: `${100 / lines}%` });
  };
  view(slider, s => [...aboutCells(s), s.dark], s => {
    const { run, head } = s, t = shown(s), numbers = numbersOf(s, t);
    if (!numbers) return;
    const n = lengthOf(name, numbers, run), columns = columnsOf(n), lines = Math.ceil(n / columns);
    const largest = numbers.reduce((most, x) => Math.max(most, Math.abs(x)), 0) || 1;
    draw(canvas, lines, columns, r => Array.from(
      numbers.slice(r * columns, (r + 1) * columns), x => 255 + Math.round(255 * x / largest)));
    canvas.style.height = `${Math.max(14, 9 * lines)}px`;
    slider.ariaValueMax = n - 1;
    frame.hidden = !byHead;
    if (byHead) put(frame, run, n, head * run.K, run.K);
    const cells = marked(s, t, name, row);
    marks.replaceChildren(...cells.length < n ? cells.map(index => {
      const dot = create("b", {});
      put(dot, run, n, index);
      return dot;
    }) : []);
  });
  view(slider, s => [...aboutCells(s), here(s.cell, name)], s => {
    const at = here(s.cell, name), numbers = numbersOf(s, shown(s));
    mark.hidden = !numbers || at?.[1] !== row;
    if (mark.hidden) return;
    put(mark, s.run, lengthOf(name, numbers, s.run), at[2]);
    slider.ariaValueNow = at[2];
    slider.ariaValueText = tell(s, shown(s), name, at, numbers).map(x => x.textContent ?? x).join("");
  });
  const point = index => set({ cell: [name, row, index] });
  const take = () => set({ taken: state.cell });
  const now = () => here(state.cell, name)?.[1] === row ? state.cell[2] : 0;
  const under = event => {
    const box = canvas.getBoundingClientRect(), columns = canvas.width;
    const at = (from, size, n) => Math.min(n - 1, Math.max(0, Math.floor(from / size * n)));
    return Math.min(Number(slider.ariaValueMax),
                    at(event.clientX - box.left, box.width, columns)
                    + columns * at(event.clientY - box.top, box.height, canvas.height));
  };
  slider.addEventListener("pointermove", event => point(under(event)));
  slider.addEventListener("click", event => { point(under(event)); take(); });
  slider.addEventListener("focus", () => slider.matches(":focus-visible") && point(now()));
  slider.addEventListener("keydown", event => {
    const most = Number(slider.ariaValueMax), columns = canvas.width;
    const moves = { ArrowRight: now() + 1, ArrowLeft: now() - 1, ArrowDown: now() + columns,
                    ArrowUp: now() - columns, Home: 0, End: most };
    if (event.key in moves) point(Math.min(most, Math.max(0, moves[event.key])));
    else if (event.key === "Enter" || event.key === " ") take();
    else if (event.key === "m") point(nextMarked(name, row, now()));
    else return;
    event.preventDefault();
  });
  return create("div", { className: "vector" },
                create("span", { className: "label", textContent: label }), slider);
}

// The cells of a row that can be taken apart; those of c_attn lie side by side in its output.
function marked(s, t, name, row) {
  const { run } = s, block = s.open ?? 0;
  if (ofAttention(name) && run.kept.all)
    return row ? [] : range(name === "attn.scores" ? t + 1 : run.D);
  const cells = run.marked(name, block, s.head, t);
  if (name === "logits") return range(cells.length);
  if (name === "attn.z") return cells.map(cell => s.head * run.K + cell);
  if (name !== "attn.c_attn") return row ? [] : cells;
  return cells.filter(cell => Math.floor(cell / run.D) === row).map(cell => cell % run.D);
}

function nextMarked(name, row, from) {
  const cells = marked(state, shown(state), name, row).sort((a, b) => a - b);
  return cells.find(cell => cell > from) ?? cells[0] ?? from;
}

function tell(s, t, name, [, row, index], numbers) {
  const { run } = s, byHead = CELLS[name][row][2];
  const place = /scores|pattern/.test(name) ? [token(run.tokens[index] ?? ""), ` (${index})`]
              : name === "logits" ? [token(run.name(run.best(t)[index][0]))]
              : byHead ? [`head ${Math.floor(index / run.K)}, ${index % run.K}`] : [String(index)];
  const value = index < numbers.length ? printed(numbers[index], run) : "masked, -∞";
  const more = marked(s, t, name, row).includes(index) ? ". Choose it for its sum." : "";
  return [...place, `: ${value}${more}`];
}

// A dot product term by term, the largest first.
function apart(s, t, [name, row, index]) {
  const found = termsOf(s, t, name, row, index);
  if (!found)
    return create("p", { className: "told", textContent: "Of this cell the page does not have the "
      + "terms: choose one that is marked." });
  const { terms, others, bias, n, labels } = found;
  const products = terms.map(([, x, w]) => x * w);
  const result = products.reduce((a, b) => a + b, 0) + others + bias;
  const lines = [
    ...terms.map(([i, x, w], m) => [labels.term(i), number(x), number(w), number(products[m])]),
    ...n > terms.length ? [[`${n - terms.length} other terms`, "", "", number(others)]] : [],
    ...labels.bias ? [[labels.bias, "", "", number(bias)]] : [],
    [labels.result, "", "", number(result)],
  ];
  const columns = [1, 2, 3].map(c => aligned(lines.map(line => line[c])));
  const head = create("tr", {}, ...["", labels.x, labels.w, "product"].map((text, i) =>
    i ? create("th", { scope: "col", className: "number" }, ...[text].flat()) : create("td", {})));
  const body = lines.map((line, r) => create("tr", { className: r === lines.length - 1 ? "total" : "" },
    create("th", { scope: "row" }, ...[line[0]].flat()),
    ...columns.map((column, c) => create("td", { className: "number",
      textContent: line[c + 1] === "" ? "" : column[r] }))));
  return create("div", { className: "scroll", role: "region", ariaLabel: "Term by term", tabIndex: 0 },
    create("table", {}, create("caption", {}, ...labels.caption),
           create("thead", {}, head), create("tbody", {}, ...body)));
}

// The terms [index, x, w] of a cell, what else is added, and what to call it all.
function termsOf(s, t, name, row, index) {
  const { run, head } = s, block = s.open ?? 0, { D, K } = run;
  const which = i => `${i}`;
  if (name === "attn.scores") {
    const found = run.kept.all ? dot(part(0)(s, t).subarray(head * K, (head + 1) * K),
                                     part(1)(s, index).subarray(head * K, (head + 1) * K))
                               : run.terms(name, block, head, t, index);
    return found && { ...found, n: K, labels: { term: which, x: "q", w: "k", result: "q · k",
      caption: ["q of ", token(run.tokens[t]), " · k of ", token(run.tokens[index]),
                `, block h.${block}, head ${head}`] } };
  }
  if (name === "attn.z") {
    const of = Math.floor(index / K), weights = softmax(run.scores(block, of, t));
    const found = run.kept.all ? dot(weights, weights.map((_, s_) => part(2)(s, s_)[index]))
                : of === head ? run.terms(name, block, head, t, index % K) : null;
    return found && { ...found, n: t + 1, labels: { x: "pattern", w: "v", result: "z",
      term: i => token(run.tokens[i]),
      caption: [`z of head ${of}, number ${index % K}: its value at every token, weighted`] } };
  }
  if (name === "logits") {
    const [id] = run.best(t)[index];
    return { ...run.terms(name, block, head, t, id), n: D, labels: { term: which, x: "h_final",
      w: [token(run.name(id))], result: "logit", caption: ["h_final of ", token(run.tokens[t]),
      " · wte of ", token(run.name(id))] } };
  }
  const cell = name === "attn.c_attn" ? row * D + index : index;
  const found = row && name !== "attn.c_attn" ? null : run.terms(name, block, head, t, cell);
  const label = CELLS[name]?.[row][0];
  return found && { ...found, n: run.vector(INPUT[name], block, t).length,
    labels: { term: which, x: INPUT[name], w: `W[·, ${cell}]`, bias: "bias", result: "sum",
      caption: name === "attn.c_attn"
        ? [`${label} of head ${Math.floor(index / K)}, number ${index % K}, of `, token(run.tokens[t])]
        : [`Number ${index} of ${name}, of `, token(run.tokens[t])] } };
}

// All terms of a dot product, of which the largest are listed.
const LISTED = 6;
function dot(x, w) {
  const all = Array.from(x, (value, i) => [i, value, w[i]]);
  all.sort((a, b) => Math.abs(b[1] * b[2]) - Math.abs(a[1] * a[2]));
  const others = all.slice(LISTED).reduce((sum, [, a, b]) => sum + a * b, 0);
  return { terms: all.slice(0, LISTED), others, bias: 0 };
}

// BPE, merge by merge
const bpe = document.querySelector("[data-cells=tokenizer]");
view(bpe, s => [s.run, shown(s)], s => bpe.replaceChildren(create("ol", { className: "merges" },
  ...s.run.merges[shown(s)].map(({ parts, merge }) => create("li", {},
    ...parts.map(part => create("span", { className: "token", textContent: part })),
    merge ? ` merge ${merge.toLocaleString("en")}` : " bytes")))));

// What else tells of the text
view(document.querySelector(".raw"), s => [s.run], ({ run }) => {
  if (run.live) document.querySelector(".raw .text").textContent = $("live-text").value;
  $("n-tokens").textContent = run.T;
});

// The ids, and the positions, of all tokens
for (const kind of ["ids", "positions"]) {
  const chips = document.querySelector(`.${kind} .chips`);
  view(chips, s => [s.run], ({ run }) => chips.replaceChildren(...range(run.T).map(t => {
    const chip = create("span", { textContent: kind === "ids" ? run.ids[t] : t });
    pointAt(chip, t);
    return chip;
  })));
  view(chips, s => [s.run, shown(s)], s => {
    for (const chip of all(".current", chips)) chip.classList.remove("current");
    chips.children[shown(s)].classList.add("current");
  });
}

// What the cache holds, in words that figures.py has too
view($("kept"), s => [s.run], ({ run }) => {
  if (!run.live) return;
  const each = 2 * run.L * run.D, count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  const of = n => n.toLocaleString("en");
  $("kept").textContent = `Kept after ${count(run.T, "token")}: k and v of ${count(run.L, "block")}, `
    + `${count(run.H, "head")} of ${run.K} numbers: 2 · ${run.L} · ${run.D} · ${run.T} = `
    + `${of(each * run.T)} numbers, ${of(4 * each * run.T)} bytes in float32. The next token adds `
    + `2 · ${run.L} · ${run.D} = ${of(each)} (${of(4 * each)} bytes).`;
});

// The cache: keys and values of the chosen head, a row for each token, and room for the next
const held = document.querySelector("[data-cells=cache]");
{
  const maps = ["k", "v"].map(name => {
    const canvas = create("canvas", { role: "img" }), next = create("div", { className: "next" });
    held.append(create("figure", {}, canvas, next,
                       create("figcaption", { textContent: `${name} of the head` })));
    return canvas;
  });
  view(held, s => [s.run, s.open, s.head, s.dark], s => {
    const { run, head } = s, known = run.vector("attn.c_attn", 0, 0) !== null;
    for (const figure of held.children) figure.hidden = !known;
    if (!known) return;
    maps.forEach((canvas, n) => {
      const rows = range(run.T).map(t => part(n + 1)(s, t).subarray(head * run.K, (head + 1) * run.K));
      const largest = Math.max(...rows.map(row => row.reduce((m, x) => Math.max(m, Math.abs(x)), 0)));
      draw(canvas, run.T, run.K, t => Array.from(rows[t], x => 255 + Math.round(255 * x / largest)));
      canvas.style.height = `${Math.min(8, 240 / run.T) * run.T}px`;
      canvas.ariaLabel = `${"kv"[n]} of block h.${s.open ?? 0}, head ${head}: ${run.T} tokens of ${run.K}`;
    });
  });
}

// Maps: one pixel for a number

// The 256 shades from the canvas's background to its colour, as pixels. Cells have as many below 0,
// to the colour of their border.
function palette(canvas) {
  const style = getComputedStyle(canvas);
  const [above, below, none] = [style.color, style.borderTopColor, style.backgroundColor]
    .map(colour => colour.match(/[\d.]+/g).map(Number));
  const shade = (to, share) => {
    const [r, g, b] = [0, 1, 2].map(k => Math.round(none[k] + share * (to[k] - none[k])));
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  };
  const colours = Uint32Array.from(range(256), i => shade(above, i / 255));
  return canvas.closest(".cells")
    ? Uint32Array.from(range(511), i => i < 255 ? shade(below, 1 - i / 255) : colours[i - 255])
    : colours;
}

// Draw shades, row by row; what is left of a row stays empty.
function draw(canvas, rows, columns, shadesOf) {
  const colours = palette(canvas), pixels = new Uint32Array(rows * columns);
  if (colours.length === 256) pixels.fill(colours[0]);
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
  canvas.style.imageRendering = columns < canvas.clientWidth ? "pixelated" : "auto";
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
  const nearest = range(run.L).map(block => range(run.H).map(head => run.nearest(block, head, t)[0]));
  const pairs = alignedPairs(nearest.map(row => row.map(([s, x]) => [token(run.tokens[s]), x])));
  [...table.tBodies[0].rows].forEach((row, block) => [...row.cells].slice(1).forEach((cell, head) => {
    cell.replaceChildren(pairs[block][head]);
    share(cell, nearest[block][head][1]);
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
  if (!run.live) [...$("lens-table").tBodies[0].rows].forEach((row, t) => [...row.cells].slice(1).forEach(
    (cell, n) => share(cell, run.lens(n ? run.tabled[n - 1] + 1 : 0, t)[0][1])));
});
view($("lens-now"), s => [s.run, shown(s)], s => {
  const t = shown(s), { run } = s;
  $("lens-caption").replaceChildren("The five likeliest after ", token(run.tokens[t]));
  const best = range(run.L + 1).map(point => run.lens(point, t));
  const pairs = alignedPairs(best.map(row => row.map(([id, p]) => [token(run.name(id)), p])));
  $("lens-now").replaceChildren(...best.map((row, point) => create("tr", {},
    create("th", { scope: "row", textContent: point ? `h.${point - 1}` : "wte + wpe" }),
    ...row.map(([, chance], k) => {
      const cell = create("td", {}, pairs[point][k]);
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
  const order = orderOf(s.run);
  const logits = aligned(rows.map((_, rank) => number(s.run.logits[order[rank]] ?? NaN)));
  rows.forEach((row, rank) => {
    if (s.run.live) {
      row.cells[0].replaceChildren(token(s.run.name(order[rank])));
      row.cells[1].textContent = order[rank];
      row.cells[2].textContent = logits[rank];
    }
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
  drawn.append?.(id);
});
const drawn = { append: null };    // where the page is live, what a token that is drawn is added to

// The guided way: one box after another, with the first sentence of what the ledger says of it

const way = all(".flow [data-step]").filter(item => item.querySelector(".sheet"));
const inBlock = item => inside.contains(item);

function sentence(item) {
  const text = item.querySelector(".sheet p").textContent;
  return text.match(/^.*?[.](?= [A-Z]|$)/s)?.[0] ?? text;
}

function go(step) {
  if (step !== null && inBlock(way[step]) && state.open === null) set({ open: state.block });
  set({ step });
}

view($("guide"), s => [s.step], ({ step }) => {
  for (const item of all(".guided")) item.classList.remove("guided");
  $("guide-on").hidden = step === null;
  $("guide-start").hidden = step !== null;
  if (step === null) return;
  way[step].classList.add("guided");
  $("guide-back").disabled = step === 0;
  $("guide-next").disabled = step === way.length - 1;
});
view($("guide-told"), s => [s.run, s.step, shown(s), s.open, s.head], s => {
  if (s.step === null) return;
  const item = way[s.step], title = item.querySelector(".title").textContent;
  const reading = item.querySelector(".reading").cloneNode(true).childNodes;
  $("guide-told").replaceChildren(
    create("b", { textContent: `${s.step + 1} of ${way.length}: ${title}. ` }), sentence(item),
    " For ", token(s.run.tokens[shown(s)]), ": ", ...reading.length ? reading : ["see its cells"], ".");
});
// After the readings and cells are drawn, which make the page longer
view($("guide"), s => [s.step], ({ step }) => requestAnimationFrame(() => {
  if (step !== null) way[step].querySelector("details").scrollIntoView({ block: "center" });
}));
for (const [id, to] of [["start", () => 0], ["next", () => state.step + 1],
                        ["back", () => state.step - 1], ["end", () => null]])
  $(`guide-${id}`).addEventListener("click", () => {
    go(to());
    const focus = id === "start" ? "guide-next" : id === "end" ? "guide-start" : null;
    requestAnimationFrame(() => focus && $(focus).focus({ preventScroll: true }));
  });

// The address has what is chosen after its "#", so that it can be sent

const ADDRESSED = ["token", "block", "head", "step"];

function fromAddress({ T, L, H }) {
  const most = { token: T, block: L, head: H, step: way.length }, change = {};
  for (const [key, text] of new URLSearchParams(location.hash.slice(1)))
    if (key in most && /^\d{1,4}$/.test(text) && Number(text) < most[key]) change[key] = Number(text);
  return "block" in change ? { ...change, open: change.block } : change;
}
let opened = false, writing;    // as the page opens, the address stays as it is
view(document.body, s => ADDRESSED.map(key => s[key]), s => {
  const parts = ADDRESSED.filter(key => s[key] !== null).map(key => `${key}=${s[key]}`).join("&");
  clearTimeout(writing);    // once, when the choosing pauses
  if (opened) writing = setTimeout(() => {
    try { history.replaceState(null, "", `#${parts}`); } catch { /* in a frame there is none */ }
  }, 100);
  opened = true;
});
addEventListener("hashchange", () => set(fromAddress(state.run)));

// Begin

chooser($("choose-token"), "token", tokenLabels);
chooser($("choose-block"), "block", blockLabels);
chooser($("choose-mlp-block"), "block", blockLabels);
chooser($("choose-head"), "head", headLabels);
view($("choose-token"), s => [s.run], () =>
  all("label", $("choose-token")).forEach(pointAt));
view($("tokens-table"), s => [s.run], ({ run: { surprisal } }) =>    // which takes time to compute
  all("label", $("choose-token")).forEach((label, t) => share(label.lastChild, surprisal[t] / 20)));
all(".reading[data-name], .reading[data-block]").forEach(reading);
all("[data-cells]").forEach(cells);

async function begin() {
  const facts = JSON.parse($("run").textContent);
  const arrays = await unpack(facts.arrays, $("arrays").textContent);
  const run = facts.model ? computedRun(beginLive(facts, arrays), facts.ids, state.off)
                          : storedRun(facts, arrays);
  document.documentElement.classList.add("js");
  for (const element of all(".live")) element.hidden = false;
  for (const details of all(".numbers")) details.open = false;
  dark.addEventListener("change", () => set({ dark: dark.matches }));
  new ResizeObserver(([{ contentRect }]) => set({ width: contentRect.width })).observe($("stream"));
  const { token: t, head } = facts.opening;
  set({ run, ...facts.opening, open: 0, taken: ["attn.scores", 0, run.kept.all
    ? run.nearest(0, head, t)[0][0] : run.marked("attn.scores", 0, head, t)[0]] });
  set(fromAddress(run));
  if (run.live) document.documentElement.classList.add("alive");
}
begin();
