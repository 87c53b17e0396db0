// GPT-2 in the page: text -> ids -> activations and logits, one token at a time. What came before
// is kept, which is the cache. Sums are in double precision, vectors in single.

// From text to ids

const PIECE = new RegExp("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+"
  + "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");

// The 256 bytes as the characters that stand for them in a vocabulary.
const BYTES = (() => {
  const own = [..."!~", ..."¡¬", ..."®ÿ"].map(c => c.charCodeAt(0)), characters = [];
  const isOwn = b => [0, 2, 4].some(i => own[i] <= b && b <= own[i + 1]);
  for (let b = 0, n = 256; b < 256; b++) characters.push(String.fromCharCode(isOwn(b) ? b : n++));
  return characters;
})();
const BYTE_OF = new Map(BYTES.map((character, b) => [character, b]));
const written = text => Array.from(new TextEncoder().encode(text), b => BYTES[b]);
const bytesOf = token => Uint8Array.from(token, character => BYTE_OF.get(character));

// The steps from bytes to tokens: each joins the pair that is earliest in the list of merges.
function mergeSteps(symbols, ranks) {
  const steps = [{ parts: [...symbols] }];
  for (;;) {
    let best = Infinity, at = -1;
    for (let i = 0; i + 1 < symbols.length; i++) {
      const rank = ranks.get(`${symbols[i]} ${symbols[i + 1]}`) ?? Infinity;
      if (rank < best) [best, at] = [rank, i];
    }
    if (at < 0) return steps;
    symbols.splice(at, 2, symbols[at] + symbols[at + 1]);
    steps.push({ parts: [...symbols], merge: best + 1 });
  }
}

const encode = ({ ranks, ids }, text) => (text.toWellFormed?.() ?? text).match(PIECE)?.flatMap(
  piece => mergeSteps(written(piece), ranks).at(-1).parts.map(token => ids.get(token))) ?? [];

// From ids to activations

const row = (matrix, i, n) => matrix.subarray(i * n, (i + 1) * n);
const add = (x, y) => x.map((value, i) => value + y[i]);

function dotted(x, y) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}

function layerNorm(x, gain, bias, epsilon) {
  const D = x.length, mean = x.reduce((a, b) => a + b, 0) / D;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / D;
  const scale = 1 / Math.sqrt(variance + epsilon);
  return x.map((value, i) => (value - mean) * scale * gain[i] + bias[i]);
}

// x W + b, with W as [in, out].
function linear(x, W, b) {
  const y = Float64Array.from(b), n = b.length;
  for (let i = 0; i < x.length; i++)
    for (let j = 0, w = i * n; j < n; j++, w++) y[j] += x[i] * W[w];
  return Float32Array.from(y);
}

function normalised(scores) {
  const largest = Math.max(...scores), e = scores.map(score => Math.exp(score - largest));
  const sum = e.reduce((a, b) => a + b, 0);
  return e.map(value => value / sum);
}

// The error function: its series near 0, a continued fraction of its complement beyond.
function erf(x) {
  const a = Math.abs(x);
  if (a < 2.5) {
    let term = x, sum = x;
    for (let n = 1; Math.abs(term) > 1e-17; n++) sum += (term *= -x * x / n) / (2 * n + 1);
    return 2 / Math.sqrt(Math.PI) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + fraction));
}

const ACTIVATION = {
  gelu_new: x => x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  gelu: x => x / 2 * (1 + erf(x / Math.SQRT2)),
};

// The activations of one token after those that `past` has: embed, L blocks, and what comes out.
// `isOff(block, head)` tells of a head that adds nothing.
function forward(model, past, id, isOff = () => false) {
  const { D, H, K, L, epsilon, scales, weights } = model;
  const wte = row(weights["wte.weight"], id, D), wpe = row(weights["wpe.weight"], past.length, D);
  const at = { id, wte, wpe, embed: add(wte, wpe), blocks: [] };
  let x = at.embed;
  for (let i = 0; i < L; i++) {
    const w = name => [weights[`h.${i}.${name}.weight`], weights[`h.${i}.${name}.bias`]];
    const b = { scores: [], pattern: [], z: new Float32Array(D) };
    at.blocks.push(b);
    b.ln_1 = layerNorm(x, ...w("ln_1"), epsilon);
    b.c_attn = linear(b.ln_1, ...w("attn.c_attn"));
    const seen = [...past, at].map(position => position.blocks[i].c_attn);
    for (let h = 0; h < H; h++) {
      const part = (qkv, n) => qkv.subarray(n * D + h * K, n * D + (h + 1) * K);    // q, k or v
      b.scores.push(seen.map(kv => scales[i] * dotted(part(b.c_attn, 0), part(kv, 1))));
      b.pattern.push(normalised(b.scores[h]));
      for (let k = 0; k < K && !isOff(i, h); k++)
        b.z[h * K + k] = dotted(b.pattern[h], seen.map(kv => part(kv, 2)[k]));
    }
    b.attn = linear(b.z, ...w("attn.c_proj"));
    b.resid_mid = add(x, b.attn);
    b.ln_2 = layerNorm(b.resid_mid, ...w("ln_2"), epsilon);
    b.c_fc = linear(b.ln_2, ...w("mlp.c_fc"));
    b.act = b.c_fc.map(ACTIVATION[model.activation]);
    b.mlp = linear(b.act, ...w("mlp.c_proj"));
    x = b.x = add(b.resid_mid, b.mlp);
  }
  return at;
}

const finalNorm = ({ weights, epsilon }, x) =>
  layerNorm(x, weights["ln_f.weight"], weights["ln_f.bias"], epsilon);

function project({ weights, V, D }, h) {
  const head = weights["lm_head.weight"] ?? weights["wte.weight"], logits = new Float32Array(V);
  for (let id = 0, w = 0; id < V; id++) {
    let sum = 0;
    for (let i = 0; i < D; i++, w++) sum += h[i] * head[w];
    logits[id] = sum;
  }
  return logits;
}

// All activations of a text, under the names and in the shapes that `gpt2np golden` compares.
function recording(model, ids) {
  const { D, H, K, L, V } = model, T = ids.length, past = [];
  for (const id of ids) past.push(forward(model, past, id));
  const arrays = {};
  const put = (name, shape, rows) => { arrays[name] = { shape: [1, ...shape], rows }; };
  const heads = (name, block, n) => put(name, [H, T, K], Array.from({ length: H }, (_, h) =>
    past.map(p => p.blocks[block].c_attn.subarray(n * D + h * K, n * D + (h + 1) * K))).flat());
  const square = (name, of, filler) => put(name, [H, T, T], Array.from({ length: H }, (_, h) =>
    past.map(p => Array.from({ length: T }, (_, s) => of(p)[h][s] ?? filler))).flat());
  put("wte", [T, D], past.map(p => p.wte));
  put("wpe", [T, D], past.map(p => p.wpe));
  for (let i = 0; i < L; i++) {
    const each = name => past.map(p => p.blocks[i][name]), F = past[0].blocks[i].act.length;
    put(`h.${i}.ln_1`, [T, D], each("ln_1"));
    put(`h.${i}.attn.c_attn`, [T, 3 * D], each("c_attn"));
    ["q", "k", "v"].forEach((name, n) => heads(`h.${i}.attn.${name}`, i, n));
    square(`h.${i}.attn.scores`, p => p.blocks[i].scores, -Infinity);
    square(`h.${i}.attn.pattern`, p => p.blocks[i].pattern, 0);
    put(`h.${i}.attn.z`, [T, H, K], each("z"));
    put(`h.${i}.attn.c_proj`, [T, D], each("attn"));
    put(`h.${i}.resid_mid`, [T, D], each("resid_mid"));
    put(`h.${i}.ln_2`, [T, D], each("ln_2"));
    put(`h.${i}.mlp.c_fc`, [T, F], each("c_fc"));
    put(`h.${i}.mlp.act`, [T, F], each("act"));
    put(`h.${i}.mlp.c_proj`, [T, D], each("mlp"));
    put(`h.${i}`, [T, D], each("x"));
  }
  const finals = past.map(p => finalNorm(model, p.blocks.at(-1).x));
  put("ln_f", [T, D], finals);
  put("logits", [T, V], finals.map(h => project(model, h)));
  return arrays;
}

// Named arrays as a .safetensors file: the length of a header, the header, and all numbers.
function safetensors(arrays) {
  const header = {}, parts = [];
  let start = 0;
  for (const [name, { shape, rows }] of Object.entries(arrays)) {
    const size = 4 * rows.reduce((sum, x) => sum + x.length, 0);
    header[name] = { dtype: "F32", shape, data_offsets: [start, start += size] };
    parts.push(...rows.map(x => Float32Array.from(x)));
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  return new Blob([new BigUint64Array([BigInt(text.length)]), text, ...parts]);
}

// A run of it, which is asked for what it is as one that is written in the page

const NOT_SHOWN = /[\p{C}\p{Z}]/u;
const VISIBLE = { " ": "·", "\n": "↵", "\t": "⇥" };

// A token so that nothing of it is invisible; one that is no text, as its bytes. As run.py has it.
function shownToken(token) {
  const bytes = bytesOf(token);
  try {
    return [...new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)].map(c =>
      VISIBLE[c] ?? (NOT_SHOWN.test(c)
        ? `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]` : c)).join("");
  } catch {
    return `[${Array.from(bytes, b => b.toString(16).padStart(2, "0")).join(" ")}]`;
  }
}

const norm = x => Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));

// The k largest entries, of equal ones that with the lower index.
function largest(x, k) {
  const best = [];
  for (let i = 0; i < x.length; i++) {
    if (best.length === k && !(x[i] > best[k - 1][1])) continue;
    best.splice(best.findLastIndex(([, value]) => value >= x[i]) + 1, 0, [i, x[i]]);
    if (best.length > k) best.pop();
  }
  return best;
}

// What is asked for again is computed once.
function remembered(compute) {
  const known = new Map();
  return (...key) => {
    const name = key.join();
    if (!known.has(name)) known.set(name, compute(...key));
    return known.get(name);
  };
}

// What is behind each name of an activation.
const OUTSIDE = { wte: "wte", wpe: "wpe", embed: "embed" };
const INSIDE = { ln_1: "ln_1", "attn.c_attn": "c_attn", "attn.z": "z", "attn.c_proj": "attn",
                 resid_mid: "resid_mid", ln_2: "ln_2", "mlp.c_fc": "c_fc", "mlp.act": "act",
                 "mlp.c_proj": "mlp", "h.{i}": "x" };

// `past` has the positions of a run before, of which those are used again that are the same.
function computedRun(model, ids, off, past = []) {
  const { L, H, D, K, V, tokenizer } = model, T = ids.length;
  const isOff = (block, head) => off.has(`${block},${head}`);
  const same = ids.findIndex((id, t) => past[t]?.id !== id);
  const positions = past.slice(0, same < 0 ? T : same);
  for (const id of ids.slice(positions.length)) positions.push(forward(model, positions, id, isOff));
  const points = ["wte + wpe", ...range(L).flatMap(i => [`h.${i}.resid_mid`, `h.${i}`])];
  const at = (point, t) => point === 0 ? positions[t].embed
    : positions[t].blocks[Math.ceil(point / 2) - 1][point % 2 ? "resid_mid" : "x"];
  // These stand with the position, so that a token that is added does not cost them again.
  const kept = (t, name, compute) => {
    const memo = positions[t].memo ??= new Map();
    if (!memo.has(name)) memo.set(name, compute());
    return memo.get(name);
  };
  const final = t => kept(t, "final", () => finalNorm(model, at(2 * L, t)));
  const logitsOf = t => project(model, final(t));
  const surprisal = (id, t) => t && kept(t, "surprisal", () => {
    const logits = logitsOf(t - 1), most = logits.reduce((a, b) => Math.max(a, b));
    const sum = logits.reduce((total, x) => total + Math.exp(x - most), 0);
    return (Math.log(sum) + most - logits[id]) / Math.LN2;
  });
  const pooled = Math.ceil(positions[0].blocks[0].act.length / 256);
  const pools = remembered((block, t) => {
    const { act } = positions[t].blocks[block];
    return range(Math.ceil(act.length / pooled)).map(c =>
      Math.max(...act.subarray(c * pooled, (c + 1) * pooled)));
  });
  const peak = remembered(block => Math.max(...range(T).flatMap(t => pools(block, t))));
  const run = {
    live: true, T, L, H, D, K, ids, points, positions, tokenizer,
    tokens: ids.map(id => shownToken(tokenizer.tokens[id])),
    scales: model.scales, kept: { all: true, type: "f4" }, tabled: range(L),
    name: id => id < tokenizer.tokens.length ? shownToken(tokenizer.tokens[id]) : `[${id}]`,
    logits: logitsOf(T - 1).map((x, id) => id < tokenizer.tokens.length ? x : -Infinity),
    merges: ids.map(id => mergeSteps(Array.from(tokenizer.tokens[id]), tokenizer.ranks).map(
      ({ parts, merge }) => ({ parts: parts.map(shownToken), merge }))),
    bytes: ids.map(id =>
      Array.from(bytesOf(tokenizer.tokens[id]), b => b.toString(16).padStart(2, "0")).join(" ")),
    get surprisal() { return ids.map(surprisal); },
    shades: (block, head, t) =>
      Uint8Array.from(positions[t].blocks[block].pattern[head], p => Math.round(255 * p)),
    nearest: (block, head, t) => largest(positions[t].blocks[block].pattern[head], 3),
    vector: (name, block, t) => name === "ln_f" ? final(t)
      : name in OUTSIDE ? positions[t][name] : positions[t].blocks[block][INSIDE[name]],
    norm: (name, block, t) => name in OUTSIDE || name in INSIDE || name === "ln_f"
      ? norm(run.vector(name, block, t)) : undefined,
    scores: (block, head, t) => Float64Array.from(positions[t].blocks[block].scores[head]),
    stream: (kind, t) => points.map((_, n) => {
      const x = at(n, t), mean = x.reduce((a, b) => a + b, 0) / D;
      return kind === 0 ? norm(x) : kind === 1 ? mean
        : Math.sqrt(x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / D + model.epsilon);
    }),
    units: (block, t) => largest(positions[t].blocks[block].act, 5),
    active: (block, t) => {
      const { act } = positions[t].blocks[block];
      return act.reduce((n, x) => n + (x > 0), 0) / act.length;
    },
    peak,
    unitShades: (block, t) => pools(block, t).map(x =>
      peak(block) > 0 ? Math.round(255 * Math.max(0, x) / peak(block)) : 0),
    lens: (point, t) => kept(t, `lens ${point}`, () => {
      const logits = point === L ? logitsOf(t) : project(model, finalNorm(model, at(2 * point, t)));
      const most = logits.reduce((a, b) => Math.max(a, b));
      const sum = logits.reduce((total, x) => total + Math.exp(x - most), 0);
      return largest(logits, 5).map(([id, x]) => [id, Math.exp(x - most) / sum]);
    }),
    best: t => kept(t, "best", () => largest(logitsOf(t), 4)),
    // Every cell of a product can be taken apart.
    marked: (name, block, head, t) => name === "logits" ? run.best(t).map(([id]) => id)
      : name in INPUT ? range(run.vector(name, block, t).length) : [],
    terms(name, block, head, t, cell) {
      const x = run.vector(INPUT[name], block, t);
      if (name === "logits")
        return dot(x, row(model.weights["lm_head.weight"] ?? model.weights["wte.weight"], cell, D));
      const W = model.weights[`h.${block}.${name}.weight`], b = model.weights[`h.${block}.${name}.bias`];
      return { ...dot(x, Array.from(x, (_, i) => W[i * b.length + cell])), bias: b[cell] };
    },
  };
  return run;
}

// The live page: a text to type, heads to switch off, another text to hold against it

const MOST_TOKENS = 64;

function beginLive(facts, arrays) {
  const text = bytes => new TextDecoder().decode(bytes.values);
  const merges = text(arrays.merges).split("\n"), tokens = JSON.parse(text(arrays.tokens));
  const weights = {};
  for (const [name, array] of Object.entries(arrays))
    if (name.startsWith("weight ")) weights[name.slice(7)] = array.values;
  const model = { ...facts.model, weights, tokenizer: {
    tokens, ids: new Map(tokens.map((token, id) => [token, id])),
    ranks: new Map(merges.map((merge, rank) => [merge, rank])) } };
  const most = Math.min(MOST_TOKENS, model.n_ctx);

  // Run a text, or ids, or say why not.
  function read(ids, told, change) {
    const wrong = ids.length === 0 ? "Type a text." : ids.length > most
      ? `${ids.length} tokens: this page shows at most ${most}.` : "";
    told.textContent = wrong;
    if (!wrong) change(ids);
  }
  function follow(ids, off = state.off) {
    const same = off === state.off ? state.run.positions : [];
    const start = performance.now(), run = computedRun(model, ids, off, same);
    const token = state.token === state.run.T - 1 ? run.T - 1 : Math.min(state.token, run.T - 1);
    const reused = same.filter((position, t) => run.positions[t] === position).length;
    $("live-told").textContent = `${run.T} tokens, ${reused} of them out of the cache, in `
      + `${Math.round(performance.now() - start)} ms.`;
    set({ run, off, token, pointed: null, taken: null, cell: null });
    if (state.other) compare(state.other.ids);
  }
  const compare = ids => set({ other: computedRun(model, ids, state.off) });

  $("live-text").addEventListener("input", () =>
    read(encode(model.tokenizer, $("live-text").value), $("live-told"), ids => follow(ids)));
  $("other-text").addEventListener("input", () => {
    if ($("other-text").value) read(encode(model.tokenizer, $("other-text").value), $("other-told"), compare);
    else { $("other-told").textContent = ""; set({ other: null }); }
  });
  $("head-off").addEventListener("change", () => {
    const off = new Set(state.off), name = `${state.block},${state.head}`;
    if (!off.delete(name)) off.add(name);
    follow(state.run.ids, off);
  });
  $("all-on").addEventListener("click", () => follow(state.run.ids, new Set()));
  view($("head-off"), s => [s.off, s.block, s.head], s => {
    $("head-off").checked = s.off.has(`${s.block},${s.head}`);
    $("head-off-name").textContent = `Switch off head ${s.head} of block h.${s.block}`;
    $("all-on").disabled = s.off.size === 0;
    $("off-told").textContent = s.off.size ? "Off: " + [...s.off].map(name =>
      "h." + name.replace(",", " head ")).join(", ") + "." : "";
  });

  // Drawing a token appends it.
  drawn.append = id => read([...state.run.ids, id], $("live-told"), ids => {
    const bytes = bytesOf(ids.map(id => tokens[id]).join(""));
    $("live-text").value = new TextDecoder().decode(bytes);
    follow(ids);
  });
  $("save").addEventListener("click", () => {
    const url = URL.createObjectURL(safetensors(recording(model, state.run.ids)));
    create("a", { href: url, download: "activations.safetensors" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  });
  liveTables();
  return model;
}

// The tables that Python wrote, of another run.
function liveTables() {
  const fill = (table, header, rows) => {
    table.tHead.rows[0].replaceChildren(...header.map(text =>
      create(text ? "th" : "td", { textContent: text, ...text ? { scope: "col" } : {} })));
    table.tBodies[0].replaceChildren(...rows.map(([name, ...cells]) => create("tr", {},
      create("th", { scope: "row" }, name), ...cells.map(cell => create("td", {}, cell)))));
  };
  const perToken = (run, cells) => run.tokens.map((text, t) => [token(text), ...cells(t)]);
  const columns = rows => {
    const texts = rows[0].map((_, c) => aligned(rows.map(row => number(row[c]))));
    return t => texts.map(column => column[t]);
  };
  const tables = {
    "table-norm": run => [["", ...run.points], columns(range(run.T).map(t => run.stream(0, t)))],
    "table-mean": run => [["", ...run.points], columns(range(run.T).map(t => run.stream(1, t)))],
    "table-scale": run => [["", ...run.points], columns(range(run.T).map(t => run.stream(2, t)))],
    "mlp-table": run => [["", ...blockLabels(run).flat()], t => range(run.L).map(i => {
      const [unit, value] = run.units(i, t)[0];
      return pair(create("span", { textContent: `unit ${unit}` }), value);
    })],
  };
  for (const [id, table] of Object.entries(tables))
    views.unshift({ place: $(id), about: s => [s.run], drawn: [], draw({ run }) {
      const [header, cells] = table(run);
      fill($(id), header, perToken(run, cells));
    } });
  views.unshift({ place: $("tokens-table"), about: s => [s.run], drawn: [], draw({ run }) {
    const bits = aligned(run.surprisal.map((x, t) => t ? number(x) : "–"));
    $("tokens-table").tBodies[0].replaceChildren(...run.tokens.map((text, t) => {
      const bar = svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none",
                               "aria-hidden": "true" },
                      svg("rect", { width: Math.min(100, 5 * run.surprisal[t]), height: 8 }));
      return create("tr", {}, ...[t, null, run.ids[t], bits[t]].map((cell, c) => c === 1
        ? create("th", { scope: "row" }, token(text))
        : create("td", { className: "number", textContent: cell })), create("td", {}, bar),
        create("td", { textContent: run.bytes[t] }));
    }));
  } });
  // The lens of all tokens takes long: a row at a time, when there is time.
  views.unshift({ place: $("lens-table"), about: s => [s.run], drawn: [], draw({ run }) {
    fill($("lens-table"), ["", "wte + wpe", ...blockLabels(run).flat()],
         perToken(run, () => range(run.L + 1).map(() => "…")));
    const next = t => {
      if (state.run !== run || t === run.T) return;
      const cells = [...$("lens-table").tBodies[0].rows[t].cells].slice(1);
      cells.forEach((cell, point) => {
        const [id, chance] = run.lens(point, t)[0];
        cell.replaceChildren(pair(token(run.name(id)), chance));
        share(cell, chance);
      });
      whenIdle(() => next(t + 1));
    };
    whenIdle(() => next(0));
  } });
  view($("other-table"), s => [s.run, s.other], ({ run, other }) => {
    $("compared").hidden = !other;
    if (!other) return;
    const last = r => r.T - 1;
    const rows = range(run.L + 1).map(point => {
      const x = run.vector(point ? "h.{i}" : "embed", point - 1, last(run));
      const y = other.vector(point ? "h.{i}" : "embed", point - 1, last(other));
      const next = r => { const [id, p] = r.lens(point, last(r))[0]; return pair(token(r.name(id)), p); };
      return [point ? `h.${point - 1}` : "wte + wpe", next(run), next(other),
              number(dotted(x, y) / norm(x) / norm(y))];
    });
    fill($("other-table"), ["", "this text", "the other", "cosine of the two vectors"], rows);
  });
}
