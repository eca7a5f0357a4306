/* tools/bench/bench_load.c: retro-bench load: from nothing to the first token of a model folder that lies in the page
 * cache.
 */
#include "tools/bench/bench_model.h"

enum { ROUNDS = 5 };

struct loading {
    double open, first_token; /* milliseconds until the model is open, and until it has computed one token */
    double gigabytes;         /* of weights, as they lie on the device */
    enum dtype dtype;
};

static enum status load_once(struct loading *l, const struct bench_source *s, struct error *e) {
    struct bench_model m;
    struct bench_rates rates;
    double start = time_now();
    if (bench_model_open(&m, s, e)) return e->status;
    l->open = 1e3 * (time_now() - start);
    enum status status = bench_generate(&rates, &m, &(struct bench_load){.sequences = 1, .prompt = 1}, e);
    l->first_token = 1e3 * (time_now() - start);
    l->gigabytes = 1e-9 * (double)model_info(m.model)->weight_bytes;
    l->dtype = model_info(m.model)->dtype;
    bench_model_close(&m);
    return status;
}

enum status bench_load(const struct bench_options *options, struct error *e) {
    struct bench_options o = *options;
    struct bench_source source = bench_source_of(&o);
    struct loading l;
    double open[ROUNDS], first_token[ROUNDS], read[ROUNDS];
    source.stored = true;
    if (load_once(&l, &source, e)) return e->status; /* into the page cache */
    o.prefix = "load.";
    o.dtype_name = dtype_name(l.dtype);
    bench_print_title(&o, "%s %s, %.1f MB of weights, on %s", o.model_name, o.dtype_name, 1e3 * l.gigabytes,
                      source.device);
    for (int i = 0; i < ROUNDS; i++) {
        struct roofline roof;
        if (roofline_measure(&roof, o.threads, e) || load_once(&l, &source, e)) return e->status;
        read[i] = roof.read_gbps;
        open[i] = l.open;
        first_token[i] = l.first_token;
    }
    bench_print_rounds(&o, "open", "ms", open, ROUNDS);
    double gbps = l.gigabytes / (1e-3 * bench_print_rounds(&o, "first_token", "ms", first_token, ROUNDS));
    bench_print(&o, "ms_per_gb", "ms to the first token, for each GB of weights", 1e3 / gbps);
    bench_print(&o, "gbps", "GB/s", gbps);
    bench_print(&o, "share_of_read", "of read_gbps", gbps / bench_median(read, ROUNDS));
    return STATUS_OK;
}
