/* tools/eval/eval_picture.c: retro-eval picture. Decodes a picture and prepares it for a model's vision tower, and
 * writes the pixels to a file: for checks against other programs. The model's weights are not needed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "retro/pictures/preprocessor.h"
#include "tools/eval/eval.h"

enum { MOST_FILE = 1 << 28 };

static enum status write_file(const char *path, const void *data, size_t size, struct error *e) {
    if (path == NULL) return STATUS_OK;
    FILE *f = fopen(path, "wb");
    if (f == NULL) return error_errno(e, "%s", path);
    bool written = fwrite(data, 1, size, f) == size;
    if (fclose(f) == 0 && written) return STATUS_OK;
    return error_errno(e, "%s", path);
}

static enum status prepare(const struct picture *p, const char *model, const char *out, struct error *e) {
    struct preprocessor processor;
    struct picture_tiles tiles;
    enum status status = preprocessor_open(&processor, model, e);
    if (status == STATUS_OK) status = preprocessor_run(&tiles, &processor, p, e);
    if (status) return status;
    size_t n = (size_t)tiles.tiles * 3 * (size_t)tiles.height * (size_t)tiles.width;
    printf("input: %d x 3 x %d x %d float32, %d x %d tiles\n", tiles.tiles, tiles.height, tiles.width, tiles.rows,
           tiles.columns);
    status = write_file(out, tiles.pixels, n * sizeof *tiles.pixels, e);
    picture_tiles_free(&tiles);
    return status;
}

static enum status run(const char *file, const char *model, const char *out, struct error *e) {
    struct buffer bytes = {0};
    struct picture p = {0};
    enum status status = file_read(file, MOST_FILE, &bytes, e);
    struct text_span span = {bytes.data, bytes.size};
    if (status == STATUS_OK && picture_decode(&p, span, &picture_default_rules, e))
        status = error_prefix(e, "%s", file);
    if (status == STATUS_OK) {
        line_print(stdout, "%s: %s, %d x %d pixels", file, picture_kind_name(picture_kind_of(span)), p.width, p.height);
        status =
            model ? prepare(&p, model, out, e) : write_file(out, p.pixels, 3 * (size_t)p.width * (size_t)p.height, e);
    }
    picture_free(&p);
    buffer_free(&bytes);
    return status;
}

int eval_picture(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    const char *out = NULL;
    const struct eval_option options[] = {
        {"--out", "FILE", "write the input as float32 [tiles, 3, height, width]; without MODEL the RGB rows as bytes",
         EVAL_OPTION_TEXT, &out},
        {0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    int given = argc - first;
    bool right = first >= 0 && (given == 1 || given == 2);
    if (first >= 0 && !right) error_set(&e, STATUS_INVALID, "expected PICTURE, and MODEL or nothing");
    bool failed = first != EVAL_HELPED && (!right || run(argv[first], given == 2 ? argv[first + 1] : NULL, out, &e));
    if (failed) line_print(stderr, "retro-eval picture: %s", e.text);
    config_free(&config);
    return failed;
}
