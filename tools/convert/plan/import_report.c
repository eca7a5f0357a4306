/* tools/convert/plan/import_report.c: what a checkpoint is, what its model will be, and where each
 * value comes from. */
#include <stdio.h>

#include "config/base/line.h"
#include "tools/convert/plan/import.h"

static void put_value(struct buffer *text, const struct setting *setting) {
    switch (setting->kind) {
        case SETTING_BOOL: buffer_append_string(text, setting->number ? "true" : "false"); break;
        case SETTING_INT: buffer_printf(text, "%lld", (long long)setting->number); break;
        case SETTING_REAL: buffer_printf(text, "%g", setting->real); break;
        case SETTING_TEXT: buffer_append_string(text, setting->text); break;
        case SETTING_NONE: break;
    }
}

static void report_layers(const struct import_plan *plan) {
    struct buffer text = {0};
    for (int64_t i = 0; i < plan->layers; i++)
        if (plan->cross[i]) buffer_printf(&text, "%s%lld", text.size ? ", " : "", (long long)i + 1);
    if (text.size && plan->architecture == IMPORT_RETRO)
        line_print(stdout, "layers that read neighbours: %s", text.data);
    buffer_free(&text);
}

static void report_sizes(const struct import_plan *plan) {
    size_t bytes = 0, parts = 0;
    for (int i = 0; i < plan->n; i++) {
        const struct import_target *target = &plan->targets[i];
        size_t whole = torch_dtype_bytes(target->from->dtype);
        for (int k = 0; k < target->n_dims; k++) whole *= (size_t)target->shape[k];
        bytes += whole;
        parts += target->split == SPLIT_NONE ? whole : whole / (size_t)plan->checkpoint->ranks;
    }
    line_print(stdout, "%d tensors of %zu bytes", plan->n, bytes);
    if (plan->checkpoint->ranked && plan->checkpoint->stages == 1)
        line_print(stdout, "each of %d ranks holds %zu bytes of them", plan->checkpoint->ranks,
                   parts);
    if (plan->trimmed_tensors > 0)
        line_print(
            stdout, "%d tensors left out, which %s", plan->trimmed_tensors,
            plan->architecture == IMPORT_BERT ? "an embedder has no use for" : "a GPT has not");
    if (plan->checkpoint->dropped > 0)
        line_print(stdout, "%d entries passed over, which belong to training",
                   plan->checkpoint->dropped);
}

void import_report(const struct import_plan *plan) {
    const struct checkpoint *checkpoint = plan->checkpoint;
    line_print(stdout, "%s: %s", checkpoint->folder, checkpoint->container);
    if (checkpoint->ranked)
        line_print(stdout, "%d tensor parallel ranks, %d pipeline stages%s, version %g",
                   checkpoint->ranks, checkpoint->stages,
                   checkpoint->chunks > 1 ? " (interleaved)" : "", checkpoint->version);
    line_print(stdout, "names of %s",
               plan->legacy ? "Megatron-LM before Megatron-Core" : "Megatron-Core");
    report_layers(plan);
    for (int i = 0; i < plan->config.n; i++) {
        struct buffer value = {0};
        const struct setting *setting = &plan->config.list[i];
        if (setting->kind == SETTING_NONE) continue;
        put_value(&value, setting);
        line_print(stdout, "  %-32s %-16s %s", setting->name, value.data,
                   setting->origin ? setting->origin : "");
        buffer_free(&value);
    }
    if (plan->missing.size > 0) line_print(stdout, "missing: %s", plan->missing.data);
    if (plan->n > 0) report_sizes(plan);
}
