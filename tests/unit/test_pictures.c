/* tests/unit/test_pictures.c: decoding and resizing give the pixels that Pillow and torchvision
 * give (tests/pictures/make_pictures.py); damaged, cut off and oversized files are refused with
 * words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "retro/pictures/preprocessor_sizes.h"
#include "retro/run/tower/tile_order.h"

static const char folder[] = "tests/pictures";

static uint64_t fnv_of_bytes(const void *data, size_t size) {
    const uint8_t *bytes = data;
    uint64_t value = 0xCBF29CE484222325;
    for (size_t i = 0; i < size; i++) value = (value ^ bytes[i]) * 0x100000001B3;
    return value;
}

static uint64_t fnv_of(const struct picture *p) {
    return fnv_of_bytes(p->pixels, (size_t)p->width * (size_t)p->height * 3);
}

static void read_fixture(struct buffer *bytes, const char *name) {
    char path[200];
    struct error e;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_read(path, 1 << 20, bytes, &e)) fail_msg("%s", e.text);
}

static void open_fixture(struct picture *p, const char *name) {
    struct buffer bytes = {0};
    struct error e;
    read_fixture(&bytes, name);
    if (picture_decode(p, (struct text_span){bytes.data, bytes.size}, &picture_default_rules, &e))
        fail_msg("%s: %s", name, e.text);
    buffer_free(&bytes);
}

/* Calls check for each line of a table. Returns how many there were. */
static int each_line(const char *table, void (*check)(const char *line)) {
    struct buffer text = {0};
    int n = 0;
    char *state = NULL;
    read_fixture(&text, table);
    for (char *line = strtok_r(text.data, "\n", &state); line;
         line = strtok_r(NULL, "\n", &state)) {
        check(line);
        n++;
    }
    buffer_free(&text);
    return n;
}

static void check_decoded(const char *line) {
    char name[60];
    int width, height;
    unsigned long long fnv;
    struct picture p;
    assert_int_equal(sscanf(line, "%59s %d %d %llx", name, &width, &height, &fnv), 4);
    open_fixture(&p, name);
    if (p.width != width || p.height != height || fnv_of(&p) != fnv)
        fail_msg("expected %s, found %d x %d, %016llx", line, p.width, p.height,
                 (unsigned long long)fnv_of(&p));
    picture_free(&p);
}

static void test_decoded(void **state) {
    (void)state;
    assert_int_equal(each_line("decoded.txt", check_decoded), 48);
}

static void check_resized(const char *line) {
    char name[60];
    int width, height, filter, library;
    unsigned long long fnv;
    struct picture p, resized;
    struct error e;
    assert_int_equal(
        sscanf(line, "%59s %d %d %d %d %llx", name, &width, &height, &filter, &library, &fnv), 6);
    open_fixture(&p, name);
    struct resize_way way = {(enum resize_filter)filter, (enum resize_library)library};
    if (picture_resize(&resized, &p, width, height, way, &e)) fail_msg("%s: %s", line, e.text);
    if (resized.width != width || resized.height != height || fnv_of(&resized) != fnv)
        fail_msg("expected %s, found %016llx", line, (unsigned long long)fnv_of(&resized));
    picture_free(&resized);
    picture_free(&p);
}

static void test_resized(void **state) {
    (void)state;
    assert_int_equal(each_line("resized.txt", check_resized), 80);
}

static void check_prepared(const char *line) {
    char name[60];
    int tiles, height, width, end = 0;
    unsigned long long fnv;
    struct picture picture;
    struct json *root;
    struct preprocessor processor;
    struct picture_tiles out;
    struct error e;
    assert_int_equal(
        sscanf(line, "%59s %d %d %d %llx %n", name, &tiles, &height, &width, &fnv, &end), 5);
    const char *file = line + end;
    if (json_parse(&root, (struct text_span){file, strlen(file)}, "line", &e) ||
        preprocessor_read(&processor, root, "line", &e))
        fail_msg("%s: %s", line, e.text);
    open_fixture(&picture, name);
    if (preprocessor_run(&out, &processor, &picture, &e)) fail_msg("%s: %s", line, e.text);

    size_t bytes = (size_t)tiles * 3 * (size_t)height * (size_t)width * sizeof *out.pixels;
    assert_int_equal(out.tiles, tiles);
    assert_int_equal(out.height, height);
    assert_int_equal(out.width, width);
    assert_int_equal(out.original.height, picture.height);
    assert_int_equal(out.original.width, picture.width);
    if (fnv_of_bytes(out.pixels, bytes) != fnv) fail_msg("the values are others: %s", line);
    picture_tiles_free(&out);
    picture_free(&picture);
    json_close(root);
}

static void test_prepared(void **state) {
    (void)state;
    assert_int_equal(each_line("prepared.txt", check_prepared), 128);
}

static void refuse_processor(const char *text, enum status status, const char *words) {
    struct json *root;
    struct preprocessor processor;
    struct error e = {0};
    assert_int_equal(json_parse(&root, (struct text_span){text, strlen(text)}, "p", &e), STATUS_OK);
    assert_int_equal(preprocessor_read(&processor, root, "p", &e), status);
    if (strstr(e.text, words) == NULL) fail_msg("expected \"%s\" in: %s", words, e.text);
    json_close(root);
}

#define CLIP "{\"image_processor_type\": \"CLIPImageProcessor\", "
#define TILES "{\"image_processor_type\": \"GotOcr2ImageProcessor\", "
#define QWEN "{\"image_processor_type\": \"Qwen2VLImageProcessor\", "
#define GEMMA "{\"image_processor_type\": \"Gemma3ImageProcessor\", "
#define GEMMA4 "{\"image_processor_type\": \"Gemma4ImageProcessor\", "
#define PIXTRAL "{\"image_processor_type\": \"PixtralImageProcessor\", "
#define NEXT "{\"image_processor_type\": \"LlavaNextImageProcessor\", "

static void test_processors(void **state) {
    (void)state;
    refuse_processor("{}", STATUS_INVALID, "image_processor_type");
    refuse_processor("{\"image_processor_type\": \"FuyuImageProcessor\"}", STATUS_UNSUPPORTED,
                     "FuyuImageProcessor");
    refuse_processor("{\"image_processor_type\": \"CLIPImage\"}", STATUS_UNSUPPORTED,
                     "built in are");
    refuse_processor(CLIP "\"crop_pct\": 0.875}", STATUS_INVALID, "crop_pct");
    refuse_processor(CLIP "\"do_pad\": true}", STATUS_UNSUPPORTED, "do_pad");
    refuse_processor(CLIP "\"resample\": 6}", STATUS_INVALID, "resample");
    refuse_processor(CLIP "\"size\": {\"longest_edge\": 9}}", STATUS_INVALID, "longest_edge");
    refuse_processor(CLIP "\"size\": {\"height\": 9}}", STATUS_INVALID,
                     "\"size\" must have height and width");
    refuse_processor(CLIP "\"size\": 0}", STATUS_INVALID, "size");
    refuse_processor(CLIP "\"crop_size\": {\"shortest_edge\": 9}}", STATUS_INVALID, "crop_size");
    refuse_processor(CLIP "\"image_std\": [0.5, 0, 0.5]}", STATUS_INVALID, "image_std");
    refuse_processor(CLIP "\"image_mean\": [0.5, 0.5]}", STATUS_INVALID, "image_mean");
    refuse_processor("{\"image_processor_type\": \"CLIPImageProcessorFast\", \"resample\": 4}",
                     STATUS_UNSUPPORTED, "torchvision");
    refuse_processor(CLIP "\"image_grid_pinpoints\": [[224, 224]]}", STATUS_INVALID,
                     "image_grid_pinpoints");
    refuse_processor(TILES "\"size\": {\"shortest_edge\": 9}}", STATUS_INVALID, "height and width");
    refuse_processor(TILES "\"min_patches\": 13}", STATUS_INVALID, "min_patches");
    refuse_processor(QWEN "\"min_pixels\": 99, \"max_pixels\": 98}", STATUS_INVALID, "99 pixels");
    refuse_processor(QWEN "\"size\": {\"height\": 9}}", STATUS_INVALID, "height");
    refuse_processor(GEMMA "\"do_pan_and_scan\": true}", STATUS_UNSUPPORTED, "do_pan_and_scan");
    refuse_processor(GEMMA "\"do_center_crop\": true}", STATUS_UNSUPPORTED, "do_center_crop");
    refuse_processor(PIXTRAL "\"size\": {\"shortest_edge\": 9}}", STATUS_INVALID, "shortest_edge");
    refuse_processor(PIXTRAL "\"size\": {\"height\": 9}}", STATUS_INVALID,
                     "\"size\" must have longest_edge, or height and width");
    refuse_processor(PIXTRAL "\"size\": {\"longest_edge\": 8193}}", STATUS_INVALID, "longest_edge");
    refuse_processor(PIXTRAL "\"patch_size\": {\"height\": 9, \"width\": 8}}", STATUS_INVALID,
                     "a height and a width that are equal");
    refuse_processor(PIXTRAL "\"patch_size\": {\"shortest_edge\": 9}}", STATUS_INVALID,
                     "patch_size");
    refuse_processor(PIXTRAL "\"patch_size\": 0}", STATUS_INVALID, "patch_size");
    refuse_processor(PIXTRAL "\"patch_size\": 257}", STATUS_INVALID, "patch_size");
    refuse_processor(PIXTRAL "\"patch_size\": {\"height\": 257, \"width\": 257}}", STATUS_INVALID,
                     "at most 256");
    refuse_processor(PIXTRAL "\"do_center_crop\": true}", STATUS_UNSUPPORTED, "do_center_crop");
    refuse_processor(GEMMA4 "\"max_soft_tokens\": 100}", STATUS_INVALID,
                     "\"max_soft_tokens\" is 100, must be 70, 140, 280, 560 or 1120");
    refuse_processor(GEMMA4 "\"max_soft_tokens\": 0}", STATUS_INVALID, "max_soft_tokens");
    refuse_processor(GEMMA4 "\"size\": {\"height\": 9, \"width\": 9}}", STATUS_UNSUPPORTED, "size");
    refuse_processor(GEMMA4 "\"do_pad\": true}", STATUS_UNSUPPORTED, "do_pad");
    refuse_processor(NEXT "\"image_grid_pinpoints\": []}", STATUS_INVALID, "image_grid_pinpoints");
    refuse_processor(NEXT "\"image_grid_pinpoints\": [[224]]}", STATUS_INVALID, "pair 0 of");
    refuse_processor(NEXT "\"image_grid_pinpoints\": [[224, 300]]}", STATUS_INVALID, "224 x 300");
}

/* Limits of pixels have several names; those beside the size count more. */
static void test_pixel_names(void **state) {
    (void)state;
    static const char *const files[] = {
        QWEN "\"size\": {\"min_pixels\": 100, \"max_pixels\": 900}}",
        QWEN "\"size\": {\"shortest_edge\": 100, \"longest_edge\": 900}}",
        QWEN "\"max_pixels\": 900, \"min_pixels\": 100, \"size\": {\"max_pixels\": 5}}"};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        struct preprocessor p;
        struct error e = {0};
        struct json *root;
        assert_int_equal(json_parse(&root, (struct text_span){files[i], strlen(files[i])}, "p", &e),
                         STATUS_OK);
        if (preprocessor_read(&p, root, "p", &e)) fail_msg("%s", e.text);
        assert_true(p.least_pixels == 100 && p.most_pixels == 900);
        assert_true(p.patch == 14 && p.merge == 2 && p.frames == 2);
        json_close(root);
    }
}

/* get_aspect_ratio_preserving_size of transformers gives these, also for pictures that would have
 * no whole token along one side, and for numbers of tokens that only a limit asks for. */
static void test_token_sizes(void **state) {
    (void)state;
    static const struct {
        struct picture_size given, size;
        int tokens;
    } known[] = {{{1, 65535}, {48, 13440}, 280},
                 {{65535, 1}, {13440, 48}, 280},
                 {{1, 1}, {768, 768}, 280},
                 {{8192, 4096}, {1104, 528}, 280},
                 {{4096, 8192}, {1104, 2256}, 1120},
                 {{33, 41}, {336, 432}, 70},
                 {{100, 28000}, {48, 13440}, 280},
                 {{279, 1}, {13392, 48}, 280},
                 {{800, 803}, {768, 768}, 280},
                 {{5, 7}, {960, 1344}, 560},
                 {{1, 300}, {48, 6720}, 140},
                 {{7, 7}, {48, 48}, 1},
                 {{7, 7}, {48, 48}, 3},
                 {{7, 7}, {96, 96}, 4},
                 {{1, 65535}, {48, 528}, 11}};
    struct preprocessor p = {
        .kind = PREPROCESSOR_GEMMA4, .resize = true, .patch = 16, .merge = 3, .frames = 1};
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        struct picture_size size;
        struct error e;
        preprocessor_limit_tokens(&p, known[i].tokens);
        assert_int_equal(resized_size(&size, &p, known[i].given, &e), STATUS_OK);
        assert_int_equal(size.height, known[i].size.height);
        assert_int_equal(size.width, known[i].size.width);
    }
}

/* The names say which back end is followed, and old files are read as they were meant. */
static void test_processor_names(void **state) {
    (void)state;
    static const char old[] =
        "{\"feature_extractor_type\": \"CLIPFeatureExtractor\", \"crop_size\": 336, \"size\": 330}";
    static const char vit[] =
        "{\"image_processor_type\": \"ViTImageProcessorFast\", \"size\": 384}";
    static const char gemma[] =
        "{\"image_processor_type\": \"Gemma3ImageProcessor\", \"do_pan_and_scan\": null, "
        "\"size\": {\"height\": 896, \"width\": 896}, \"image_seq_length\": 256}";
    struct json *root;
    struct preprocessor p;
    struct error e;
    assert_int_equal(json_parse(&root, (struct text_span){old, sizeof old - 1}, "p", &e),
                     STATUS_OK);
    assert_int_equal(preprocessor_read(&p, root, "p", &e), STATUS_OK);
    assert_int_equal(p.shortest_edge, 330);
    assert_int_equal(p.cut.width, 336);
    assert_int_equal(p.way.library, RESIZE_AS_PILLOW);
    json_close(root);

    assert_int_equal(json_parse(&root, (struct text_span){vit, sizeof vit - 1}, "p", &e),
                     STATUS_OK);
    assert_int_equal(preprocessor_read(&p, root, "p", &e), STATUS_OK);
    assert_int_equal(p.shortest_edge, 0);
    assert_int_equal(p.size.height, 384);
    assert_int_equal(p.way.library, RESIZE_AS_TORCHVISION);
    json_close(root);

    assert_int_equal(json_parse(&root, (struct text_span){gemma, sizeof gemma - 1}, "p", &e),
                     STATUS_OK);
    assert_int_equal(preprocessor_read(&p, root, "p", &e), STATUS_OK);
    assert_int_equal(p.kind, PREPROCESSOR_PLAIN);
    assert_int_equal(p.size.width, 896);
    assert_int_equal(p.way.filter, RESIZE_BILINEAR);
    assert_int_equal(p.way.library, RESIZE_AS_TORCHVISION);
    json_close(root);
}

/* The shorter edge becomes 8192 pixels, and the longer one 8192 times as many. */
static void test_prepared_bomb(void **state) {
    (void)state;
    static uint8_t pixels[3 * 8192];
    struct picture line = {.width = 8192, .height = 1, .pixels = pixels};
    struct preprocessor p = {
        .resize = true, .shortest_edge = 8192, .way = {RESIZE_BICUBIC, RESIZE_AS_PILLOW}};
    struct picture_tiles out;
    struct error e;
    assert_int_equal(preprocessor_run(&out, &p, &line, &e), STATUS_TOO_LARGE);
    assert_null(out.pixels);
}

static void expect_refusal(const void *bytes, size_t size, enum status status, const char *words) {
    struct picture p = {.width = 1};
    struct error e = {0};
    assert_int_equal(
        picture_decode(&p, (struct text_span){bytes, size}, &picture_default_rules, &e), status);
    assert_null(p.pixels);
    assert_int_equal(p.width, 0);
    if (strstr(e.text, words) == NULL) fail_msg("expected \"%s\" in: %s", words, e.text);
}

static void test_unknown(void **state) {
    (void)state;
    expect_refusal("", 0, STATUS_INVALID, "JPEG, PNG, WebP or GIF");
    expect_refusal("BM and a bitmap", 15, STATUS_INVALID, "JPEG, PNG, WebP or GIF");
    expect_refusal("\xFF\xD8\xFF", 3, STATUS_INVALID, "JPEG: ");
    expect_refusal("RIFF____WEBP", 12, STATUS_INVALID, "WebP: ");
    assert_int_equal(picture_kind_of((struct text_span){"GIF89a", 6}), PICTURE_GIF);
    assert_int_equal(picture_kind_of((struct text_span){"GIF88a", 6}), PICTURE_UNKNOWN);
    assert_string_equal(picture_kind_name(PICTURE_WEBP), "WebP");
}

/* Every file is cut at several places before its pixels end. */
static void test_cut_off(void **state) {
    (void)state;
    static const char *const names[] = {"color_2.jpg", "progressive.jpg",     "cmyk.jpg",
                                        "color.png",   "grey_16.png",         "lossy.webp",
                                        "alpha.png",   "lossless_alpha.webp", "animated.webp",
                                        "color.gif",   "interlaced.gif"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct buffer bytes = {0};
        read_fixture(&bytes, names[i]);
        bool animated = strstr(names[i], "animated") != NULL;
        for (size_t part = 1; part < (animated ? 4 : 9); part++) {
            size_t size = bytes.size * part / 10;
            expect_refusal(bytes.data, size, STATUS_INVALID, ": ");
        }
        buffer_free(&bytes);
    }
}

/* Files of some bytes that claim a large picture: refused by their header. */
static void test_bombs(void **state) {
    (void)state;
    struct buffer bytes = {0};

    read_fixture(&bytes, "color.png");
    static const uint8_t png_head[] = {0, 0, 0xEA, 0x60, 0,    0,    0xEA, 0x60, 8,
                                       2, 0, 0,    0,    0x0F, 0xB0, 0xE2, 0x15};
    memcpy(bytes.data + 16, png_head, sizeof png_head);
    expect_refusal(bytes.data, bytes.size, STATUS_TOO_LARGE,
                   "PNG: the picture is 60000 x 60000 pixels");

    read_fixture(&bytes, "color.gif");
    memcpy(bytes.data + 6, "\x60\xEA\x60\xEA", 4);
    expect_refusal(bytes.data, bytes.size, STATUS_TOO_LARGE,
                   "GIF: the picture is 60000 x 60000 pixels");

    read_fixture(&bytes, "color_0.jpg");
    char *frame = memmem(bytes.data, bytes.size, "\xFF\xC0", 2);
    assert_non_null(frame);
    memcpy(frame + 5, "\xEA\x60\xEA\x60", 4);
    expect_refusal(bytes.data, bytes.size, STATUS_TOO_LARGE,
                   "JPEG: the picture is 60000 x 60000 pixels");

    read_fixture(&bytes, "lossy.webp");
    char *start = memmem(bytes.data, bytes.size, "\x9D\x01\x2A", 3);
    assert_non_null(start);
    memcpy(start + 3, "\xFF\x3F\xFF\x3F", 4);
    expect_refusal(bytes.data, bytes.size, STATUS_TOO_LARGE,
                   "WebP: the picture is 16383 x 16383 pixels");
    buffer_free(&bytes);
}

static void test_limit(void **state) {
    (void)state;
    struct buffer bytes = {0};
    struct picture p;
    struct error e;
    struct picture_rules rules = {.most_pixels = 41 * 33 - 1};
    read_fixture(&bytes, "color.png");
    struct text_span span = {bytes.data, bytes.size};
    assert_int_equal(picture_decode(&p, span, &rules, &e), STATUS_TOO_LARGE);
    assert_non_null(strstr(e.text, "at most 1352"));
    rules.most_pixels++;
    assert_int_equal(picture_decode(&p, span, &rules, &e), STATUS_OK);

    struct picture wide;
    struct resize_way way = {RESIZE_BICUBIC, RESIZE_AS_PILLOW};
    assert_int_equal(picture_resize(&wide, &p, 60000, 60000, way, &e), STATUS_TOO_LARGE);
    assert_null(wide.pixels);
    picture_free(&p);
    buffer_free(&bytes);
}

/* Scans that repeat cost the decoder's time and the sender nothing. */
static void test_scans(void **state) {
    (void)state;
    struct buffer bytes = {0}, many = {0};
    read_fixture(&bytes, "progressive.jpg");
    char *last = bytes.data + bytes.size - 2;
    char *scan = last;
    while (memcmp(scan, "\xFF\xDA", 2) != 0) scan--;
    buffer_append(&many, bytes.data, (size_t)(last - bytes.data));
    for (int i = 0; i < 120; i++) buffer_append(&many, scan, (size_t)(last - scan));
    buffer_append(&many, last, 2);
    expect_refusal(many.data, many.size, STATUS_TOO_LARGE, "more than 100 scans");
    buffer_free(&many);
    buffer_free(&bytes);
}

static void test_background(void **state) {
    (void)state;
    struct buffer bytes = {0};
    struct picture white, red;
    struct error e;
    struct picture_rules rules = {.most_pixels = 10000, .background = {255, 0, 0}};
    read_fixture(&bytes, "key.gif");
    open_fixture(&white, "key.gif");
    assert_int_equal(picture_decode(&red, (struct text_span){bytes.data, bytes.size}, &rules, &e),
                     STATUS_OK);
    int through = 0;
    for (int i = 0; i < red.width * red.height; i++)
        through += memcmp(red.pixels + 3 * i, "\xFF\0\0", 3) == 0 &&
                   memcmp(white.pixels + 3 * i, "\xFF\xFF\xFF", 3) == 0;
    assert_true(through > 0);
    picture_free(&white);
    picture_free(&red);
    buffer_free(&bytes);
}

/* A picture of one pixel takes the room of what the tower makes of it. */
static void test_counted(void **state) {
    struct picture_cut tiny = {
        .tiles = 1, .height = 896, .width = 896, .original_height = 1, .original_width = 1};
    struct picture_cut large = {
        .tiles = 2, .height = 10, .width = 10, .original_height = 40000, .original_width = 60000};
    (void)state;
    assert_int_equal(picture_cut_pixels(&tiny), 896 * 896);
    assert_true(picture_cut_pixels(&large) == (int64_t)40000 * 60000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoded),         cmocka_unit_test(test_resized),
        cmocka_unit_test(test_prepared),        cmocka_unit_test(test_processors),
        cmocka_unit_test(test_processor_names), cmocka_unit_test(test_pixel_names),
        cmocka_unit_test(test_prepared_bomb),   cmocka_unit_test(test_token_sizes),
        cmocka_unit_test(test_unknown),         cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_bombs),           cmocka_unit_test(test_limit),
        cmocka_unit_test(test_scans),           cmocka_unit_test(test_background),
        cmocka_unit_test(test_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
