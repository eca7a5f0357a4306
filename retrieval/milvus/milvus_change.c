/* retrieval/milvus/milvus_change.c: what changes documents in Milvus. See remote.h.
 *
 * Rows are asked for by their keys, so that a change takes no longer in a large collection. The
 * rows of a document are those of chunks 0, 1, 2 ... without a gap: they come in this order, but
 * for the first of a document that takes several requests, which comes last, and they go in the
 * other. Rows that a broken-off change has left behind a document's end are found there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/generation/document_image.h"
#include "retrieval/milvus/labels.h"
#include "retrieval/milvus/milvus_private.h"

/* Rows of one request, and bytes of it at about which it is sent. Documents that are asked for at
 * once. */
enum { PUT_ROWS = 1000, PUT_BYTES = 4 << 20, PUT_DOCUMENTS = MILVUS_PAGE / 2 };

static void note_written(struct milvus_collection *milvus, const struct buffer *reply) {
    struct text_span rest = {reply->data, reply->size};
    struct wire_field field;
    enum { TIMESTAMP = 9 };
    while (wire_next(&rest, &field) == WIRE_FIELD) {
        if (field.number != TIMESTAMP || field.kind != WIRE_INT) continue;
        long long now = field.value, before = atomic_load(&milvus->written);
        while (now > before && !atomic_compare_exchange_weak(&milvus->written, &before, now))
            continue;
    }
}

static enum status call_change(struct milvus_collection *milvus, struct milvus_message *message,
                               struct error *e) {
    struct buffer reply = {0};
    enum status status = milvus_ask(milvus, message, &reply, e);
    if (status == STATUS_OK) note_written(milvus, &reply);
    buffer_free(&reply);
    return status;
}

/* Asking: documents that are to be changed, as they are. */

struct change_subject {
    const char *id;
    char key[DOCUMENT_ID_SIZE]; /* that the keys of its rows begin with */
    int n_chunks;               /* that it will have */
    struct milvus_head head;    /* of what is there; n_chunks 0: nothing */
    bool beyond;                /* a row is there behind its last chunk */
};

static void subject_set(struct change_subject *subject, const char *id, int n_chunks) {
    subject->id = id;
    subject->n_chunks = n_chunks;
    document_id_of_path(id, subject->key);
}

static void subjects_free(struct change_subject *subjects, int n) {
    for (int i = 0; i < n; i++) milvus_head_free(&subjects[i].head);
    free(subjects);
}

/* Row `row` of an answer: to all subjects that it is of. */
static enum status take_subject(struct change_subject *subjects, int n,
                                const struct answer_rows *rows, int row, struct error *e) {
    const struct text_span *keys;
    const int64_t *chunks;
    enum status status = answer_texts(rows, COLUMN_KEY, &keys, e);
    if (status == STATUS_OK) status = answer_numbers(rows, COLUMN_CHUNK, &chunks, e);
    if (status == STATUS_OK) status = milvus_check_keys(keys + row, 1, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        struct change_subject *subject = &subjects[i];
        if (memcmp(subject->key, keys[row].text, DOCUMENT_ID_SIZE - 1) != 0) continue;
        if (chunks[row] == subject->n_chunks) subject->beyond = true;
        if (chunks[row] == 0 && subject->head.n_chunks == 0)
            status = milvus_head_read(&subject->head, rows, row, e);
    }
    return status;
}

/* Fills in up to PUT_DOCUMENTS of different ids. */
static enum status ask_subjects(struct milvus_collection *milvus, struct change_subject *subjects,
                                int n, struct error *e) {
    static const char *const columns[] = {COLUMN_KEY, COLUMN_CHUNK, COLUMN_CONTENT, COLUMN_CHUNKS,
                                          COLUMN_HEAD};
    struct buffer expression = {0}, reply = {0};
    struct answer_rows rows;
    for (int i = 0; i < n; i++)
        buffer_printf(&expression, "%s\"%s%08x\", \"%s%08x\"", i == 0 ? COLUMN_KEY " in [" : ", ",
                      subjects[i].key, 0, subjects[i].key, (unsigned)subjects[i].n_chunks);
    buffer_append_string(&expression, "]");
    struct milvus_query query = {.expression = expression.data,
                                 .columns = columns,
                                 .n_columns = ARRAY_COUNT(columns),
                                 .sight = MILVUS_ALL};
    enum status status = milvus_query(milvus, &query, &reply, &rows, e);
    for (int i = 0; i < rows.n && status == STATUS_OK; i++)
        status = take_subject(subjects, n, &rows, i, e);
    answer_rows_free(&rows);
    buffer_free(&expression);
    buffer_free(&reply);
    return status;
}

/* Rows of a document: of chunks [first, first + n). */
struct row_range {
    const char *id;
    int first, n;
};

/* Counts those that are there; of that content only, where it is not NULL. */
static enum status count_range(struct milvus_collection *milvus, const struct row_range *range,
                               const char *content, int *n_there, struct error *e) {
    static const char *const columns[] = {COLUMN_CONTENT};
    struct buffer expression = {0}, reply = {0};
    struct answer_rows rows;
    const struct text_span *contents;
    *n_there = 0;
    milvus_express_keys(&expression, range->id, range->first, range->n);
    struct milvus_query query = {
        .expression = expression.data, .columns = columns, .n_columns = 1, .sight = MILVUS_ALL};
    enum status status = milvus_query(milvus, &query, &reply, &rows, e);
    if (status == STATUS_OK) status = answer_texts(&rows, COLUMN_CONTENT, &contents, e);
    for (int i = 0; i < rows.n && status == STATUS_OK; i++)
        *n_there += content == NULL ||
                    (contents[i].size == 32 && memcmp(contents[i].text, content, 32) == 0);
    answer_rows_free(&rows);
    buffer_free(&expression);
    buffer_free(&reply);
    return status;
}

/* Whether all rows of a document are there and of one content. */
static enum status ask_whole(struct milvus_collection *milvus, const char *id, const char *content,
                             int n_chunks, bool *whole, struct error *e) {
    enum status status = STATUS_OK;
    *whole = true;
    for (int first = 0; first < n_chunks && *whole && status == STATUS_OK; first += MILVUS_PAGE) {
        struct row_range range = {id, first, min_int(MILVUS_PAGE, n_chunks - first)};
        int n_there;
        status = count_range(milvus, &range, content, &n_there, e);
        *whole = status == STATUS_OK && n_there == range.n;
    }
    return status;
}

static struct collection_document document_of(const struct change_subject *subject) {
    return (struct collection_document){
        .id = subject->id, .path = subject->head.path, .metadata = subject->head.metadata};
}

static enum status shows_some(struct milvus_collection *milvus, const struct filter *filter,
                              const char *const *ids, int n, bool *shows, struct error *e) {
    struct change_subject *subjects = xcalloc((size_t)n, sizeof *subjects);
    for (int i = 0; i < n; i++) subject_set(&subjects[i], ids[i], 1);
    enum status status = ask_subjects(milvus, subjects, n, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        struct collection_document now = document_of(&subjects[i]);
        shows[i] = subjects[i].head.n_chunks > 0;
        if (shows[i]) status = document_ask_filter(filter, filter_allows, &now, &shows[i], e);
    }
    subjects_free(subjects, n);
    return status;
}

enum status milvus_shows_all(struct collection *collection, const struct filter *filter,
                             const char *const *ids, int n, bool *shows, struct error *e) {
    enum status status = STATUS_OK;
    for (int first = 0; first < n && status == STATUS_OK; first += PUT_DOCUMENTS)
        status = shows_some(milvus_of(collection), filter, ids + first,
                            min_int(PUT_DOCUMENTS, n - first), shows + first, e);
    return status;
}

static enum status has_some(struct milvus_collection *milvus,
                            const struct collection_document *const *documents, int n, bool *has,
                            struct error *e) {
    struct change_subject *subjects = xcalloc((size_t)n, sizeof *subjects);
    for (int i = 0; i < n; i++) subject_set(&subjects[i], documents[i]->id, 1);
    enum status status = ask_subjects(milvus, subjects, n, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        const struct milvus_head *head = &subjects[i].head;
        char content[33];
        milvus_content(documents[i], content);
        has[i] = head->n_chunks > 0 && strcmp(head->content, content) == 0;
        if (has[i])
            status = ask_whole(milvus, documents[i]->id, content, head->n_chunks, &has[i], e);
    }
    subjects_free(subjects, n);
    return status;
}

enum status milvus_has_all(struct collection *collection,
                           const struct collection_document *const *documents, int n, bool *has,
                           struct error *e) {
    enum status status = STATUS_OK;
    for (int first = 0; first < n && status == STATUS_OK; first += PUT_DOCUMENTS)
        status = has_some(milvus_of(collection), documents + first,
                          min_int(PUT_DOCUMENTS, n - first), has + first, e);
    return status;
}

/* Deleting. */

static enum status delete_keys(struct milvus_collection *milvus, const char *id, int first, int n,
                               struct error *e) {
    struct milvus_message message = {.method = "Delete"};
    struct buffer expression = {0};
    milvus_express_keys(&expression, id, first, n);
    wire_put_string(&message.body, 3, milvus->address.collection);
    wire_put_string(&message.body, 5, expression.data);
    enum status status = call_change(milvus, &message, e);
    buffer_free(&expression);
    return status;
}

/* Deletes the rows of chunks [first, end) and those that follow them. */
static enum status delete_from(struct milvus_collection *milvus, const char *id, int first, int end,
                               struct error *e) {
    int n_there = MILVUS_PAGE;
    enum status status = STATUS_OK;
    while (n_there == MILVUS_PAGE && status == STATUS_OK && end <= INT32_MAX - MILVUS_PAGE) {
        status = count_range(milvus, &(struct row_range){id, end, MILVUS_PAGE}, NULL, &n_there, e);
        end += n_there > 0 ? MILVUS_PAGE : 0;
    }
    while (end > first && status == STATUS_OK) {
        int n = min_int(MILVUS_PAGE, end - first);
        end -= n;
        status = delete_keys(milvus, id, end, n, e);
    }
    return status;
}

/* Rows that a broken-off change has left of a document, without its first, go too where all may be
 * changed. */
enum status milvus_delete(struct collection *collection, const struct filter *filter,
                          const char *id, struct error *e) {
    struct milvus_collection *milvus = milvus_of(collection);
    struct change_subject *subject = xcalloc(1, sizeof *subject);
    bool allowed = true;
    subject_set(subject, id, 1);
    enum status status = ask_subjects(milvus, subject, 1, e);
    const struct milvus_head *head = &subject->head;
    int end = head->n_chunks;
    bool there = end > 0 || (subject->beyond && filter == NULL);
    struct collection_document now = document_of(subject);
    if (status == STATUS_OK && end > 0 && filter)
        status = document_ask_filter(filter, filter_allows, &now, &allowed, e);
    subjects_free(subject, 1);
    if (status == STATUS_OK && !(there && allowed))
        return error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", id);
    return status ? status : delete_from(milvus, id, 0, max_int(end, 1), e);
}

/* Putting. */

/* Documents that are put together, in order. */
struct put_run {
    struct milvus_collection *remote;
    const struct filter *filter;
    struct document_put *puts;       /* [n] */
    struct change_subject *subjects; /* [n] */
    int n;
    struct milvus_batch batch; /* rows that wait to be sent */
};

/* Whether the client may put it: the new one and the one that is there. */
static enum status check_allowed(const struct filter *filter, const struct change_subject *subject,
                                 struct document_put *put) {
    const struct collection_document *document = put->document;
    struct error *e = &put->error;
    bool allowed = true;
    if (filter == NULL) return STATUS_OK;
    struct collection_document now = document_of(subject);
    enum status status = document_ask_filter(filter, filter_admits, document, &allowed, e);
    if (status == STATUS_OK && allowed && subject->head.n_chunks > 0)
        status = document_ask_filter(filter, filter_allows, &now, &allowed, e);
    if (status || allowed) return put->status = status;
    put->effect = CHANGE_REFUSED;
    return put->status = filter_refuse(filter, e);
}

/* A document as every collection refuses it, or one that could not be read back. */
static enum status check_document(const struct milvus_collection *milvus,
                                  struct document_put *put) {
    struct buffer image = {0};
    if (put->document->n_chunks > MILVUS_CHUNKS)
        return put->status =
                   error_set(&put->error, STATUS_TOO_LARGE,
                             "document %.200s: %d chunks, and one in Milvus has at most %d: split "
                             "it into smaller files",
                             put->document->id, put->document->n_chunks, MILVUS_CHUNKS);
    put->status =
        document_image_write(&image, put->document, put->vectors, &milvus->info, &put->error);
    buffer_free(&image);
    return put->status;
}

static enum status send_batch(struct put_run *run, struct error *e) {
    struct milvus_message message = {.method = "Upsert"};
    if (run->batch.n == 0) return STATUS_OK;
    wire_put_string(&message.body, 3, run->remote->address.collection);
    milvus_batch_write(&message.body, &run->batch);
    milvus_batch_clear(&run->batch);
    return call_change(run->remote, &message, e);
}

/* Adds rows [first, first + n) of a document. The batch is sent where it has become large enough.
 */
static enum status add_rows(struct put_run *run, struct document_put *put,
                            const struct milvus_rows *rows, int first, int n, struct error *e) {
    put->status = milvus_batch_add(&run->batch, rows, first, n, &put->error);
    bool full = run->batch.n >= PUT_ROWS || milvus_batch_bytes(&run->batch) >= PUT_BYTES;
    return full ? send_batch(run, e) : STATUS_OK;
}

/* Whether a document that takes several requests fits into rows, before the first of them. */
static enum status check_rows(struct document_put *put, const struct milvus_rows *rows, int most) {
    struct milvus_batch batch = {0};
    for (int first = 0; first < rows->n_chunks && put->status == STATUS_OK; first += most) {
        put->status = milvus_batch_add(&batch, rows, first, min_int(most, rows->n_chunks - first),
                                       &put->error);
        milvus_batch_clear(&batch);
    }
    milvus_batch_free(&batch);
    return put->status;
}

/* The first chunk of a document that takes several requests comes last: it tells of the document.
 */
static enum status add_document(struct put_run *run, int i, const char *content, struct error *e) {
    struct document_put *put = &run->puts[i];
    const struct collection_info *info = &run->remote->info;
    struct milvus_rows rows = {.document = put->document,
                               .vectors = put->vectors,
                               .content = content,
                               .n_chunks = run->subjects[i].n_chunks,
                               .dim = info->dim};
    size_t row_bytes =
        (size_t)info->dim * sizeof(float) + 2048 + put->document->text.size / (size_t)rows.n_chunks;
    int most = max_int(1, min_int(PUT_ROWS, (int)((size_t)PUT_BYTES / row_bytes)));
    enum status status = STATUS_OK;
    if (rows.n_chunks <= most) return add_rows(run, put, &rows, 0, rows.n_chunks, e);
    if (check_rows(put, &rows, most)) return STATUS_OK;
    for (int first = 1; first < rows.n_chunks && status == STATUS_OK; first += most)
        status = add_rows(run, put, &rows, first, min_int(most, rows.n_chunks - first), e);
    if (status == STATUS_OK) status = send_batch(run, e);
    return status ? status : add_rows(run, put, &rows, 0, 1, e);
}

/* One whose rows are all there already is left alone. */
static enum status put_document(struct put_run *run, int i, struct error *e) {
    struct document_put *put = &run->puts[i];
    const struct change_subject *subject = &run->subjects[i];
    char content[33];
    bool whole = false;
    if (check_allowed(run->filter, subject, put)) return STATUS_OK;
    milvus_content(put->document, content);
    bool same =
        subject->head.n_chunks == subject->n_chunks && strcmp(subject->head.content, content) == 0;
    if (same && ask_whole(run->remote, subject->id, content, subject->n_chunks, &whole, e))
        return e->status;
    if (whole) return STATUS_OK;
    put->effect = subject->head.n_chunks > 0 ? CHANGE_REPLACED : CHANGE_ADDED;
    return add_document(run, i, content, e);
}

/* Rows that an earlier version of a document had more. */
static enum status delete_rest(struct put_run *run, int i, struct error *e) {
    const struct document_put *put = &run->puts[i];
    const struct change_subject *subject = &run->subjects[i];
    bool rest = subject->beyond || subject->head.n_chunks > subject->n_chunks;
    if (put->status || !rest) return STATUS_OK;
    return delete_from(run->remote, subject->id, subject->n_chunks,
                       max_int(subject->head.n_chunks, subject->n_chunks), e);
}

/* A failure is Milvus'; documents' own are theirs. */
static enum status carry_out_run(struct put_run *run, struct error *e) {
    enum status status = ask_subjects(run->remote, run->subjects, run->n, e);
    for (int i = 0; i < run->n && status == STATUS_OK; i++)
        if (run->puts[i].status == STATUS_OK) status = put_document(run, i, e);
    if (status == STATUS_OK) status = send_batch(run, e);
    for (int i = 0; i < run->n && status == STATUS_OK; i++) status = delete_rest(run, i, e);
    return status;
}

static enum status put_some(struct milvus_collection *milvus, const struct filter *filter,
                            struct document_put *puts, int n, struct error *e) {
    struct put_run run = {.remote = milvus, .filter = filter, .puts = puts, .n = n};
    run.subjects = xcalloc((size_t)n, sizeof *run.subjects);
    for (int i = 0; i < n; i++) {
        subject_set(&run.subjects[i], puts[i].document->id, puts[i].document->n_chunks);
        check_document(milvus, &puts[i]);
    }
    enum status status = carry_out_run(&run, e);
    milvus_batch_free(&run.batch);
    subjects_free(run.subjects, n);
    return status;
}

/* Each document is done, or has a status; where Milvus failed, those without one of their own have
 * its. */
static void finish_puts(struct document_put *puts, int n, enum status status,
                        const struct error *e) {
    for (int i = 0; i < n; i++) {
        struct document_put *put = &puts[i];
        if (status && put->status == STATUS_OK) {
            put->status = status;
            put->error = *e;
        }
        if (put->status && put->effect != CHANGE_REFUSED) put->effect = CHANGE_NOTHING;
    }
}

/* How many of the first documents have ids of their own, up to PUT_DOCUMENTS. */
static int count_different(const struct document_put *puts, int n) {
    for (int i = 1; i < min_int(n, PUT_DOCUMENTS); i++)
        for (int j = 0; j < i; j++)
            if (strcmp(puts[i].document->id, puts[j].document->id) == 0) return i;
    return min_int(n, PUT_DOCUMENTS);
}

void milvus_put_all(struct collection *collection, const struct filter *filter,
                    struct document_put *puts, int n) {
    struct error e;
    enum status status = STATUS_OK;
    for (int i = 0; i < n; i++) {
        puts[i].effect = CHANGE_NOTHING;
        puts[i].status = STATUS_OK;
    }
    for (int first = 0; first < n;) {
        int n_run = count_different(puts + first, n - first);
        if (status == STATUS_OK)
            status = put_some(milvus_of(collection), filter, puts + first, n_run, &e);
        finish_puts(puts + first, n_run, status, &e);
        first += n_run;
    }
}
