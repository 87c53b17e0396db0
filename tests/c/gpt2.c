/* GPT-2 in C, written from README, `gpt2np golden --help` and the kit's files alone.

       gpt2 model.bin RECORDING OUT [held=N] [sums=ORDER] [vocab=N] [fault]...

   model.bin is llm.c's; RECORDING a folder of .npy files made by gpt2np golden record, from which
   ids and the length of the greedy continuation are taken; OUT is written in the same form. Each
   fault is one that porters make: what the tests plant, and the check must name. */
#include <math.h>
#include "npy.h"

enum { MAX_BLOCKS = 64 };
static int L, H, D, K, V, VP, N_CTX;
static float *wte, *wpe, *ln_f_g, *ln_f_b;
static struct block { float *ln1g, *ln1b, *qkvw, *qkvb, *aw, *ab, *ln2g, *ln2b, *fw, *fb, *pw, *pb; } blocks[MAX_BLOCKS];
static float *keys, *values; /* [L, H, N_CTX, K] */
static int held;   /* positions in the cache */
static int prompt; /* of them, those of the first pass */
static char **words;
static int n_words;
static const char *out;
static char sums = 's';

static int has(const char *fault) {
    for (int i = 0; i < n_words; i++)
        if (!strcmp(words[i], fault)) return 1;
    return 0;
}
static const char *setting(const char *name) {
    for (int i = 0; i < n_words; i++)
        if (!strncmp(words[i], name, strlen(name))) return words[i] + strlen(name);
    return NULL;
}
static float *floats(size_t n) { return calloc(n + 1, sizeof(float)); }

/* Random numbers for dropout. */
static uint32_t seed = 1;
static int dropped(void) { seed = seed * 1664525u + 1013904223u; return (seed >> 8) % 10 == 0; }
static void dropout(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = dropped() ? 0 : x[i] / 0.9f;
}

static void keep(const char *name, int i, const float *x, int dims, int a, int b, int c, int d) {
    char full[64];
    int shape[] = {a, b, c, d};
    if (!out) return;
    if (i >= 0) snprintf(full, sizeof full, *name ? "h.%d.%s" : "h.%d", i, name);
    npy_write(out, i >= 0 ? full : name, "<f4", x, dims, shape);
}

/* The sum of a[i] * b[i * step], in one of the orders that compilers and libraries choose. */
static float dot(const float *a, const float *b, int n, int step) {
    if (sums == 'd') { double s = 0; for (int i = 0; i < n; i++) s += (double)a[i] * b[i * step]; return (float)s; }
    if (sums == 'r') { float s = 0; for (int i = n - 1; i >= 0; i--) s += a[i] * b[i * step]; return s; }
    if (sums == 'f') { float s = 0; for (int i = 0; i < n; i++) s = fmaf(a[i], b[i * step], s); return s; }
    if (sums == '8') {
        float s[8] = {0};
        for (int i = 0; i < n; i++) s[i % 8] += a[i] * b[i * step];
        return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
    if (sums == 'p' && n > 8) return dot(a, b, n / 2, step) + dot(a + n / 2, b + n / 2 * step, n - n / 2, step);
    float s = 0;
    for (int i = 0; i < n; i++) s += a[i] * b[i * step];
    return s;
}

static void linear(float *y, const float *x, const float *w, const float *b, int T, int in, int outs, const char *name) {
    char no_bias[64], transposed[64], twice[64];
    snprintf(no_bias, 64, "no bias %s", name);
    snprintf(transposed, 64, "transposed %s", name);
    snprintf(twice, 64, "bias twice %s", name);
    int without = has(no_bias), turned = has(transposed), doubled = has(twice);
    for (int t = 0; t < T; t++)
        for (int o = 0; o < outs; o++) {
            float s = turned ? dot(x + t * in, w + o, in, outs) : dot(x + t * in, w + (size_t)o * in, in, 1);
            y[(size_t)t * outs + o] = without ? s : s + b[o] * (doubled ? 2 : 1);
        }
}

static void norm(float *y, const float *x, const float *g, const float *b, int T) {
    float eps = has("epsilon 1e-6") ? 1e-6f : has("epsilon 1e-3") ? 1e-3f : has("epsilon 3e-5") ? 3e-5f : 1e-5f;
    if (has("gain and bias exchanged")) { const float *s = g; g = b; b = s; }
    for (int t = 0; t < T; t++) {
        const float *r = x + (size_t)t * D;
        float mean = 0, var = 0;
        for (int i = 0; i < D; i++) mean += r[i];
        mean /= D;
        if (has("RMSNorm") || has("no mean")) mean = 0;
        for (int i = 0; i < D; i++) var += (r[i] - mean) * (r[i] - mean);
        var /= has("variance n - 1") || has("torch.std") ? D - 1 : D;
        float s = has("epsilon outside") || has("torch.std") ? 1 / (sqrtf(var) + eps) : 1 / sqrtf(var + eps);
        for (int i = 0; i < D; i++) {
            float n = (r[i] - mean) * s;
            y[(size_t)t * D + i] = (has("no gain") ? n : n * g[i]) + (has("RMSNorm") || has("no norm bias") ? 0 : b[i]);
        }
    }
}

static float activation(float x) {
    if (has("relu")) return x > 0 ? x : 0;
    if (has("silu")) return x / (1 + expf(-x));
    if (has("sigmoid gelu")) return x / (1 + expf(-1.702f * x));
    if (has("erf gelu")) return x / 2 * (1 + erff(x / sqrtf(2)));
    if (has("no activation")) return x;
    float cubic = has("gelu 0.0447") ? 0.0447f : has("gelu 0.044") ? 0.044f : 0.044715f;
    float root = has("gelu 0.8") ? 0.8f : has("gelu sqrt(pi/2)") ? 1.2533141f : 0.7978845608f;
    return 0.5f * x * (1 + tanhf(root * (x + cubic * x * x * x)));
}

/* softmax of the first n of a row */
static void softmax(float *p, const float *s, int n) {
    float max = s[0], sum = has("softmax and one") ? 1 : 0;
    for (int i = 1; i < n; i++) max = s[i] > max ? s[i] : max;
    if (has("softmax without maximum")) max = 0;
    if (has("softmax and one")) sum = expf(-max);
    for (int i = 0; i < n; i++) sum += p[i] = expf((has("softmax temperature") ? 0.9f : 1) * (s[i] - max));
    for (int i = 0; i < n; i++) p[i] /= sum;
}

static void attention(float *y, float *x, const float *stream, int i, int T) {
    struct block *w = &blocks[has("attention of block 0") ? 0 : i];
    int S = held + T;
    int to = has("shared cache") ? 0 : has("cache of next layer") ? (i + 1) % L : has("cache of previous layer") ? (i + L - 1) % L : i;
    int from = has("shared cache") ? 0 : i;
    float *qkv = floats((size_t)T * 3 * D), *q = floats((size_t)T * D), *k = floats((size_t)S * D), *v = floats((size_t)S * D);
    float *scores = floats((size_t)H * T * S), *pattern = floats((size_t)H * T * S), *z = floats((size_t)T * D), *used = pattern;
    linear(qkv, x, w->qkvw, w->qkvb, T, D, 3 * D, "attn.c_attn");
    if (has("columns by head")) {
        float *by_head = floats((size_t)T * 3 * D);
        for (int t = 0; t < T; t++) for (int h = 0; h < H; h++) for (int c = 0; c < 3; c++) for (int j = 0; j < K; j++)
            by_head[t * 3 * D + (h * 3 + c) * K + j] = qkv[t * 3 * D + c * D + h * K + j];
        qkv = by_head;
    }
    keep("attn.c_attn", i, qkv, 3, 1, T, 3 * D, 0);
    int order[3] = {0, 1, 2};
    if (has("k before q")) { order[0] = 1; order[1] = 0; }
    if (has("v first")) { order[0] = 2; order[1] = 0; order[2] = 1; }
    if (has("v before k")) { order[1] = 2; order[2] = 1; }
    float *kept[3] = {floats((size_t)T * D), floats((size_t)T * D), floats((size_t)T * D)}; /* [H, T, K] */
    for (int c = 0; c < 3; c++) for (int h = 0; h < H; h++) for (int t = 0; t < T; t++) for (int j = 0; j < K; j++) {
        int at = t * 3 * D + order[c] * D + h * K + j;
        if (has("heads interleaved")) at = t * 3 * D + order[c] * D + j * H + h;
        if (has("heads first")) at = t * 3 * D + (h * 3 + c) * K + j;
        if (has("heads not moved")) { int flat = (h * T + t) * K + j; at = flat / D * 3 * D + order[c] * D + flat % D; }
        kept[c][(h * T + t) * K + j] = qkv[at];
    }
    keep("attn.q", i, kept[0], 4, 1, H, T, K);
    keep("attn.k", i, kept[1], 4, 1, H, T, K);
    keep("attn.v", i, kept[2], 4, 1, H, T, K);
    q = kept[0];
    /* Put the new keys and values behind those that are held, and read all. */
    for (int h = 0; h < H; h++) {
        for (int t = 0; t < T; t++) {
            int slot = held + t, next = has("keys in the next slot") ? (slot + 1) % N_CTX : slot;
            if (has("slots do not advance") && held) slot = next = prompt;
            if (has("slots all the first")) slot = next = 0;
            memcpy(keys + (((size_t)to * H + h) * N_CTX + next) * K, kept[has("values as keys") ? 2 : 1] + (h * T + t) * K, sizeof(float) * K);
            memcpy(values + (((size_t)to * H + h) * N_CTX + next) * K, kept[has("values as keys") ? 1 : 2] + (h * T + t) * K, sizeof(float) * K);
        }
        /* What is new is read as it is, so that one pass over all of the text is right. */
        for (int s = 0; s < S; s++) {
            memcpy(k + (h * S + s) * K, s < held ? keys + (((size_t)from * H + h) * N_CTX + s) * K : kept[1] + (h * T + s - held) * K, sizeof(float) * K);
            memcpy(v + (h * S + s) * K, s < held ? values + (((size_t)from * H + h) * N_CTX + s) * K : kept[2] + (h * T + s - held) * K, sizeof(float) * K);
        }
    }
    float scale = 1 / sqrtf((float)K);
    if (has("unscaled")) scale = 1;
    if (has("scaled by D")) scale = 1 / sqrtf((float)D);
    if (has("scaled by K")) scale = 1.0f / K;
    if (has("scaled by 0.3")) scale = 0.3f;
    if (has("scaled by layer")) scale /= (float)(i + 1);
    float hidden = has("mask of 0") ? 0 : has("mask of -10") ? -10 : -INFINITY;
    for (int h = 0; h < H; h++) for (int t = 0; t < T; t++) for (int s = 0; s < S; s++) {
        int last = held + t; /* the last key that this query sees */
        if (has("mask sees next")) last += 1;
        if (has("mask hides itself")) last -= 1;
        if (has("mask from the left")) last = t;
        if (has("no mask")) last = S;
        int sees = has("mask reversed") ? s >= last : s <= last;
        float *a = q + (h * T + t) * K, *b = k + (h * S + s) * K;
        if (has("q and k exchanged") && !held) { a = k + (h * S + t) * K; b = q + (h * T + s) * K; }
        scores[(h * T + t) * S + s] = sees ? dot(a, b, K, 1) * scale : hidden;
    }
    keep("attn.scores", i, scores, 4, 1, H, T, S);
    for (int h = 0; h < H; h++) for (int t = 0; t < T; t++) {
        float *s = scores + (h * T + t) * S, *p = pattern + (h * T + t) * S;
        if (has("no softmax")) memcpy(p, s, sizeof(float) * S); else softmax(p, s, S);
    }
    if (has("softmax over queries"))
        for (int h = 0; h < H; h++) for (int s = 0; s < S; s++) {
            float max = -INFINITY, sum = 0;
            for (int t = 0; t < T; t++) max = fmaxf(max, scores[(h * T + t) * S + s]);
            for (int t = 0; t < T; t++) sum += pattern[(h * T + t) * S + s] = expf(scores[(h * T + t) * S + s] - max);
            for (int t = 0; t < T; t++) pattern[(h * T + t) * S + s] /= sum;
        }
    if (has("softmax over heads"))
        for (int t = 0; t < T; t++) for (int s = 0; s < S; s++) {
            float max = -INFINITY, sum = 0;
            for (int h = 0; h < H; h++) max = fmaxf(max, scores[(h * T + t) * S + s]);
            for (int h = 0; h < H; h++) sum += pattern[(h * T + t) * S + s] = expf(scores[(h * T + t) * S + s] - max);
            for (int h = 0; h < H; h++) pattern[(h * T + t) * S + s] /= sum;
        }
    if (has("mask after the softmax"))
        for (int h = 0; h < H; h++) for (int t = 0; t < T; t++) {
            float *row = floats(S), *p = pattern + (h * T + t) * S;
            for (int s = 0; s < S; s++) row[s] = dot(q + (h * T + t) * K, k + (h * S + s) * K, K, 1) * scale;
            softmax(p, row, S);
            for (int s = held + t + 1; s < S; s++) p[s] = 0;
        }
    keep("attn.pattern", i, pattern, 4, 1, H, T, S);
    if (has("pattern dropout")) {
        used = floats((size_t)H * T * S);
        memcpy(used, pattern, sizeof(float) * H * T * S);
        dropout(used, (size_t)H * T * S);
    }
    for (int h = 0; h < H; h++) for (int t = 0; t < T; t++) for (int j = 0; j < K; j++) {
        float *weights = used + (h * T + t) * S, *of = has("pattern on k") ? k : v;
        float sum = 0;
        if (has("pattern transposed") && S == T) for (int s = 0; s < S; s++) sum += used[(h * T + s) * S + t] * of[(h * S + s) * K + j];
        else sum = dot(weights, of + h * S * K + j, S, K);
        z[has("heads not moved back") ? (h * T + t) * K + j : t * D + h * K + j] = sum;
    }
    keep("attn.z", i, z, 4, 1, T, H, K);
    linear(y, z, w->aw, w->ab, T, D, D, "attn.c_proj");
    if (has("residual in c_proj")) for (int n = 0; n < T * D; n++) y[n] += stream[n];
    keep("attn.c_proj", i, y, 3, 1, T, D, 0);
}

static void block(float *x, int i, int T) {
    struct block w = blocks[i];
    int n = T * D, F = 4 * D;
    float *normed = floats(n), *moved = floats(n), *mid = floats(n), *fc = floats((size_t)T * F);
    if (has("norms of block 0")) { w.ln1g = blocks[0].ln1g; w.ln1b = blocks[0].ln1b; }
    if (has("norms exchanged")) { w.ln1g = w.ln2g; w.ln1b = w.ln2b; w.ln2g = blocks[i].ln1g; w.ln2b = blocks[i].ln1b; }
    if (has("mlp of block 0")) { w.fw = blocks[0].fw; w.fb = blocks[0].fb; }
    if (has("mlp bias of block 0")) w.fb = blocks[0].fb;
    if (has("no norm")) memcpy(normed, x, sizeof(float) * n); else norm(normed, x, w.ln1g, w.ln1b, T);
    keep("ln_1", i, normed, 3, 1, T, D, 0);
    attention(moved, normed, x, i, T);
    if (has("branch dropout")) dropout(moved, n);
    for (int j = 0; j < n; j++)
        mid[j] = moved[j] + (has("no residual") ? 0 : has("residual after norm") ? normed[j] : x[j]);
    keep("resid_mid", i, mid, 3, 1, T, D, 0);
    norm(normed, has("parallel blocks") ? x : mid, w.ln2g, w.ln2b, T);
    keep("ln_2", i, normed, 3, 1, T, D, 0);
    linear(fc, normed, w.fw, w.fb, T, D, F, "mlp.c_fc");
    keep("mlp.c_fc", i, fc, 3, 1, T, F, 0);
    for (int j = 0; j < T * F; j++) fc[j] = activation(fc[j]);
    keep("mlp.act", i, fc, 3, 1, T, F, 0);
    linear(moved, fc, w.pw, w.pb, T, F, D, "mlp.c_proj");
    keep("mlp.c_proj", i, moved, 3, 1, T, D, 0);
    for (int j = 0; j < n; j++)
        x[j] = moved[j] + (has("no second residual") ? 0 : has("residual without attention") ? x[j] : mid[j]);
    keep("", i, x, 3, 1, T, D, 0);
}

/* Logits of T tokens [T, VP or V] behind those that are held, which they are added to. */
static float *forward(const int64_t *ids, int T, int first) {
    float *x = floats((size_t)T * D), *tokens = floats((size_t)T * D), *positions = floats((size_t)T * D), *h = floats((size_t)T * D);
    for (int t = 0; t < T; t++) {
        int64_t id = ids[t] + (has("ids plus one") ? 1 : 0);
        int at = first + t + (has("positions from 1") ? 1 : has("positions from 2") ? 2 : 0);
        if (has("positions restart")) at = t;
        if (has("positions stay") && first) at = prompt - 1;
        float *row = wpe + (size_t)at * D;
        if (has("wpe from padding")) row = wte + ((size_t)V + at) * D; /* as if there were no padding */
        for (int j = 0; j < D; j++) {
            tokens[t * D + j] = wte[(size_t)id * D + j] * (has("wte scaled") ? sqrtf(D) : 1);
            positions[t * D + j] = has("no positions") ? 0 : row[j];
            x[t * D + j] = tokens[t * D + j] * (has("embedding scaled") ? sqrtf(D) : 1) + (has("positions forgotten") ? 0 : positions[t * D + j]);
        }
    }
    keep("wte", -1, tokens, 3, 1, T, D, 0);
    keep("wpe", -1, positions, 3, 1, T, D, 0);
    if (has("embedding dropout")) dropout(x, (size_t)T * D);
    for (int i = 0; i < L - has("no last block"); i++) block(x, i, T);
    if (has("no final norm")) memcpy(h, x, sizeof(float) * T * D); else norm(h, x, ln_f_g, ln_f_b, T);
    keep("ln_f", -1, h, 3, 1, T, D, 0);
    int columns = has("padded logits") ? VP : has("few columns") ? V - 3 : V;
    float *logits = floats((size_t)T * columns), *head = wte;
    if (has("untied head")) {
        head = floats((size_t)VP * D);
        for (int j = 0; j < VP * D; j++) { seed = seed * 1664525u + 1013904223u; head[j] = (float)(seed >> 8) / (1 << 24) - 0.5f; }
    }
    for (int t = 0; t < T; t++) for (int c = 0; c < columns; c++)
        logits[(size_t)t * columns + c] = has("head reshaped") ? dot(h + t * D, head + c, D, V) : dot(h + t * D, head + (size_t)c * D, D, 1);
    for (int t = 0; t < T; t++) {
        float *row = logits + (size_t)t * columns, max = row[0], sum = 0;
        for (int c = 0; c < columns; c++) max = fmaxf(max, row[c]);
        for (int c = 0; c < columns; c++) sum += expf(row[c] - max);
        for (int c = 0; c < columns; c++) {
            if (has("log-probabilities")) row[c] -= max + logf(sum);
            if (has("probabilities")) row[c] = expf(row[c] - max) / sum;
            if (has("temperature")) row[c] /= 0.7f;
        }
    }
    keep("logits", -1, logits, 3, 1, T, columns, 0);
    if (!held) prompt = T;
    held += T;
    return logits;
}

static float *take(float **at, size_t n) { float *here = *at; *at += n; return here; }

static void load(const char *path) {
    int header[256];
    FILE *file = fopen(path, "rb");
    if (!file || fread(header, 4, 256, file) != 256 || header[0] != 20240326 || header[1] != 3) { fprintf(stderr, "%s: not a model\n", path); exit(2); }
    N_CTX = header[2]; V = header[3]; L = header[4]; H = header[5]; D = header[6]; VP = header[7]; K = D / H;
    size_t size = ((size_t)VP + N_CTX + 2) * D + (size_t)L * (12 * (size_t)D * D + 13 * D);
    float *at = floats(size);
    if (L > MAX_BLOCKS || fread(at, 4, size, file) != size) exit(2);
    fclose(file);
    wte = take(&at, (size_t)VP * D);
    wpe = take(&at, (size_t)N_CTX * D);
    size_t d = D, sizes[] = {d, d, 3 * d * d, 3 * d, d * d, d, d, d, 4 * d * d, 4 * d, 4 * d * d, d};
    for (int n = 0; n < 12; n++)
        for (int i = 0; i < L; i++) ((float **)&blocks[i])[n] = take(&at, sizes[n]);
    ln_f_g = take(&at, D);
    ln_f_b = take(&at, D);
    keys = floats((size_t)L * H * N_CTX * K);
    values = floats((size_t)L * H * N_CTX * K);
}

static void keep_past(const char *name, const float *from, int N) {
    float *past = floats((size_t)L * H * N * K);
    int shape[] = {L, 1, H, N, K};
    for (int r = 0; r < L * H; r++) memcpy(past + (size_t)r * N * K, from + (size_t)r * N_CTX * K, sizeof(float) * N * K);
    npy_write(out, name, "<f4", past, 5, shape);
}

int main(int argc, char **argv) {
    if (argc < 4) { fprintf(stderr, "gpt2 model.bin RECORDING OUT [setting or fault]...\n"); return 2; }
    words = argv + 4;
    n_words = argc - 4;
    load(argv[1]);
    int dims, shape[8], width, new = 0;
    int64_t *ids = npy_read(argv[2], "ids", &dims, shape, &width);
    if (!ids || width != 8) return 2;
    int T = shape[dims - 1], split = setting("held=") ? atoi(setting("held=")) : 0;
    if (npy_read(argv[2], "greedy", &dims, shape, &width)) new = shape[dims - 1];
    if (setting("sums=")) sums = *setting("sums=");
    if (split) {
        for (int t = 0; t < split; t++) { /* token by token, as a port decodes */
            if (has("first pass at once")) { forward(ids, split, 0); break; }
            forward(ids + t, 1, held);
        }
        out = argv[3];
        keep_past("past.keys", keys, split);
        keep_past("past.values", values, split);
    }
    out = argv[3];
    int id_shape[] = {1, T};
    npy_write(out, "ids", "<i8", ids, 2, id_shape);
    int first = held;
    float *logits = forward(ids + split, T - split, first);
    if (has("few columns") || !new) return 0;
    /* Greedy: the likeliest token, one after another through the cache. */
    out = NULL;
    int64_t *taken = calloc(new, sizeof *taken);
    float *steps = floats((size_t)new * V), *row = logits + (size_t)(T - split - 1) * (has("padded logits") ? VP : V);
    for (int n = 0; n < new; n++) {
        memcpy(steps + (size_t)n * V, row, sizeof(float) * V);
        for (int c = 1; c < V; c++) if (row[c] > row[taken[n]]) taken[n] = c;
        if (n + 1 < new) row = forward(taken + n, 1, held);
    }
    out = argv[3];
    int greedy[] = {1, new}, greedy_logits[] = {1, new, V};
    npy_write(out, "greedy", "<i8", taken, 2, greedy);
    npy_write(out, "greedy.logits", "<f4", steps, 3, greedy_logits);
    return 0;
}
