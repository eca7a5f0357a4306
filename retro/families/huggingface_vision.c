/* retro/families/huggingface_vision.c: what Hugging Face's models with a vision tower share. */
#include "retro/families/huggingface_vision.h"

#include <string.h>

static const struct json_field fields[] = {QWEN_VL_FIELDS(151655)};
const struct json_table qwen_vl_table = JSON_TABLE(fields, .open = true);

void huggingface_drop_absent_tower(const struct weights *weights, const char *part,
                                   struct model_spec *spec) {
    if (spec->stacks[STACK_TOWER].n_layers == 0) return;
    for (int i = 0; i < weights_count(weights); i++)
        if (strstr(weights_at(weights, i)->name, part)) return;

    log_info("the checkpoint has no vision tower: texts are read, and no pictures");
    spec->parts[STACK_TOWER] = (struct model_part){0};
    spec->stacks[STACK_TOWER] = (struct dims){0};
    spec->tower = (struct tower_spec){0};
    spec->projector = (struct projector_spec){0};
    spec->picture.together = 0;
    spec->picture.lined = false;
    spec->picture.linked = false;
}
