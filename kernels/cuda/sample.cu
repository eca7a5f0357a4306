/* kernels/cuda/sample.cu: a row of logits becomes a token: the same token as on the CPU, whose
 * sample.c states the rules. Every step is exact (integers, or single roundings that IEEE fixes,
 * written as such), so sums may be taken in any order; the log-probability alone is a float sum and
 * agrees to its last bits only.
 *
 * A row is cut into slices, a block each: one block alone would have one multiprocessor's double
 * arithmetic, and about a hundredth of the memory's speed, for a vocabulary of 100 000. Blocks
 * never wait for each other: what they find they write down, and the blocks of the next launch all
 * decide upon it, the first slice's leaving what was decided for the launch after. The launches are
 *   largest              the largest logit of a slice, and the sum behind the log-probability
 *   histogram, 3 times   for top_k and again for top_p: how often, or with what weight, a digit of
 * the logits occurs share                what each slice weighs after all cuts draw the slice, and
 * the id in it and without a row that needs them only the first and the last. Edits of single
 * logits are made before the first and undone after the last, and a mask hides logits in between;
 * then two more launches find the log-probabilities of what was drawn. */
#include "kernels/cuda/common.cuh"

enum {
    SAMPLE_THREADS = 256,
    SAMPLE_WARPS = SAMPLE_THREADS / 32,
    EACH = 8, /* ids of a thread, all of whose logits are on their way at once */
    SLICE = SAMPLE_THREADS * EACH,
    DIGIT_BITS = 11,
    DIGITS = 1 << DIGIT_BITS,
    DIGITS_OF_KEY = 3,
    HALF_BITS = 20 /* of a weight, which is at most 2^40; sums of a slice then fit in 32 bits */
};

typedef unsigned long long u64;

/* The quantity that a histogram adds up. */
enum sample_measure { MEASURE_NONE, MEASURE_COUNT /* top_k */, MEASURE_WEIGHT /* top_p */ };

/* The results of one slice of the vocabulary. */
struct sample_part {
    double sum; /* of e^(logit - largest) */
    u64 above;  /* the weight of what lies above the cut and weighs enough */
    float largest;
    int id;     /* the lowest with that logit */
    int on_cut; /* how many ids have the cut's key */
    int unused;
};

/* The decisions about a row so far. Ids are kept whose key is above `key`, and the first `equal`
 * whose key it is. */
struct sample_state {
    double log_sum; /* of e^(logit - largest) */
    u64 equal;
    u64 target, found; /* of a cut that is being looked for: what must be reached, what lies above
                          the prefix */
    uint32_t key, prefix; /* prefix: the leading digits of the cut that is being looked for */
    float largest;
    int id; /* the greedy choice */
};

struct sample_kernel_args {
    view logits;
    const struct sample_params *params;
    struct sample_part *parts;   /* [rows][slices] */
    struct sample_state *states; /* [2][rows]: launch i reads those of i - 1 */
    u64 *histograms; /* [rows][3][DIGITS]: launch i adds to one, reads that of i - 1, clears the
                        next */
    int32_t *ids;
    float *logprobs;
    int n, slices;
    int launch;                          /* after `largest`, from 0 */
    enum sample_measure measure, before; /* of this launch and of the one before it */
    int unused = 0;
    const uint32_t
        *masks; /* [rows][words] of rows whose params have one; NULL: nothing is hidden */
    int64_t words;
};

struct sample_shared {
    unsigned low[DIGITS],
        high[DIGITS]; /* weights in two halves: shared memory adds 32 bits in one operation */
    u64 sums[SAMPLE_WARPS], found_sum, found_on;
    double doubles[SAMPLE_WARPS];
    float values[SAMPLE_WARPS];
    int ids[SAMPLE_WARPS], found;
};

__host__ __device__ static bool draws(const struct sample_params &params) {
    return params.temperature > 0 && params.top_k != 1;
}
__host__ __device__ static bool params_measure(const struct sample_params &params,
                                               enum sample_measure measure, int n) {
    if (!draws(params) || measure == MEASURE_NONE) return false;
    return measure == MEASURE_COUNT ? params.top_k > 0 && params.top_k < n : params.top_p < 1;
}

/* NaN and -inf become the lowest finite value, +inf the largest, -0 becomes 0. */
__device__ static float logit_clean(float logit) {
    const float most = 3.402823466e+38f;
    float x = logit >= -most ? logit : -most;
    x = x <= most ? x : most;
    return x + 0.0f;
}

/* Larger floats give larger keys, none gives 0. */
__device__ static uint32_t key_of(float logit) {
    uint32_t u = __float_as_uint(logit_clean(logit));
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ static float logit_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* round(2^40 e^z), z = (logit - largest) / temperature: kernels/cpu/sample_weights.h, operation for
 * operation. */
__device__ static u64 weight_of(float logit, float largest, float temperature) {
    const double terms[] = {
        1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
        1.0 / 24,      1.0 / 6,      0.5,         1,          1};
    const double magic =
        6755399441055744.0; /* 1.5 * 2^52: its sum's low bits hold the nearest integer */
    const double log2_e = 1.4426950408889634, ln_2 = 0.6931471805599453,
                 two_52 = 4503599627370496.0;
    double z =
        __ddiv_rn(__dsub_rn((double)logit_clean(logit), (double)largest), (double)temperature);
    z = z > -40 ? z : -40;
    double shifted = __dadd_rn(__dmul_rn(z, log2_e), magic), n = __dsub_rn(shifted, magic);
    double r = __dsub_rn(z, __dmul_rn(n, ln_2)), p = 1.0 / 39916800;
    UNROLL
    for (double term : terms) p = __dadd_rn(__dmul_rn(p, r), term);
    u64 exponent = ((u64)__double_as_longlong(shifted) + 1023 + 40) << 52;
    double scaled = __dadd_rn(__dmul_rn(p, __longlong_as_double((long long)exponent)), two_52);
    return (u64)__double_as_longlong(scaled) - (u64)__double_as_longlong(two_52);
}

/* The weight, or 0 where min_p leaves the id out. */
__device__ static u64 weight_enough(u64 weight, const struct sample_params &params) {
    if (!(params.min_p > 0)) return weight;
    return weight < (u64)ceil((params.min_p < 1 ? (double)params.min_p : 1) * 1099511627776.0)
               ? 0
               : weight;
}

__device__ static const float *row_logits(const struct sample_kernel_args &args) {
    return (const float *)args.logits.data + blockIdx.x * args.logits.stride;
}

/* The logits of a thread's ids: `first`, `first + step` and so on; NaN past the end, -inf where a
 * mask hides them. */
__device__ static lanes<EACH> logits_load(const struct sample_kernel_args &args, int first,
                                          int step) {
    const float *logits = row_logits(args);
    const uint32_t *mask = args.masks && args.params[blockIdx.x].mask
                               ? args.masks + (int64_t)blockIdx.x * args.words
                               : (const uint32_t *)NULL;
    lanes<EACH> x;
    UNROLL
    for (int i = 0; i < EACH; i++)
        x.at[i] = first + i * step < args.n ? logits[first + i * step] : NAN;
    if (mask == NULL) return x;
    UNROLL
    for (int i = 0; i < EACH; i++) {
        int id = first + i * step;
        if (id < args.n && !(mask[id / 32] >> (id % 32) & 1)) x.at[i] = -INFINITY;
    }
    return x;
}

/* The sum of v over the threads before this one, and over all. */
struct running {
    u64 before, total;
};

__device__ static running block_scan(u64 the_u64, u64 *shared) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    u64 sum = the_u64;
    for (int offset = 1; offset < WARP; offset *= 2) {
        u64 left = __shfl_up_sync(ALL_LANES, sum, (unsigned)offset);
        if (lane >= offset) sum += left;
    }
    if (lane == WARP - 1) shared[warp] = sum;
    __syncthreads();
    running the_running = {sum - the_u64, 0};
    for (int w = 0; w < SAMPLE_WARPS; w++) {
        if (w < warp) the_running.before += shared[w];
        the_running.total += shared[w];
    }
    __syncthreads(); /* so that `shared` may be written again */
    return the_running;
}

/* The largest value in the block and the lowest id that has it. */
struct peak {
    float value;
    int id;
};

__device__ static peak peak_higher(peak left, peak right) {
    return right.value > left.value || (right.value == left.value && right.id < left.id) ? right
                                                                                         : left;
}

__device__ static peak warp_peak(peak the_peak) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        float value = __shfl_xor_sync(ALL_LANES, the_peak.value, offset);
        int id = __shfl_xor_sync(ALL_LANES, the_peak.id, offset);
        the_peak = peak_higher(the_peak, {value, id});
    }
    return the_peak;
}

__device__ static peak block_peak(peak the_peak, sample_shared &shared) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    the_peak = warp_peak(the_peak);
    if (lane == 0) shared.values[warp] = the_peak.value, shared.ids[warp] = the_peak.id;
    __syncthreads();
    return warp_peak({shared.values[lane % SAMPLE_WARPS], shared.ids[lane % SAMPLE_WARPS]});
}

/* Clears this slice's share of the histogram that launch `launch` will add to. */
__device__ static void histogram_clear(const struct sample_kernel_args &args, int launch) {
    if (args.histograms == NULL) return;
    u64 *histogram =
        args.histograms + ((int64_t)blockIdx.x * DIGITS_OF_KEY + launch % DIGITS_OF_KEY) * DIGITS;
    for (int i = (int)(blockIdx.y * SAMPLE_THREADS + threadIdx.x); i < DIGITS;
         i += args.slices * SAMPLE_THREADS)
        histogram[i] = 0;
}

/* grid (rows, slices), block 256, shared sample_shared. Bound by bytes: reads a row once. */
__global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_largest_kernel(struct sample_kernel_args args) {
    DYNAMIC_SHARED(memory);
    sample_shared &shared = *(sample_shared *)memory;
    int first = (int)blockIdx.y * SLICE + (int)threadIdx.x;
    lanes<EACH> x = logits_load(args, first, SAMPLE_THREADS);
    peak the_peak = {-INFINITY, args.n};
    for (int i = 0; i < EACH; i++)
        if (first + i * SAMPLE_THREADS < args.n)
            the_peak = peak_higher(the_peak, {logit_clean(x.at[i]), first + i * SAMPLE_THREADS});
    the_peak = block_peak(the_peak, shared);
    double sum = 0;
    for (int i = 0; i < EACH; i++)
        if (first + i * SAMPLE_THREADS < args.n)
            sum += (double)expf(logit_clean(x.at[i]) - the_peak.value);
    sum = block_sum(sum, shared.doubles);
    histogram_clear(args, 0);
    if (threadIdx.x > 0) return;
    struct sample_part *part = args.parts + (int64_t)blockIdx.x * args.slices + blockIdx.y;
    part->sum = sum;
    part->largest = the_peak.value;
    part->id = the_peak.id;
}

/* Merges the slices' largest logits into the row's. */
__device__ static sample_state parts_merge(const struct sample_kernel_args &args,
                                           sample_shared &shared) {
    const struct sample_part *parts = args.parts + (int64_t)blockIdx.x * args.slices;
    peak the_peak = {-INFINITY, args.n};
    for (int i = (int)threadIdx.x; i < args.slices; i += SAMPLE_THREADS)
        the_peak = peak_higher(the_peak, {parts[i].largest, parts[i].id});
    the_peak = block_peak(the_peak, shared);
    double sum = 0;
    for (int i = (int)threadIdx.x; i < args.slices; i += SAMPLE_THREADS)
        sum += parts[i].sum * exp((double)parts[i].largest - (double)the_peak.value);
    sample_state state = {};
    state.log_sum = log(block_sum(sum, shared.doubles));
    state.equal = (u64)args.n;
    state.largest = the_peak.value;
    state.id = the_peak.id;
    return state;
}

/* The largest digit at which the sum from the top reaches the target becomes the prefix's next. A
 * thread adds up eight digits, and the one in whose share the target lies walks them. */
__device__ static void choose_digit(sample_state &state, const struct sample_params &params,
                                    const u64 *histogram, int digit, enum sample_measure measure,
                                    sample_shared &shared) {
    constexpr int SHARE = DIGITS / SAMPLE_THREADS;
    int top = DIGITS - 1 - (int)threadIdx.x * SHARE;
    u64 bins[SHARE], own = 0;
    UNROLL
    for (int i = 0; i < SHARE; i++) own += bins[i] = histogram[top - i];
    running the_running = block_scan(own, shared.sums);
    if (digit == 0) {
        double wanted = ceil(__dmul_rn((double)params.top_p, (double)the_running.total));
        u64 weight = wanted >= 1 ? (u64)wanted : 1;
        state.target = measure == MEASURE_COUNT     ? (u64)params.top_k
                       : weight < the_running.total ? weight
                                                    : the_running.total;
        state.found = 0;
        state.prefix = 0;
    }
    u64 above = state.found + the_running.before;
    if (above < state.target && state.target <= above + own) {
        bool reached = false;
        UNROLL
        for (int i = 0; i < SHARE; i++) {
            if (!reached && above + bins[i] >= state.target) {
                reached = true;
                shared.found = top - i;
                shared.found_sum = above;
            }
            above += bins[i];
        }
    }
    __syncthreads();
    state.prefix = state.prefix << DIGIT_BITS | (uint32_t)shared.found;
    state.found = shared.found_sum;
}

/* The state of the row after the launch before this one, which the first slice keeps for the next.
 */
__device__ static sample_state decide(const struct sample_kernel_args &args,
                                      const struct sample_params &params, sample_shared &shared) {
    sample_state state;
    if (args.launch == 0) {
        state = parts_merge(args, shared);
    } else {
        int last = args.launch - 1, digit = last % DIGITS_OF_KEY;
        state = args.states[(int64_t)(last % 2) * args.logits.rows + blockIdx.x];
        if (params_measure(params, args.before, args.n)) {
            choose_digit(state, params,
                         args.histograms + ((int64_t)blockIdx.x * DIGITS_OF_KEY + digit) * DIGITS,
                         digit, args.before, shared);
            if (digit ==
                DIGITS_OF_KEY -
                    1) { /* ids with one key have one weight, so how many are needed is known */
                u64 needed = state.target - state.found, each = 1;
                if (args.before == MEASURE_WEIGHT)
                    each = weight_of(logit_of(state.prefix), state.largest, params.temperature);
                state.key = state.prefix;
                state.equal = needed / each + (needed % each != 0);
            }
        }
    }
    if (blockIdx.y == 0 && threadIdx.x == 0)
        args.states[(int64_t)(args.launch % 2) * args.logits.rows + blockIdx.x] = state;
    return state;
}

/* The digit of a key that has the prefix in front of it; DIGITS or more for other keys. */
__device__ static u64 digit_of(uint32_t key, const sample_state &state, int digit) {
    int shift = (DIGITS_OF_KEY - 1 - digit) * DIGIT_BITS;
    return (u64)(key >> shift) - (digit == 0 ? 0 : (u64)state.prefix << DIGIT_BITS);
}

/* grid (rows, slices), block 256, shared sample_shared. Bound by the double arithmetic of the
 * weights: some forty operations an id in the first digit of top_p, few in the others, where most
 * ids have another prefix. */
__global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_histogram_kernel(struct sample_kernel_args args) {
    DYNAMIC_SHARED(memory);
    sample_shared &shared = *(sample_shared *)memory;
    const struct sample_params params = args.params[blockIdx.x];
    int first = (int)blockIdx.y * SLICE + (int)threadIdx.x, digit = args.launch % DIGITS_OF_KEY;
    lanes<EACH> x = logits_load(args, first, SAMPLE_THREADS);
    for (int i = (int)threadIdx.x; i < DIGITS; i += SAMPLE_THREADS)
        shared.low[i] = shared.high[i] = 0;
    sample_state state = decide(args, params, shared);
    histogram_clear(args, args.launch + 1);
    if (!params_measure(params, args.measure, args.n)) return;
    __syncthreads();
    bool weigh = args.measure == MEASURE_WEIGHT;
    for (int i = 0; i < EACH; i++) {
        uint32_t key = key_of(x.at[i]);
        u64 at = digit_of(key, state, digit);
        if (first + i * SAMPLE_THREADS >= args.n || key <= state.key || at >= DIGITS) continue;
        u64 brings = weigh ? weight_of(x.at[i], state.largest, params.temperature) : 1;
        unsigned low = (unsigned)brings & ((1u << HALF_BITS) - 1),
                 high = (unsigned)(brings >> HALF_BITS);
        if (low) atomicAdd(&shared.low[at], low);
        if (high) atomicAdd(&shared.high[at], high);
    }
    __syncthreads();
    u64 *histogram = args.histograms + ((int64_t)blockIdx.x * DIGITS_OF_KEY + digit) * DIGITS;
    for (int i = (int)threadIdx.x; i < DIGITS; i += SAMPLE_THREADS) {
        u64 sum = shared.low[i] + ((u64)shared.high[i] << HALF_BITS);
        if (sum) atomicAdd(&histogram[i], sum);
    }
    u64 at = digit_of(state.key, state, digit); /* what top_k kept of the ids on its cut */
    if (blockIdx.y == 0 && threadIdx.x == 0 && state.key > 0 && at < DIGITS)
        atomicAdd(&histogram[at],
                  state.equal * weight_of(logit_of(state.key), state.largest, params.temperature));
}

/* grid (rows, slices), block 256, shared sample_shared. Bound by the double arithmetic of the
 * weights. */
__global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_share_kernel(struct sample_kernel_args args) {
    DYNAMIC_SHARED(memory);
    sample_shared &shared = *(sample_shared *)memory;
    const struct sample_params params = args.params[blockIdx.x];
    int first = (int)blockIdx.y * SLICE + (int)threadIdx.x;
    lanes<EACH> x = logits_load(args, first, SAMPLE_THREADS);
    sample_state state = decide(args, params, shared);
    if (!draws(params)) return;
    u64 above = 0, on_cut = 0;
    for (int i = 0; i < EACH; i++) {
        uint32_t key = key_of(x.at[i]);
        if (first + i * SAMPLE_THREADS >= args.n) continue;
        if (key > state.key)
            above += weight_enough(weight_of(x.at[i], state.largest, params.temperature), params);
        on_cut += key == state.key;
    }
    above = block_sum(above, shared.sums);
    on_cut = block_sum(on_cut, shared.sums);
    if (threadIdx.x > 0) return;
    struct sample_part *part = args.parts + (int64_t)blockIdx.x * args.slices + blockIdx.y;
    part->above = above;
    part->on_cut = (int)on_cut;
}

/* The number of ids kept, among `n` on the cut with `before` such ids in front of them. */
__device__ static u64 kept_on_cut(const sample_state &state, u64 before, u64 the_u64) {
    u64 left = state.equal > before ? state.equal - before : 0;
    return the_u64 < left ? the_u64 : left;
}

/* Runs over the slices in rising order; returns the sum of what they weigh. The slice at which it
 * exceeds `target` is left in `found`, with the sums of weights and of ids on the cut in front of
 * it. */
__device__ static u64 walk_slices(const struct sample_kernel_args &args, const sample_state &state,
                                  u64 on_cut_weight, u64 target, sample_shared &shared) {
    const struct sample_part *parts = args.parts + (int64_t)blockIdx.x * args.slices;
    u64 sum = 0, on_cut = 0;
    for (int base = 0; base < args.slices; base += SAMPLE_THREADS) {
        int slice = base + (int)threadIdx.x;
        u64 on = slice < args.slices ? (u64)parts[slice].on_cut : 0;
        running count = block_scan(on, shared.sums);
        u64 weight = slice < args.slices ? parts[slice].above : 0;
        weight += on_cut_weight * kept_on_cut(state, on_cut + count.before, on);
        running weights = block_scan(weight, shared.sums);
        if (target >= sum + weights.before && target - sum - weights.before < weight) {
            shared.found = slice;
            shared.found_sum = sum + weights.before;
            shared.found_on = on_cut + count.before;
        }
        sum += weights.total;
        on_cut += count.total;
    }
    __syncthreads();
    return sum;
}

__device__ static u64 splitmix64(u64 the_u64) {
    the_u64 += 0x9e3779b97f4a7c15ull;
    the_u64 = (the_u64 ^ the_u64 >> 30) * 0xbf58476d1ce4e5b9ull;
    the_u64 = (the_u64 ^ the_u64 >> 27) * 0x94d049bb133111ebull;
    return the_u64 ^ the_u64 >> 31;
}

/* The first id, in rising order, at which the running sum of weights exceeds the target that the
 * seed asks for. */
__device__ static int draw(const struct sample_kernel_args &args,
                           const struct sample_params &params, const sample_state &state,
                           sample_shared &shared) {
    u64 on_cut_weight =
        state.key == 0
            ? 0
            : weight_enough(weight_of(logit_of(state.key), state.largest, params.temperature),
                            params);
    u64 total = walk_slices(args, state, on_cut_weight, ~0ull, shared);
    u64 target = __umul64hi(
        splitmix64(splitmix64(params.seed) + params.draw * 0x9e3779b97f4a7c15ull), total);
    walk_slices(args, state, on_cut_weight, target, shared);
    int first = shared.found * SLICE + (int)threadIdx.x * EACH;
    u64 before = shared.found_sum, on_before = shared.found_on, weights[EACH], on = 0, own = 0;
    lanes<EACH> x = logits_load(args, first, 1);
    for (int i = 0; i < EACH; i++) on += first + i < args.n && key_of(x.at[i]) == state.key;
    on_before += block_scan(on, shared.sums).before;
    UNROLL
    for (int i = 0; i < EACH; i++) {
        uint32_t key = key_of(x.at[i]);
        u64 weight =
            first + i < args.n && key > state.key
                ? weight_enough(weight_of(x.at[i], state.largest, params.temperature), params)
                : 0;
        if (first + i < args.n && key == state.key)
            weight = on_cut_weight * kept_on_cut(state, on_before++, 1);
        own += weights[i] = weight;
    }
    before += block_scan(own, shared.sums).before;
    UNROLL
    for (int i = 0; i < EACH; i++) {
        if (target >= before && target - before < weights[i]) shared.found = first + i;
        before += weights[i];
    }
    __syncthreads();
    return shared.found;
}

/* grid rows, block 256, shared sample_shared. Bound by latency: reads what the slices left, and one
 * slice. */
__global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_draw_kernel(struct sample_kernel_args args) {
    DYNAMIC_SHARED(memory);
    sample_shared &shared = *(sample_shared *)memory;
    const struct sample_params params = args.params[blockIdx.x];
    sample_state state = decide(args, params, shared);
    int id = draws(params) ? draw(args, params, state, shared) : state.id;
    if (threadIdx.x > 0) return;
    args.ids[blockIdx.x] = id;
    args.logprobs[blockIdx.x] =
        (float)((double)logit_clean(row_logits(args)[id]) - (double)state.largest - state.log_sum);
}

/* grid rows, block 256, shared sample_shared. Bound by latency. The parts are those of the logits
 * without edits. */
__global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_score_kernel(struct sample_kernel_args args) {
    DYNAMIC_SHARED(memory);
    sample_shared &shared = *(sample_shared *)memory;
    sample_state state = parts_merge(args, shared);
    if (threadIdx.x > 0) return;
    float logit = logit_clean(row_logits(args)[args.ids[blockIdx.x]]);
    args.logprobs[blockIdx.x] = (float)((double)logit - (double)state.largest - state.log_sum);
}

struct edit_kernel_args {
    float *logits; /* the row */
    const struct logit_edit *edits;
    float *before; /* [n] what the logits were */
    int64_t n;
};

/* grid n / 256, block 256. Bound by latency. Each step rounded by itself, as on the CPU. */
__global__ void __launch_bounds__(SAMPLE_THREADS) edit_kernel(struct edit_kernel_args args) {
    int64_t i = (int64_t)blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    if (i >= args.n) return;
    const struct logit_edit edit = args.edits[i];
    float logit = args.logits[edit.id], x = __fadd_rn(logit, edit.bias);
    x = x > 0 ? __fdiv_rn(x, edit.repetition) : __fmul_rn(x, edit.repetition);
    args.before[i] = logit;
    args.logits[edit.id] = __fsub_rn(x, edit.penalty);
}

/* grid n / 256, block 256. Bound by latency. */
__global__ void __launch_bounds__(SAMPLE_THREADS) restore_kernel(struct edit_kernel_args args) {
    int64_t i = (int64_t)blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    if (i < args.n) args.logits[args.edits[i].id] = args.before[i];
}

static const int64_t EDITS_AT_ONCE = 16 << 10; /* far below what the ring takes */

/* Runs the kernel over the edits of all rows. `before` has room for them all. */
static void edits_run(struct backend *backend, const struct sample_args *args, float *before,
                      void (*kernel)(struct edit_kernel_args)) {
    for (int i = 0; i < args->logits.rows; i++) {
        const struct sample_params &params = args->params[i];
        for (int64_t first = 0; first < params.n_edits; first += EDITS_AT_ONCE) {
            struct edit_kernel_args edit_kernel_args;
            edit_kernel_args.n =
                params.n_edits - first < EDITS_AT_ONCE ? params.n_edits - first : EDITS_AT_ONCE;
            edit_kernel_args.logits = (float *)args->logits.data + (int64_t)i * args->logits.stride;
            edit_kernel_args.edits =
                array_stage(backend, params.edits + first, (size_t)edit_kernel_args.n);
            edit_kernel_args.before = before;
            before += edit_kernel_args.n;
            if (edit_kernel_args.edits)
                kernel_launch(backend, kernel, dim3(blocks_for(edit_kernel_args.n, SAMPLE_THREADS)),
                              SAMPLE_THREADS, 0, edit_kernel_args);
        }
    }
}

static size_t edits_count(const struct sample_args *args) {
    size_t n = 0;
    for (int i = 0; i < args->logits.rows; i++) n += (size_t)args->params[i].n_edits;
    return n;
}

/* Device memory for the rows: everything in one piece, the results last, and behind them what the
 * logits were before their edits. Masks have a place where args->words is not 0. */
static bool sample_reserve(struct backend *backend, struct sample_kernel_args *args, size_t rows,
                           bool histograms, size_t edits, float **before) {
    size_t masks = args->words ? rows * (size_t)args->words * sizeof *args->masks : 0;
    size_t parts = rows * (size_t)args->slices * sizeof *args->parts,
           states = 2 * rows * sizeof *args->states;
    size_t digits = histograms ? rows * DIGITS_OF_KEY * DIGITS * sizeof *args->histograms : 0;
    size_t results = rows * (sizeof *args->ids + sizeof *args->logprobs),
           undo = edits * sizeof(float);
    char *at = (char *)workspace_reserve(backend, &cuda_of(backend)->results,
                                         parts + states + digits + results + undo + masks);
    if (at == NULL) return false;
    args->parts = (struct sample_part *)(void *)at;
    args->states = (struct sample_state *)(void *)(at += parts);
    args->histograms = histograms ? (u64 *)(void *)(at + states) : NULL;
    args->ids = (int32_t *)(void *)(at + states + digits);
    args->logprobs = (float *)(void *)(args->ids + rows);
    *before = args->logprobs + rows;
    args->masks = args->words ? (const uint32_t *)(const void *)(*before + edits) : NULL;
    return true;
}

struct mask_kernel_args {
    const uint32_t *from;
    uint32_t *to;
    int64_t n;
};

/* grid n / 256, block 256. Bound by latency. */
__global__ void __launch_bounds__(SAMPLE_THREADS) mask_kernel(struct mask_kernel_args args) {
    int64_t i = (int64_t)blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    if (i < args.n) args.to[i] = args.from[i];
}

static size_t mask_words(const struct sample_args *args) {
    return ((size_t)args->n_vocab + 31) / 32;
}

/* Copies the rows' masks to where they stay until the draw: what is staged does not. */
static void masks_copy(struct backend *backend, const struct sample_args *args, uint32_t *masks) {
    size_t words = mask_words(args);
    for (int i = 0; i < args->logits.rows; i++) {
        if (args->params[i].mask == NULL) continue;
        struct mask_kernel_args mask_kernel_args = {
            array_stage(backend, args->params[i].mask, words), masks + (size_t)i * words,
            (int64_t)words};
        if (mask_kernel_args.from)
            kernel_launch(backend, mask_kernel,
                          dim3(blocks_for(mask_kernel_args.n, SAMPLE_THREADS)), SAMPLE_THREADS, 0,
                          mask_kernel_args);
    }
}

static bool any_mask(const struct sample_args *args) {
    for (int i = 0; i < args->logits.rows; i++)
        if (args->params[i].mask) return true;
    return false;
}

void cuda_sample(struct backend *backend, const struct sample_args *args) {
    size_t rows = (size_t)args->logits.rows, bytes = rows * sizeof(float);
    bool any_draws = false, any[] = {false, false, false};
    for (size_t i = 0; i < rows; i++) {
        any_draws = any_draws || draws(args->params[i]);
        for (int m = MEASURE_COUNT; m <= MEASURE_WEIGHT; m++)
            any[m] =
                any[m] || params_measure(args->params[i], (enum sample_measure)m, args->n_vocab);
    }
    struct sample_kernel_args sample_kernel_args;
    sample_kernel_args.logits = args->logits;
    sample_kernel_args.n = args->n_vocab;
    sample_kernel_args.slices = (int)blocks_for(args->n_vocab, SLICE);
    sample_kernel_args.launch = 0;
    sample_kernel_args.measure = sample_kernel_args.before = MEASURE_NONE;
    size_t edits = edits_count(args);
    float *before = NULL;
    bool masked = any_mask(args), changed = edits > 0 || masked;
    sample_kernel_args.words = masked ? (int64_t)mask_words(args) : 0;
    sample_kernel_args.masks = NULL;
    if (changed)
        work_flush(backend); /* edits grow by the token: what comes before them is a graph that
                                comes again */
    if (rows == 0 || !sample_reserve(backend, &sample_kernel_args, rows,
                                     any[MEASURE_COUNT] || any[MEASURE_WEIGHT], edits, &before))
        return;
    edits_run(backend, args, before, edit_kernel);
    if (masked) masks_copy(backend, args, (uint32_t *)(uintptr_t)sample_kernel_args.masks);
    sample_kernel_args.params = array_stage(
        backend, args->params, rows); /* behind the edits, which may go through the whole ring */
    dim3 grid((unsigned)rows, (unsigned)sample_kernel_args.slices);
    kernel_launch(backend, sample_largest_kernel, grid, SAMPLE_THREADS, sizeof(sample_shared),
                  sample_kernel_args);
    for (int m = MEASURE_COUNT; m <= MEASURE_WEIGHT; m++) {
        if (!any[m]) continue;
        sample_kernel_args.measure = (enum sample_measure)m;
        for (int digit = 0; digit < DIGITS_OF_KEY; digit++) {
            kernel_launch(backend, sample_histogram_kernel, grid, SAMPLE_THREADS,
                          sizeof(sample_shared), sample_kernel_args);
            sample_kernel_args.before = sample_kernel_args.measure;
            sample_kernel_args.launch++;
        }
    }
    sample_kernel_args.measure = MEASURE_NONE;
    if (any_draws) {
        kernel_launch(backend, sample_share_kernel, grid, SAMPLE_THREADS, sizeof(sample_shared),
                      sample_kernel_args);
        sample_kernel_args.before = MEASURE_NONE;
        sample_kernel_args.launch++;
    }
    kernel_launch(backend, sample_draw_kernel, dim3((unsigned)rows), SAMPLE_THREADS,
                  sizeof(sample_shared), sample_kernel_args);
    if (changed) {
        edits_run(backend, args, before, restore_kernel);
        sample_kernel_args.masks = NULL;
        kernel_launch(backend, sample_largest_kernel, grid, SAMPLE_THREADS, sizeof(sample_shared),
                      sample_kernel_args);
        kernel_launch(backend, sample_score_kernel, dim3((unsigned)rows), SAMPLE_THREADS,
                      sizeof(sample_shared), sample_kernel_args);
    }
    cuda_fetch(backend, args->ids, sample_kernel_args.ids, bytes);
    cuda_fetch(backend, args->logprobs, sample_kernel_args.logprobs, bytes);
}
