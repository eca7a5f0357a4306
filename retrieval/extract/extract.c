/* retrieval/extract/extract.c: reading a file, and the files within it. See extract.h. */
#include "retrieval/extract/extract.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "config/base/text.h"
#include "retrieval/extract/extract_private.h"

/* Files within files: archives, and attachments of messages. */
enum { MAX_NESTED = 3 };
/* Text of all documents of one file, in units of the limit of one. */
enum { MAX_DOCUMENTS_SIZE = 16 };

void document_text_clear(struct document_text *text) {
    buffer_clear(&text->text);
    buffer_clear(&text->title);
    buffer_clear(&text->marks);
    buffer_clear(&text->losses);
    text->note = NULL;
    text->wants_ocr = text->has_hidden = false;
    text->n_languages = 0;
}

void document_text_free(struct document_text *text) {
    buffer_free(&text->text);
    buffer_free(&text->title);
    buffer_free(&text->marks);
    buffer_free(&text->losses);
    text->note = NULL;
}

void document_text_copy(struct document_text *out, const struct document_text *text) {
    buffer_append(&out->text, text->text.data, text->text.size);
    buffer_append(&out->title, text->title.data, text->title.size);
    buffer_append(&out->marks, text->marks.data, text->marks.size);
    buffer_append(&out->losses, text->losses.data, text->losses.size);
    out->note = text->note;
    out->wants_ocr = text->wants_ocr;
    out->has_hidden = text->has_hidden;
    out->n_languages = text->n_languages;
}

void document_text_lose(struct document_text *text, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    buffer_printf(&text->losses, "%s\n", line);
}

/* Reading the file. */

static bool is_same_file(const struct stat *left, const struct stat *right) {
    return left->st_ino == right->st_ino && left->st_size == right->st_size &&
           left->st_mtim.tv_sec == right->st_mtim.tv_sec &&
           left->st_mtim.tv_nsec == right->st_mtim.tv_nsec;
}

/* A file that is written meanwhile is read once more. */
static enum status read_file(const char *path, size_t limit, struct buffer *bytes,
                             struct error *e) {
    struct stat before = {0}, after = {0};
    for (int i = 0; i < 2; i++) {
        bool there = stat(path, &before) == 0;
        if (file_read(path, limit, bytes, e)) return e->status;
        if (there && stat(path, &after) == 0 && is_same_file(&before, &after)) return STATUS_OK;
    }
    return error_set(e, STATUS_INVALID, "%s: it changes while it is read", path);
}

/* One document. */

static enum status read_document(const struct extract_file *file, struct document_text *text,
                                 struct error *e) {
    bool by_model =
        file->limits.model != NULL && (file->kind == DOCUMENT_PDF || file->kind == DOCUMENT_SCAN);
    if (by_model) return extract_by_model(file, text, e);
    return document_form_of(file->kind)->read(file, text, e);
}

static enum status extract_one(const struct extract_file *file, const struct document_taker *taker,
                               struct error *e) {
    struct document_text text = {0};
    enum status status = read_document(file, &text, e);
    if (status == STATUS_OK) status = extract_check_blank(file->name, &text.text, e);
    if (status == STATUS_OK) {
        buffer_append(&text.title, "", 0);
        reader_sign(&text, file->kind);
        status = taker->take(taker->context, "", &text, e);
    }
    document_text_free(&text);
    return status;
}

/* A file without text, such as a scan, still has pages. */
static enum status extract_with_pages(const struct extract_file *file,
                                      const struct document_taker *taker, struct error *e) {
    const struct document_form *form = document_form_of(file->kind);
    enum status status = extract_one(file, taker, e);
    bool is_read = status == STATUS_OK || status == STATUS_INVALID;
    return form->read_pages && file->limits.pictures && is_read ? form->read_pages(file, taker, e)
                                                                : status;
}

/* Files that hold files: archives, and messages with attachments. Members come as bytes, and are
 * files of their own.
 */

struct container {
    const struct extract_file *file;
    const struct document_taker *taker;
    int depth;
    const char *part; /* of the member that is read */
};

static enum status extract_file_at(const struct extract_file *file, int depth,
                                   const struct document_taker *taker, struct error *e);

static enum status take_within(void *context, const char *part, const struct document_text *text,
                               struct error *e) {
    const struct container *container = context;
    struct buffer whole = {0};
    buffer_printf(&whole, "%s%s", container->part, part);
    enum status status = container->taker->take(container->taker->context, whole.data, text, e);
    buffer_free(&whole);
    return status;
}

static void skip_within(void *context, const struct error *why) {
    const struct container *container = context;
    if (container->taker->skip) container->taker->skip(container->taker->context, why);
}

/* A member's own fault does not keep the others out. */
static bool is_own_fault(enum status status) {
    return status == STATUS_INVALID || status == STATUS_TOO_LARGE || status == STATUS_UNSUPPORTED ||
           status == STATUS_CORRUPT;
}

/* The taker of a document may fail in the same ways as the reading of a member. */
struct guarded_taker {
    const struct container *container;
    enum status failed;
};

static enum status take_guarded(void *context, const char *part, const struct document_text *text,
                                struct error *e) {
    struct guarded_taker *taker = context;
    taker->failed = take_within((void *)(uintptr_t)taker->container, part, text, e);
    return taker->failed;
}

static void skip_guarded(void *context, const struct error *why) {
    skip_within((void *)(uintptr_t)((struct guarded_taker *)context)->container, why);
}

/* The time for all files is over: those that are left are not begun. */
static enum status check_time(const struct extract_file *file, struct error *e) {
    if (file->limits.until == 0 || time_now() < file->limits.until) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE, "%s: the time for all of the files is over", file->name);
}

static enum status take_member(void *context, const char *part, struct text_span bytes,
                               struct error *e) {
    struct container container = *(struct container *)context;
    struct guarded_taker guarded = {.container = &container};
    struct document_taker taker = {.context = &guarded, .take = take_guarded, .skip = skip_guarded};
    struct buffer name = {0};
    struct error why = {0};
    buffer_printf(&name, "%s%s", container.file->name, part);
    container.part = part;
    struct extract_file file = {.name = name.data,
                                .bytes = bytes,
                                .kind = document_kind(part),
                                .limits = container.file->limits};
    enum status status = check_time(&file, &why);
    bool late = status != STATUS_OK;
    if (!late) status = extract_file_at(&file, container.depth + 1, &taker, &why);
    buffer_free(&name);
    if (status && !late && guarded.failed == STATUS_OK && is_own_fault(status)) {
        skip_within(&container, &why);
        return STATUS_OK;
    }
    if (status) *e = why;
    return status;
}

/* The one file that was packed, whose kind its name has told. */
static enum status take_unpacked(void *context, const char *part, struct text_span bytes,
                                 struct error *e) {
    const struct container *container = context;
    struct extract_file file = *container->file;
    (void)part;
    file.bytes = bytes;
    return extract_file_at(&file, container->depth + 1, container->taker, e);
}

static bool is_packed(const struct extract_file *file) {
    return file->kind != DOCUMENT_ARCHIVE && file->bytes.size > 2 &&
           memcmp(file->bytes.text, "\x1f\x8b", 2) == 0;
}

static enum status extract_unpacked(const struct extract_file *file, int depth,
                                    const struct document_taker *taker, struct error *e) {
    struct container container = {.file = file, .taker = taker, .depth = depth};
    struct piece_taker pieces = {
        .documents = taker, .context = &container, .take_member = take_unpacked};
    struct extract_file packed = *file;
    packed.kind = DOCUMENT_PACKED;
    return child_run_parser(&packed, file->limits.bytes, &pieces, e);
}

static enum status extract_in_child(const struct extract_file *file, int depth,
                                    const struct document_taker *taker, struct error *e) {
    struct container container = {.file = file, .taker = taker, .depth = depth};
    struct piece_taker pieces = {.documents = taker, .context = &container};
    size_t n = 1;
    if (document_form_of(file->kind)->holds_files) {
        pieces.take_member = take_member;
        n = MAX_DOCUMENTS_SIZE;
    }
    return child_run_parser(file, n * file->limits.bytes, &pieces, e);
}

static enum status refuse_kind(const struct extract_file *file, struct error *e) {
    struct buffer names = {0};
    document_list_kinds(&names);
    error_set(e, STATUS_UNSUPPORTED, "%s: not a known kind of document; %s are", file->name,
              names.data);
    buffer_free(&names);
    return e->status;
}

/* A picture of text is read as a scan is. */
static enum status extract_file_at(const struct extract_file *given, int depth,
                                   const struct document_taker *taker, struct error *e) {
    struct extract_file own = *given, *file = &own;
    if (given->kind == DOCUMENT_PICTURE && given->limits.ocr.pictures) own.kind = DOCUMENT_SCAN;
    if (file->bytes.size == 0) return error_set(e, STATUS_INVALID, "%s: empty", file->name);
    if (is_packed(file) && depth < MAX_NESTED) return extract_unpacked(file, depth, taker, e);
    if (extract_find_kind(file, e)) return e->status;
    if (depth > MAX_NESTED || (depth == MAX_NESTED && file->kind == DOCUMENT_ARCHIVE))
        return error_set(e, STATUS_INVALID, "%s: files lie within files more than %d deep",
                         file->name, MAX_NESTED);
    const struct document_form *form = document_form_of(file->kind);
    if (form->in_child || document_kind_holds_several(file->kind))
        return extract_in_child(file, depth, taker, e);
    return form->read ? extract_with_pages(file, taker, e) : refuse_kind(file, e);
}

enum status document_extract_all(const struct extract_source *source,
                                 const struct extract_limits *limits,
                                 const struct document_taker *taker, struct error *e) {
    struct buffer read = {0};
    struct extract_file file = {
        .name = source->path, .bytes = source->bytes, .kind = source->kind, .limits = *limits};
    enum status status = STATUS_OK;
    if (file.bytes.size > limits->bytes)
        return error_set(e, STATUS_TOO_LARGE, "%s: %zu bytes, the limit is %zu", file.name,
                         file.bytes.size, limits->bytes);
    if (file.bytes.text == NULL && file.kind != DOCUMENT_UNKNOWN) {
        status = read_file(source->path, limits->bytes, &read, e);
        file.bytes = (struct text_span){read.data, read.size};
    } else if (file.kind == DOCUMENT_UNKNOWN) {
        file.bytes = (struct text_span){"?", 1}; /* no reason to read it */
    }
    if (status == STATUS_OK) status = extract_file_at(&file, 0, taker, e);
    buffer_free(&read);
    return status;
}

/* A file that is one document. */

struct single_document {
    const char *name;
    struct document_text *out;
    int n;
};

static enum status take_single(void *context, const char *part, const struct document_text *text,
                               struct error *e) {
    struct single_document *document = context;
    (void)part;
    document->n++;
    if (document->n > 1)
        return error_set(e, STATUS_INVALID, "%s: it holds several documents, and one is asked for",
                         document->name);
    document_text_copy(document->out, text);
    return STATUS_OK;
}

static enum status extract_single(const struct extract_source *source,
                                  const struct extract_limits *limits, struct document_text *out,
                                  struct error *e) {
    struct single_document single = {.name = source->path, .out = out};
    struct document_taker taker = {.context = &single, .take = take_single};
    document_text_clear(out);
    return document_extract_all(source, limits, &taker, e);
}

enum status document_extract(const char *path, enum document_kind kind, size_t limit,
                             struct document_text *out, struct error *e) {
    struct extract_limits limits = extract_limits_of(limit);
    return extract_single(&(struct extract_source){.path = path, .kind = kind}, &limits, out, e);
}

enum status document_extract_upload(const char *name, struct text_span bytes,
                                    const struct extract_limits *limits, struct document_text *out,
                                    struct error *e) {
    struct extract_source source = {.path = name, .bytes = bytes, .kind = document_kind(name)};
    if (bytes.text == NULL) source.bytes.text = "";
    return extract_single(&source, limits, out, e);
}

enum status document_extract_bytes(const char *name, struct text_span bytes, size_t limit,
                                   struct document_text *out, struct error *e) {
    struct extract_limits limits = extract_limits_of(limit);
    return document_extract_upload(name, bytes, &limits, out, e);
}
