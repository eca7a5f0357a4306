/* retro/run/tower/tower_sizes.c: pictures that a tower reads, and the rows that they become. See
 * tower.h. */
#include "retro/model/model_private.h"
#include "retro/run/tower/tower.h"

bool model_has_tower(const struct model *model) { return model_has_stack(model, STACK_TOWER); }

struct tower_patch tower_patch_of(const struct model *model) {
    const struct tower_spec *tower = &model->spec.tower;
    int joined = tower->averaged > 0 ? tower->averaged : tower->shuffle == 2 ? 2 : 1;
    return (struct tower_patch){tower->patch, max_int(1, tower->frames), joined, tower->oblong};
}

enum status tower_check(const struct model *model, int height, int width, struct error *e) {
    const struct tower_spec *tower = &model->spec.tower;
    if (height < 1 || width < 1 || height > LIMIT_PIXELS || width > LIMIT_PIXELS)
        return error_set(e, STATUS_TOO_LARGE,
                         "a picture of %d x %d pixels, allowed is 1 .. %d a side", height, width,
                         LIMIT_PIXELS);
    if (tower->image_h > 0 && (height != tower->image_h || width != tower->image_w))
        return error_set(e, STATUS_INVALID, "a picture of %d x %d pixels; the model reads %d x %d",
                         height, width, tower->image_h, tower->image_w);
    if (height % tower->patch != 0 || width % tower->patch != 0)
        return error_set(e, STATUS_INVALID, "a picture of %d x %d pixels is no whole patches of %d",
                         height, width, tower->patch);
    int lines = height / tower->patch, columns = width / tower->patch;
    if (tower->sums_sides && max_int(lines, columns) > tower->table_w)
        return error_set(e, STATUS_TOO_LARGE,
                         "a picture of %d x %d patches; the model has positions for %d a side",
                         lines, columns, tower->table_w);
    int side = max_int(1, tower->averaged);
    if (lines % side != 0 || columns % side != 0)
        return error_set(e, STATUS_INVALID,
                         "a picture of %d x %d patches; the model averages squares of %d x %d",
                         lines, columns, side, side);
    bool even = lines % 2 == 0 && columns % 2 == 0 && (tower->oblong || lines == columns);
    if (model->spec.projector.out > 0 && tower->shuffle == 2 && !even)
        return error_set(e, STATUS_INVALID,
                         "a picture of %d x %d patches; the model joins squares of 2 x 2 patches%s",
                         lines, columns, tower->oblong ? "" : " of a square picture");
    return STATUS_OK;
}

void tower_grid(const struct model *model, int height, int width, int *lines, int *columns) {
    struct tower_patch patch = tower_patch_of(model);
    *lines = height / (patch.side * patch.joined);
    *columns = width / (patch.side * patch.joined);
}

int tower_count(const struct model *model, enum tower_end end, int height, int width) {
    const struct tower_spec *tower = &model->spec.tower;
    int patches = height / tower->patch * (width / tower->patch);
    if (end == TOWER_POOLED) return 1;
    if (end == TOWER_ROWS) return tower->class_tokens + patches;
    int rows = patches + (tower->drops_class ? 0 : tower->class_tokens),
        side = tower_patch_of(model).joined;
    return rows / (side * side);
}

int tower_columns(const struct model *model, enum tower_end end) {
    if (end == TOWER_ROWS) return model->stacks[STACK_TOWER].dims.hidden;
    return model->spec.projector.out * (1 + model->spec.tower.n_deepstack);
}
