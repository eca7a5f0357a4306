/* tools/convert/plan/import_families.c: the keys of config.json that Retro and T5 have beside those
 * of GPT, and which keys
 * --config may hold. */
#include <stdlib.h>
#include <string.h>

#include "config/base/nearest.h"
#include "tools/convert/plan/import_keys.h"

/* Keys that nothing but tensors decides are not among them. */
static const char *const given_keys[] = {"num_attention_heads",
                                         "kv_channels",
                                         "num_query_groups",
                                         "position_embedding_type",
                                         "max_position_embeddings",
                                         "rotary_percent",
                                         "rotary_base",
                                         "rotary_interleaved",
                                         "activation",
                                         "normalization",
                                         "layernorm_epsilon",
                                         "layernorm_zero_centered_gamma",
                                         "tie_word_embeddings",
                                         "vocab_size",
                                         "eod_token_id",
                                         "bos_token_id",
                                         "pad_token_id",
                                         "retro_chunk_length",
                                         "retro_num_neighbors",
                                         "retro_retrieved_length",
                                         "retro_attention_gate",
                                         "relative_attention_max_distance"};

enum status import_check_given(const struct import_plan *plan, struct error *e) {
    for (int i = 0; i < plan->given.n; i++) {
        const char *name = plan->given.list[i].name;
        struct nearest_name nearest = {0};
        bool known = false;
        for (size_t k = 0; k < ARRAY_COUNT(given_keys); k++) {
            known = known || strcmp(name, given_keys[k]) == 0;
            nearest_offer(&nearest, (struct text_span){name, strlen(name)},
                          (struct text_span){given_keys[k], strlen(given_keys[k])});
        }
        if (known) continue;
        if (nearest.name.text)
            return error_set(e, STATUS_INVALID,
                             "--config: there is no key \"%s\"; did you mean \"%.*s\"?", name,
                             (int)nearest.name.size, nearest.name.text);
        return error_set(e, STATUS_INVALID,
                         "--config: there is no key \"%s\" that a checkpoint could lack", name);
    }
    return STATUS_OK;
}

/* How strongly a decoder's layer takes what it reads from neighbours. Megatron-Core has no such
 * number. */
static enum status configure_gate(struct import_plan *plan, const struct import_options *options,
                                  struct error *e) {
    const char *key = "retro_attention_gate";
    double gate = 1;
    char *end;
    if (options->gate) {
        gate = strtod(options->gate, &end);
        if (end == options->gate || *end != '\0' || !(gate >= -1000 && gate <= 1000))
            return error_set(e, STATUS_INVALID, "--gate %s: expected a number", options->gate);
        settings_put_real(&plan->config, key, gate);
        settings_say(&plan->config, key, "--gate");
    } else if (!plan->legacy && !settings_find(&plan->given, key)) {
        import_put_int(plan, key, 1, "Megatron-Core has none");
    } else if (settings_find(&plan->given, key) ||
               settings_find(&plan->checkpoint->settings, key)) {
        import_take_real(plan, key, key, 1);
    } else {
        import_lack(
            plan, key,
            "--gate 1 for a model that reads neighbours, --gate 0 for NVIDIA's instruct models");
    }
    settings_real(&plan->config, key, &gate);
    if (!plan->trimmed || gate == 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "--as gpt: the gate is %g, so this Retro computes with what it reads; a GPT "
                     "is the same model only "
                     "where the gate is 0",
                     gate);
}

enum status import_configure_retro(struct import_plan *plan, const struct import_options *options,
                                   struct error *e) {
    int64_t chunk = 64, chunks = 2, ignored;
    if (configure_gate(plan, options, e)) return e->status;
    if (plan->trimmed) {
        struct setting *gate =
            (struct setting *)(uintptr_t)settings_find(&plan->config, "retro_attention_gate");
        if (gate) gate->kind = SETTING_NONE; /* a GPT has none */
        return STATUS_OK;
    }
    if (!import_take_int(plan, "retro_chunk_length", "retro_chunk_length|retro_gpt_chunk_length",
                         &chunk))
        import_put_int(plan, "retro_chunk_length", chunk,
                       "assumed: nothing says it, NVIDIA's models have it");
    if (!import_take_int(plan, "retro_num_neighbors", "retro_num_neighbors", &ignored))
        import_put_int(plan, "retro_num_neighbors", 2,
                       "assumed: nothing says it, NVIDIA's models have it");
    bool said = settings_int(&plan->checkpoint->settings, "retro_num_retrieved_chunks", &chunks);
    if (chunk < 1 || chunk > 1 << 16 || chunks < 1 || chunks > 1 << 10)
        return error_set(e, STATUS_INVALID,
                         "chunks of %lld tokens, of which %lld are retrieved, cannot be",
                         (long long)chunk, (long long)chunks);
    if (!import_take_given(plan, "retro_retrieved_length"))
        import_put_int(
            plan, "retro_retrieved_length", chunks * chunk,
            said ? "argument retro_num_retrieved_chunks" : "assumed: twice retro_chunk_length");
    import_put_text(plan, "encoder_residual", plan->legacy ? "raw" : "normed",
                    plan->legacy ? "names from before Megatron-Core" : "names of Megatron-Core");
    return STATUS_OK;
}

enum status import_configure_bert(struct import_plan *plan, struct error *e) {
    const struct checkpoint_tensor *types =
        import_tensor(plan, "embedding.tokentype_embeddings.weight");
    plan->token_types = types ? types->shape[0] : 0;
    import_put_int(plan, "num_tokentypes", plan->token_types, "tensors");
    if (plan->learned && plan->final_norm) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED, "%s: a BERT without %s", plan->checkpoint->folder,
                     plan->learned ? "a norm after its last layer (encoder.final_layernorm)"
                                   : "learned positions");
}

enum status import_configure_t5(struct import_plan *plan, struct error *e) {
    const struct checkpoint_tensor *relative =
        import_tensor(plan, "encoder_relative_pos_emb.relative_attention_bias.weight");
    int64_t ignored;
    plan->output_bias = plan->tied;
    if (plan->relative && relative == NULL)
        return error_set(e, STATUS_CORRUPT,
                         "%s: the positions are relative, and the encoder has no table of them",
                         plan->checkpoint->folder);
    if (relative) {
        plan->buckets = relative->shape[0];
        import_put_int(plan, "relative_attention_num_buckets", plan->buckets, "tensors");
        if (!import_take_int(plan, "relative_attention_max_distance",
                             "relative_attention_max_distance", &ignored))
            import_put_int(plan, "relative_attention_max_distance", 128, "default");
    }
    return STATUS_OK;
}
