/* server/host/prompt/picture_input.c: see picture_input.h. */
#include "server/host/prompt/picture_input.h"

#include "config/base/log.h"

/* More than photographs have; decoding takes up to a second or two. */
static const int64_t MOST_PIXELS = 1 << 25;

static const char *what_is_read(const struct model *model) {
    if (model_arranges(model)) return "tiles as LLaVA-NeXT's";
    if (model_lines(model)) return "pictures of any size as Pixtral's";
    return tower_patch_of(model).any_grid ? "pictures of any shape as Qwen2-VL's or Gemma 4's"
                                          : "whole pictures, or tiles one after the other";
}

static enum status check_patches(const struct preprocessor *preprocessor,
                                 const struct tower_patch *patch, const char *folder,
                                 struct error *e) {
    if (preprocessor->patch == patch->side && preprocessor->merge == patch->joined &&
        preprocessor->frames == patch->frames)
        return STATUS_OK;
    if (preprocessor->kind == PREPROCESSOR_PIXTRAL)
        return error_set(e, STATUS_INVALID,
                         "%s: the processor has \"patch_size\" %d and \"spatial_merge_size\" %d, "
                         "the model's tower %d and %d",
                         folder, preprocessor->patch, preprocessor->merge, patch->side,
                         patch->joined);
    bool pools = preprocessor->kind == PREPROCESSOR_GEMMA4;
    return error_set(e, STATUS_INVALID,
                     "%s: preprocessor_config.json has \"patch_size\" %d, \"%s\" %d and "
                     "\"temporal_patch_size\" "
                     "%d, the model's tower %d, %d and %d",
                     folder, preprocessor->patch, pools ? "pooling_kernel_size" : "merge_size",
                     preprocessor->merge, preprocessor->frames, patch->side, patch->joined,
                     patch->frames);
}

/* Pictures become no more tokens than the tower has memory for. */
static void limit_tokens(struct picture_input *input, const struct tower_patch *patch) {
    struct preprocessor *preprocessor = &input->preprocessor;
    int most = max_int(1, input->most_rows / (patch->joined * patch->joined));
    if (preprocessor->most_tokens <= most) return;
    log_info(
        "server.max_picture_patches makes pictures %d tokens or fewer; the model's folder would "
        "allow %d",
        most, preprocessor->most_tokens);
    preprocessor_limit_tokens(preprocessor, most);
}

/* Pictures stay within the rows that the tower has memory for. */
static void limit_pixels(struct picture_input *input, const struct tower_patch *patch) {
    struct preprocessor *preprocessor = &input->preprocessor;
    int64_t most = (int64_t)input->most_rows * patch->side * patch->side,
            allowed = preprocessor_most_pixels(preprocessor);
    if (allowed <= most) return;
    log_info(
        "pictures of more than %lld pixels are made smaller by server.max_picture_patches; the "
        "model's folder would "
        "allow %lld",
        (long long)most, (long long)allowed);
    preprocessor->most_pixels = most;
    if (preprocessor->least_pixels > most) preprocessor->least_pixels = most;
}

/* Whether the model reads what the processor makes. */
static bool fits(const struct preprocessor *preprocessor, const struct model *model) {
    return (preprocessor->kind == PREPROCESSOR_LLAVA_NEXT) == model_arranges(model) &&
           (preprocessor->kind == PREPROCESSOR_PIXTRAL) == model_lines(model) &&
           preprocessor_fits_patches(preprocessor) == tower_patch_of(model).any_grid;
}

enum status picture_input_open(struct picture_input *input, const struct model *model,
                               const struct tokenizer *tokenizer, const char *folder, int most_rows,
                               struct error *e) {
    struct tower_patch patch = tower_patch_of(model);
    input->model = model;
    input->most_rows = most_rows;
    if (preprocessor_open(&input->preprocessor, folder, e)) return e->status;
    if (!fits(&input->preprocessor, model))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: the image processor of preprocessor_config.json does not make what "
                         "the model reads: %s",
                         folder, what_is_read(model));
    if (!patch.any_grid) return STATUS_OK;
    if (check_patches(&input->preprocessor, &patch, folder, e)) return e->status;
    if (input->preprocessor.kind == PREPROCESSOR_GEMMA4)
        limit_tokens(input, &patch);
    else
        limit_pixels(input, &patch);
    return model_lines(model) ? picture_lines_open(&input->line_ids, tokenizer, folder, e)
                              : STATUS_OK;
}

void picture_input_close(struct picture_input *input) { picture_words_free(&input->words); }

enum { LEAST_OF_LINES = 2 /* a row, and the id behind its line */ };

/* Made smaller, a picture may lose half of each side to whole rows. Those of Gemma 4 are made
 * larger too. */
static int least_rows_of_any(const struct preprocessor *preprocessor) {
    int side = preprocessor->patch * preprocessor->merge;
    bool filled = preprocessor->kind == PREPROCESSOR_GEMMA4 && preprocessor->resize;
    bool small = preprocessor->least_pixels < preprocessor->most_pixels / 4;
    int64_t pixels = small && !filled ? preprocessor->least_pixels : preprocessor->most_pixels / 4;
    return max_int(1, (int)(pixels / (side * side)));
}

int picture_input_most_together(const struct picture_input *input) {
    const struct preprocessor *preprocessor = &input->preprocessor;
    int viewed = preprocessor->most_tokens * preprocessor->merge * preprocessor->merge;
    if (preprocessor->kind != PREPROCESSOR_GEMMA4) viewed = input->most_rows;
    return picture_rows_most(input->model, viewed);
}

int picture_input_least_rows(const struct picture_input *input) {
    if (input->preprocessor.kind == PREPROCESSOR_PIXTRAL) return LEAST_OF_LINES;
    if (preprocessor_fits_patches(&input->preprocessor))
        return least_rows_of_any(&input->preprocessor);
    const struct picture_size *size =
        input->preprocessor.crop ? &input->preprocessor.cut : &input->preprocessor.size;
    struct error e;
    bool known = tower_check(input->model, size->height, size->width, &e) == STATUS_OK;
    return known ? picture_rows_count(
                       input->model, 1,
                       tower_count(input->model, TOWER_PROJECTED, size->height, size->width))
                 : 1;
}

/* Of a very narrow picture, one side cannot be made smaller. */
static enum status check_size(const struct picture_input *input, const struct picture_tiles *tiles,
                              struct error *e) {
    if (tower_check(input->model, tiles->height, tiles->width, e)) return e->status;
    int rows = tower_count(input->model, TOWER_ROWS, tiles->height, tiles->width);
    if (rows <= input->most_rows) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE,
                     "the picture becomes %d x %d pixels, %d rows of the tower; the limit is %d "
                     "(server.max_picture_patches)",
                     tiles->width, tiles->height, rows, input->most_rows);
}

enum status picture_input_read(struct picture_input_tiles *out, const struct picture_input *input,
                               struct text_span file, struct error *e) {
    struct picture_rules rules = picture_default_rules;
    struct picture picture = {0};
    struct picture_tiles tiles = {0};
    rules.most_pixels = MOST_PIXELS;
    enum status status = picture_read(&picture, file, &rules, e);
    if (status == STATUS_OK) status = preprocessor_run(&tiles, &input->preprocessor, &picture, e);
    if (status == STATUS_OK) status = check_size(input, &tiles, e);
    picture_free(&picture);
    if (status) {
        picture_tiles_free(&tiles);
        return status;
    }
    *out = (struct picture_input_tiles){.pixels = tiles.pixels,
                                        .cut = {.tiles = tiles.tiles,
                                                .height = tiles.height,
                                                .width = tiles.width,
                                                .rows = tiles.rows,
                                                .columns = tiles.columns,
                                                .original_height = tiles.original.height,
                                                .original_width = tiles.original.width}};
    return STATUS_OK;
}
