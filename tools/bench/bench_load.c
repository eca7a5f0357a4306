/* tools/bench/bench_load.c: retro-bench load: from nothing to the first token of a model folder
 * that lies in the page cache.
 */
#include "tools/bench/bench_model.h"

enum { ROUNDS = 5 };

struct loading {
    double open,
        first_token; /* milliseconds until the model is open, and until it has computed one token */
    double gigabytes; /* of weights, as they lie on the device */
    enum dtype dtype;
};

static enum status load_once(struct loading *loading, const struct bench_source *source,
                             struct error *e) {
    struct bench_model model;
    struct bench_rates rates;
    double start = time_now();
    if (bench_model_open(&model, source, e)) return e->status;
    loading->open = 1e3 * (time_now() - start);
    enum status status =
        bench_generate(&rates, &model, &(struct bench_load){.sequences = 1, .prompt = 1}, e);
    loading->first_token = 1e3 * (time_now() - start);
    loading->gigabytes = 1e-9 * (double)model_info(model.model)->weight_bytes;
    loading->dtype = model_info(model.model)->dtype;
    bench_model_close(&model);
    return status;
}

enum status bench_load(const struct bench_options *options, struct error *e) {
    struct bench_options bench_options = *options;
    struct bench_source source = bench_source_of(&bench_options);
    struct loading loading;
    double open[ROUNDS], first_token[ROUNDS], read[ROUNDS];
    source.stored = true;
    if (load_once(&loading, &source, e)) return e->status; /* into the page cache */
    bench_options.prefix = "load.";
    bench_options.dtype_name = dtype_name(loading.dtype);
    bench_print_title(&bench_options, "%s %s, %.1f MB of weights, on %s", bench_options.model_name,
                      bench_options.dtype_name, 1e3 * loading.gigabytes, source.device);
    for (int i = 0; i < ROUNDS; i++) {
        struct roofline roof;
        if (roofline_measure(&roof, bench_options.threads, e) || load_once(&loading, &source, e))
            return e->status;
        read[i] = roof.read_gbps;
        open[i] = loading.open;
        first_token[i] = loading.first_token;
    }
    bench_print_rounds(&bench_options, "open", "ms", open, ROUNDS);
    double gbps = loading.gigabytes / (1e-3 * bench_print_rounds(&bench_options, "first_token",
                                                                 "ms", first_token, ROUNDS));
    bench_print(&bench_options, "ms_per_gb", "ms to the first token, for each GB of weights",
                1e3 / gbps);
    bench_print(&bench_options, "gbps", "GB/s", gbps);
    bench_print(&bench_options, "share_of_read", "of read_gbps", gbps / bench_median(read, ROUNDS));
    return STATUS_OK;
}
