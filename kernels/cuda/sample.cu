/* kernels/cuda/sample.cu: one row of logits becomes a token: the same token as on the CPU, whose sample.c states the
 * rules. Every step is exact (integers, or single roundings that IEEE fixes, written as such), so sums may be taken in
 * any order; the log-probability alone is a float sum and agrees to its last bits only. */
#include "kernels/cuda/common.cuh"

enum { SAMPLE_THREADS = 1024, SAMPLE_WARPS = SAMPLE_THREADS / 32, DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

typedef unsigned long long u64;

struct sample_kernel_args {
    view logits;
    const struct sample_params *params;
    int32_t *ids;
    float *logprobs;
    int n;
    int unused = 0;
};

struct sample_shared {
    u64 histogram[DIGITS];
    u64 sums[SAMPLE_WARPS];
    double doubles[SAMPLE_WARPS];
    float values[SAMPLE_WARPS];
    int ids[SAMPLE_WARPS];
    u64 found_above; /* what choose_digit and find_running found */
    int found;
};

/* The row, its temperature and which ids are left: those whose key is above `key`, and those with that key up to id
 * `last`; min_p drops what weighs less than `least`. Every thread holds the same. */
struct sampler {
    const float *logits;
    int n;
    double largest, temperature;
    uint32_t key;
    int last;
    u64 least;
};

/* NaN and -inf become the lowest finite value, +inf the largest, -0 becomes 0. */
__device__ static float clean(float logit) {
    const float most = 3.402823466e+38f;
    float x = logit >= -most ? logit : -most;
    x = x <= most ? x : most;
    return x + 0.0f;
}

/* Larger floats give larger keys. */
__device__ static uint32_t key_of(float logit) {
    uint32_t u = __float_as_uint(clean(logit));
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ static float logit_of(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

/* round(2^40 e^z), z = (logit - largest) / temperature: kernels/cpu/sample_weights.h, operation for operation. */
__device__ static u64 weight_of(const sampler &s, float logit) {
    const double terms[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                            1.0 / 24,      1.0 / 6,      0.5,         1,          1};
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: its sum's low bits hold the nearest integer */
    const double log2_e = 1.4426950408889634, ln_2 = 0.6931471805599453, two_52 = 4503599627370496.0;
    double z = __ddiv_rn(__dsub_rn((double)clean(logit), s.largest), s.temperature);
    z = z > -40 ? z : -40;
    double shifted = __dadd_rn(__dmul_rn(z, log2_e), magic), n = __dsub_rn(shifted, magic);
    double r = __dsub_rn(z, __dmul_rn(n, ln_2)), p = 1.0 / 39916800;
    for (double term : terms) p = __dadd_rn(__dmul_rn(p, r), term);
    u64 exponent = ((u64)__double_as_longlong(shifted) + 1023 + 40) << 52;
    double scaled = __dadd_rn(__dmul_rn(p, __longlong_as_double((long long)exponent)), two_52);
    return (u64)__double_as_longlong(scaled) - (u64)__double_as_longlong(two_52);
}

__device__ static u64 kept_weight(const sampler &s, int id) {
    uint32_t key = key_of(s.logits[id]);
    if (key < s.key || (key == s.key && id > s.last)) return 0;
    u64 w = weight_of(s, s.logits[id]);
    return w < s.least ? 0 : w;
}

__device__ static u64 total_weight(const sampler &s, sample_shared &shared) {
    u64 total = 0;
    for (int id = (int)threadIdx.x; id < s.n; id += SAMPLE_THREADS) total += kept_weight(s, id);
    return block_sum(total, shared.sums);
}

/* What find_running adds up. */
enum measure { MEASURE_WEIGHT, MEASURE_ON_CUT /* 1 for ids whose key is the cut's */ };

__device__ static u64 measure_of(const sampler &s, enum measure measure, int id) {
    if (id >= s.n) return 0;
    return measure == MEASURE_WEIGHT ? kept_weight(s, id) : (u64)(key_of(s.logits[id]) == s.key);
}

/* The first id, in rising order, at which the running sum exceeds `target`, which is below the total. A warp adds up a
 * stretch of ids; the one in whose stretch the sum passes the target walks it, 32 ids at a time. */
__device__ static int find_running(const sampler &s, enum measure measure, u64 target, sample_shared &shared) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int stretch = (s.n + SAMPLE_THREADS - 1) / SAMPLE_THREADS * WARP, first = warp * stretch;
    u64 sum = 0;
    for (int i = lane; i < stretch; i += WARP) sum += measure_of(s, measure, first + i);
    sum = warp_sum(sum);
    if (lane == 0) shared.sums[warp] = sum;
    __syncthreads();
    u64 before = 0;
    for (int w = 0; w < warp; w++) before += shared.sums[w];
    bool here = before <= target && target < before + sum;
    for (int i = lane; here && i < stretch; i += WARP) {
        u64 own = measure_of(s, measure, first + i), running = own;
        for (int offset = 1; offset < WARP; offset *= 2) {
            u64 left = __shfl_up_sync(ALL_LANES, running, (unsigned)offset);
            if (lane >= offset) running += left;
        }
        unsigned passed = __ballot_sync(ALL_LANES, before + running > target);
        if (passed) {
            if (lane == __ffs((int)passed) - 1) shared.found = first + i;
            break;
        }
        before += __shfl_sync(ALL_LANES, running, WARP - 1);
    }
    __syncthreads();
    return shared.found; /* written again only after another barrier */
}

/* histogram[digit] = what the ids with the given leading bits of the key bring: their number, or their weights. */
__device__ static void fill_histogram(const sampler &s, uint32_t prefix, int shift, bool weigh, sample_shared &shared) {
    for (int i = (int)threadIdx.x; i < DIGITS; i += SAMPLE_THREADS) shared.histogram[i] = 0;
    __syncthreads();
    for (int id = (int)threadIdx.x; id < s.n; id += SAMPLE_THREADS) {
        u64 digit = (u64)(key_of(s.logits[id]) >> shift) - ((u64)prefix << DIGIT_BITS);
        if (digit >= DIGITS) continue;
        u64 brings = weigh ? kept_weight(s, id) : 1;
        if (brings) atomicAdd(&shared.histogram[digit], brings);
    }
    __syncthreads();
}

/* The largest digit at which the sum from the top reaches `target`, and in found_above the sum above it. One warp: a
 * lane adds up 64 digits, and the lane in whose share the target lies walks them. */
__device__ static int choose_digit(u64 target, sample_shared &shared) {
    constexpr int SHARE = DIGITS / WARP;
    if (threadIdx.x < WARP) {
        int top = DIGITS - 1 - (int)threadIdx.x * SHARE;
        u64 own = 0;
        for (int i = 0; i < SHARE; i++) own += shared.histogram[top - i];
        u64 running = own;
        for (int offset = 1; offset < WARP; offset *= 2) {
            u64 left = __shfl_up_sync(ALL_LANES, running, (unsigned)offset);
            if ((int)threadIdx.x >= offset) running += left;
        }
        u64 above = running - own;
        if (above < target && target <= running) {
            int digit = top;
            while (above + shared.histogram[digit] < target) above += shared.histogram[digit--];
            shared.found = digit;
            shared.found_above = above;
        }
    }
    __syncthreads();
    return shared.found;
}

/* The shortest prefix of the ranking (logit, then lower id) whose measure, count or weight, reaches `target`. */
__device__ static void cut(sampler &s, bool weigh, u64 target, sample_shared &shared) {
    uint32_t prefix = 0;
    u64 above = 0;
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        fill_histogram(s, prefix, shift, weigh, shared);
        int digit = choose_digit(target - above, shared);
        above += shared.found_above;
        prefix = prefix << DIGIT_BITS | (uint32_t)digit;
    }
    u64 each = weigh ? weight_of(s, logit_of(prefix)) : 1, needed = target - above;
    u64 equal = needed / each + (needed % each != 0);
    s.key = prefix;
    /* Ids on the cut are taken in rising order; the last is where their count passes equal - 1. */
    s.last = find_running(s, MEASURE_ON_CUT, equal - 1, shared);
}

__device__ static u64 splitmix64(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* The lowest id among the largest logits. */
__device__ static int largest_id(const float *logits, int n, sample_shared &shared) {
    int best = n, lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    float largest = -INFINITY;
    for (int id = (int)threadIdx.x; id < n; id += SAMPLE_THREADS) {
        float x = clean(logits[id]);
        if (x > largest) largest = x, best = id;
    }
    for (int level = 0; level < 2; level++) {
        for (int offset = WARP / 2; offset > 0; offset /= 2) {
            float x = __shfl_xor_sync(ALL_LANES, largest, offset);
            int id = __shfl_xor_sync(ALL_LANES, best, offset);
            if (x > largest || (x == largest && id < best)) largest = x, best = id;
        }
        if (level == 1) break;
        if (lane == 0) shared.values[warp] = largest, shared.ids[warp] = best;
        __syncthreads();
        largest = shared.values[lane];
        best = shared.ids[lane];
    }
    return best;
}

__device__ static int draw(sampler &s, const struct sample_params &p, sample_shared &shared) {
    if (p.top_k > 0 && p.top_k < s.n) cut(s, false, (u64)p.top_k, shared);
    if (p.top_p < 1) {
        u64 total = total_weight(s, shared);
        double wanted = ceil(__dmul_rn((double)p.top_p, (double)total));
        u64 target = wanted >= 1 ? (u64)wanted : 1;
        cut(s, true, target < total ? target : total, shared);
    }
    if (p.min_p > 0) s.least = (u64)ceil((p.min_p < 1 ? (double)p.min_p : 1) * 1099511627776.0);
    u64 total = total_weight(s, shared), r = splitmix64(splitmix64(p.seed) + p.draw * 0x9e3779b97f4a7c15ull);
    return find_running(s, MEASURE_WEIGHT, __umul64hi(r, total), shared);
}

/* grid rows, block 1024, shared sample_shared. Greedy is bound by bytes: the row is read twice. A draw with top_k and
 * top_p reads it up to eleven times, from the cache but for the first, and is bound by the double arithmetic of the
 * weights. */
__global__ void __launch_bounds__(SAMPLE_THREADS) sample_radix_kernel(struct sample_kernel_args k) {
    DYNAMIC_SHARED(memory);
    sample_shared &shared = *(sample_shared *)memory;
    const struct sample_params p = k.params[blockIdx.x];
    sampler s = {};
    s.logits = (const float *)k.logits.data + blockIdx.x * k.logits.stride;
    s.n = k.n;
    s.last = k.n - 1;
    int id = largest_id(s.logits, s.n, shared);
    s.largest = (double)clean(s.logits[id]);
    s.temperature = (double)p.temperature;
    if (p.temperature > 0 && p.top_k != 1) id = draw(s, p, shared);
    double sum = 0;
    for (int i = (int)threadIdx.x; i < s.n; i += SAMPLE_THREADS)
        sum += (double)expf((float)((double)clean(s.logits[i]) - s.largest));
    sum = block_sum(sum, shared.doubles);
    if (threadIdx.x > 0) return;
    k.ids[blockIdx.x] = id;
    k.logprobs[blockIdx.x] = (float)((double)clean(s.logits[id]) - s.largest - log(sum));
}

void cuda_sample(struct backend *b, const struct sample_args *a) {
    size_t rows = (size_t)a->logits.rows, bytes = rows * sizeof(float);
    if (rows == 0) return;
    struct sample_kernel_args k;
    k.logits = a->logits;
    k.params = stage(b, a->params, rows);
    k.ids = (int32_t *)workspace_reserve(b, &cuda_of(b)->results, 2 * bytes);
    k.logprobs = (float *)k.ids + rows;
    k.n = a->n_vocab;
    launch(b, sample_radix_kernel, dim3((unsigned)rows), SAMPLE_THREADS, sizeof(sample_shared), k);
    cuda_fetch(b, a->ids, k.ids, bytes);
    cuda_fetch(b, a->logprobs, k.logprobs, bytes);
}
