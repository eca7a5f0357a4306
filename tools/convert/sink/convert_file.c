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

static enum status write_at(struct tensor_file *f, const char *data, size_t size, size_t offset, struct error *e) {
    while (size > 0) {
        if (output_check(e)) return e->status;
        ssize_t n = pwrite(f->fd, data, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s", f->path);
        data += n;
        size -= (size_t)n;
        offset += (size_t)n;
    }
    return STATUS_OK;
}

static void put_spec(struct json_writer *w, const struct tensor_spec *s) {
    put_key_object(w, s->name);
    put_key_string(w, "dtype", stored_dtype_name(s->dtype));
    put_key_array(w, "shape");
    for (int i = 0; i < s->n_dims; i++) put_int(w, s->shape[i]);
    put_array_end(w);
    put_key_array(w, "data_offsets");
    put_int(w, (int64_t)s->offset);
    put_int(w, (int64_t)(s->offset + s->bytes));
    put_array_end(w);
    put_object_end(w);
}

/* The length, then the JSON, padded with spaces so that the data is aligned. */
static enum status write_header(struct tensor_file *f, int n, struct error *e) {
    struct buffer header = {0};
    struct json_writer w;
    uint8_t length[8];
    buffer_append(&header, "\0\0\0\0\0\0\0", 8);
    put_begin(&w, &header);
    put_object(&w);
    for (int i = 0; i < n; i++) put_spec(&w, &f->specs[i]);
    put_object_end(&w);
    while (header.size % ALIGNMENT != 0) buffer_append(&header, " ", 1);
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)(header.size - 8) >> (8 * i));
    for (int i = 0; i < 8; i++) header.data[i] = (char)length[i];
    f->data = header.size;
    enum status status = write_at(f, header.data, header.size, 0, e);
    buffer_free(&header);
    return status;
}

enum status tensor_file_open(struct tensor_file **out, const char *path, struct tensor_spec *specs, int n,
                             struct error *e) {
    struct tensor_file *f = xcalloc(1, sizeof *f);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        specs[i].offset = at;
        at += specs[i].bytes;
    }
    f->path = xstrdup(path);
    f->specs = specs;
    f->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    enum status status = f->fd < 0 ? error_errno(e, "%s", path) : write_header(f, n, e);
    if (status == STATUS_OK && ftruncate(f->fd, (off_t)(f->data + at)) != 0) status = error_errno(e, "%s", path);
    if (status) {
        if (f->fd >= 0) close(f->fd);
        free(f->path);
        free(f);
        return status;
    }
    *out = f;
    return STATUS_OK;
}

enum status tensor_file_put(struct tensor_file *f, int i, const void *data, size_t size, struct error *e) {
    CHECK(size <= f->specs[i].bytes);
    return write_at(f, data, size, f->data + f->specs[i].offset, e);
}

enum status tensor_file_put_at(struct tensor_file *f, int i, size_t at, struct text_span data, struct error *e) {
    CHECK(at <= f->specs[i].bytes && data.size <= f->specs[i].bytes - at);
    return write_at(f, data.text, data.size, f->data + f->specs[i].offset + at, e);
}

enum status tensor_file_close(struct tensor_file *f, struct error *e) {
    enum status status = fsync(f->fd) == 0 ? STATUS_OK : error_errno(e, "%s", f->path);
    if (close(f->fd) != 0 && status == STATUS_OK) status = error_errno(e, "%s", f->path);
    free(f->path);
    free(f);
    return status;
}
