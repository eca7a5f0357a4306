/* retro/pictures/preprocessor_config.c: preprocessor_config.json. A key that would change the
 * pixels and that is not followed here is an error; keys that change none are ignored by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_table.h"
#include "retro/pictures/preprocessor.h"

/* Sizes are {"height": 336, "width": 336}, {"shortest_edge": 336}, or a number. */
struct size_keys {
    int height, width, shortest_edge;
};

#define SIDE(key, member) \
    { (key), JSON_INT, JSON_AT(struct size_keys, member), .min = 1, .max = PREPROCESSOR_MOST_SIDE }
static const struct json_field size_fields[] = {
    SIDE("height", height),
    SIDE("width", width),
    SIDE("shortest_edge", shortest_edge),
};
static const struct json_table size_table = JSON_TABLE(size_fields);

struct preprocessor_keys {
    struct preprocessor values;
    int filter;
    bool square; /* a number as the size is that of a square */
    struct json_list mean, deviation;
};

static enum status parse_either(struct json_reader *reader, const struct json *value,
                                struct size_keys *keys) {
    static const struct json_field number = {"", JSON_INT, .min = 1, .max = PREPROCESSOR_MOST_SIDE};
    *keys = (struct size_keys){0};
    if (json_is_numeric(value))
        return json_field_read(reader, &number, value, &keys->shortest_edge);

    enum status status = json_table_read(reader, &size_table, value, keys);
    if (status) return status;
    bool both = keys->height > 0 && keys->width > 0, none = keys->height == 0 && keys->width == 0;
    if (keys->shortest_edge > 0 ? none : both) return STATUS_OK;
    return json_fail(reader, JSON_FAULT_VALUE,
                     "\"%s\" must have height and width, or shortest_edge alone",
                     reader->place->name);
}

static enum status parse_size(struct json_reader *reader, const struct json *value, void *object) {
    struct preprocessor_keys *preprocessor_keys = object;
    struct size_keys keys;
    enum status status = parse_either(reader, value, &keys);
    if (status) return status;
    bool square = json_is_numeric(value) && preprocessor_keys->square;
    preprocessor_keys->values.shortest_edge = square ? 0 : keys.shortest_edge;
    preprocessor_keys->values.size =
        square ? (struct picture_size){keys.shortest_edge, keys.shortest_edge}
               : (struct picture_size){keys.height, keys.width};
    return STATUS_OK;
}

static enum status parse_crop_size(struct json_reader *reader, const struct json *value,
                                   void *object) {
    struct preprocessor_keys *preprocessor_keys = object;
    struct size_keys keys;
    enum status status = parse_either(reader, value, &keys);
    if (status) return status;
    if (keys.shortest_edge > 0 && !json_is_numeric(value))
        return json_fail(reader, JSON_FAULT_VALUE, "\"%s\" must have height and width",
                         reader->place->name);
    preprocessor_keys->values.cut =
        keys.shortest_edge > 0 ? (struct picture_size){keys.shortest_edge, keys.shortest_edge}
                               : (struct picture_size){keys.height, keys.width};
    return STATUS_OK;
}

static enum status parse_grids(struct json_reader *reader, const struct json *value, void *object) {
    struct preprocessor_keys *keys = object;
    size_t count = json_count(value);
    if (!json_is_list(value) || count < 1 || count > PREPROCESSOR_MOST_GRIDS)
        return json_fail(reader, JSON_FAULT_VALUE,
                         "\"%s\" must have 1 .. %d pairs of height and width", reader->place->name,
                         PREPROCESSOR_MOST_GRIDS);
    for (size_t i = 0; i < count; i++) {
        const struct json *pair = json_item(value, i);
        int64_t height = json_int(json_item(pair, 0)), width = json_int(json_item(pair, 1));
        bool sound = json_count(pair) == 2 && height >= 1 && height <= PREPROCESSOR_MOST_SIDE &&
                     width >= 1 && width <= PREPROCESSOR_MOST_SIDE;
        if (!sound)
            return json_fail(reader, JSON_FAULT_VALUE,
                             "pair %zu of \"%s\" must be height and width, 1 .. %d each", i,
                             reader->place->name, PREPROCESSOR_MOST_SIDE);
        keys->values.grids[i] = (struct picture_size){(int)height, (int)width};
    }
    keys->values.grid_count = (int)count;
    return STATUS_OK;
}

/* Qwen2-VL's edges are numbers of pixels of the whole picture. */
static enum status parse_pixels(struct json_reader *reader, const struct json *value,
                                void *object) {
    static const struct json_field edge_fields[] = {
        {"shortest_edge|min_pixels", JSON_INT64, JSON_AT(struct preprocessor, least_pixels),
         .min = 1, .max = PICTURE_MOST_PIXELS},
        {"longest_edge|max_pixels", JSON_INT64, JSON_AT(struct preprocessor, most_pixels), .min = 1,
         .max = PICTURE_MOST_PIXELS},
    };
    static const struct json_table edges = JSON_TABLE(edge_fields);
    struct preprocessor_keys *keys = object;
    return json_table_read(reader, &edges, value, &keys->values);
}

/* Pixtral's picture fits this: a number as both sides, or as the longer one. */
static enum status parse_largest(struct json_reader *reader, const struct json *value,
                                 void *object) {
    static const struct json_field edge_fields[] = {SIDE("longest_edge", shortest_edge),
                                                    SIDE("height", height), SIDE("width", width)};
    static const struct json_table edges = JSON_TABLE(edge_fields);
    struct preprocessor_keys *keys = object;
    struct size_keys size = {0};
    enum status status = json_is_numeric(value) ? parse_either(reader, value, &size)
                                                : json_table_read(reader, &edges, value, &size);
    if (status) return status;
    if (size.shortest_edge == 0 && (size.height == 0 || size.width == 0))
        return json_fail(reader, JSON_FAULT_VALUE,
                         "\"%s\" must have longest_edge, or height and width", reader->place->name);
    keys->values.size = size.shortest_edge > 0
                            ? (struct picture_size){size.shortest_edge, size.shortest_edge}
                            : (struct picture_size){size.height, size.width};
    return STATUS_OK;
}

/* A number, or two equal ones. */
static enum status parse_patch(struct json_reader *reader, const struct json *value, void *object) {
    static const struct json_field number = {"", JSON_INT, .min = 1, .max = 256};
    struct preprocessor_keys *keys = object;
    struct size_keys size;
    if (json_is_numeric(value)) return json_field_read(reader, &number, value, &keys->values.patch);
    enum status status = parse_either(reader, value, &size);
    if (status) return status;
    if (size.height != size.width || size.shortest_edge > 0 || size.height > 256)
        return json_fail(reader, JSON_FAULT_VALUE,
                         "\"%s\" must be a number, or a height and a width that are equal, of at "
                         "most 256",
                         reader->place->name);
    keys->values.patch = size.height;
    return STATUS_OK;
}

#define AT(member) JSON_AT(struct preprocessor_keys, member)
static const struct json_field mean_item = {"", JSON_DOUBLE, .min = -1e6, .max = 1e6};
static const struct json_field deviation_item = {"", JSON_DOUBLE, .min = 1e-6, .max = 1e6};
static const struct json_field step_fields[] = {
    {.name = "image_processor_type", .type = JSON_IGNORED},
    {.name = "feature_extractor_type", .type = JSON_IGNORED},
    {"do_resize", JSON_BOOL, AT(values.resize)},
    {"do_rescale", JSON_BOOL, AT(values.rescale)},
    {"do_normalize", JSON_BOOL, AT(values.normalize)},
    {"resample", JSON_INT, AT(filter), .min = RESIZE_NEAREST, .max = RESIZE_HAMMING},
    {"rescale_factor", JSON_DOUBLE, AT(values.factor), .min = 1e-9, .max = 1e9},
    {"image_mean", JSON_LIST, AT(mean), .item = &mean_item, .item_size = sizeof(double), .min = 1,
     .max = 3, .or_one = true},
    {"image_std", JSON_LIST, AT(deviation), .item = &deviation_item, .item_size = sizeof(double),
     .min = 1, .max = 3, .or_one = true},
    {.name = "pad_size", .type = JSON_EMPTY},
    {.name = "size_divisor", .type = JSON_EMPTY},
    {.name = "auto_map", .type = JSON_EMPTY},
    /* Pictures always are RGB here, and the rest is about the caller's arrays or about the text. */
    {.name = "do_convert_rgb", .type = JSON_IGNORED},
    {.name = "data_format", .type = JSON_IGNORED},
    {.name = "input_data_format", .type = JSON_IGNORED},
    {.name = "return_tensors", .type = JSON_IGNORED},
    {.name = "device", .type = JSON_IGNORED},
    {.name = "disable_grouping", .type = JSON_IGNORED},
    {.name = "processor_class", .type = JSON_IGNORED},
    {.name = "_valid_processor_keys", .type = JSON_IGNORED},
    {.name = "image_seq_length", .type = JSON_IGNORED},
    {.name = "num_additional_image_tokens", .type = JSON_IGNORED},
    {.name = "vision_feature_select_strategy", .type = JSON_IGNORED},
};
static const struct json_table step_table = JSON_TABLE(step_fields);

/* default_to_square is read before the size that it is about. */
#define STEPS \
    { .type = JSON_ROWS, .table = &step_table }
#define SIZE \
    {"default_to_square", JSON_BOOL, AT(square)}, { \
        .name = "size", .type = JSON_PARSED, .parse = parse_size \
    }
#define CROP \
    {"do_center_crop", JSON_BOOL, AT(values.crop)}, { \
        .name = "crop_size", .type = JSON_PARSED, .parse = parse_crop_size \
    }
#define NO_CROP \
    {.name = "do_center_crop", .type = JSON_MUST_BE_FALSE}, { \
        .name = "crop_size", .type = JSON_IGNORED \
    }
#define NO_PAD \
    { .name = "do_pad", .type = JSON_MUST_BE_FALSE }
#define PATCH_IGNORED \
    { .name = "patch_size", .type = JSON_IGNORED }

static const struct json_field plain_fields[] = {STEPS, SIZE, CROP, NO_PAD, PATCH_IGNORED};
static const struct json_field llava_fields[] = {
    STEPS, SIZE, CROP, {"do_pad", JSON_BOOL, AT(values.pad)}, PATCH_IGNORED};
/* LLaVA-NeXT pads the tiles of several pictures to one number, which changes none of them. */
static const struct json_field next_fields[] = {
    STEPS,
    SIZE,
    CROP,
    PATCH_IGNORED,
    {.name = "do_pad", .type = JSON_IGNORED},
    {.name = "aspect_ratio_setting", .type = JSON_IGNORED},
    {.name = "image_grid_pinpoints", .type = JSON_PARSED, .parse = parse_grids},
};
static const struct json_field tiles_fields[] = {
    STEPS,
    SIZE,
    NO_CROP,
    NO_PAD,
    PATCH_IGNORED,
    {"crop_to_patches", JSON_BOOL, AT(values.tile)},
    {"min_patches", JSON_INT, AT(values.least_tiles), .min = 1, .max = PREPROCESSOR_MOST_TILES},
    {"max_patches", JSON_INT, AT(values.most_tiles), .min = 1, .max = PREPROCESSOR_MOST_TILES},
};
/* Pan and scan would add crops of pictures that are far from square. */
static const struct json_field gemma3_fields[] = {
    STEPS,
    SIZE,
    NO_CROP,
    NO_PAD,
    {.name = "do_pan_and_scan", .type = JSON_MUST_BE_FALSE},
    {.name = "pan_and_scan_min_crop_size", .type = JSON_IGNORED},
    {.name = "pan_and_scan_max_num_crops", .type = JSON_IGNORED},
    {.name = "pan_and_scan_min_ratio_to_activate", .type = JSON_IGNORED},
};
/* The size follows from the numbers of tokens and of patches. */
static const struct json_field gemma4_fields[] = {
    STEPS,
    NO_CROP,
    NO_PAD,
    {.name = "default_to_square", .type = JSON_IGNORED},
    {.name = "size", .type = JSON_EMPTY},
    {"patch_size", JSON_INT, AT(values.patch), .min = 1, .max = 256},
    {"pooling_kernel_size", JSON_INT, AT(values.merge), .min = 1, .max = 16},
    {"max_soft_tokens", JSON_INT, AT(values.most_tokens), .min = 70, .max = 1120},
};
static const struct json_field qwen_fields[] = {
    STEPS,
    NO_CROP,
    NO_PAD,
    {.name = "default_to_square", .type = JSON_IGNORED},
    {.name = "size", .type = JSON_PARSED, .parse = parse_pixels},
    {"min_pixels", JSON_INT64, AT(values.least_pixels), .min = 1, .max = PICTURE_MOST_PIXELS},
    {"max_pixels", JSON_INT64, AT(values.most_pixels), .min = 1, .max = PICTURE_MOST_PIXELS},
    {"patch_size", JSON_INT, AT(values.patch), .min = 1, .max = 256},
    {"merge_size", JSON_INT, AT(values.merge), .min = 1, .max = 16},
    {"temporal_patch_size", JSON_INT, AT(values.frames), .min = 1, .max = 16},
};
/* Pictures of one request are padded to one size, which their sizes undo. */
static const struct json_field pixtral_fields[] = {
    STEPS,
    NO_CROP,
    {.name = "do_pad", .type = JSON_IGNORED},
    {.name = "default_to_square", .type = JSON_IGNORED},
    {.name = "size", .type = JSON_PARSED, .parse = parse_largest},
    {.name = "patch_size", .type = JSON_PARSED, .parse = parse_patch},
    {"spatial_merge_size", JSON_INT, AT(values.merge), .min = 1, .max = 16},
};
static const struct json_table plain_table = JSON_TABLE(plain_fields),
                               llava_table = JSON_TABLE(llava_fields),
                               next_table = JSON_TABLE(next_fields),
                               tiles_table = JSON_TABLE(tiles_fields),
                               gemma3_table = JSON_TABLE(gemma3_fields),
                               gemma4_table = JSON_TABLE(gemma4_fields),
                               qwen_table = JSON_TABLE(qwen_fields),
                               pixtral_table = JSON_TABLE(pixtral_fields);

#define CLIP_STEPS \
    .resize = true, .rescale = true, .normalize = true, .factor = 1 / 255.0, \
    .mean = {0.48145466, 0.4578275, 0.40821073}, .deviation = {0.26862954, 0.26130258, 0.27577711}
#define CLIP_VALUES .crop = true, .shortest_edge = 224, .cut = {224, 224}, CLIP_STEPS
#define HALF_STEPS \
    .resize = true, .rescale = true, .normalize = true, .size = {224, 224}, .factor = 1 / 255.0, \
    .mean = {0.5, 0.5, 0.5}, .deviation = {0.5, 0.5, 0.5}

/* The values that transformers' classes assume where a file says nothing. */
static const struct processor_row {
    const char *name; /* without "ImageProcessor" and the rest */
    const struct json_table *table;
    struct preprocessor values;
} processors[] = {
    {"CLIP",
     &plain_table,
     {.kind = PREPROCESSOR_PLAIN, .way = {RESIZE_BICUBIC, RESIZE_AS_PILLOW}, CLIP_VALUES}},
    {"Siglip",
     &plain_table,
     {.kind = PREPROCESSOR_PLAIN, .way = {RESIZE_BICUBIC, RESIZE_AS_TORCHVISION}, HALF_STEPS}},
    {"ViT",
     &plain_table,
     {.kind = PREPROCESSOR_PLAIN, .way = {RESIZE_BILINEAR, RESIZE_AS_PILLOW}, HALF_STEPS}},
    {"Llava",
     &llava_table,
     {.kind = PREPROCESSOR_LLAVA, .way = {RESIZE_BICUBIC, RESIZE_AS_PILLOW}, CLIP_VALUES}},
    {"LlavaNext",
     &next_table,
     {.kind = PREPROCESSOR_LLAVA_NEXT,
      .way = {RESIZE_BICUBIC, RESIZE_AS_PILLOW},
      .grids = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}},
      .grid_count = 5,
      CLIP_VALUES}},
    {"GotOcr2",
     &tiles_table,
     {.kind = PREPROCESSOR_TILES,
      .way = {RESIZE_BICUBIC, RESIZE_AS_TORCHVISION},
      .size = {384, 384},
      .least_tiles = 1,
      .most_tiles = 12,
      CLIP_STEPS}},
    {"Gemma3",
     &gemma3_table,
     {.kind = PREPROCESSOR_PLAIN, .way = {RESIZE_BILINEAR, RESIZE_AS_TORCHVISION}, HALF_STEPS}},
    {"Gemma4",
     &gemma4_table,
     {.kind = PREPROCESSOR_GEMMA4,
      .way = {RESIZE_BICUBIC, RESIZE_AS_TORCHVISION},
      .resize = true,
      .rescale = true,
      .factor = 1 / 255.0,
      .deviation = {1, 1, 1},
      .patch = 16,
      .merge = 3,
      .frames = 1,
      .most_tokens = 280}},
    {"Qwen2VL",
     &qwen_table,
     {.kind = PREPROCESSOR_QWEN,
      .way = {RESIZE_BICUBIC, RESIZE_AS_TORCHVISION},
      .least_pixels = 56 * 56,
      .most_pixels = 28 * 28 * 1280,
      .patch = 14,
      .merge = 2,
      .frames = 2,
      CLIP_STEPS}},
    {"Pixtral",
     &pixtral_table,
     {.kind = PREPROCESSOR_PIXTRAL,
      .way = {RESIZE_BICUBIC, RESIZE_AS_TORCHVISION},
      .size = {1024, 1024},
      .patch = 16,
      .merge = 1,
      .frames = 1,
      CLIP_STEPS}},
};

/* The ends of a class's name, and the back end that each asks for. */
static const struct processor_ending {
    const char *text;
    bool decides;
    enum resize_library library;
} endings[] = {
    {"ImageProcessor", false, RESIZE_AS_PILLOW},
    {"FeatureExtractor", false, RESIZE_AS_PILLOW},
    {"ImageProcessorPil", true, RESIZE_AS_PILLOW},
    {"ImageProcessorFast", true, RESIZE_AS_TORCHVISION},
};

/* The row of a class, and its values for that class; NULL for none. */
static const struct processor_row *processor_find(struct preprocessor *out, const char *class) {
    for (size_t i = 0; i < ARRAY_COUNT(processors) * ARRAY_COUNT(endings); i++) {
        const struct processor_row *row = &processors[i / ARRAY_COUNT(endings)];
        const struct processor_ending *ending = &endings[i % ARRAY_COUNT(endings)];
        char name[60];
        snprintf(name, sizeof name, "%s%s", row->name, ending->text);
        if (strcmp(name, class) != 0) continue;
        *out = row->values;
        if (ending->decides) out->way.library = ending->library;
        return row;
    }
    return NULL;
}

/* One value stands for three. */
static bool channels_copy(double channels[3], const struct json_list *list) {
    const double *items = list->items;
    if (list->count == 2) return false;
    for (size_t i = 0; i < 3 && list->count > 0; i++) channels[i] = items[list->count == 3 ? i : 0];
    return true;
}

/* The numbers of tokens that the tower was trained with. */
static enum status tokens_finish(struct preprocessor *preprocessor, const char *name,
                                 struct error *e) {
    static const int known[] = {70, 140, 280, 560, 1120};
    int most = preprocessor->most_tokens;
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        if (known[i] != most) continue;
        preprocessor_limit_tokens(preprocessor, most);
        return STATUS_OK;
    }
    return error_set(e, STATUS_INVALID,
                     "%s: \"max_soft_tokens\" is %d, must be 70, 140, 280, 560 or 1120", name,
                     most);
}

/* The keys together. */
static enum status keys_finish(struct preprocessor_keys *keys, const char *name, struct error *e) {
    struct preprocessor *preprocessor = &keys->values;
    preprocessor->way.filter = (enum resize_filter)keys->filter;
    if (!channels_copy(preprocessor->mean, &keys->mean) ||
        !channels_copy(preprocessor->deviation, &keys->deviation))
        return error_set(e, STATUS_INVALID,
                         "%s: \"image_mean\" and \"image_std\" have two values, expected three",
                         name);
    if (preprocessor->way.library == RESIZE_AS_TORCHVISION &&
        preprocessor->way.filter > RESIZE_BICUBIC)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: \"resample\" is %d, torchvision resizes with 0 (nearest), 1 "
                         "(lanczos), 2 (bilinear) and "
                         "3 (bicubic)",
                         name, keys->filter);
    if (preprocessor->kind == PREPROCESSOR_TILES && preprocessor->shortest_edge > 0)
        return error_set(e, STATUS_INVALID,
                         "%s: \"size\" must have height and width: tiles are of one size", name);
    if (preprocessor->kind == PREPROCESSOR_GEMMA4 && tokens_finish(preprocessor, name, e))
        return e->status;
    if (preprocessor->least_tiles > preprocessor->most_tiles)
        return error_set(e, STATUS_INVALID, "%s: \"min_patches\" is %d and \"max_patches\" %d",
                         name, preprocessor->least_tiles, preprocessor->most_tiles);
    if (preprocessor->least_pixels > preprocessor->most_pixels)
        return error_set(
            e, STATUS_INVALID, "%s: pictures of %lld pixels or more and of %lld or fewer are none",
            name, (long long)preprocessor->least_pixels, (long long)preprocessor->most_pixels);
    for (int i = 0; preprocessor->kind == PREPROCESSOR_LLAVA_NEXT && i < preprocessor->grid_count;
         i++) {
        int tile = preprocessor->cut.height;
        if (preprocessor->grids[i].height % tile != 0 || preprocessor->grids[i].width % tile != 0)
            return error_set(
                e, STATUS_INVALID,
                "%s: \"image_grid_pinpoints\" has %d x %d, no multiple of the tile, %d", name,
                preprocessor->grids[i].height, preprocessor->grids[i].width, tile);
    }
    return STATUS_OK;
}

enum status preprocessor_read(struct preprocessor *out, const struct json *root, const char *name,
                              struct error *e) {
    const char *class = json_word(json_member(root, "image_processor_type"));
    struct preprocessor_keys keys = {0};
    struct json_reader reader = {.name = name, .e = e};
    if (class == NULL) class = json_word(json_member(root, "feature_extractor_type"));
    if (class == NULL)
        return error_set(e, STATUS_INVALID,
                         "%s: \"image_processor_type\" is missing, no text or no class", name);
    const struct processor_row *row = processor_find(&keys.values, class);
    if (row == NULL)
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: \"image_processor_type\" is \"%.80s\", built in are those of CLIP, "
                         "Siglip, ViT, Llava, "
                         "LlavaNext, GotOcr2, Gemma3, Gemma4, Qwen2VL and Pixtral, as "
                         "CLIPImageProcessor",
                         name, class);

    keys.filter = (int)keys.values.way.filter;
    keys.square = keys.values.shortest_edge == 0;
    enum status status = json_table_read(&reader, row->table, root, &keys);
    if (status == STATUS_OK) status = keys_finish(&keys, name, e);
    if (status == STATUS_OK) *out = keys.values;
    json_table_free(row->table, &keys);
    return status;
}
