/* tools/convert/plan/import_report.c: what a checkpoint is, what its model will be, and where each value comes from. */
#include <stdio.h>

#include "config/base/line.h"
#include "tools/convert/plan/import.h"

static void put_value(struct buffer *text, const struct setting *s) {
    switch (s->kind) {
        case SETTING_BOOL: buffer_append_string(text, s->number ? "true" : "false"); break;
        case SETTING_INT: buffer_printf(text, "%lld", (long long)s->number); break;
        case SETTING_REAL: buffer_printf(text, "%g", s->real); break;
        case SETTING_TEXT: buffer_append_string(text, s->text); break;
        case SETTING_NONE: break;
    }
}

static void report_layers(const struct import_plan *p) {
    struct buffer text = {0};
    for (int64_t i = 0; i < p->layers; i++)
        if (p->cross[i]) buffer_printf(&text, "%s%lld", text.size ? ", " : "", (long long)i + 1);
    if (text.size && p->architecture == IMPORT_RETRO) line_print(stdout, "layers that read neighbours: %s", text.data);
    buffer_free(&text);
}

static void report_sizes(const struct import_plan *p) {
    size_t bytes = 0, parts = 0;
    for (int i = 0; i < p->n; i++) {
        const struct import_target *t = &p->targets[i];
        size_t whole = torch_dtype_bytes(t->from->dtype);
        for (int k = 0; k < t->n_dims; k++) whole *= (size_t)t->shape[k];
        bytes += whole;
        parts += t->split == SPLIT_NONE ? whole : whole / (size_t)p->checkpoint->ranks;
    }
    line_print(stdout, "%d tensors of %zu bytes", p->n, bytes);
    if (p->checkpoint->ranked && p->checkpoint->stages == 1)
        line_print(stdout, "each of %d ranks holds %zu bytes of them", p->checkpoint->ranks, parts);
    if (p->trimmed_tensors > 0)
        line_print(stdout, "%d tensors left out, which %s", p->trimmed_tensors,
                   p->architecture == IMPORT_BERT ? "an embedder has no use for" : "a GPT has not");
    if (p->checkpoint->dropped > 0)
        line_print(stdout, "%d entries passed over, which belong to training", p->checkpoint->dropped);
}

void import_report(const struct import_plan *p) {
    const struct checkpoint *c = p->checkpoint;
    line_print(stdout, "%s: %s", c->folder, c->container);
    if (c->ranked)
        line_print(stdout, "%d tensor parallel ranks, %d pipeline stages%s, version %g", c->ranks, c->stages,
                   c->chunks > 1 ? " (interleaved)" : "", c->version);
    line_print(stdout, "names of %s", p->legacy ? "Megatron-LM before Megatron-Core" : "Megatron-Core");
    report_layers(p);
    for (int i = 0; i < p->config.n; i++) {
        struct buffer value = {0};
        const struct setting *s = &p->config.list[i];
        if (s->kind == SETTING_NONE) continue;
        put_value(&value, s);
        line_print(stdout, "  %-32s %-16s %s", s->name, value.data, s->origin ? s->origin : "");
        buffer_free(&value);
    }
    if (p->missing.size > 0) line_print(stdout, "missing: %s", p->missing.data);
    if (p->n > 0) report_sizes(p);
}
