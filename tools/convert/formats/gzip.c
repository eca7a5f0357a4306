/* tools/convert/formats/gzip.c: the only file that includes zlib. See gzip.h. libarchive reads gzip, too, but does not
 * compare its check sums (3.6), and nothing else tells a damaged weight. */
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

bool gzip_is(struct text_span bytes) { return bytes.size > 2 && memcmp(bytes.text, "\x1f\x8b", 2) == 0; }

static enum status write_block(struct gzip_reader *r, size_t n, struct error *e) {
    r->written += n;
    if (r->written > SMALL && r->written / GROWTH > r->read)
        return error_set(e, STATUS_TOO_LARGE, "%s: %zu bytes of gzip grow to more than %zu: refused", r->name, r->read,
                         r->written);
    for (size_t at = 0; at < n;) {
        ssize_t put = write(r->fd, r->block + at, n - at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return error_errno(e, "%s: %zu bytes of it unpacked in %s", r->name, r->written, r->folder);
        at += (size_t)put;
    }
    return STATUS_OK;
}

/* Gives zlib what it has read all of: its counters have 32 bits. */
static void give_input(struct gzip_reader *r) {
    if (r->stream.avail_in > 0) return;
    size_t n = r->left.size < BLOCK ? r->left.size : BLOCK;
    r->stream.next_in = (Bytef *)(uintptr_t)r->left.text;
    r->stream.avail_in = (uInt)n;
    r->left = (struct text_span){r->left.text + n, r->left.size - n};
    r->read += n;
}

/* One member of the file; gzip allows several behind one another. */
static enum status unpack_member(struct gzip_reader *r, struct error *e) {
    int code = Z_OK;
    while (code != Z_STREAM_END) {
        give_input(r);
        r->stream.next_out = r->block;
        r->stream.avail_out = BLOCK;
        code = inflate(&r->stream, Z_NO_FLUSH);
        if (code == Z_BUF_ERROR) return error_set(e, STATUS_CORRUPT, "%s: the gzip is cut off", r->name);
        if (code != Z_OK && code != Z_STREAM_END)
            return error_set(e, STATUS_CORRUPT, "%s: damaged gzip: %s", r->name,
                             r->stream.msg ? r->stream.msg : "no reason given");
        if (write_block(r, BLOCK - r->stream.avail_out, e)) return e->status;
    }
    return STATUS_OK;
}

static enum status unpack_members(struct gzip_reader *r, struct error *e) {
    if (inflateInit2(&r->stream, WINDOW + OF_GZIP) != Z_OK)
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for gzip", r->name);
    enum status status = STATUS_OK;
    do {
        status = unpack_member(r, e);
        if (status == STATUS_OK) inflateReset(&r->stream);
    } while (status == STATUS_OK && (r->stream.avail_in > 0 || r->left.size > 0));
    inflateEnd(&r->stream);
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

enum status gzip_open(struct file_map *out, struct text_span bytes, const char *name, const char *folder,
                      struct error *e) {
    struct gzip_reader r = {.name = name, .folder = folder, .left = bytes};
    *out = (struct file_map){0};
    r.fd = open_nameless(folder);
    if (r.fd < 0) return error_errno(e, "%s: a file in %s for it unpacked", name, folder);
    r.block = xmalloc(BLOCK);
    enum status status = unpack_members(&r, e);
    if (status == STATUS_OK && r.written > 0) {
        void *p = mmap(NULL, r.written, PROT_READ, MAP_PRIVATE, r.fd, 0);
        if (p == MAP_FAILED)
            status = error_errno(e, "%s: map of %zu bytes", name, r.written);
        else
            *out = (struct file_map){p, r.written};
    }
    free(r.block);
    close(r.fd);
    return status;
}
