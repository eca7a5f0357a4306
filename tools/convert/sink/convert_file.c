/* tools/convert/sink/convert_file.c: a safetensors file written tensor by tensor. See convert.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/json/json_writer.h"
#include "tools/convert/sink/sink.h"

enum { ALIGNMENT = 64 };

struct tensor_file {
    int fd;
    char *path;
    const struct tensor_spec *specs;
    size_t data; /* where it begins */
};

static enum status write_at(struct tensor_file *file, const char *data, size_t size, size_t offset,
                            struct error *e) {
    while (size > 0) {
        if (output_check(e)) return e->status;
        ssize_t n = pwrite(file->fd, data, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s", file->path);
        data += n;
        size -= (size_t)n;
        offset += (size_t)n;
    }
    return STATUS_OK;
}

static void put_spec(struct json_writer *w, const struct tensor_spec *spec) {
    put_key_object(w, spec->name);
    put_key_string(w, "dtype", stored_dtype_name(spec->dtype));
    put_key_array(w, "shape");
    for (int i = 0; i < spec->n_dims; i++) put_int(w, spec->shape[i]);
    put_array_end(w);
    put_key_array(w, "data_offsets");
    put_int(w, (int64_t)spec->offset);
    put_int(w, (int64_t)(spec->offset + spec->bytes));
    put_array_end(w);
    put_object_end(w);
}

/* The length, then the JSON, padded with spaces so that the data is aligned. */
static enum status write_header(struct tensor_file *file, int n, struct error *e) {
    struct buffer header = {0};
    struct json_writer w;
    uint8_t length[8];
    buffer_append(&header, "\0\0\0\0\0\0\0", 8);
    put_begin(&w, &header);
    put_object(&w);
    for (int i = 0; i < n; i++) put_spec(&w, &file->specs[i]);
    put_object_end(&w);
    while (header.size % ALIGNMENT != 0) buffer_append(&header, " ", 1);
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)(header.size - 8) >> (8 * i));
    for (int i = 0; i < 8; i++) header.data[i] = (char)length[i];
    file->data = header.size;
    enum status status = write_at(file, header.data, header.size, 0, e);
    buffer_free(&header);
    return status;
}

enum status tensor_file_open(struct tensor_file **out, const char *path, struct tensor_spec *specs,
                             int n, struct error *e) {
    struct tensor_file *file = xcalloc(1, sizeof *file);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        specs[i].offset = at;
        at += specs[i].bytes;
    }
    file->path = xstrdup(path);
    file->specs = specs;
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    enum status status = file->fd < 0 ? error_errno(e, "%s", path) : write_header(file, n, e);
    if (status == STATUS_OK && ftruncate(file->fd, (off_t)(file->data + at)) != 0)
        status = error_errno(e, "%s", path);
    if (status) {
        if (file->fd >= 0) close(file->fd);
        free(file->path);
        free(file);
        return status;
    }
    *out = file;
    return STATUS_OK;
}

enum status tensor_file_put(struct tensor_file *file, int i, const void *data, size_t size,
                            struct error *e) {
    CHECK(size <= file->specs[i].bytes);
    return write_at(file, data, size, file->data + file->specs[i].offset, e);
}

enum status tensor_file_put_at(struct tensor_file *file, int i, size_t at, struct text_span data,
                               struct error *e) {
    CHECK(at <= file->specs[i].bytes && data.size <= file->specs[i].bytes - at);
    return write_at(file, data.text, data.size, file->data + file->specs[i].offset + at, e);
}

enum status tensor_file_close(struct tensor_file *file, struct error *e) {
    enum status status = fsync(file->fd) == 0 ? STATUS_OK : error_errno(e, "%s", file->path);
    if (close(file->fd) != 0 && status == STATUS_OK) status = error_errno(e, "%s", file->path);
    free(file->path);
    free(file);
    return status;
}
