/* tools/convert/plan/import_positions.c: how a model knows positions: by a table, by turning
 * queries and keys, by their distance, or not at all. Megatron has had a type for it since 2023,
 * and two flags before, which go on beside it. */
#include <string.h>

#include "tools/convert/plan/import_keys.h"

static const char key[] = "position_embedding_type", added_key[] = "add_position_embedding",
                  rotary_key[] = "use_rotary_position_embeddings";
#define decided_by \
    "--config decides by its key position_embedding_type (learned_absolute, rope, relative or " \
    "none)"

static const char *const types[] = {"learned_absolute", "rope", "relative", "none"};

static bool is_type(const char *type, const char *name) { return type && strcmp(type, name) == 0; }

static bool is_known(const char *type) {
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (is_type(type, types[i])) return true;
    return false;
}

static bool has_relative(const struct import_plan *plan) {
    return import_tensor(plan, "decoder_relative_pos_emb.relative_attention_bias.weight") ||
           import_tensor(plan, "encoder_relative_pos_emb.relative_attention_bias.weight");
}

/* Two things that do not fit; `what` and `other` name them with their values. */
static enum status fail(const struct import_plan *plan, const char *what, const char *other,
                        struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: %s, and %s; " decided_by, plan->checkpoint->folder,
                     what, other);
}

/* Where nothing says the type. */
static enum status infer_type(struct import_plan *plan, bool table, bool relative,
                              struct error *e) {
    const struct settings *settings = &plan->checkpoint->settings;
    bool added, rotary = settings_true(settings, rotary_key),
                silent = !settings_bool(settings, added_key, &added);
    if (rotary && (table || relative))
        return fail(
            plan, "position_embedding_type is absent and use_rotary_position_embeddings true",
            table ? "there is a table of positions" : "there are tables of relative positions", e);
    if (!silent && !added && table)
        return fail(plan, "position_embedding_type is absent and add_position_embedding false",
                    "there is a table of positions", e);
    if (rotary)
        import_put_text(plan, key, "rope", "argument use_rotary_position_embeddings");
    else if (relative)
        import_put_text(plan, key, "relative", "tensors");
    else if (table)
        import_put_text(plan, key, "learned_absolute", "tensors");
    else if (!silent && !added)
        import_put_text(plan, key, "none", "argument add_position_embedding");
    else
        import_lack(plan, key, "learned_absolute, rope or none");
    return STATUS_OK;
}

/* A type that the checkpoint says wins over the flags: add_position_embedding is usually left at
 * its default beside "none", and false beside "rope". Rotary positions are never on beside another
 * type. */
static enum status check_flags(const struct import_plan *plan, const char *type, bool table,
                               struct error *e) {
    const struct settings *settings = &plan->checkpoint->settings;
    bool added;
    struct buffer what = {0};
    buffer_printf(&what, "%s is \"%s\"", key, type);
    enum status status = STATUS_OK;
    if (settings_true(settings, rotary_key) && !is_type(type, "rope"))
        status = fail(plan, what.data, "use_rotary_position_embeddings is true", e);
    else if (is_type(type, "learned_absolute") && !table &&
             settings_bool(settings, added_key, &added) && !added)
        status = fail(plan, what.data,
                      "add_position_embedding is false, without a table of positions", e);
    buffer_free(&what);
    return status;
}

static enum status check_tensors(const struct import_plan *plan, const char *type, bool table,
                                 bool relative, struct error *e) {
    struct buffer what = {0};
    const char *other = NULL;
    buffer_printf(&what, "%s is \"%s\"", key, type);
    if (is_type(type, "relative") && plan->architecture != IMPORT_T5)
        other = "this is no T5, which alone has relative positions";
    else if (is_type(type, "learned_absolute") != table)
        other = table ? "there is a table of positions" : "there is no table of positions";
    else if (is_type(type, "relative") != relative)
        other = relative ? "there are tables of relative positions"
                         : "there are no tables of relative positions";
    enum status status = other ? fail(plan, what.data, other, e) : STATUS_OK;
    buffer_free(&what);
    return status;
}

static enum status choose_type(struct import_plan *plan, bool table, struct error *e) {
    bool relative = has_relative(plan), given = import_take_given(plan, key);
    if (!given && !import_take_text(plan, key, key) && infer_type(plan, table, relative, e))
        return e->status;
    const char *type = settings_text(&plan->config, key);
    if (type == NULL) return STATUS_OK;
    if (!is_known(type))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: %s is \"%s\", which no family here computes; " decided_by,
                         plan->checkpoint->folder, key, type);
    if (!given && settings_text(&plan->checkpoint->settings, key) &&
        check_flags(plan, type, table, e))
        return e->status;
    return check_tensors(plan, type, table, relative, e);
}

static void configure_rotation(struct import_plan *plan) {
    import_take_real(plan, "rotary_percent", "rotary_percent", 1);
    if (plan->architecture == IMPORT_GPT)
        import_take_real(plan, "rotary_base", "rotary_base", 10000);
    else
        import_put_int(plan, "rotary_base", 10000, "Megatron's constant");
    import_take_bool(plan, "rotary_interleaved", "rotary_interleaved");
}

enum status import_configure_positions(struct import_plan *plan, struct error *e) {
    const struct checkpoint_tensor *table =
        import_tensor(plan, "embedding.position_embeddings.weight");
    if (choose_type(plan, table != NULL, e)) return e->status;
    const char *type = settings_text(&plan->config, key),
               *sizes = "max_position_embeddings|seq_length";
    plan->learned = is_type(type, "learned_absolute");
    plan->relative = is_type(type, "relative");
    if (is_type(type, "rope")) configure_rotation(plan);

    if (table) {
        plan->positions = table->shape[0];
        import_put_int(plan, "max_position_embeddings", plan->positions, "tensors");
    } else if (!import_take_int(plan, "max_position_embeddings", sizes, &plan->positions)) {
        import_lack(plan, "max_position_embeddings", NULL);
    }
    return STATUS_OK;
}
