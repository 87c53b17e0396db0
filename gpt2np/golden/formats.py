"""The page on formats, which `gpt2np golden --help` and README show."""

FORMATS = """\
Axes: B sequences, T new positions, S positions seen (T and those in the cache), H heads, K the
width of a head, D = H K, F = 4 D, V vocabulary, L layers, N positions of a first pass.

ids, greedy                 [B, T], [B, new]    int64
past.keys, past.values      [L, B, H, N, K]     what the cache holds before a second pass
wte, wpe, embed             [B, T, D]           embeddings and their sum; wpe may be [1, T, D]
h.0.ln_1, h.0.ln_2, ln_f    [B, T, D]           with gain and bias
h.0.attn.c_attn             [B, T, 3 D]         q, k and v side by side
h.0.attn.q, .k, .v          [B, H, T, K]
h.0.attn.scores             [B, H, T, S]        scaled and masked: -inf (or below -9000)
h.0.attn.pattern            [B, H, T, S]        after the softmax
h.0.attn.z                  [B, T, H, K]
h.0.attn.c_proj             [B, T, D]           before it is added to what comes in
h.0.resid_mid               [B, T, D]           after that
h.0.mlp.c_fc, .act          [B, T, F]           before and after GELU
h.0.mlp.c_proj, h.0         [B, T, D]           before and after it is added
logits                      [B, T, V]           or of the last position alone, [B, 1, V]
greedy.logits               [B, new, V]         from which each greedy id was taken
h.0.mlp.c_fc.weight, ...    [in, out]           as Hugging Face has them; wte.weight [V, D]

Everything is written in C order, little-endian: activations and weights in the precision of the
run, float32 or float64. Float16 to float64 and all integers are read. Heads may stand before or
behind positions, axes of 1 may be left out, neighbouring axes merged (z as [B, T, D]). Names may be
Hugging Face's modules (transformer.h.0.mlp), TransformerLens's hooks (blocks.0.attn.hook_q), or
OpenAI's weights (model/h0/attn/c_attn/w); "/" may stand for ".".

OUT.npz            NumPy's; the facts (config, versions, ids' text) as JSON in the array "meta"
OUT.safetensors    the same, with "meta" in its metadata
OUT (a folder)     one .npy file for each array, and meta.json
OUT-weights        with --weights: huggingface/ (model.safetensors), openai/ (model.npz,
                   hparams.json), llm.c/model.bin (float32, version 3, matrices as [out, in], the
                   vocabulary padded to a multiple of 128)
golden tokens      cases.txt (text, pieces, ids; in hex), tokens.txt, merges.txt (two ids, theirs),
                   unicode.h; to check: a .txt with your ids of each case on a line
golden sampling    logits, ids, a column for each setting, kept, probabilities, uniforms, drawn

Tolerances: where a step's inputs are in the file, it is computed from them in float64, and may be
off by 16 + sqrt(terms of its sums) roundings, 6e-8 each in float32, relative to the size of what it
adds up. Else the relative error of a row's largest number to the reference: 2e-5 in float32,
1e-11 in float64, 1e-2 in float16, 8e-2 in bfloat16; for the pattern five times as much.\
"""
