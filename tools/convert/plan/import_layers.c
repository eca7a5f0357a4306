/* tools/convert/plan/import_layers.c: which architecture a checkpoint is of, how deep its stacks are, and which layers
 * read neighbours: by the names of its tensors. */
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

static int count_layers(const struct checkpoint *c, const char *stack) {
    int n = 0;
    const char *tail;
    for (int i = 0; i < c->n; i++) n = max_int(n, layer_in(c->tensors[i].name, stack, &tail) + 1);
    return n;
}

/* Marks the layers of the decoder that have chunked cross attention; their number. */
static int mark_cross(struct import_plan *p) {
    int n = 0;
    for (int i = 0; i < p->checkpoint->n; i++) {
        const char *tail;
        int layer = layer_in(p->checkpoint->tensors[i].name, "decoder.layers.", &tail);
        if (layer < 0 || !starts_with(tail, ".cross_attention.attn.linear_q.weight")) continue;
        p->cross[layer] = true;
        if (n == 0 || layer < p->first_cross) p->first_cross = layer;
        n++;
    }
    return n;
}

static enum status check_layers(const struct import_plan *p, struct error *e) {
    int64_t said;
    const char *name = p->architecture == IMPORT_T5 ? "decoder_num_layers" : "num_layers";
    if (p->layers == 0)
        return error_set(e, STATUS_UNSUPPORTED, "%s holds no layers (%s.layers.0 ...): none of Retro, GPT, T5 and BERT",
                         p->checkpoint->folder, p->stack);
    if (p->layers > LAYERS_LIMIT)
        return error_set(e, STATUS_CORRUPT, "%s: a layer has the number %lld", p->checkpoint->folder,
                         (long long)p->layers - 1);
    if (settings_int(&p->checkpoint->settings, name, &said) && said != p->layers)
        return error_set(e, STATUS_CORRUPT, "%s: %d stages hold %lld layers; the checkpoint's arguments say %lld",
                         p->checkpoint->folder, p->checkpoint->stages, (long long)p->layers, (long long)said);
    return STATUS_OK;
}

enum status import_find_layers(struct import_plan *p, const struct import_options *o, struct error *e) {
    const struct checkpoint *c = p->checkpoint;
    bool bert = p->architecture == IMPORT_BERT;
    p->stack = bert ? "encoder" : "decoder";
    p->layers = count_layers(c, bert ? "encoder.layers." : "decoder.layers.");
    p->encoder_layers = bert ? 0 : count_layers(c, "encoder.layers.");
    if (!bert) p->architecture = p->encoder_layers > 0 ? IMPORT_T5 : IMPORT_GPT;
    if (check_layers(p, e)) return e->status;

    p->cross = xcalloc((size_t)p->layers, sizeof *p->cross);
    if (p->architecture == IMPORT_GPT && mark_cross(p) > 0) {
        struct buffer stack = {0};
        p->architecture = IMPORT_RETRO;
        buffer_printf(&stack, "decoder.layers.%d.cross_attention.encoder.layers.", p->first_cross);
        p->encoder_layers = count_layers(c, stack.data);
        buffer_free(&stack);
    }
    if (o->as == NULL) return STATUS_OK;

    p->trimmed = strcmp(o->as, "gpt") == 0 && p->architecture == IMPORT_RETRO;
    bool decoder = p->architecture == IMPORT_GPT || p->architecture == IMPORT_RETRO;
    bool fits = strcmp(o->as, "gpt") == 0 ? decoder : p->architecture == IMPORT_RETRO;
    if (fits) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "--as %s: %s is a %s", o->as, c->folder,
                     decoder ? "GPT: no layer reads neighbours"
                     : bert  ? "BERT"
                             : "T5");
}
