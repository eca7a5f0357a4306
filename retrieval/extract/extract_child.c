/* retrieval/extract/extract_child.c: work on foreign files in the sandbox (config/sandbox/sandbox.h): our parsers,
 * whose pieces come through a pipe, and programs that print text. See extract_child.h. */
#include "retrieval/extract/extract_child.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "config/base/utf8.h"
#include "config/sandbox/sandbox.h"
#include "retrieval/extract/extract_private.h"

/* Pieces on the pipe: a head, then the parts that it gives the sizes of. */

enum piece_kind { PIECE_DOCUMENT = 0x52455430, PIECE_MEMBER, PIECE_SKIPPED, PIECE_END };

struct piece_head {
    uint32_t kind, status; /* of a document: enum extract_note; of a member: 0 */
    /* Of a document: part, text, title, marks; of a member: part and bytes, as text; else the first is that of the
     * error's text. */
    uint64_t sizes[4];
};

static void write_all(struct child_writer *w, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(w->fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(1); /* nobody reads any more */
        at += n;
        size -= (size_t)n;
    }
}

static uint32_t note_number(const char *note) {
    uint32_t number = NOTE_NONE;
    for (uint32_t i = 0; note && i < NOTE_COUNT; i++)
        if (note == extract_notes[i]) number = i;
    return number;
}

void child_write_document(struct child_writer *w, const char *part, const struct document_text *d) {
    struct piece_head head = {.kind = PIECE_DOCUMENT,
                              .status = note_number(d->note),
                              .sizes = {strlen(part), d->text.size, d->title.size, d->marks.size}};
    write_all(w, &head, sizeof head);
    write_all(w, part, head.sizes[0]);
    write_all(w, d->text.data, d->text.size);
    write_all(w, d->title.data, d->title.size);
    write_all(w, d->marks.data, d->marks.size);
}

void child_write_member(struct child_writer *w, const char *part, struct text_span bytes) {
    struct piece_head head = {.kind = PIECE_MEMBER, .sizes = {strlen(part), bytes.size}};
    write_all(w, &head, sizeof head);
    write_all(w, part, head.sizes[0]);
    write_all(w, bytes.text, bytes.size);
}

static void write_error(struct child_writer *w, enum piece_kind kind, const struct error *why) {
    struct piece_head head = {.kind = kind, .status = why->status, .sizes = {strlen(why->text)}};
    write_all(w, &head, sizeof head);
    write_all(w, why->text, head.sizes[0]);
}

void child_write_skipped(struct child_writer *w, const struct error *why) { write_error(w, PIECE_SKIPPED, why); }

struct child_reader {
    struct sandbox_child child;
    const struct extract_file *file;
    const struct piece_taker *taker;
    uint64_t left; /* bytes that may come */
    struct buffer part;
    struct document_text document;
    struct error end; /* what the parser says at its end */
    bool ended;
};

static enum status read_part(struct child_reader *r, struct buffer *out, uint64_t size, struct error *e) {
    char block[1 << 16];
    buffer_clear(out);
    if (size > r->left)
        return error_set(e, STATUS_TOO_LARGE, "%s: it has more text than the limit of %zu bytes", r->file->name,
                         r->file->limits.bytes);
    r->left -= size;
    while (size > 0) {
        size_t got, n = size < sizeof block ? (size_t)size : sizeof block;
        if (sandbox_read(&r->child, block, n, &got, e)) return e->status;
        if (got < n) return error_set(e, STATUS_INVALID, "%s: its parser stopped", r->file->name);
        buffer_append(out, block, n);
        size -= n;
    }
    buffer_append(out, "", 0);
    return STATUS_OK;
}

/* A parser that was taken over by what it parsed may write anything. */
static enum status refuse_nonsense(const struct child_reader *r, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: its parser writes nonsense", r->file->name);
}

static enum status check_document(const struct child_reader *r, struct error *e) {
    const struct document_text *d = &r->document;
    bool sound = strlen(r->part.data) == r->part.size && strlen(d->title.data) == d->title.size &&
                 utf8_is_valid(d->text.data, d->text.size) && utf8_is_valid(d->title.data, d->title.size) &&
                 d->marks.size % sizeof(struct mark) == 0 && marks_fault(marks_of(&d->marks), d->text.size) == NULL;
    return sound ? STATUS_OK : refuse_nonsense(r, e);
}

static enum status read_document(struct child_reader *r, const struct piece_head *head, struct error *e) {
    struct buffer *parts[] = {&r->part, &r->document.text, &r->document.title, &r->document.marks};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        if (read_part(r, parts[i], head->sizes[i], e)) return e->status;
    if (check_document(r, e)) return e->status;
    r->document.note = head->status < NOTE_COUNT ? extract_notes[head->status] : NULL;
    return r->taker->documents->take(r->taker->documents->context, r->part.data, &r->document, e);
}

static enum status read_member(struct child_reader *r, const struct piece_head *head, struct error *e) {
    struct buffer *bytes = &r->document.text;
    if (r->taker->take_member == NULL) return refuse_nonsense(r, e);
    if (read_part(r, &r->part, head->sizes[0], e) || read_part(r, bytes, head->sizes[1], e)) return e->status;
    if (strlen(r->part.data) != r->part.size) return refuse_nonsense(r, e);
    return r->taker->take_member(r->taker->context, r->part.data, (struct text_span){bytes->data, bytes->size}, e);
}

static enum status read_error(struct child_reader *r, const struct piece_head *head, struct error *why,
                              struct error *e) {
    if (read_part(r, &r->part, head->sizes[0], e)) return e->status;
    bool known = head->status <= STATUS_INTERNAL;
    *why = (struct error){.status = STATUS_OK};
    if (head->status != STATUS_OK)
        error_set(why, known ? (enum status)head->status : STATUS_INVALID, "%s", r->part.data);
    return STATUS_OK;
}

static enum status read_piece(struct child_reader *r, bool *more, struct error *e) {
    struct piece_head head;
    struct error why;
    size_t got;
    *more = false;
    if (sandbox_read(&r->child, &head, sizeof head, &got, e)) return e->status;
    if (got < sizeof head) return STATUS_OK;
    *more = head.kind != PIECE_END;
    if (head.kind == PIECE_DOCUMENT) return read_document(r, &head, e);
    if (head.kind == PIECE_MEMBER) return read_member(r, &head, e);
    if (head.kind == PIECE_END) {
        r->ended = true;
        return read_error(r, &head, &r->end, e);
    }
    if (head.kind != PIECE_SKIPPED) return refuse_nonsense(r, e);
    if (read_error(r, &head, &why, e)) return e->status;
    const struct document_taker *documents = r->taker->documents;
    if (documents->skip) documents->skip(documents->context, &why);
    return STATUS_OK;
}

/* The parser's process. */

struct parse_options {
    int32_t kind;
    uint64_t bytes;
    char name[SANDBOX_OPTIONS_BYTES - 16];
};

static struct extract_file file_of(const struct sandbox_call *call) {
    const struct parse_options *o = call->options;
    return (struct extract_file){
        .name = o->name, .bytes = call->input, .kind = (enum document_kind)o->kind, .limits = {.bytes = o->bytes}};
}

static void prepare_parser(const struct sandbox_call *call) {
    struct extract_file f = file_of(call);
    const struct document_form *form = document_form_of(f.kind);
    if (form->prepare) form->prepare(&f);
}

/* A file that is one document, with its text checked. */
static enum status read_single(const struct extract_file *f, struct child_writer *w, struct error *e) {
    struct document_text d = {0};
    enum status status = document_form_of(f->kind)->read(f, &d, e);
    if (status == STATUS_OK) status = extract_check_blank(f->name, &d.text, e);
    if (status == STATUS_OK) child_write_document(w, "", &d);
    return status;
}

static void run_parser(const struct sandbox_call *call) {
    struct extract_file f = file_of(call);
    struct child_writer writer = {.fd = call->output};
    struct error e = {0};
    const struct document_form *form = document_form_of(f.kind);
    e.status = form->parse ? form->parse(&f, &writer, &e) : read_single(&f, &writer, &e);
    write_error(&writer, PIECE_END, &e);
}

static struct sandbox_limits limits_of(const struct extract_file *f) {
    const struct extract_limits *l = &f->limits;
    return (struct sandbox_limits){.memory = l->memory,
                                   .seconds = l->seconds,
                                   .until = l->until,
                                   .cancelled = l->cancelled,
                                   .stopped = l->stopped};
}

static enum status read_pieces(struct child_reader *r, struct error *e) {
    bool more = true;
    enum status status = STATUS_OK;
    while (more && status == STATUS_OK) status = read_piece(r, &more, e);
    if (!r->ended && status) sandbox_kill(&r->child);
    return status;
}

static enum status judge_parser(const struct child_reader *r, int code, struct error *e) {
    if (r->ended && r->end.status) *e = r->end;
    if (r->ended) return r->end.status;
    return error_set(e, STATUS_INVALID,
                     "%s: its parser ended with code %d: it is damaged, or takes more than %zu MiB of memory",
                     r->file->name, code, r->file->limits.memory >> 20);
}

enum status child_run_parser(const struct extract_file *f, size_t output, const struct piece_taker *taker,
                             struct error *e) {
    struct parse_options options = {.kind = (int32_t)f->kind, .bytes = f->limits.bytes};
    memcpy(options.name, f->name, strnlen(f->name, sizeof options.name - 1));
    struct sandbox_job job = {.name = f->name,
                              .input = f->bytes,
                              .work = run_parser,
                              .prepare = prepare_parser,
                              .options = {(const char *)&options, sizeof options},
                              .limits = limits_of(f)};
    struct child_reader r = {.file = f, .taker = taker, .left = output};
    struct error end;
    int code;
    if (sandbox_begin(&r.child, &job, e)) return e->status;
    enum status status = read_pieces(&r, e), ended = sandbox_end(&r.child, &code, &end);
    if (status == STATUS_OK && ended && !r.ended) *e = end, status = ended;
    if (status == STATUS_OK) status = judge_parser(&r, code, e);
    buffer_free(&r.part);
    document_text_free(&r.document);
    return status;
}

/* Programs. */

static enum status read_output(struct sandbox_child *c, const struct extract_file *f, struct buffer *out,
                               struct error *e) {
    char block[1 << 16];
    size_t got = sizeof block, before = out->size;
    while (got == sizeof block) {
        if (sandbox_read(c, block, sizeof block, &got, e)) return e->status;
        if (got > f->limits.bytes - (out->size - before))
            return error_set(e, STATUS_TOO_LARGE, "%s: it has more text than the limit of %zu bytes", f->name,
                             f->limits.bytes);
        buffer_append(out, block, got);
    }
    return STATUS_OK;
}

enum status child_run_program(const struct extract_file *f, const struct child_program *program, struct buffer *out,
                              struct error *e) {
    struct sandbox_job job = {.name = f->name,
                              .input = program->input,
                              .argv = program->argv,
                              .package = program->package,
                              .limits = limits_of(f)};
    struct sandbox_child c;
    struct error end;
    int code;
    if (sandbox_begin(&c, &job, e)) return e->status;
    enum status status = read_output(&c, f, out, e);
    if (status) sandbox_kill(&c);
    enum status ended = sandbox_end(&c, &code, &end);
    if (status == STATUS_OK && ended) *e = end, status = ended;
    if (status || code <= program->worst) return status;
    return error_set(e, STATUS_INVALID, "%s: %s could not read it (exit code %d): it is damaged or locked", f->name,
                     program->argv[0], code);
}
