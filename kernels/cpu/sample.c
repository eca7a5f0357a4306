/* kernels/cpu/sample.c: one row of logits becomes a token. Every step is exact (integers, or single
 * roundings that IEEE fixes), so another device that follows these rules draws the same token.
 *
 *  0. Edits change single logits (struct logit_edit); ids that a mask leaves out have -inf. Both
 * are undone after the draw, before log-probabilities.
 *  1. Logits are cleaned: NaN and -inf become -FLT_MAX, +inf becomes FLT_MAX, -0 becomes 0. Ids >=
 * n_vocab are ignored.
 *  2. temperature 0 (or not above 0): the lowest id among the largest logits. Done.
 *  3. Each id weighs w, an integer of at most 2^40 (sample_weights.h).
 *  4. Ids are ranked by logit, largest first, equal logits by id, lowest first. A cut keeps a
 * prefix of that ranking: top_k keeps k ids; top_p the shortest prefix of those whose weights reach
 *     ceil((double)top_p * (double)(their total weight)), at least 1; top_p >= 1 is off.
 *  5. min_p drops what weighs less than (double)min_p * 2^40.
 *  6. With `total` the weight that is left, r = splitmix64's output function applied to
 *     (splitmix64(seed) + (draw + 1) * 0x9e3779b97f4a7c15), and t = floor(r * total / 2^64): the
 * token is the first in rising id whose running sum of weights exceeds t.
 *
 * A cut is found by radix selection: histograms over the leading, middle and last bits of the
 * order-preserving integer form of the logit. Three passes, no sorting, and integer sums in any
 * order agree.
 *
 * A vocabulary of 256 000 ids makes every pass over it dear, and few ids matter. So the largest
 * logit of each region of the row is remembered: a region is passed over where even that one is cut
 * off or weighs nothing. And once a histogram tells that few ids are left, they are copied out, and
 * the rest of the work sees a short row. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/sample_weights.h"

#define WEIGHT_ONE ((uint64_t)1 << 40)

enum {
    REGIONS = 1024, /* at most, of one row: one block each up to 262 144 ids, more blocks beyond */
    CANDIDATES = 32768 /* ids that can be copied out; 256 KB of stack */
};

/* Keeps ids whose key is above `key`, and the first `equal` ids whose key is `key`. */
struct cut {
    uint32_t key;
    uint64_t equal;
};

struct sample_region {
    uint32_t top; /* its largest key */
    /* total_weight fills in: */
    uint64_t weight; /* of its kept ids */
    uint64_t equal;  /* how many ids of the regions before lie exactly on the cut */
};

/* What one draw writes: on the stack of its thread. */
struct sample_room {
    struct sample_region regions[REGIONS];
    int32_t ids[CANDIDATES]; /* of the copied logits, rising */
    float logits[CANDIDATES];
};

struct sample_row {
    const struct cpu_kernels *kernels;
    struct sample_room *room;
    const float *logits;
    const uint32_t *mask; /* of the ids that may be drawn; NULL: all may */
    const int32_t *ids;   /* of the logits; NULL: 0, 1, ... */
    int n;
    int region; /* ids of one region, whole blocks */
    double largest, temperature;
    struct cut cut;
    uint32_t light; /* smaller keys weigh 0 */
    uint64_t least; /* min_p: smaller weights are dropped */
};

/* Keys from low to low + size - 1. */
struct key_range {
    uint32_t low;
    uint64_t size;
};

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

static const struct key_range all_keys = {.low = 0, .size = (uint64_t)1 << 32};

/* The ids of one stretch of SAMPLE_BLOCK that the row's cut keeps and whose keys are in a range,
 * and their logits. */
struct sample_stretch {
    int32_t at[SAMPLE_BLOCK]; /* places in the row */
    float logits[SAMPLE_BLOCK];
    uint32_t keys[SAMPLE_BLOCK];
    int n;
};

/* The n <= SAMPLE_BLOCK logits from place `first` on, which is a block's first; those of a masked
 * row are written to `room`. A row whose candidates were copied out has no mask any more. */
static const float *block_logits(const struct sample_row *row, int first, int n, float *room) {
    const float *logits = row->logits + first;
    if (row->mask == NULL) return logits;
    for (int start = 0; start < n; start += 32) {
        uint32_t bits = row->mask[(first + start) / 32];
        int end = min_int(32, n - start);
        for (int i = 0; i < end; i++)
            room[start + i] = bits >> i & 1 ? logits[start + i] : -INFINITY;
    }
    return room;
}

/* The first block from `first` on whose region has a key of at least `key`; behind the row: there
 * is none. */
static int find_block(const struct sample_row *row, int first, uint32_t key) {
    while (first < row->n && row->room->regions[first / row->region].top < key)
        first = (first / row->region + 1) * row->region;
    return first;
}

static uint32_t larger_key(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The smallest key that is worth a visit. Ids on the cut that are passed over for weighing nothing
 * are not counted, and nothing depends on which of them the cut keeps. */
static uint32_t lowest_key(const struct sample_row *row, struct key_range range, bool weigh) {
    uint32_t low = larger_key(row->cut.key, range.low);
    return weigh ? larger_key(low, row->light) : low;
}

/* Fills *stretch from place `first` on with all there is. */
static void collect_all(const struct sample_row *row, int first, struct sample_stretch *stretch) {
    float room[SAMPLE_BLOCK];
    stretch->n = min_int(SAMPLE_BLOCK, row->n - first);
    const float *logits = block_logits(row, first, stretch->n, room);
    row->kernels->keys(stretch->keys, logits, stretch->n);
    memcpy(stretch->logits, logits, (size_t)stretch->n * sizeof *stretch->logits);
    for (int i = 0; i < stretch->n; i++) stretch->at[i] = first + i;
}

/* Fills *stretch from place `first` on. *equal counts the ids so far that lie exactly on the cut.
 * There is no branch on the data: logits are in no order that a processor could guess. */
static void collect(const struct sample_row *row, int first, struct key_range range,
                    uint64_t *equal, struct sample_stretch *stretch) {
    if (row->cut.key == 0 && row->cut.equal >= (uint64_t)row->n && range.size == all_keys.size) {
        collect_all(row, first, stretch);
        return;
    }
    const struct cut cut = row->cut;
    uint64_t on_cut = *equal;
    int end = min_int(SAMPLE_BLOCK, row->n - first), n = 0;
    float room[SAMPLE_BLOCK];
    const float *logits = block_logits(row, first, end, room);
    uint32_t keys[SAMPLE_BLOCK];
    row->kernels->keys(keys, logits, end);
    for (int i = 0; i < end; i++) {
        uint32_t key = keys[i], on = key == cut.key;
        uint32_t kept = (key > cut.key) | (on & (on_cut < cut.equal));
        on_cut += on;
        stretch->at[n] = first + i;
        stretch->logits[n] = logits[i];
        stretch->keys[n] = key;
        n += (int)(kept & (key - (uint64_t)range.low < range.size));
    }
    stretch->n = n;
    *equal = on_cut;
}

/* The weights of a stretch; what min_p drops weighs nothing. */
static void stretch_weights(const struct sample_row *row, const struct sample_stretch *stretch,
                            uint64_t *w) {
    row->kernels->weights(w, stretch->logits, stretch->n, row->largest, row->temperature);
    for (int i = 0; i < stretch->n; i++) w[i] = w[i] < row->least ? 0 : w[i];
}

/* The largest keys of the row's regions. */
static void measure_regions(struct sample_row *row) {
    int blocks = (row->n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    float room[SAMPLE_BLOCK];
    row->region = (blocks + REGIONS - 1) / REGIONS * SAMPLE_BLOCK;
    for (int first = 0; first < row->n; first += SAMPLE_BLOCK) {
        struct sample_region *region = &row->room->regions[first / row->region];
        int n = min_int(SAMPLE_BLOCK, row->n - first);
        uint32_t top = row->kernels->top(block_logits(row, first, n, room), n);
        region->top = first % row->region == 0 ? top : larger_key(region->top, top);
    }
}

static int count_regions(const struct sample_row *row) { return (row->n - 1) / row->region + 1; }

/* The sum of all kept weights, and of each region's. */
static uint64_t total_weight(const struct sample_row *row) {
    uint64_t total = 0, equal = 0, w[SAMPLE_BLOCK];
    struct sample_stretch stretch;
    uint32_t low = lowest_key(row, all_keys, true);
    for (int i = 0; i < count_regions(row); i++) row->room->regions[i].weight = 0;

    for (int first = find_block(row, 0, low); first < row->n;
         first = find_block(row, first + SAMPLE_BLOCK, low)) {
        struct sample_region *region = &row->room->regions[first / row->region];
        if (first % row->region == 0) region->equal = equal;
        collect(row, first, all_keys, &equal, &stretch);
        stretch_weights(row, &stretch, w);
        for (int i = 0; i < stretch.n; i++) region->weight += w[i];
    }
    for (int i = 0; i < count_regions(row); i++) total += row->room->regions[i].weight;
    return total;
}

/* Adds to histogram[digit] what the kept ids of the range bring: their number, or their weights.
 * The range has DIGITS digits of 2^shift keys each, and the largest keys may fill fewer. */
static void fill_histogram(const struct sample_row *row, struct key_range range, int shift,
                           bool weigh, uint64_t *histogram) {
    uint64_t equal = 0, w[SAMPLE_BLOCK];
    struct sample_stretch stretch;
    uint32_t low = lowest_key(row, range, weigh);
    memset(histogram, 0, DIGITS * sizeof *histogram);
    for (int i = 0; i < SAMPLE_BLOCK; i++) w[i] = 1;

    for (int first = find_block(row, 0, low); first < row->n;
         first = find_block(row, first + SAMPLE_BLOCK, low)) {
        collect(row, first, range, &equal, &stretch);
        if (weigh) stretch_weights(row, &stretch, w);
        for (int i = 0; i < stretch.n; i++)
            histogram[(stretch.keys[i] - range.low) >> shift] += w[i];
    }
}

/* Makes the row one of the kept ids whose keys are at least `low`, if there is room for them. */
static void shorten_row(struct sample_row *row, uint32_t low) {
    const struct key_range range = {.low = low, .size = all_keys.size - low};
    struct sample_room *room = row->room;
    struct sample_stretch stretch;
    uint64_t equal = 0;
    int n = 0;
    low = lowest_key(row, range, false);
    for (int first = find_block(row, 0, low); first < row->n;
         first = find_block(row, first + SAMPLE_BLOCK, low)) {
        collect(row, first, range, &equal, &stretch);
        if (n + stretch.n > CANDIDATES) return;
        /* A short row shortens in place: what is kept moves forward. */
        for (int i = 0; i < stretch.n; i++)
            room->ids[n + i] = row->ids ? row->ids[stretch.at[i]] : stretch.at[i];
        memcpy(room->logits + n, stretch.logits, (size_t)stretch.n * sizeof *stretch.logits);
        n += stretch.n;
    }
    row->logits = room->logits;
    row->ids = room->ids;
    row->mask = NULL;
    row->n = n;
    measure_regions(row);
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

/* The weight that top_p asks for. */
static uint64_t wanted_weight(double top_p, const uint64_t *histogram) {
    uint64_t total = 0;
    for (int i = 0; i < DIGITS; i++) total += histogram[i];
    double wanted = ceil(top_p * (double)total);
    uint64_t target = wanted >= 1 ? (uint64_t)wanted : 1;
    return target < total ? target : total;
}

/* Cuts behind the shortest prefix of the ranking of `count` ids; where that is 0, of a share of
 * top_p of the weight. Ids with one key have one weight, so how many of the last key are needed is
 * a division. */
static void cut_row(struct sample_row *row, uint64_t count, double top_p) {
    bool weigh = count == 0;
    uint64_t histogram[DIGITS], above = 0, target = count;
    struct key_range range = all_keys;
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        fill_histogram(row, range, shift, weigh, histogram);
        if (target == 0) target = wanted_weight(top_p, histogram);

        uint32_t digit = DIGITS - 1;
        while (digit > 0 && above + histogram[digit] < target) above += histogram[digit--];
        range.low += digit << shift;
        range.size = (uint64_t)1 << shift;
        shorten_row(row, range.low);
    }
    uint64_t each = weigh ? key_weight(row, range.low) : 1, needed = target - above;
    CHECK(each > 0);
    row->cut = (struct cut){.key = range.low, .equal = needed / each + (needed % each != 0)};
}

/* Drops what lies below the count largest regions' tops: it cannot be among the count largest
 * logits. */
static void drop_low(struct sample_row *row, int count) {
    int n = count_regions(row);
    uint32_t low = 0;
    if (count > n) return;
    for (uint32_t bit = (uint32_t)1 << 31; bit > 0; bit >>= 1) {
        int reach = 0;
        for (int i = 0; i < n; i++) reach += row->room->regions[i].top >= (low | bit);
        if (reach >= count) low |= bit;
    }
    shorten_row(row, low);
}

static uint64_t splitmix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static int32_t draw_token(const struct sample_row *row, uint64_t seed, uint64_t draw) {
    uint64_t total = total_weight(row),
             r = splitmix64(splitmix64(seed) + draw * 0x9e3779b97f4a7c15);
    uint64_t target = (uint64_t)((unsigned __int128)r * total >> 64);
    const struct sample_region *region = row->room->regions;
    CHECK(total > 0); /* the largest logit survives every cut and weighs 2^40, so the walk ends
                         inside the row */
    uint64_t sum = 0, w[SAMPLE_BLOCK];
    while (sum + region->weight <= target) {
        sum += region->weight;
        region++;
    }

    struct sample_stretch stretch = {.n = 0};
    uint64_t equal = region->equal;
    int first = (int)(region - row->room->regions) * row->region;
    for (int i = 0;; i++) {
        for (; i == stretch.n; first += SAMPLE_BLOCK, i = 0) {
            collect(row, first, all_keys, &equal, &stretch);
            stretch_weights(row, &stretch, w);
        }
        sum += w[i];
        if (sum > target) return row->ids ? row->ids[stretch.at[i]] : stretch.at[i];
    }
}

/* The key below which e^z weighs nothing: z = -29 is 0.28 of the weight 1, so no rounding on the
 * way matters. */
static uint32_t light_key(const struct sample_row *row) {
    double logit = fmax(row->largest - 29 * row->temperature, -FLT_MAX);
    float below = nextafterf((float)logit, -FLT_MAX);
    return row->kernels->top(&below, 1);
}

/* The draw from a row that was measured. It may shorten the row. */
static int32_t sample_row(struct sample_row *row, const struct sample_params *params,
                          int32_t greedy) {
    if (!(params->temperature > 0) || params->top_k == 1) return greedy;
    row->temperature = (double)params->temperature;
    row->cut = (struct cut){.key = 0, .equal = (uint64_t)row->n};
    row->least = 0;
    row->light = light_key(row);
    if (params->top_k > 0 && params->top_k < row->n) {
        drop_low(row, params->top_k);
        cut_row(row, (uint64_t)params->top_k, 1);
    }
    if (params->top_p < 1) cut_row(row, 0, (double)params->top_p);
    if (params->min_p > 0)
        row->least = (uint64_t)ceil(fmin((double)params->min_p, 1) * (double)WEIGHT_ONE);
    return draw_token(row, params->seed, params->draw);
}

/* log softmax of the raw logits at `id`. */
static float log_probability(const struct sample_row *row, int32_t id) {
    float shifted[SAMPLE_BLOCK];
    double sum = 0;
    for (int first = 0; first < row->n; first += SAMPLE_BLOCK) {
        int n = min_int(SAMPLE_BLOCK, row->n - first);
        for (int i = 0; i < n; i++)
            shifted[i] = (float)((double)sample_clean(row->logits[first + i]) - row->largest);
        row->kernels->exp(shifted, shifted, n);
        for (int i = 0; i < n; i++) sum += (double)shifted[i];
    }
    return (float)((double)sample_clean(row->logits[id]) - row->largest - log(sum));
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

static void row_edit(float *logits, const struct sample_params *params) {
    for (int64_t i = 0; i < params->n_edits; i++) {
        struct logit_edit *edit = &params->edits[i];
        edit->logit = logits[edit->id];
        logits[edit->id] = edit_logit(edit->logit, edit);
    }
}

static void row_restore(float *logits, const struct sample_params *params) {
    for (int64_t i = 0; i < params->n_edits; i++)
        logits[params->edits[i].id] = params->edits[i].logit;
}

/* The row's regions, its largest logit, by which weights and sums are scaled, and the lowest id
 * that has it. */
static int32_t measure_row(struct sample_row *row) {
    uint32_t keys[SAMPLE_BLOCK], top = 0;
    float room[SAMPLE_BLOCK];
    measure_regions(row);
    for (int i = 0; i < count_regions(row); i++) top = larger_key(top, row->room->regions[i].top);
    for (int first = find_block(row, 0, top);; first += SAMPLE_BLOCK) {
        int n = min_int(SAMPLE_BLOCK, row->n - first);
        const float *logits = block_logits(row, first, n, room);
        row->kernels->keys(keys, logits, n);
        for (int i = 0; i < n; i++) {
            if (keys[i] != top) continue;
            row->largest = (double)sample_clean(logits[i]);
            return first + i;
        }
    }
}

static void sample_one(const void *context, int i, int thread) {
    (void)thread;
    const struct sampling *sampling = context;
    const struct sample_args *args = sampling->args;
    const struct sample_params *params = &args->params[i];
    float *logits = row_f32(args->logits, i);
    struct sample_room room;
    const struct sample_row whole = {
        .kernels = sampling->kernels, .room = &room, .logits = logits, .n = args->n_vocab};
    struct sample_row row = whole;
    row.mask = params->mask;
    row_edit(logits, params);
    int32_t greedy = measure_row(&row);
    double largest = row.largest;
    args->ids[i] = sample_row(&row, params, greedy);
    row_restore(logits, params);

    row = whole;
    row.largest = largest;
    if (params->n_edits > 0 || params->mask) measure_row(&row);
    args->logprobs[i] = log_probability(&row, args->ids[i]);
}

void cpu_sample(struct backend *backend, const struct sample_args *args) {
    struct sampling sampling = {.args = args, .kernels = cpu_of(backend)->kernels};
    cpu_run(backend, 16.0 * args->logits.rows * args->n_vocab, args->logits.rows, sample_one,
            &sampling);
}
