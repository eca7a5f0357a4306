/* tools/convert/formats/gzip.c: the only file that includes zlib. See gzip.h. libarchive reads
 * gzip, too, but does not compare its check sums (3.6), and nothing else tells a damaged weight. */
#include "tools/convert/formats/gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

enum { BLOCK = 1 << 20, GROWTH = 200, SMALL = 16 << 20, WINDOW = 15, OF_GZIP = 16 };

struct gzip_reader {
    z_stream stream;
    const char *name, *folder;
    struct text_span left;
    size_t read, written;
    int fd;
    uint8_t *block;
};

bool gzip_is(struct text_span bytes) {
    return bytes.size > 2 && memcmp(bytes.text, "\x1f\x8b", 2) == 0;
}

static enum status write_block(struct gzip_reader *reader, size_t n, struct error *e) {
    reader->written += n;
    if (reader->written > SMALL && reader->written / GROWTH > reader->read)
        return error_set(e, STATUS_TOO_LARGE,
                         "%s: %zu bytes of gzip grow to more than %zu: refused", reader->name,
                         reader->read, reader->written);
    for (size_t at = 0; at < n;) {
        ssize_t put = write(reader->fd, reader->block + at, n - at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0)
            return error_errno(e, "%s: %zu bytes of it unpacked in %s", reader->name,
                               reader->written, reader->folder);
        at += (size_t)put;
    }
    return STATUS_OK;
}

/* Gives zlib what it has read all of: its counters have 32 bits. */
static void give_input(struct gzip_reader *reader) {
    if (reader->stream.avail_in > 0) return;
    size_t n = reader->left.size < BLOCK ? reader->left.size : BLOCK;
    reader->stream.next_in = (Bytef *)(uintptr_t)reader->left.text;
    reader->stream.avail_in = (uInt)n;
    reader->left = (struct text_span){reader->left.text + n, reader->left.size - n};
    reader->read += n;
}

/* One member of the file; gzip allows several behind one another. */
static enum status unpack_member(struct gzip_reader *reader, struct error *e) {
    int code = Z_OK;
    while (code != Z_STREAM_END) {
        give_input(reader);
        reader->stream.next_out = reader->block;
        reader->stream.avail_out = BLOCK;
        code = inflate(&reader->stream, Z_NO_FLUSH);
        if (code == Z_BUF_ERROR)
            return error_set(e, STATUS_CORRUPT, "%s: the gzip is cut off", reader->name);
        if (code != Z_OK && code != Z_STREAM_END)
            return error_set(e, STATUS_CORRUPT, "%s: damaged gzip: %s", reader->name,
                             reader->stream.msg ? reader->stream.msg : "no reason given");
        if (write_block(reader, BLOCK - reader->stream.avail_out, e)) return e->status;
    }
    return STATUS_OK;
}

static enum status unpack_members(struct gzip_reader *reader, struct error *e) {
    if (inflateInit2(&reader->stream, WINDOW + OF_GZIP) != Z_OK)
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for gzip", reader->name);
    enum status status = STATUS_OK;
    do {
        status = unpack_member(reader, e);
        if (status == STATUS_OK) inflateReset(&reader->stream);
    } while (status == STATUS_OK && (reader->stream.avail_in > 0 || reader->left.size > 0));
    inflateEnd(&reader->stream);
    return status;
}

static int open_nameless(const char *folder) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/retro-convert-XXXXXX", folder);
    int fd = mkostemp(path.data, O_CLOEXEC);
    int saved = errno;
    if (fd >= 0) unlink(path.data);
    buffer_free(&path);
    errno = saved;
    return fd;
}

enum status gzip_open(struct file_map *out, struct text_span bytes, const char *name,
                      const char *folder, struct error *e) {
    struct gzip_reader reader = {.name = name, .folder = folder, .left = bytes};
    *out = (struct file_map){0};
    reader.fd = open_nameless(folder);
    if (reader.fd < 0) return error_errno(e, "%s: a file in %s for it unpacked", name, folder);
    reader.block = xmalloc(BLOCK);
    enum status status = unpack_members(&reader, e);
    if (status == STATUS_OK && reader.written > 0) {
        void *p = mmap(NULL, reader.written, PROT_READ, MAP_PRIVATE, reader.fd, 0);
        if (p == MAP_FAILED)
            status = error_errno(e, "%s: map of %zu bytes", name, reader.written);
        else
            *out = (struct file_map){p, reader.written};
    }
    free(reader.block);
    close(reader.fd);
    return status;
}
