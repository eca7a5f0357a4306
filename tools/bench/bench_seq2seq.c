/* tools/bench/bench_seq2seq.c: retro-bench seq2seq: reading sources and writing after them, of a model with an encoder
 * and random weights. */
#include "tools/bench/bench_model.h"

struct seq2seq_rounds {
    double first[BENCH_MAX_ROUNDS], encode[BENCH_MAX_ROUNDS], tokens[BENCH_MAX_ROUNDS];
};

static enum status measure_rounds(struct seq2seq_rounds *r, struct bench_model *m, const struct bench_options *o,
                                  const struct bench_load *load, struct error *e) {
    struct bench_rates rates = {0};
    struct bench_load warm = *load;
    warm.tokens = 1;
    enum status status = bench_generate(&rates, m, &warm, e); /* touches every page */
    for (int i = 0; i < o->rounds && status == STATUS_OK; i++) {
        status = bench_generate(&rates, m, load, e);
        double first_seconds = load->sequences / rates.prompt, step_seconds = load->sequences / rates.tokens;
        double source_tokens = (double)load->sequences * load->source;
        r->first[i] = source_tokens / first_seconds;
        r->encode[i] = source_tokens / (first_seconds - step_seconds);
        r->tokens[i] = rates.tokens;
    }
    return status;
}

/* "first" is the step with everything that the first token needs: the encoder, the decoder's keys and values of the
 * source, one row of the decoder and its logits. "encode" is that step less one of the later ones. */
enum status bench_seq2seq(const struct bench_options *options, struct error *e) {
    struct bench_options named = *options;
    const struct bench_options *o = &named;
    struct bench_source source = bench_source_of(o);
    struct bench_load load = {.sequences = o->sequences ? o->sequences : 1,
                              .prompt = 1,
                              .tokens = o->tokens ? o->tokens : 64,
                              .source = o->prompt ? o->prompt : 128};
    struct bench_model m;
    struct seq2seq_rounds rounds = {0};
    named.prefix = "seq2seq.";
    if (bench_model_open(&m, &source, e)) return e->status;
    if (!model_info(m.model)->reads_source) {
        bench_model_close(&m);
        return error_set(e, STATUS_INVALID, "%s: the model has no encoder; seq2seq is for models such as T5",
                         o->folders[0]);
    }
    bench_print_title(o, "%s %s; %d x %d of source, %d x %d decoded; %s", o->model_name, dtype_name(o->dtype),
                      load.sequences, load.source, load.sequences, load.tokens, backend_describe(m.backend));
    enum status status = measure_rounds(&rounds, &m, o, &load, e);
    if (status == STATUS_OK) {
        bench_print_rounds(o, "first", "source tok/s, to the first token's logits", rounds.first, o->rounds);
        bench_print_rounds(o, "encode", "source tok/s, without the first token's step", rounds.encode, o->rounds);
        bench_print_rounds(o, "decode", "tok/s", rounds.tokens, o->rounds);
    }
    bench_model_close(&m);
    return status;
}
