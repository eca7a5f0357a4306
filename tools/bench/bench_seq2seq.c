/* tools/bench/bench_seq2seq.c: retro-bench seq2seq: reading sources and writing after them, of a
 * model with an encoder and random weights. */
#include "tools/bench/bench_model.h"

struct seq2seq_rounds {
    double first[BENCH_MAX_ROUNDS], encode[BENCH_MAX_ROUNDS], tokens[BENCH_MAX_ROUNDS];
};

static enum status measure_rounds(struct seq2seq_rounds *rounds, struct bench_model *model,
                                  const struct bench_options *options,
                                  const struct bench_load *load, struct error *e) {
    struct bench_rates rates = {0};
    struct bench_load warm = *load;
    warm.tokens = 1;
    enum status status = bench_generate(&rates, model, &warm, e); /* touches every page */
    for (int i = 0; i < options->rounds && status == STATUS_OK; i++) {
        status = bench_generate(&rates, model, load, e);
        double first_seconds = load->sequences / rates.prompt,
               step_seconds = load->sequences / rates.tokens;
        double source_tokens = (double)load->sequences * load->source;
        rounds->first[i] = source_tokens / first_seconds;
        rounds->encode[i] = source_tokens / (first_seconds - step_seconds);
        rounds->tokens[i] = rates.tokens;
    }
    return status;
}

/* "first" is the step with everything that the first token needs: the encoder, the decoder's keys
 * and values of the source, one row of the decoder and its logits. "encode" is that step less one
 * of the later ones. */
enum status bench_seq2seq(const struct bench_options *options, struct error *e) {
    struct bench_options named = *options;
    const struct bench_options *bench_options = &named;
    struct bench_source source = bench_source_of(bench_options);
    struct bench_load load = {.sequences = bench_options->sequences ? bench_options->sequences : 1,
                              .prompt = 1,
                              .tokens = bench_options->tokens ? bench_options->tokens : 64,
                              .source = bench_options->prompt ? bench_options->prompt : 128};
    struct bench_model model;
    struct seq2seq_rounds rounds = {0};
    named.prefix = "seq2seq.";
    if (bench_model_open(&model, &source, e)) return e->status;
    if (!model_info(model.model)->reads_source) {
        bench_model_close(&model);
        return error_set(e, STATUS_INVALID,
                         "%s: the model has no encoder; seq2seq is for models such as T5",
                         bench_options->folders[0]);
    }
    bench_print_title(bench_options, "%s %s; %d x %d of source, %d x %d decoded; %s",
                      bench_options->model_name, dtype_name(bench_options->dtype), load.sequences,
                      load.source, load.sequences, load.tokens, backend_describe(model.backend));
    enum status status = measure_rounds(&rounds, &model, bench_options, &load, e);
    if (status == STATUS_OK) {
        bench_print_rounds(bench_options, "first", "source tok/s, to the first token's logits",
                           rounds.first, bench_options->rounds);
        bench_print_rounds(bench_options, "encode", "source tok/s, without the first token's step",
                           rounds.encode, bench_options->rounds);
        bench_print_rounds(bench_options, "decode", "tok/s", rounds.tokens, bench_options->rounds);
    }
    bench_model_close(&model);
    return status;
}
