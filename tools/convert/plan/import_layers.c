/* tools/convert/plan/import_layers.c: which architecture a checkpoint is of, how deep its stacks
 * are, and which layers read neighbours: by the names of its tensors. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "tools/convert/plan/import.h"

enum { LAYERS_LIMIT = 1 << 12 };

/* The number of a tensor's layer in a stack: "decoder.layers."; -1: in none. */
static int layer_in(const char *name, const char *stack, const char **tail) {
    size_t n = strlen(stack);
    if (strncmp(name, stack, n) != 0 || !isdigit((unsigned char)name[n])) return -1;
    char *end;
    long layer = strtol(name + n, &end, 10);
    *tail = end;
    return layer < LAYERS_LIMIT ? (int)layer : LAYERS_LIMIT;
}

static int count_layers(const struct checkpoint *checkpoint, const char *stack) {
    int n = 0;
    const char *tail;
    for (int i = 0; i < checkpoint->n; i++)
        n = max_int(n, layer_in(checkpoint->tensors[i].name, stack, &tail) + 1);
    return n;
}

/* Marks the layers of the decoder that have chunked cross attention; their number. */
static int mark_cross(struct import_plan *plan) {
    int n = 0;
    for (int i = 0; i < plan->checkpoint->n; i++) {
        const char *tail;
        int layer = layer_in(plan->checkpoint->tensors[i].name, "decoder.layers.", &tail);
        if (layer < 0 || !starts_with(tail, ".cross_attention.attn.linear_q.weight")) continue;
        plan->cross[layer] = true;
        if (n == 0 || layer < plan->first_cross) plan->first_cross = layer;
        n++;
    }
    return n;
}

static enum status check_layers(const struct import_plan *plan, struct error *e) {
    int64_t said;
    const char *name = plan->architecture == IMPORT_T5 ? "decoder_num_layers" : "num_layers";
    if (plan->layers == 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s holds no layers (%s.layers.0 ...): none of Retro, GPT, T5 and BERT",
                         plan->checkpoint->folder, plan->stack);
    if (plan->layers > LAYERS_LIMIT)
        return error_set(e, STATUS_CORRUPT, "%s: a layer has the number %lld",
                         plan->checkpoint->folder, (long long)plan->layers - 1);
    if (settings_int(&plan->checkpoint->settings, name, &said) && said != plan->layers)
        return error_set(e, STATUS_CORRUPT,
                         "%s: %d stages hold %lld layers; the checkpoint's arguments say %lld",
                         plan->checkpoint->folder, plan->checkpoint->stages,
                         (long long)plan->layers, (long long)said);
    return STATUS_OK;
}

enum status import_find_layers(struct import_plan *plan, const struct import_options *options,
                               struct error *e) {
    const struct checkpoint *checkpoint = plan->checkpoint;
    bool bert = plan->architecture == IMPORT_BERT;
    plan->stack = bert ? "encoder" : "decoder";
    plan->layers = count_layers(checkpoint, bert ? "encoder.layers." : "decoder.layers.");
    plan->encoder_layers = bert ? 0 : count_layers(checkpoint, "encoder.layers.");
    if (!bert) plan->architecture = plan->encoder_layers > 0 ? IMPORT_T5 : IMPORT_GPT;
    if (check_layers(plan, e)) return e->status;

    plan->cross = xcalloc((size_t)plan->layers, sizeof *plan->cross);
    if (plan->architecture == IMPORT_GPT && mark_cross(plan) > 0) {
        struct buffer stack = {0};
        plan->architecture = IMPORT_RETRO;
        buffer_printf(&stack, "decoder.layers.%d.cross_attention.encoder.layers.",
                      plan->first_cross);
        plan->encoder_layers = count_layers(checkpoint, stack.data);
        buffer_free(&stack);
    }
    if (options->as == NULL) return STATUS_OK;

    plan->trimmed = strcmp(options->as, "gpt") == 0 && plan->architecture == IMPORT_RETRO;
    bool decoder = plan->architecture == IMPORT_GPT || plan->architecture == IMPORT_RETRO;
    bool fits = strcmp(options->as, "gpt") == 0 ? decoder : plan->architecture == IMPORT_RETRO;
    if (fits) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "--as %s: %s is a %s", options->as, checkpoint->folder,
                     decoder ? "GPT: no layer reads neighbours"
                     : bert  ? "BERT"
                             : "T5");
}
