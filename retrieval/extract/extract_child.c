/* retrieval/extract/extract_child.c: work on foreign files in the sandbox
 * (config/sandbox/sandbox.h): our parsers, whose pieces come through a pipe, and programs that
 * print text. See extract_child.h. */
#include "retrieval/extract/extract_child.h"

#include <string.h>
#include <unistd.h>

#include "config/base/utf8.h"
#include "config/sandbox/sandbox.h"
#include "retrieval/extract/extract_private.h"

/* Pieces on the pipe: a head, then the parts that it gives the sizes of. */

enum piece_kind { PIECE_DOCUMENT = 0x52455430, PIECE_MEMBER, PIECE_SKIPPED, PIECE_END };

struct piece_head {
    uint32_t kind, status;         /* of a document: enum extract_note; of a member: 0 */
    uint32_t has_hidden, reserved; /* of a document: as its has_hidden; 0 */
    /* Of a document: part, text, title, marks, losses; of a member: part and bytes, as text; else
     * the first is that of the error's text. */
    uint64_t sizes[5];
};

static uint32_t note_number(const char *note) {
    uint32_t number = NOTE_NONE;
    for (uint32_t i = 0; note && i < NOTE_COUNT; i++)
        if (note == extract_notes[i]) number = i;
    return number;
}

void child_write_document(struct child_writer *writer, const char *part,
                          const struct document_text *text) {
    struct piece_head head = {.kind = PIECE_DOCUMENT,
                              .status = note_number(text->note),
                              .has_hidden = text->has_hidden,
                              .sizes = {strlen(part), text->text.size, text->title.size,
                                        text->marks.size, text->losses.size}};
    sandbox_write(writer->fd, &head, sizeof head);
    sandbox_write(writer->fd, part, head.sizes[0]);
    sandbox_write(writer->fd, text->text.data, text->text.size);
    sandbox_write(writer->fd, text->title.data, text->title.size);
    sandbox_write(writer->fd, text->marks.data, text->marks.size);
    sandbox_write(writer->fd, text->losses.data, text->losses.size);
}

void child_write_member(struct child_writer *writer, const char *part, struct text_span bytes) {
    struct piece_head head = {.kind = PIECE_MEMBER, .sizes = {strlen(part), bytes.size}};
    sandbox_write(writer->fd, &head, sizeof head);
    sandbox_write(writer->fd, part, head.sizes[0]);
    sandbox_write(writer->fd, bytes.text, bytes.size);
}

static void write_error(struct child_writer *writer, enum piece_kind kind,
                        const struct error *why) {
    struct piece_head head = {.kind = kind, .status = why->status, .sizes = {strlen(why->text)}};
    sandbox_write(writer->fd, &head, sizeof head);
    sandbox_write(writer->fd, why->text, head.sizes[0]);
}

void child_write_skipped(struct child_writer *writer, const struct error *why) {
    write_error(writer, PIECE_SKIPPED, why);
}

struct child_reader {
    struct sandbox_child child;
    const struct extract_file *file;
    const struct piece_taker *taker;
    uint64_t left; /* bytes that may come */
    struct buffer part;
    struct document_text document;
    struct error end; /* what the parser says at its end */
    bool ended;
    bool cut; /* it stopped within a piece */
};

static enum status read_part(struct child_reader *reader, struct buffer *out, uint64_t size,
                             struct error *e) {
    bool whole;
    buffer_clear(out);
    if (size > reader->left)
        return error_set(e, STATUS_TOO_LARGE, "%s: it has more text than the limit of %zu bytes",
                         reader->file->name, reader->file->limits.bytes);
    reader->left -= size;
    if (sandbox_append(&reader->child, (size_t)size, out, &whole, e)) return e->status;
    if (whole) return STATUS_OK;
    reader->cut = true;
    return error_set(e, STATUS_INVALID, "%s: its parser stopped", reader->file->name);
}

/* A parser that was taken over by what it parsed may write anything. */
static enum status refuse_nonsense(const struct child_reader *reader, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s: its parser writes nonsense", reader->file->name);
}

static enum status check_document(const struct child_reader *reader, struct error *e) {
    const struct document_text *text = &reader->document;
    bool sound = strlen(reader->part.data) == reader->part.size &&
                 strlen(text->title.data) == text->title.size &&
                 utf8_is_valid(text->text.data, text->text.size) &&
                 utf8_is_valid(text->title.data, text->title.size) &&
                 strlen(text->losses.data) == text->losses.size &&
                 utf8_is_valid(text->losses.data, text->losses.size) &&
                 text->marks.size % sizeof(struct mark) == 0 &&
                 marks_fault(marks_of(&text->marks), text->text.size) == NULL;
    return sound ? STATUS_OK : refuse_nonsense(reader, e);
}

static enum status read_document(struct child_reader *reader, const struct piece_head *head,
                                 struct error *e) {
    struct buffer *parts[] = {&reader->part, &reader->document.text, &reader->document.title,
                              &reader->document.marks, &reader->document.losses};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        if (read_part(reader, parts[i], head->sizes[i], e)) return e->status;
    if (check_document(reader, e)) return e->status;
    reader->document.note = head->status < NOTE_COUNT ? extract_notes[head->status] : NULL;
    reader->document.has_hidden = head->has_hidden != 0;
    reader_sign(&reader->document, reader->file->kind);
    return reader->taker->documents->take(reader->taker->documents->context, reader->part.data,
                                          &reader->document, e);
}

static enum status read_member(struct child_reader *reader, const struct piece_head *head,
                               struct error *e) {
    struct buffer *bytes = &reader->document.text;
    if (reader->taker->take_member == NULL) return refuse_nonsense(reader, e);
    if (read_part(reader, &reader->part, head->sizes[0], e) ||
        read_part(reader, bytes, head->sizes[1], e))
        return e->status;
    if (strlen(reader->part.data) != reader->part.size) return refuse_nonsense(reader, e);
    return reader->taker->take_member(reader->taker->context, reader->part.data,
                                      (struct text_span){bytes->data, bytes->size}, e);
}

static enum status read_error(struct child_reader *reader, const struct piece_head *head,
                              struct error *why, struct error *e) {
    if (read_part(reader, &reader->part, head->sizes[0], e)) return e->status;
    bool known = head->status <= STATUS_INTERNAL;
    *why = (struct error){.status = STATUS_OK};
    if (head->status != STATUS_OK)
        error_set(why, known ? (enum status)head->status : STATUS_INVALID, "%s", reader->part.data);
    return STATUS_OK;
}

static enum status read_piece(struct child_reader *reader, bool *more, struct error *e) {
    struct piece_head head;
    struct error why;
    size_t got;
    *more = false;
    if (sandbox_read(&reader->child, &head, sizeof head, &got, e)) return e->status;
    if (got < sizeof head) return STATUS_OK;
    *more = head.kind != PIECE_END;
    if (head.kind == PIECE_DOCUMENT) return read_document(reader, &head, e);
    if (head.kind == PIECE_MEMBER) return read_member(reader, &head, e);
    if (head.kind == PIECE_END) {
        reader->ended = true;
        return read_error(reader, &head, &reader->end, e);
    }
    if (head.kind != PIECE_SKIPPED) return refuse_nonsense(reader, e);
    if (read_error(reader, &head, &why, e)) return e->status;
    const struct document_taker *documents = reader->taker->documents;
    if (documents->skip) documents->skip(documents->context, &why);
    return STATUS_OK;
}

/* The parser's process. */

struct parse_options {
    int32_t kind, hidden_sheets;
    uint64_t bytes;
    char name[SANDBOX_OPTIONS_BYTES - 16];
};

static struct extract_file file_of(const struct sandbox_call *call) {
    const struct parse_options *options = call->options;
    return (struct extract_file){
        .name = options->name,
        .bytes = call->input,
        .kind = (enum document_kind)options->kind,
        .limits = {.bytes = options->bytes, .hidden_sheets = options->hidden_sheets != 0}};
}

static void prepare_parser(const struct sandbox_call *call) {
    struct extract_file file = file_of(call);
    const struct document_form *form = document_form_of(file.kind);
    if (form->prepare) form->prepare(&file);
}

/* A file that is one document, with its text checked. */
static enum status read_single(const struct extract_file *file, struct child_writer *writer,
                               struct error *e) {
    struct document_text text = {0};
    enum status status = document_form_of(file->kind)->read(file, &text, e);
    if (status == STATUS_OK) status = extract_check_blank(file->name, &text.text, e);
    if (status == STATUS_OK) child_write_document(writer, "", &text);
    return status;
}

static void run_parser(const struct sandbox_call *call) {
    struct extract_file file = file_of(call);
    struct child_writer writer = {.fd = call->output};
    struct error e = {0};
    const struct document_form *form = document_form_of(file.kind);
    e.status = form->parse ? form->parse(&file, &writer, &e) : read_single(&file, &writer, &e);
    write_error(&writer, PIECE_END, &e);
}

static struct sandbox_limits limits_of(const struct extract_file *file) {
    const struct extract_limits *limits = &file->limits;
    return (struct sandbox_limits){.memory = limits->memory,
                                   .seconds = limits->seconds,
                                   .until = limits->until,
                                   .cancelled = limits->cancelled,
                                   .stopped = limits->stopped};
}

static enum status read_pieces(struct child_reader *reader, struct error *e) {
    bool more = true;
    enum status status = STATUS_OK;
    while (more && status == STATUS_OK) status = read_piece(reader, &more, e);
    if (!reader->ended && status) sandbox_kill(&reader->child);
    return status;
}

static enum status judge_parser(const struct child_reader *reader, int code, struct error *e) {
    if (reader->ended && reader->end.status) *e = reader->end;
    if (reader->ended) return reader->end.status;
    return error_set(
        e, STATUS_INVALID,
        "%s: its parser ended with code %d: it is damaged, or takes more than %zu MiB of memory",
        reader->file->name, code, reader->file->limits.memory >> 20);
}

enum status child_run_parser(const struct extract_file *file, size_t output,
                             const struct piece_taker *taker, struct error *e) {
    struct parse_options options = {.kind = (int32_t)file->kind,
                                    .hidden_sheets = file->limits.hidden_sheets,
                                    .bytes = file->limits.bytes};
    memcpy(options.name, file->name, strnlen(file->name, sizeof options.name - 1));
    struct sandbox_job job = {.name = file->name,
                              .input = file->bytes,
                              .work = run_parser,
                              .prepare = prepare_parser,
                              .options = {(const char *)&options, sizeof options},
                              .limits = limits_of(file)};
    struct child_reader reader = {.file = file, .taker = taker, .left = output};
    struct error end;
    int code;
    if (sandbox_begin(&reader.child, &job, e)) return e->status;
    enum status status = read_pieces(&reader, e), ended = sandbox_end(&reader.child, &code, &end);
    bool cut = !reader.ended && (status == STATUS_OK || reader.cut);
    if (cut && ended) *e = end, status = ended;
    if (cut && ended == STATUS_TOO_LARGE)
        status = error_set(e, ended, "%s; split it into smaller files", end.text);
    if (status == STATUS_OK) status = judge_parser(&reader, code, e);
    buffer_free(&reader.part);
    document_text_free(&reader.document);
    return status;
}

/* Programs. */

static enum status read_output(struct sandbox_child *child, const struct extract_file *file,
                               struct buffer *out, struct error *e) {
    char block[1 << 16];
    size_t got = sizeof block, before = out->size;
    while (got == sizeof block) {
        if (sandbox_read(child, block, sizeof block, &got, e)) return e->status;
        if (got > file->limits.bytes - (out->size - before))
            return error_set(e, STATUS_TOO_LARGE,
                             "%s: it has more text than the limit of %zu bytes", file->name,
                             file->limits.bytes);
        buffer_append(out, block, got);
    }
    return STATUS_OK;
}

enum status child_run_program(const struct extract_file *file, const struct child_program *program,
                              struct buffer *out, struct error *e) {
    struct sandbox_job job = {.name = file->name,
                              .input = program->input,
                              .argv = program->argv,
                              .package = program->package,
                              .limits = limits_of(file)};
    struct sandbox_child child;
    struct error end;
    int code;
    if (sandbox_begin(&child, &job, e)) return e->status;
    enum status status = read_output(&child, file, out, e);
    if (status) sandbox_kill(&child);
    enum status ended = sandbox_end(&child, &code, &end);
    if (status == STATUS_OK && ended) *e = end, status = ended;
    if (status || code <= program->worst) return status;
    return error_set(e, STATUS_INVALID,
                     "%s: %s could not read it (exit code %d): it is damaged or locked", file->name,
                     program->argv[0], code);
}
