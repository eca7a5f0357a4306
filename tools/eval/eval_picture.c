/* tools/eval/eval_picture.c: retro-eval picture. Decodes a picture and prepares it for a model's
 * vision tower, and writes the pixels to a file, for checks against other programs; or says how
 * long that takes. The model's weights are not needed. */
#include <stdio.h>
#include <stdlib.h>
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

static int compare_doubles(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median_of(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return values[n / 2];
}

static enum status decode(struct picture *picture, struct text_span bytes, const char *file,
                          struct error *e) {
    if (picture_read(picture, bytes, &picture_default_rules, e)) return error_prefix(e, "%s", file);
    return STATUS_OK;
}

/* Decodes and prepares again and again, and prints the medians. */
static enum status measure(struct text_span bytes, const char *file,
                           const struct preprocessor *processor, int rounds, struct error *e) {
    double *decoding = xcalloc((size_t)rounds, sizeof *decoding),
           *preparing = xcalloc((size_t)rounds, sizeof *preparing);
    enum status status = STATUS_OK;
    for (int i = 0; status == STATUS_OK && i < rounds; i++) {
        struct picture picture;
        struct picture_tiles tiles = {0};
        double start = time_now();
        status = decode(&picture, bytes, file, e);
        double middle = time_now();
        if (status == STATUS_OK && processor)
            status = preprocessor_run(&tiles, processor, &picture, e);
        decoding[i] = middle - start;
        preparing[i] = time_now() - middle;
        picture_tiles_free(&tiles);
        picture_free(&picture);
    }
    if (status == STATUS_OK) printf("decoding: %.3f ms\n", 1e3 * median_of(decoding, rounds));
    if (status == STATUS_OK && processor)
        printf("preparing: %.3f ms\n", 1e3 * median_of(preparing, rounds));
    free(decoding);
    free(preparing);
    return status;
}

static enum status prepare(const struct picture *picture, const struct preprocessor *processor,
                           const char *out, struct error *e) {
    struct picture_tiles tiles;
    enum status status = preprocessor_run(&tiles, processor, picture, e);
    if (status) return status;
    size_t n = (size_t)tiles.tiles * 3 * (size_t)tiles.height * (size_t)tiles.width;
    printf("input: %d x 3 x %d x %d", tiles.tiles, tiles.height, tiles.width);
    if (tiles.rows > 0)
        printf(", a grid of %d x %d tiles and the whole picture", tiles.rows, tiles.columns);
    printf("\n");
    status = write_file(out, tiles.pixels, n * sizeof *tiles.pixels, e);
    picture_tiles_free(&tiles);
    return status;
}

/* The command line. */
struct picture_task {
    const char *file, *model, *out;
    int rounds; /* 0: nothing is measured */
};

static enum status run(const struct picture_task *task, struct error *e) {
    struct preprocessor opened, *processor = task->model ? &opened : NULL;
    struct buffer bytes = {0};
    struct picture picture = {0};
    enum status status = processor ? preprocessor_open(processor, task->model, e) : STATUS_OK;
    if (status == STATUS_OK) status = file_read(task->file, MOST_FILE, &bytes, e);
    struct text_span span = {bytes.data, bytes.size};
    if (status == STATUS_OK) status = decode(&picture, span, task->file, e);
    if (status == STATUS_OK) {
        const char *kind = picture_kind_name(picture_kind_of(span));
        line_print(stdout, "%s: %s, %d x %d pixels", task->file, kind, picture.width,
                   picture.height);
        status = processor ? prepare(&picture, processor, task->out, e)
                           : write_file(task->out, picture.pixels,
                                        3 * (size_t)picture.width * (size_t)picture.height, e);
    }
    if (status == STATUS_OK && task->rounds > 0)
        status = measure(span, task->file, processor, task->rounds, e);
    picture_free(&picture);
    buffer_free(&bytes);
    return status;
}

int eval_picture(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct config config;
    struct picture_task task = {0};
    const struct eval_option options[] = {
        {"--out", "FILE",
         "write the input as float32 [tiles, 3, height, width]; without MODEL the RGB rows as "
         "bytes",
         EVAL_OPTION_TEXT, &task.out},
        {"--rounds", "N", "time decoding and preparing N times and print the medians",
         EVAL_OPTION_COUNT, &task.rounds},
        {0}};
    config_init(&config);
    int first = eval_parse(self, argc, argv, options, &config, &e);
    int given = argc - first;
    bool right = first >= 0 && (given == 1 || given == 2);
    if (first >= 0 && !right)
        error_set(&e, STATUS_INVALID, "expected PICTURE, and MODEL or nothing");
    if (right) {
        task.file = argv[first];
        task.model = given == 2 ? argv[first + 1] : NULL;
    }
    bool failed = first != EVAL_HELPED && (!right || run(&task, &e));
    if (failed) line_print(stderr, "retro-eval picture: %s", e.text);
    config_free(&config);
    return failed;
}
