/* tools/eval/ppl_report.c: the results of retro-eval ppl: levels with their intervals, differences
 * with theirs, the curve.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/eval/ppl.h"

static const char *const modes[PPL_MODES] = {"on", "off", "random", "gpt"};
static const struct {
    const char *name, *label;
} subsets[PPL_SUBSETS] = {{"all", "all"},
                          {"after_first_chunk", "after the first chunk"},
                          {"no_8gram", "  no 8-gram shared"},
                          {"8grams_tenth", "  at most 10 % of 8-grams"},
                          {"run_eighth", "  run at most 1/8 of chunk"}};

/* The comparisons: a mode, and the mode it is compared with. */
static const struct {
    const char *name;
    enum ppl_mode of, with;
} pairs[] = {{"on against off", PPL_ON, PPL_OFF},
             {"on against gpt", PPL_ON, PPL_GPT},
             {"random against off", PPL_RANDOM, PPL_OFF}};

static int n_subsets(const struct ppl *ppl) { return ppl->modes[PPL_ON] ? PPL_SUBSETS : 1; }

static double total_bytes(const struct ppl *ppl, int subset) {
    double bytes = 0;
    for (int i = 0; i < ppl->n_documents; i++) bytes += ppl->sums[i].bytes[subset];
    return bytes;
}

static double total_tokens(const struct ppl *ppl, int subset) {
    double tokens = 0;
    for (int i = 0; i < ppl->n_documents; i++) tokens += ppl->sums[i].tokens[subset];
    return tokens;
}

/* sum(bits of a mode - bits of another, if there is one) / sum(bytes, or bits of the other), over
 * documents. */
static struct estimate estimate(const struct ppl *ppl, int subset, int mode, int minus,
                                bool relative) {
    double *top = xcalloc((size_t)ppl->n_documents + 1, sizeof *top);
    double *bottom = xcalloc((size_t)ppl->n_documents + 1, sizeof *bottom);
    for (int i = 0; i < ppl->n_documents; i++) {
        const struct ppl_sums *sums = &ppl->sums[i];
        top[i] = sums->bits[mode][subset] - (minus >= 0 ? sums->bits[minus][subset] : 0);
        bottom[i] = relative ? sums->bits[minus][subset] : sums->bytes[subset];
    }
    struct estimate result = estimate_ratio(top, bottom, ppl->n_documents, ppl->seed);
    free(top);
    free(bottom);
    return result;
}

static struct estimate level(const struct ppl *ppl, int subset, int mode) {
    return estimate(ppl, subset, mode, -1, false);
}

/* Bits per byte that one mode needs more than the other. */
static struct estimate difference(const struct ppl *ppl, int subset, int mode, int other) {
    return estimate(ppl, subset, mode, other, false);
}

/* How many per cent fewer bits one mode needs than the other. */
static struct estimate gain(const struct ppl *ppl, int subset, int mode, int other) {
    struct estimate the_estimate = estimate(ppl, subset, mode, other, true);
    return (struct estimate){-100 * the_estimate.value, -100 * the_estimate.high,
                             -100 * the_estimate.low};
}

static void print_levels(const struct ppl *ppl) {
    printf("\n%-28s%10s", "bits per byte", "bytes");
    for (int mode = 0, gap = 2; mode < PPL_MODES; mode++)
        if (ppl->modes[mode]) gap = 27 - printf("%*s%s", gap, "", modes[mode]) + gap;
    printf("\n");
    for (int subset = 0; subset < n_subsets(ppl); subset++) {
        printf("%-28s%10.0f", subsets[subset].label, total_bytes(ppl, subset));
        for (int mode = 0; mode < PPL_MODES; mode++) {
            if (!ppl->modes[mode]) continue;
            struct estimate estimate = level(ppl, subset, mode);
            printf("  %.4f (%.4f .. %.4f)", estimate.value, estimate.low, estimate.high);
        }
        printf("\n");
    }
}

static void print_differences(const struct ppl *ppl) {
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        int of = pairs[i].of, with = pairs[i].with;
        if (!ppl->modes[of] || !ppl->modes[with]) continue;
        printf("\n%-38s  %-28s  %s\n", pairs[i].name, "bits per byte", "per cent fewer bits");
        for (int subset = 0; subset < n_subsets(ppl); subset++) {
            struct estimate estimate = difference(ppl, subset, of, with),
                            the_estimate = gain(ppl, subset, of, with);
            printf("%-38s  %+.4f (%+.4f .. %+.4f)  %+.2f (%+.2f .. %+.2f)\n", subsets[subset].label,
                   estimate.value, estimate.low, estimate.high, the_estimate.value,
                   the_estimate.low, the_estimate.high);
        }
    }
}

void ppl_print(const struct ppl *ppl) {
    subject_print(&ppl->model);
    if (ppl->modes[PPL_GPT])
        printf("gpt        %s: %.1f M parameters, %s\n", ppl->gpt.folder,
               1e-6 * (double)ppl->gpt.info->n_parameters, dtype_name(ppl->gpt.info->dtype));
    printf("scored     %d documents, %.0f bytes, %.0f tokens, in windows of %d tokens\n",
           ppl->n_documents, total_bytes(ppl, PPL_ALL), total_tokens(ppl, PPL_ALL), ppl->window);
    printf("intervals  95 %%, %d resamples of the documents, seed %llu\n", EVAL_DRAWS,
           (unsigned long long)ppl->seed);
    print_levels(ppl);
    print_differences(ppl);
}

static void put_estimate(struct json_writer *w, const char *key, const char *name,
                         struct estimate estimate) {
    put_key_object(w, key);
    put_key_float(w, name, (float)estimate.value);
    put_key_float(w, "low", (float)estimate.low);
    put_key_float(w, "high", (float)estimate.high);
    put_object_end(w);
}

static void put_subset(const struct ppl *ppl, struct json_writer *w, int subset) {
    put_key_object(w, subsets[subset].name);
    put_key_int(w, "bytes", (int64_t)total_bytes(ppl, subset));
    put_key_int(w, "tokens", (int64_t)total_tokens(ppl, subset));
    put_key_object(w, "modes");
    for (int mode = 0; mode < PPL_MODES; mode++)
        if (ppl->modes[mode])
            put_estimate(w, modes[mode], "bits_per_byte", level(ppl, subset, mode));
    put_object_end(w);
    for (int relative = 0; relative < 2; relative++) {
        put_key_object(w, relative ? "gains" : "differences");
        for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
            int of = pairs[i].of, with = pairs[i].with;
            if (!ppl->modes[of] || !ppl->modes[with]) continue;
            if (relative)
                put_estimate(w, pairs[i].name, "percent", gain(ppl, subset, of, with));
            else
                put_estimate(w, pairs[i].name, "bits_per_byte", difference(ppl, subset, of, with));
        }
        put_object_end(w);
    }
    put_object_end(w);
}

void ppl_print_json(const struct ppl *ppl) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    subject_put(&ppl->model, &w);
    if (ppl->modes[PPL_GPT]) put_key_string(&w, "gpt", ppl->gpt.folder);
    put_key_int(&w, "documents", ppl->n_documents);
    put_key_int(&w, "window", ppl->window);
    put_key_int(&w, "seed", (int64_t)ppl->seed);
    put_key_object(&w, "subsets");
    for (int subset = 0; subset < n_subsets(ppl); subset++) put_subset(ppl, &w, subset);
    put_object_end(&w);
    put_object_end(&w);
    printf("%s\n", text.data);
    buffer_free(&text);
}

static void write_threshold(const struct ppl *ppl, FILE *out, bool grams, int sixteenths) {
    double bytes = 0, bits[PPL_MODES] = {0};
    for (int i = 0; i < ppl->n_chunks; i++) {
        const struct ppl_chunk *chunk = &ppl->chunks[i];
        if ((grams ? chunk->grams : chunk->run) > (float)sixteenths / 16) continue;
        bytes += (double)chunk->bytes;
        for (int mode = 0; mode < PPL_MODES; mode++) bits[mode] += (double)chunk->bits[mode];
    }
    fprintf(out, "%s,%.4f,%.0f", grams ? "8grams" : "run", sixteenths / 16.0, bytes);
    for (int mode = 0; mode < PPL_MODES; mode++) {
        fprintf(out, ",");
        if (ppl->modes[mode] && bytes > 0) fprintf(out, "%.5f", bits[mode] / bytes);
    }
    fprintf(out, "\n");
}

/* Bits per byte of the chunks whose overlap is at most a threshold (RETRO, equation 5), for both
 * measures of overlap. A field is empty where there is nothing to measure. */
enum status ppl_write_curve(const struct ppl *ppl, const char *path, struct error *e) {
    FILE *out = fopen(path, "w");
    if (out == NULL) return error_errno(e, "%s", path);
    fprintf(out, "overlap,at_most,bytes");
    for (int mode = 0; mode < PPL_MODES; mode++) fprintf(out, ",%s", modes[mode]);
    fprintf(out, "\n");
    for (int grams = 0; grams < 2; grams++)
        for (int sixteenths = 0; sixteenths <= 16; sixteenths++)
            write_threshold(ppl, out, grams, sixteenths);
    bool failed = ferror(out) != 0;
    return fclose(out) == 0 && !failed ? STATUS_OK : error_errno(e, "%s", path);
}
