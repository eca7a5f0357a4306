/* server/api/documents/document_file.c: GET /v1/documents/ID/file, and /v1/files/ID/content: the
 * file that a document came from, as it came, whole or in part. It came from anywhere, so a browser
 * may do nothing but show it, and is not even told what it could run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "retrieval/extract/extract.h"
#include "server/api/api.h"
#include "server/api/documents/byte_range.h"
#include "server/api/documents/document_file.h"
#include "server/api/documents/look.h"

enum { PIECE_BYTES = 256 << 10, MAX_NAME = 200 };
static const char documents_path[] = "/v1/documents/", file_path[] = "/file";

struct document_file_look {
    struct look base; /* first */
    const struct served_model *model;
    struct principal who; /* held: no other documents are there than it sees */
    char *id;
    bool (*hides)(const struct stored_document *document); /* NULL: none is hidden */
    char *range, *if_range, *if_none_match;                /* headers; NULL: not there */
    struct kept_file file;
    enum document_kind kind;
    char *name; /* to save it by */
    char tag[KEPT_HASH_SIZE + 2];
    struct byte_range part;
    uint64_t sent; /* bytes of the part */
    bool is_known; /* the client has it: 304 */
};

static void free_file_look(struct look *base) {
    struct document_file_look *look = (struct document_file_look *)base;
    kept_file_close(&look->file);
    principal_release(&look->who);
    free(look->id);
    free(look->range);
    free(look->if_range);
    free(look->if_none_match);
    free(look->name);
    free(look);
}

/* Opening. */

/* A file that changed is no fault of the request. */
static enum status open_kept(struct document_file_look *look,
                             const struct stored_document *document, struct error *e) {
    enum status status = kept_file_open(look->model->files, document, &look->file, e);
    if (status == STATUS_INVALID) {
        look->base.http = 409;
        look->base.code = "file_changed";
    }
    if (status) return status;
    look->name = kept_file_name(document);
    look->kind = document_kind(look->name);
    snprintf(look->tag, sizeof look->tag, "\"%s\"", look->file.tag);
    return STATUS_OK;
}

static void choose_part(struct document_file_look *look) {
    bool whole = look->if_range && strcmp(look->if_range, look->tag) != 0;
    look->part = byte_range_read(whole ? NULL : look->range, look->file.size);
    look->is_known = entity_tags_have(look->if_none_match, look->tag);
    if (!look->is_known) look->base.length = look->part.end - look->part.start;
}

static void tell_out_of_range(struct document_file_look *look) {
    struct failure failure;
    failure_set(&failure, 416, "range_not_satisfiable", NULL,
                "the file has %" PRIu64 " bytes, and the range %.100s has none of them",
                look->file.size, look->range);
    failure_write(&failure, &look->base.body);
    failure_free(&failure);
}

static enum status run_file_look(struct look *base, struct error *e) {
    struct document_file_look *look = (struct document_file_look *)base;
    struct collection_found found;
    if (collection_find(look->model->collection, principal_filter(&look->who), look->id, &found, e))
        return e->status;
    enum status status =
        look->hides && look->hides(&found.document)
            ? error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", look->id)
            : open_kept(look, &found.document, e);
    collection_found_release(&found);
    if (status) return status;
    choose_part(look);
    if (look->part.kind == RANGE_NONE && !look->is_known) tell_out_of_range(look);
    return STATUS_OK;
}

static enum answer_progress send_more(struct look *base, struct buffer *out) {
    struct document_file_look *look = (struct document_file_look *)base;
    uint64_t left = look->part.end - look->part.start - look->sent;
    size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    struct error e;
    if (kept_file_read(&look->file, look->part.start + look->sent, n, out, &e)) {
        log_warn("a document's file is cut off: %s", e.text);
        buffer_clear(out);
        return ANSWER_COMPLETE;
    }
    look->sent += n;
    return look->sent == look->base.length ? ANSWER_COMPLETE : ANSWER_MORE;
}

/* Headers. */

/* Whether a browser can only show files of the kind; what it would run is given as bytes. */
static bool is_shown(enum document_kind kind) {
    switch (kind) {
        case DOCUMENT_TEXT:
        case DOCUMENT_MARKDOWN:
        case DOCUMENT_RST:
        case DOCUMENT_CSV:
        case DOCUMENT_TSV:
        case DOCUMENT_JSONL:
        case DOCUMENT_MAN:
        case DOCUMENT_BARE:
        case DOCUMENT_PDF:
        case DOCUMENT_PICTURE: return true;
        default: return false;
    }
}

static const char *picture_type(const char *name) {
    static const char *const types[][2] = {{".png", "image/png"},
                                           {".webp", "image/webp"},
                                           {".gif", "image/gif"},
                                           {".jpg", "image/jpeg"},
                                           {".jpeg", "image/jpeg"}};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < ARRAY_COUNT(types); i++)
        if (strcasecmp(dot, types[i][0]) == 0) return types[i][1];
    return "application/octet-stream";
}

static const char *media_type(const struct document_file_look *look) {
    const char *type = document_kind_type(look->kind);
    if (look->kind == DOCUMENT_PDF) return type;
    if (look->kind == DOCUMENT_PICTURE) return picture_type(look->name);
    if (is_shown(look->kind)) return "text/plain";
    bool is_office =
        type && (starts_with(type, "application/vnd.") || strcmp(type, "application/msword") == 0);
    return is_office ? type : "application/octet-stream";
}

/* Letters, digits and the few marks that need no escape anywhere; 'other' for each byte else. */
static void put_plain(struct buffer *out, const char *name, size_t size) {
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) ||
                     (c != '\0' && strchr("-_. ", c));
        buffer_append(out, plain ? &c : "_", 1);
    }
}

static void put_escaped(struct buffer *out, const char *name, size_t size) {
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) ||
                     (c != '\0' && strchr("-_.", c));
        if (plain)
            buffer_append(out, &c, 1);
        else
            buffer_printf(out, "%%%02X", (unsigned)(unsigned char)c);
    }
}

/* RFC 6266: a name of ASCII, and the whole name in UTF-8 where it is another. */
static void add_disposition(const struct document_file_look *look, struct answer *answer) {
    struct buffer value = {0};
    size_t size = utf8_prefix(look->name, strlen(look->name), MAX_NAME);
    buffer_printf(&value, "%s; filename=\"", is_shown(look->kind) ? "inline" : "attachment");
    size_t before = value.size;
    put_plain(&value, look->name, size);
    bool same = memcmp(value.data + before, look->name, size) == 0;
    buffer_append_string(&value, "\"");
    if (!same && utf8_is_valid(look->name, size)) {
        buffer_append_string(&value, "; filename*=UTF-8''");
        put_escaped(&value, look->name, size);
    }
    answer_add_header(answer, "Content-Disposition", "%s", value.data);
    buffer_free(&value);
}

static void add_headers(const struct look *base, struct answer *answer) {
    const struct document_file_look *look = (const struct document_file_look *)base;
    answer_add_header(answer, "Accept-Ranges", "bytes");
    answer_add_header(answer, "X-Content-Type-Options", "nosniff");
    answer_add_header(answer, "Content-Security-Policy", "default-src 'none'; sandbox");
    answer_add_header(answer, "Cross-Origin-Resource-Policy", "same-origin");
    if (look->part.kind == RANGE_NONE && !look->is_known) {
        answer->http = 416;
        answer_add_header(answer, "Content-Range", "bytes */%" PRIu64, look->file.size);
        return;
    }
    answer_set_header(answer, "Cache-Control", "private, no-cache");
    answer_set_header(answer, "Content-Type", "%s", media_type(look));
    answer_add_header(answer, "ETag", "%s", look->tag);
    add_disposition(look, answer);
    if (look->is_known) {
        answer->http = 304;
    } else if (look->part.kind == RANGE_PART) {
        answer->http = 206;
        answer_add_header(answer, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                          look->part.start, look->part.end - 1, look->file.size);
    }
}

/* Asking. */

static char *copy_header(const struct api_request *request, const char *name) {
    const char *value = request->header ? request->header(request->headers, name) : NULL;
    return value ? xstrdup(value) : NULL;
}

bool document_path_is_file(const char *path) {
    size_t size = strlen(path), least = strlen(documents_path) + strlen(file_path);
    return size > least && strcmp(path + size - strlen(file_path), file_path) == 0;
}

struct answer *document_file(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    const char *id = request->path + strlen(documents_path);
    const struct document_file_ask ask = {.model = model,
                                          .id = xstrndup(id, strlen(id) - strlen(file_path))};
    return document_file_ask(request, &ask, waker, failure);
}

struct answer *document_file_ask(const struct api_request *request,
                                 const struct document_file_ask *ask, struct waker waker,
                                 struct failure *failure) {
    struct document_file_look *look = xcalloc(1, sizeof *look);
    look->base = (struct look){
        .run = run_file_look, .head = add_headers, .more = send_more, .free = free_file_look};
    look->base.lost = ask->lost;
    look->model = ask->model;
    look->hides = ask->hides;
    look->who = principal_hold(request->principal);
    look->id = ask->id;
    look->file.fd = -1;
    if (strcmp(request->method, "GET") == 0) look->range = copy_header(request, "Range");
    look->if_range = copy_header(request, "If-Range");
    look->if_none_match = copy_header(request, "If-None-Match");
    return look_ask(&look->base, ask->model, waker, failure);
}
