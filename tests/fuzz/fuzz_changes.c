/* tests/fuzz/fuzz_changes.c: any bytes as a log of changes, and as the image of a document in one:
 * a log ends where it stops making sense, an image is refused or can be read everywhere. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retrieval/generation/change_log.h"
#include "retrieval/generation/document_image.h"
#include "retrieval/generation/generation_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct collection_info plain = {.chunk_length = 4, .dim = 2};
/* Of a collection whose pictures have an embedder of their own. */
static const struct collection_info seeing = {
    .chunk_length = 4, .dim = 2, .pictures = {.embedder = "e", .dim = 3}};
/* Of collections with sparse weights. */
static const struct collection_info weighed = {.chunk_length = 4, .dim = 2, .sparse = true};
static const struct collection_info all = {
    .chunk_length = 4, .dim = 2, .sparse = true, .pictures = {.embedder = "e", .dim = 3}};
static const struct generation_origin origin = {1, 0};

static size_t measure_strings(const struct collection_document *d) {
    return strlen(d->id) + strlen(d->path) + strlen(d->title) + strlen(d->metadata) +
           strlen(d->source);
}

/* Everything that an image says is inside its bytes. */
static void check_image_of(const struct collection_info *info, const char *bytes, size_t size) {
    struct document_image image;
    struct error e = {0};
    if (document_image_read(&image, (struct text_span){bytes, size}, info, &e)) {
        CHECK(e.text[0] != '\0');
        return;
    }
    const struct collection_document *d = &image.document;
    CHECK(d->n_chunks >= 1 && d->n_chunks <= d->n && measure_strings(d) < size);
    CHECK(marks_fault(d->marks, d->text.size) == NULL);
    for (size_t at = 0; at <= d->text.size; at++) {
        struct document_place place = place_find(d->marks, d->text, at);
        CHECK(place.n_headings <= MARK_LEVELS);
    }
    for (int i = 0; i < d->n; i++) CHECK(d->ids[i] >= 0);
    for (int i = 0; i < d->n_chunks; i++) {
        struct chunk chunk = document_chunk(d, i, 0);
        CHECK(chunk.start <= chunk.end && chunk.end <= d->text.size);
        CHECK(chunk.n_tokens >= 1 && chunk.n_tokens <= chunk.n_following);
        CHECK(chunk.token >= 0 && chunk.token + chunk.n_following == d->n);
    }
    for (int i = 0; i < d->n_chunks && info->sparse; i++)
        CHECK(sparse_row_fault(sparse_table_row(&d->sparse, i)) == NULL);
    CHECK(d->picture == NULL || vector_is_unit(d->picture, info->pictures.dim));

    struct buffer again = {0};
    if (document_image_write(&again, d, image.vectors, info, &e) == STATUS_OK)
        CHECK(again.size == size && memcmp(again.data, bytes, size) == 0);
    buffer_free(&again);
}

static void check_image(const char *bytes, size_t size) {
    check_image_of(&plain, bytes, size);
    check_image_of(&seeing, bytes, size);
    check_image_of(&weighed, bytes, size);
    check_image_of(&all, bytes, size);
}

static enum status take(void *context, enum change_kind kind, char *bytes, size_t size,
                        struct error *e) {
    int *n = context;
    (void)e;
    ++*n;
    if (kind == CHANGE_PUT) check_image(bytes, size);
    free(bytes);
    return STATUS_OK;
}

/* The folder of the log, made once. */
static const char *folder(void) {
    static char made[40];
    if (made[0] == '\0') {
        snprintf(made, sizeof made, "%s/retro-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        CHECK(mkdtemp(made) != NULL);
    }
    return made;
}

/* A log of two changes, whose payloads the input holds, with checksums that random bytes never hit.
 */
static void write_log(struct text_span first, struct text_span second) {
    struct change_log *log;
    struct change_log_end end = {0};
    struct error e;
    CHECK(change_log_read(folder(), origin, take, NULL, &end, &e) == STATUS_OK);
    CHECK(change_log_open(&log, folder(), origin, &end, &e) == STATUS_OK);
    CHECK(change_log_append(log, CHANGE_PUT, first, &e) == STATUS_OK);
    CHECK(change_log_append(log, CHANGE_DELETE, second, &e) == STATUS_OK);
    end = change_log_end(log);
    CHECK(change_log_sync(log, &end, &e) == STATUS_OK);
    change_log_close(log);
}

/* One byte of the log is changed, or none; then the log is cut, or not. */
static void check_log(const uint8_t *data, size_t size) {
    char path[80], mark[80];
    int n = 0;
    struct change_log_end end = {0};
    struct error e = {0};
    if (size < 4) return;
    size_t at = data[0] + 256U * data[1], half = (size - 4) / 2;
    const char *payload = (const char *)data + 4;
    write_log((struct text_span){payload, half},
              (struct text_span){payload + half, size - 4 - half});

    snprintf(path, sizeof path, "%s/changes.log", folder());
    int fd = open(path, O_RDWR);
    off_t length = lseek(fd, 0, SEEK_END);
    uint8_t byte = 0;
    at %= (size_t)length;
    CHECK(pread(fd, &byte, 1, (off_t)at) == 1);
    byte ^= data[2];
    CHECK(pwrite(fd, &byte, 1, (off_t)at) == 1);
    if (data[3] > 0) length -= data[3] < length ? data[3] : length;
    CHECK(ftruncate(fd, length) == 0);
    close(fd);

    enum status status = change_log_read(folder(), origin, take, &n, &end, &e);
    CHECK(status == STATUS_OK || e.text[0] != '\0');
    if (status == STATUS_OK)
        CHECK(end.sequence == (uint64_t)n && end.size + end.torn == (uint64_t)length);
    if (data[2] == 0 && data[3] == 0) CHECK(n == 2 && end.torn == 0);
    if (status == STATUS_OK) CHECK(end.damaged == (n < 2));
    snprintf(mark, sizeof mark, "%s/changes.kept", folder());
    CHECK(unlink(path) == 0 && unlink(mark) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    /* Images are read straight from memory that is aligned for their numbers. */
    char *copy = malloc(size);
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 4 == 0)
        check_log(data + 1, size - 1);
    else
        check_image(copy, size - 1);
    free(copy);
    return 0;
}
