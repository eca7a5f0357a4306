/* retrieval/extract/pdf/pdf_worker.c: see pdf_worker.h. */
#include "retrieval/extract/pdf/pdf_worker.h"

#include <string.h>

#include "config/base/utf8.h"
#include "retrieval/extract/page/page_record.h"
#include "retrieval/extract/pdf/pdf_child.h"

enum { PAGE_SECONDS = 10 }; /* that one page may take */
/* Bytes of a record: words take ten times their text. */
enum { MOST_TIMES_TEXT = 64 };

static struct sandbox_limits limits_of(const struct extract_file *file, size_t memory) {
    const struct extract_limits *limits = &file->limits;
    return (struct sandbox_limits){.memory = memory,
                                   .seconds = limits->seconds,
                                   .until = limits->until,
                                   .cancelled = limits->cancelled,
                                   .stopped = limits->stopped};
}

static enum status begin(struct pdf_worker *worker, int first, struct error *e) {
    struct pdf_child_options options = {
        .first = first, .step = worker->step, .tags = !worker->lost};
    const char *name = worker->file->name;
    const char *passwords = worker->file->limits.passwords ? worker->file->limits.passwords : "";
    memcpy(options.name, name, strnlen(name, sizeof options.name - 1));
    memcpy(options.passwords, passwords, strnlen(passwords, sizeof options.passwords - 1));
    worker->job.options = (struct text_span){(const char *)&options, sizeof options};
    enum status status = sandbox_begin(&worker->child, &worker->job, e);
    worker->job.options = (struct text_span){0};
    worker->runs = status == STATUS_OK;
    return status;
}

enum status pdf_worker_begin(struct pdf_worker *worker, const struct extract_file *file,
                             const int pages[2], size_t memory, struct error *e) {
    *worker = (struct pdf_worker){.file = file, .step = pages[1]};
    worker->job = (struct sandbox_job){.name = file->name,
                                       .input = file->bytes,
                                       .work = pdf_child_work,
                                       .prepare = pdf_child_prepare,
                                       .opens_files = true,
                                       .limits = limits_of(file, memory)};
    return begin(worker, pages[0], e);
}

void pdf_worker_end(struct pdf_worker *worker) {
    struct error ignored;
    int code;
    if (worker->runs) {
        sandbox_kill(&worker->child);
        sandbox_end(&worker->child, &code, &ignored);
    }
    worker->runs = false;
    buffer_free(&worker->piece);
}

/* Pieces. */

/* The next piece. STATUS_INVALID: the process has ended or wrote nonsense. */
static enum status read_piece(struct pdf_worker *worker, struct pdf_piece_head *head,
                              struct error *e) {
    size_t got, most = MOST_TIMES_TEXT * worker->file->limits.bytes;
    bool whole;
    buffer_clear(&worker->piece);
    if (sandbox_read(&worker->child, head, sizeof *head, &got, e)) return e->status;
    if (got < sizeof *head) return error_set(e, STATUS_INVALID, "its reader ended");
    if (head->size > most) return error_set(e, STATUS_TOO_LARGE, "it holds too much");
    if (sandbox_append(&worker->child, (size_t)head->size, &worker->piece, &whole, e))
        return e->status;
    return whole ? STATUS_OK : error_set(e, STATUS_INVALID, "its reader ended");
}

static bool is_message(const struct buffer *piece) {
    return strlen(piece->data) == piece->size && utf8_is_valid(piece->data, piece->size);
}

/* How the process ended, where it did by itself. */
static void explain_end(struct pdf_worker *worker, struct error *why) {
    struct error end = {0};
    int code;
    worker->runs = false;
    sandbox_kill(&worker->child);
    if (sandbox_end(&worker->child, &code, &end) && end.status != STATUS_INVALID) *why = end;
}

enum status pdf_worker_facts(struct pdf_worker *worker, struct pdf_facts *facts, struct error *e) {
    struct pdf_piece_head head;
    struct pdf_facts_piece piece;
    enum status status = read_piece(worker, &head, e);
    if (status) {
        explain_end(worker, e);
        if (e->status == STATUS_INVALID && strcmp(e->text, "its reader ended") == 0)
            error_set(e, STATUS_INVALID, "%s: it is damaged, or takes more than %zu MiB of memory",
                      worker->file->name, worker->job.limits.memory >> 20);
        return e->status;
    }
    if (head.kind == PIECE_FAILED && is_message(&worker->piece)) {
        bool known = head.status > STATUS_OK && head.status <= STATUS_INTERNAL;
        return error_set(e, known ? (enum status)head.status : STATUS_INVALID, "%s",
                         worker->piece.data);
    }
    bool sound = head.kind == PIECE_FACTS && worker->piece.size >= sizeof piece;
    if (sound) memcpy(&piece, worker->piece.data, sizeof piece);
    sound =
        sound && piece.n_pages <= INT32_MAX / 2 && piece.title <= worker->piece.size - sizeof piece;
    if (!sound)
        return error_set(e, STATUS_INVALID, "%s: its parser writes nonsense", worker->file->name);
    const char *at = worker->piece.data + sizeof piece;
    facts->n_pages = worker->n_pages = (int)piece.n_pages;
    buffer_append(&facts->title, at, piece.title);
    buffer_append(&facts->bookmarks, at + piece.title,
                  worker->piece.size - sizeof piece - piece.title);
    return STATUS_OK;
}

/* A page. */

/* Until when the page has time: its own, or the file's. */
static double page_until(const struct pdf_worker *worker) {
    double until = time_now() + PAGE_SECONDS, file = worker->file->limits.until;
    return file > 0 && file < until ? file : until;
}

static void take_record(const struct pdf_worker *worker, struct buffer *record) {
    buffer_clear(record);
    buffer_append(record, worker->piece.data, worker->piece.size);
}

/* The pieces of one page; `words` is what was kept of it last. */
static enum status read_pieces(struct pdf_worker *worker, struct buffer *words,
                               enum page_outcome *outcome, struct error *why) {
    for (;;) {
        struct pdf_piece_head head;
        if (read_piece(worker, &head, why)) return why->status;
        if (head.kind == PIECE_WORDS || head.kind == PIECE_PAGE) take_record(worker, words);
        *outcome = words->size > 0 ? PAGE_HALF : PAGE_LOST;
        if (head.kind == PIECE_PAGE) *outcome = PAGE_READ;
        if (head.kind == PIECE_PAGE) return STATUS_OK;
        if (head.kind == PIECE_LOST && is_message(&worker->piece)) {
            error_set(why, STATUS_INVALID, "%s", worker->piece.data);
            return STATUS_OK;
        }
        if (head.kind != PIECE_WORDS) return error_set(why, STATUS_INVALID, "its reader ended");
    }
}

/* Another process reads what is behind page i. */
static void replace(struct pdf_worker *worker, int i) {
    struct pdf_facts facts = {0};
    worker->lost = true;
    if (i + worker->step >= worker->n_pages) return;
    worker->job.limits.until = page_until(worker);
    if (begin(worker, i + worker->step, &worker->end) == STATUS_OK)
        pdf_worker_facts(worker, &facts, &worker->end);
    buffer_free(&facts.title);
    buffer_free(&facts.bookmarks);
}

static void explain_loss(struct pdf_worker *worker, double began, struct error *why) {
    const struct extract_limits *limits = &worker->file->limits;
    bool late = time_now() - began >= PAGE_SECONDS;
    struct error end = {0};
    explain_end(worker, &end);
    if (end.status == STATUS_TOO_LARGE)
        error_set(why, end.status, "it needs more than %zu MiB of memory",
                  worker->job.limits.memory >> 20);
    else if (end.status)
        *why = end;
    else if (limits->until > 0 && time_now() >= limits->until)
        error_set(why, STATUS_INVALID, "the time for the file, %d seconds, is over",
                  limits->seconds);
    else if (late)
        error_set(why, STATUS_INVALID, "it takes over %d seconds", PAGE_SECONDS);
    else
        error_set(why, STATUS_INVALID, "it is damaged, or takes more than %zu MiB of memory",
                  worker->job.limits.memory >> 20);
}

enum status pdf_worker_page(struct pdf_worker *worker, int i, struct buffer *records,
                            enum page_outcome *outcome, struct error *why) {
    struct buffer words = {0};
    double began = time_now();
    *outcome = PAGE_LOST;
    *why = worker->end;
    if (!worker->runs) return STATUS_OK;
    worker->job.limits.until = page_until(worker);
    enum status status = read_pieces(worker, &words, outcome, why);
    buffer_append(records, words.data, words.size);
    buffer_free(&words);
    if (status == STATUS_OK) return STATUS_OK;
    bool cancelled = status == STATUS_CANCELLED;
    if (cancelled) return status;
    explain_loss(worker, began, why);
    worker->end = *why;
    if (worker->file->limits.until == 0 || time_now() < worker->file->limits.until)
        replace(worker, i);
    return STATUS_OK;
}
