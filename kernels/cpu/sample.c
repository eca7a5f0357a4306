/* kernels/cpu/sample.c: one row of logits becomes a token. Every step is exact (integers, or single roundings that
 * IEEE fixes), so another device that follows these rules draws the same token.
 *
 *  0. Edits change single logits (struct logit_edit). They are undone after the draw, before log-probabilities.
 *  1. Logits are cleaned: NaN and -inf become -FLT_MAX, +inf becomes FLT_MAX, -0 becomes 0. Ids >= n_vocab are ignored.
 *  2. temperature 0 (or not above 0): the lowest id among the largest logits. Done.
 *  3. Each id weighs w, an integer of at most 2^40 (sample_weights.h).
 *  4. Ids are ranked by logit, largest first, equal logits by id, lowest first. A cut keeps a prefix of that ranking:
 *     top_k keeps k ids; top_p the shortest prefix of those whose weights reach
 *     ceil((double)top_p * (double)(their total weight)), at least 1; top_p >= 1 is off.
 *  5. min_p drops what weighs less than (double)min_p * 2^40.
 *  6. With `total` the weight that is left, r = splitmix64's output function applied to
 *     (splitmix64(seed) + (draw + 1) * 0x9e3779b97f4a7c15), and t = floor(r * total / 2^64): the token is the first in
 *     rising id whose running sum of weights exceeds t.
 *
 * A cut is found by radix selection: histograms over the leading, middle and last bits of the order-preserving integer
 * form of the logit. Three passes, no sorting, no memory beyond the histogram, and integer sums in any order agree. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/sample_weights.h"

#define WEIGHT_ONE ((uint64_t)1 << 40)

/* Keeps ids whose key is above `key`, and the first `equal` ids whose key is `key`. */
struct cut {
    uint32_t key;
    uint64_t equal;
};

struct sample_row {
    const struct cpu_kernels *kernels;
    const float *logits;
    int n;
    double largest, temperature;
    struct cut cut;
    uint64_t least; /* min_p: smaller weights are dropped */
};

/* A part of the keys: those whose bits above `shift` are prefix, followed by any digit of DIGIT_BITS. */
struct part {
    uint32_t prefix;
    int shift;
};

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* The digit of a key that is in the part. */
static uint32_t part_digit(struct part part, uint32_t key) { return (key >> part.shift) - (part.prefix << DIGIT_BITS); }

static const struct part all_keys = {.prefix = 0, .shift = 2 * DIGIT_BITS};

/* The ids of one stretch of SAMPLE_BLOCK that the row's cut keeps and that are in the part, and their logits. */
struct sample_stretch {
    int32_t ids[SAMPLE_BLOCK];
    float logits[SAMPLE_BLOCK];
    uint32_t keys[SAMPLE_BLOCK];
    int n;
};

/* Fills *s from id `first` on. *equal counts the ids so far that lie exactly on the cut. There is no branch on the
 * data: logits are in no order that a processor could guess. */
static void collect(const struct sample_row *row, int first, struct part part, uint64_t *equal,
                    struct sample_stretch *s) {
    const uint64_t size = (uint64_t)1 << (part.shift + DIGIT_BITS), low = part.prefix * size;
    const struct cut cut = row->cut;
    uint64_t on_cut = *equal;
    const float *logits = row->logits + first;
    int end = min_int(SAMPLE_BLOCK, row->n - first), n = 0;
    uint32_t keys[SAMPLE_BLOCK];
    row->kernels->keys(keys, logits, end);
    for (int i = 0; i < end; i++) {
        uint32_t key = keys[i], on = key == cut.key;
        uint32_t kept = (key > cut.key) | (on & (on_cut < cut.equal));
        on_cut += on;
        s->ids[n] = first + i;
        s->logits[n] = logits[i];
        s->keys[n] = key;
        n += (int)(kept & (key - low < size));
    }
    s->n = n;
    *equal = on_cut;
}

/* The weights of a stretch; what min_p drops weighs nothing. */
static void stretch_weights(const struct sample_row *row, const struct sample_stretch *s, uint64_t *w) {
    row->kernels->weights(w, s->logits, s->n, row->largest, row->temperature);
    for (int i = 0; i < s->n; i++) w[i] = w[i] < row->least ? 0 : w[i];
}

static uint64_t total_weight(const struct sample_row *row) {
    uint64_t total = 0, equal = 0, w[SAMPLE_BLOCK];
    struct sample_stretch s;
    for (int first = 0; first < row->n; first += SAMPLE_BLOCK) {
        collect(row, first, all_keys, &equal, &s);
        stretch_weights(row, &s, w);
        for (int i = 0; i < s.n; i++) total += w[i];
    }
    return total;
}

/* Adds to histogram[digit] what the kept ids of the part bring: their number, or their weights. */
static void fill_histogram(const struct sample_row *row, struct part part, bool weigh, uint64_t *histogram) {
    uint64_t equal = 0, w[SAMPLE_BLOCK];
    struct sample_stretch s;
    memset(histogram, 0, DIGITS * sizeof *histogram);
    for (int i = 0; i < SAMPLE_BLOCK; i++) w[i] = 1;
    for (int first = 0; first < row->n; first += SAMPLE_BLOCK) {
        collect(row, first, part, &equal, &s);
        if (weigh) stretch_weights(row, &s, w);
        for (int i = 0; i < s.n; i++) histogram[part_digit(part, s.keys[i])] += w[i];
    }
}

/* The weight of every id whose key is `key`. */
static uint64_t key_weight(const struct sample_row *row, uint32_t key) {
    uint32_t bits = key & 0x80000000 ? key & 0x7fffffff : ~key;
    uint64_t weight;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    row->kernels->weights(&weight, &logit, 1, row->largest, row->temperature);
    return weight;
}

/* The shortest prefix of the ranking whose measure (count, or weight) reaches `target`, 1 <= target <= all of it. Ids
 * with one key have one weight, so how many of the last key are needed is a division. */
static struct cut find_cut(const struct sample_row *row, bool weigh, uint64_t target) {
    uint64_t histogram[DIGITS], above = 0;
    uint32_t prefix = 0;
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        fill_histogram(row, (struct part){prefix, shift}, weigh, histogram);
        uint32_t digit = DIGITS - 1;
        while (digit > 0 && above + histogram[digit] < target) above += histogram[digit--];
        prefix = prefix << DIGIT_BITS | digit;
    }
    uint64_t each = weigh ? key_weight(row, prefix) : 1, needed = target - above;
    CHECK(each > 0);
    return (struct cut){.key = prefix, .equal = needed / each + (needed % each != 0)};
}

static uint64_t splitmix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static int32_t draw_token(const struct sample_row *row, uint64_t seed, uint64_t draw) {
    uint64_t total = total_weight(row), r = splitmix64(splitmix64(seed) + draw * 0x9e3779b97f4a7c15);
    uint64_t target = (uint64_t)((unsigned __int128)r * total >> 64);
    uint64_t sum = 0, equal = 0, w[SAMPLE_BLOCK];
    struct sample_stretch s = {.n = 0};
    CHECK(total > 0); /* the largest logit survives every cut and weighs 2^40, so the walk ends inside the row */
    for (int at = 0, first = 0;; at++) {
        for (; at == s.n; first += SAMPLE_BLOCK, at = 0) {
            collect(row, first, all_keys, &equal, &s);
            stretch_weights(row, &s, w);
        }
        if ((sum += w[at]) > target) return s.ids[at];
    }
}

static int32_t sample_row(struct sample_row *row, const struct sample_params *p, int32_t greedy) {
    if (!(p->temperature > 0) || p->top_k == 1) return greedy;
    row->temperature = (double)p->temperature;
    row->cut = (struct cut){.key = 0, .equal = (uint64_t)row->n};
    row->least = 0;
    if (p->top_k > 0 && p->top_k < row->n) row->cut = find_cut(row, false, (uint64_t)p->top_k);
    if (p->top_p < 1) {
        uint64_t total = total_weight(row);
        double wanted = ceil((double)p->top_p * (double)total);
        uint64_t target = wanted >= 1 ? (uint64_t)wanted : 1;
        row->cut = find_cut(row, true, target < total ? target : total);
    }
    if (p->min_p > 0) row->least = (uint64_t)ceil(fmin((double)p->min_p, 1) * (double)WEIGHT_ONE);
    return draw_token(row, p->seed, p->draw);
}

/* log softmax of the raw logits at `id`. */
static float log_probability(const struct sample_row *row, int32_t id) {
    float shifted[SAMPLE_BLOCK];
    double sum = 0;
    for (int first = 0; first < row->n; first += SAMPLE_BLOCK) {
        int n = min_int(SAMPLE_BLOCK, row->n - first);
        for (int i = 0; i < n; i++) shifted[i] = (float)((double)sample_clean(row->logits[first + i]) - row->largest);
        row->kernels->exp(shifted, shifted, n);
        for (int i = 0; i < n; i++) sum += (double)shifted[i];
    }
    return (float)((double)sample_clean(row->logits[id]) - row->largest - log(sum));
}

static int32_t largest_id(const float *logits, int n) {
    int32_t best = 0;
    float largest = sample_clean(logits[0]);
    for (int32_t i = 1; i < n; i++) {
        float x = sample_clean(logits[i]);
        if (x <= largest) continue;
        largest = x;
        best = i;
    }
    return best;
}

struct sampling {
    const struct sample_args *args;
    const struct cpu_kernels *kernels;
};

static float edit_logit(float logit, const struct logit_edit *edit) {
    float x = logit + edit->bias;
    x = x > 0 ? x / edit->repetition : x * edit->repetition;
    return x - edit->penalty;
}

static void row_edit(float *logits, const struct sample_params *p) {
    for (int64_t i = 0; i < p->n_edits; i++) {
        struct logit_edit *edit = &p->edits[i];
        edit->logit = logits[edit->id];
        logits[edit->id] = edit_logit(edit->logit, edit);
    }
}

static void row_restore(float *logits, const struct sample_params *p) {
    for (int64_t i = 0; i < p->n_edits; i++) logits[p->edits[i].id] = p->edits[i].logit;
}

/* The greedy choice, by which weights and sums are scaled. */
static int32_t row_measure(struct sample_row *row) {
    int32_t greedy = largest_id(row->logits, row->n);
    row->largest = (double)sample_clean(row->logits[greedy]);
    return greedy;
}

static void sample_one(const void *context, int i, int thread) {
    (void)thread;
    const struct sampling *s = context;
    const struct sample_args *a = s->args;
    const struct sample_params *p = &a->params[i];
    float *logits = row_f32(a->logits, i);
    struct sample_row row = {.kernels = s->kernels, .logits = logits, .n = a->n_vocab};
    row_edit(logits, p);
    a->ids[i] = sample_row(&row, p, row_measure(&row));
    row_restore(logits, p);
    if (p->n_edits > 0) row_measure(&row);
    a->logprobs[i] = log_probability(&row, a->ids[i]);
}

void cpu_sample(struct backend *b, const struct sample_args *a) {
    struct sampling s = {.args = a, .kernels = cpu_of(b)->kernels};
    cpu_run(b, 16.0 * a->logits.rows * a->n_vocab, a->logits.rows, sample_one, &s);
}
