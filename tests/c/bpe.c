/* GPT-2's tokenizer in C, from the files that `gpt2np golden tokens` writes alone.

       bpe KIT [fault]... < KIT/cases.txt > ids.txt

   unicode.h comes from the kit as well: compile with -I KIT. Each fault is one that porters make. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "unicode.h"

enum { MAX_TOKENS = 50300, SLOTS = 1 << 17, MAX_TEXT = 4096 };
static int byte_id[256], n_merges, lengths[MAX_TOKENS];
static unsigned char bytes[MAX_TOKENS][160];
static struct merge { int a, b, to, rank; } slots[SLOTS];
static char **words;
static int n_words;

static int has(const char *fault) {
    for (int i = 0; i < n_words; i++)
        if (!strcmp(words[i], fault)) return 1;
    return 0;
}

static struct merge *find(int a, int b) {
    uint32_t at = ((uint32_t)a * 2654435761u ^ (uint32_t)b * 40503u) % SLOTS;
    while (slots[at].to && (slots[at].a != a || slots[at].b != b)) at = (at + 1) % SLOTS;
    return &slots[at];
}

static FILE *open_in(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file) { perror(path); exit(2); }
    return file;
}

static int unhex(unsigned char *out, const char *in) {
    int n = 0;
    unsigned byte;
    for (; sscanf(in, "%2x", &byte) == 1; in += 2) out[n++] = (unsigned char)byte;
    return n;
}

static void load(const char *kit) {
    int id, a, b, to;
    char hex[400];
    FILE *file = open_in(kit, "tokens.txt");
    while (fscanf(file, "%d %399s", &id, hex) == 2) {
        lengths[id] = unhex(bytes[id], hex);
        if (lengths[id] == 1) byte_id[bytes[id][0]] = id;
    }
    fclose(file);
    file = open_in(kit, "merges.txt");
    for (; fscanf(file, "%d %d %d", &a, &b, &to) == 3; n_merges++) {
        struct merge *slot = find(a, b);
        *slot = (struct merge){a, b, to, n_merges};
    }
    fclose(file);
}

static int within(unsigned c, const unsigned ranges[][2], int n) {
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (ranges[middle][1] < c) low = middle + 1; else high = middle;
    }
    return low < n && ranges[low][0] <= c;
}
#define IN(c, ranges) within(c, ranges, (int)(sizeof(ranges) / sizeof(ranges[0])))
static int letter(unsigned c) {
    if (has("ASCII classes")) return (c | 32) >= 'a' && (c | 32) <= 'z';
    return IN(c, letters);
}
static int number(unsigned c) { return has("ASCII classes") ? c >= '0' && c <= '9' : IN(c, numbers); }
static int space(unsigned c) {
    if (has("ASCII classes") || has("ASCII spaces")) return c == ' ' || (c >= 9 && c <= 13);
    return IN(c, spaces);
}
static int other(unsigned c) { return !letter(c) && !number(c) && !space(c); }

/* The code point that begins at a byte, and how many bytes it has. */
static unsigned decode(const unsigned char *s, int *n) {
    *n = *s < 0x80 ? 1 : *s < 0xE0 ? 2 : *s < 0xF0 ? 3 : 4;
    if (*n == 1 || has("Latin-1")) { *n = 1; return *s; }
    unsigned c = *s & (0xFF >> (*n + 1));
    for (int i = 1; i < *n; i++) c = c << 6 | (s[i] & 0x3F);
    return c;
}

static const unsigned char *end_of(const unsigned char *s, const unsigned char *end, int (*in)(unsigned)) {
    for (int n; s < end && in(decode(s, &n)); s += n) {}
    return s;
}

static const unsigned char *piece(const unsigned char *s, const unsigned char *end) {
    static const char *suffixes[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (*s == '\'' && !has("no contractions"))
        for (int i = 0; i < 7; i++) {
            int n = (int)strlen(suffixes[i]), same = end - s > n;
            for (int j = 0; same && j < n; j++)
                same = (has("contractions of any case") ? s[1 + j] | 32 : s[1 + j]) == suffixes[i][j];
            if (same) return s + 1 + n;
        }
    int n;
    const unsigned char *first = s + (*s == ' ' && s + 1 < end && !has("no space before"));
    int (*kinds[])(unsigned) = {letter, number, other};
    for (int k = 0; k < 3; k++)
        if (kinds[k](decode(first, &n))) return end_of(first, end, kinds[k]);
    const unsigned char *stop = end_of(s, end, space), *last = s;
    if (stop == end || has("no lookahead")) return stop;
    for (const unsigned char *at = s; at < stop; at += n) { last = at; decode(at, &n); }
    return last > s ? last : stop;
}

static int encode_piece(int *ids, const unsigned char *s, int length) {
    int n = 0;
    if (has("longest match")) {
        while (length > 0) {
            int best = byte_id[*s];
            for (int id = 0; id < 50256; id++)
                if (lengths[id] <= length && lengths[id] > lengths[best] && !memcmp(bytes[id], s, lengths[id])) best = id;
            ids[n++] = best;
            s += lengths[best];
            length -= lengths[best];
        }
        return n;
    }
    for (int i = 0; i < length; i++) {
        signed char c = (signed char)s[i];
        if (has("sign of char") && c < 0) continue; /* as in `if (c > 0)` */
        ids[n++] = byte_id[has("seven bits") ? s[i] & 127 : s[i]];
    }
    while (!has("no merges")) {
        struct merge *best = NULL;
        for (int i = 0; i + 1 < n; i++) {
            struct merge *m = find(ids[i], ids[i + 1]);
            if (m->to && (!best || (has("highest rank") ? m->rank > best->rank : m->rank < best->rank))) {
                best = m;
                if (has("first pair")) break;
            }
        }
        if (!best) break;
        int k = 0, a = best->a, b = best->b;
        for (int i = 0; i < n; k++) {
            int whole = i + 1 < n && ids[i] == a && ids[i + 1] == b;
            ids[k] = whole ? best->to : ids[i];
            i += whole ? 2 : 1;
        }
        n = k;
    }
    if (has("byte order")) for (int i = 0; i < n; i++) if (lengths[ids[i]] == 1) ids[i] = bytes[ids[i]][0];
    return n;
}

int main(int argc, char **argv) {
    static char line[MAX_TEXT];
    static unsigned char text[MAX_TEXT];
    static int ids[MAX_TEXT];
    if (argc < 2) return 2;
    words = argv + 2;
    n_words = argc - 2;
    load(argv[1]);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\t\n")] = 0;
        int length = *line == '-' ? 0 : unhex(text, line), any = 0;
        if (has("NUL ends")) length = (int)strnlen((char *)text, length);
        if (has("bos")) any = printf("50256");
        for (const unsigned char *s = text, *end = text + length, *next; s < end; s = next) {
            next = has("not cut") ? end : piece(s, end);
            int n = encode_piece(ids, s, (int)(next - s));
            for (int i = 0; i < n; i++) any += printf(any ? " %d" : "%d", ids[i]);
        }
        puts(any ? "" : "-");
    }
    return 0;
}
