/* retrieval/extract/ocr/ocr_worker.c: see ocr_worker.h. */
#include "retrieval/extract/ocr/ocr_worker.h"

#include <stdio.h>
#include <string.h>

#include "config/base/utf8.h"

enum {
    LOAD_SECONDS = 20,   /* for libraries and models, once a process */
    GRACE_SECONDS = 5,   /* beyond a page's time, for what does not look at the clock */
    WAITED = 2,          /* times a page's time: others may have the processor */
    MOST_PIECE = 1 << 26 /* bytes of a record */
};

static struct sandbox_limits limits_of(const struct extract_file *file, int workers) {
    const struct extract_limits *limits = &file->limits;
    return (struct sandbox_limits){.memory = limits->memory / (size_t)workers,
                                   .until = limits->until,
                                   .cancelled = limits->cancelled,
                                   .stopped = limits->stopped};
}

void ocr_worker_open(struct ocr_worker *worker, const struct extract_file *file,
                     const struct ocr_wish *wish, int step) {
    const struct extract_ocr *ocr = &file->limits.ocr;
    *worker = (struct ocr_worker){.file = file, .wish = wish, .step = step};
    worker->job = (struct sandbox_job){.name = file->name,
                                       .input = file->bytes,
                                       .work = ocr_child_work,
                                       .prepare = ocr_child_prepare,
                                       .opens_files = wish->source->opens_files,
                                       .limits = limits_of(file, step)};
    worker->options = (struct ocr_child_options){
        .source = wish->source, .sample = wish->sample, .memory = worker->job.limits.memory};
    worker->options.seconds = ocr->page_seconds > 0 ? ocr->page_seconds : OCR_PAGE_SECONDS;
    snprintf(worker->options.languages, sizeof worker->options.languages, "%s",
             ocr->languages ? ocr->languages : "");
    const char *passwords = file->limits.passwords ? file->limits.passwords : "";
    memcpy(worker->options.passwords, passwords,
           strnlen(passwords, sizeof worker->options.passwords - 1));
    memcpy(worker->options.name, file->name, strnlen(file->name, sizeof worker->options.name - 1));
}

static void end_process(struct ocr_worker *worker, struct error *end) {
    int code;
    if (!worker->runs) return;
    worker->runs = false;
    sandbox_kill(&worker->child);
    sandbox_end(&worker->child, &code, end);
}

void ocr_worker_close(struct ocr_worker *worker) {
    struct error ignored;
    end_process(worker, &ignored);
    explicit_bzero(worker->options.passwords, sizeof worker->options.passwords);
    buffer_free(&worker->piece);
}

enum status ocr_worker_begin(struct ocr_worker *worker, int i, struct error *e) {
    struct ocr_child_options *options = &worker->options;
    options->n = 0;
    for (int at = i; at < worker->wish->n && options->n < OCR_BATCH; at += worker->step) {
        options->pages[options->n] = worker->wish->pages[at];
        options->n++;
    }
    worker->job.options = (struct text_span){(const char *)options, sizeof *options};
    worker->job.limits.seconds = LOAD_SECONDS + options->n * (options->seconds + GRACE_SECONDS);
    worker->job.limits.until = worker->file->limits.until;
    enum status status = sandbox_begin(&worker->child, &worker->job, e);
    worker->runs = worker->fresh = status == STATUS_OK;
    worker->batch = options->n;
    return status;
}

static enum status read_piece(struct ocr_worker *worker, struct ocr_piece_head *head,
                              struct error *e) {
    size_t got;
    bool whole;
    buffer_clear(&worker->piece);
    if (sandbox_read(&worker->child, head, sizeof *head, &got, e)) return e->status;
    if (got < sizeof *head || head->size > MOST_PIECE)
        return error_set(e, STATUS_INVALID, "its reader ended");
    if (sandbox_append(&worker->child, head->size, &worker->piece, &whole, e)) return e->status;
    return whole ? STATUS_OK : error_set(e, STATUS_INVALID, "its reader ended");
}

static bool is_message(const struct buffer *piece) {
    return piece->size > 0 && strlen(piece->data) == piece->size &&
           utf8_is_valid(piece->data, piece->size);
}

/* A piece that is no page. */
static void judge_piece(const struct ocr_worker *worker, const struct ocr_piece_head *head,
                        struct error *why) {
    if (head->kind == OCR_PIECE_LOST && is_message(&worker->piece))
        error_set(why, STATUS_INVALID, "%s", worker->piece.data);
    else
        error_set(why, STATUS_INVALID, "its reader writes nonsense");
}

/* The page ended its process, or did not end itself. */
static void explain_loss(struct ocr_worker *worker, bool late, struct error *why) {
    struct error end = {0};
    const struct extract_limits *limits = &worker->file->limits;
    end_process(worker, &end);
    if (end.status == STATUS_UNSUPPORTED)
        *why = end;
    else if (end.status == STATUS_TOO_LARGE)
        error_set(why, end.status, "OCR needs more than %zu MiB of memory",
                  worker->job.limits.memory >> 20);
    else if (limits->until > 0 && time_now() >= limits->until)
        error_set(why, STATUS_INVALID, "the time for all of the files is over");
    else if (late)
        error_set(why, STATUS_INVALID, "OCR takes over %d seconds", worker->options.seconds);
    else
        error_set(why, STATUS_INVALID, "OCR takes more than %zu MiB of memory, or it is damaged",
                  worker->job.limits.memory >> 20);
}

enum status ocr_worker_page(struct ocr_worker *worker, int i, struct text_span *record,
                            struct error *why) {
    struct ocr_piece_head head;
    if (worker->runs && worker->batch == 0) end_process(worker, &(struct error){0});
    if (!worker->runs && ocr_worker_begin(worker, i, why)) return STATUS_OK;
    double file = worker->file->limits.until;
    double until = time_now() + WAITED * worker->options.seconds + GRACE_SECONDS;
    if (worker->fresh) until += LOAD_SECONDS;
    worker->job.limits.until = file > 0 && file < until ? file : until;
    enum status status = read_piece(worker, &head, why);
    bool late = time_now() >= until;
    worker->fresh = false;
    worker->batch--;
    if (status == STATUS_CANCELLED) return status;
    if (status)
        explain_loss(worker, late, why);
    else if (head.kind == OCR_PIECE_PAGE && head.size > 0)
        *record = (struct text_span){worker->piece.data, worker->piece.size};
    else
        judge_piece(worker, &head, why);
    return STATUS_OK;
}

enum status ocr_count_pages(const struct extract_file *file, int *n, struct error *e) {
    const struct ocr_wish none = {.source = &scan_source};
    struct ocr_worker worker;
    struct ocr_piece_head head;
    struct ocr_count count = {0};
    ocr_worker_open(&worker, file, &none, 1);
    enum status status = ocr_worker_begin(&worker, 0, e);
    if (status == STATUS_OK) status = read_piece(&worker, &head, e);
    bool sound =
        status == STATUS_OK && head.kind == OCR_PIECE_COUNT && worker.piece.size == sizeof count;
    if (sound) memcpy(&count, worker.piece.data, sizeof count);
    if (status == STATUS_OK && (!sound || count.n == 0 || count.n > INT32_MAX / 2))
        status = error_set(e, STATUS_INVALID, "%s: its parser writes nonsense", file->name);
    if (status == STATUS_OK) *n = (int)count.n;
    ocr_worker_close(&worker);
    return status;
}
