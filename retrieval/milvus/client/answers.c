/* retrieval/milvus/client/answers.c: see answers.h. Field numbers are those of milvus.proto,
 * schema.proto and common.proto of milvus-io/milvus-proto, which only ever adds. */
#include "retrieval/milvus/client/answers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum status broken(struct error *e, const char *what) {
    return error_set(e, STATUS_CORRUPT, "an answer of Milvus: %s", what);
}

/* Calls take for each field of a message, until one fails. */
typedef enum status field_taker(void *context, const struct wire_field *f, struct error *e);

static enum status walk_fields(struct text_span message, field_taker *take, void *context,
                               struct error *e) {
    struct wire_field field;
    enum wire_step step;
    while ((step = wire_next(&message, &field)) == WIRE_FIELD)
        if (take(context, &field, e)) return e->status;
    return step == WIRE_END ? STATUS_OK : broken(e, "a field is cut off");
}

static bool is_message(const struct wire_field *field, int number) {
    return field->number == number && field->kind == WIRE_BYTES;
}

/* Status. */

enum milvus_code {
    OLD_COLLECTION_NOT_EXISTS = 4,
    OLD_COLLECTION_NAME_NOT_FOUND = 28,
    OLD_NOT_SHARD_LEADER = 45,
    OLD_NO_REPLICA = 46,
    OLD_RATE_LIMIT = 49,
    OLD_TIME_TICK_DELAY = 55,
    OLD_NOT_READY = 56,
    CODE_SERVICE_NOT_READY = 1,
    CODE_SERVICE_UNAVAILABLE = 2,
    CODE_RATE_LIMIT = 8,
    CODE_COLLECTION_NOT_FOUND = 100,
    CODE_COLLECTION_NOT_LOADED = 101,
    CODE_COLLECTION_NOT_FULLY_LOADED = 103
};

struct told_status {
    int64_t old_code, code, retriable;
    struct text_span reason;
};

static enum status take_status(void *context, const struct wire_field *field, struct error *e) {
    struct told_status *status = context;
    (void)e;
    if (field->number == 1 && field->kind == WIRE_INT) status->old_code = field->value;
    if (field->number == 2 && field->kind == WIRE_BYTES) status->reason = field->bytes;
    if (field->number == 3 && field->kind == WIRE_INT) status->code = field->value;
    if (field->number == 4 && field->kind == WIRE_INT) status->retriable = field->value;
    return STATUS_OK;
}

/* The server is there and cannot at the moment. */
static bool is_for_now(const struct told_status *status) {
    switch (status->code) {
        case CODE_SERVICE_NOT_READY:
        case CODE_SERVICE_UNAVAILABLE:
        case CODE_RATE_LIMIT:
        case CODE_COLLECTION_NOT_LOADED:
        case CODE_COLLECTION_NOT_FULLY_LOADED: return true;
        default: break;
    }
    switch (status->old_code) {
        case OLD_NOT_SHARD_LEADER:
        case OLD_NO_REPLICA:
        case OLD_RATE_LIMIT:
        case OLD_TIME_TICK_DELAY:
        case OLD_NOT_READY: return true;
        default: break;
    }
    return status->retriable != 0;
}

static enum status judge_status(const struct told_status *status, bool *again, struct error *e) {
    bool is_missing = status->code == CODE_COLLECTION_NOT_FOUND ||
                      (status->code == 0 && (status->old_code == OLD_COLLECTION_NOT_EXISTS ||
                                             status->old_code == OLD_COLLECTION_NAME_NOT_FOUND));
    int size = status->reason.size < 500 ? (int)status->reason.size : 500;
    *again = false;
    if (status->code == 0 && status->old_code == 0) return STATUS_OK;
    if (is_missing)
        return error_set(e, STATUS_NOT_FOUND, "%.*s", size,
                         status->reason.text ? status->reason.text : "");
    /* Anything else is a server that does not do what it should: another one, or the same a moment
     * later, may. */
    *again = is_for_now(status);
    return error_set(e, STATUS_BUSY, "it says: %.*s (code %lld)", size,
                     status->reason.text ? status->reason.text : "",
                     (long long)(status->code ? status->code : status->old_code));
}

static enum status take_first(void *context, const struct wire_field *field, struct error *e) {
    (void)e;
    if (is_message(field, 1)) *(struct text_span *)context = field->bytes;
    return STATUS_OK;
}

enum status answer_status_check(struct text_span answer, bool is_status, bool *again,
                                struct error *e) {
    struct told_status told = {0};
    struct text_span message = {"", 0};
    *again = true;
    if (is_status) message = answer;
    if (!is_status && walk_fields(answer, take_first, &message, e))
        return error_set(e, STATUS_BUSY, "%s", e->text);
    if (walk_fields(message, take_status, &told, e))
        return error_set(e, STATUS_BUSY, "%s", e->text);
    return judge_status(&told, again, e);
}

/* Columns. */

static enum status grow_texts(struct answer_column *column, struct text_span bytes,
                              struct error *e) {
    if (column->n >= ANSWER_ROWS) return broken(e, "more rows than anybody asks for");
    if ((column->n & (column->n - 1)) == 0)
        column->texts = xrealloc(column->texts,
                                 (size_t)(column->n ? 2 * column->n : 1) * sizeof *column->texts);
    column->texts[column->n] = bytes;
    column->n++;
    return STATUS_OK;
}

static enum status grow_numbers(struct answer_column *column, int64_t value, struct error *e) {
    if (column->n >= ANSWER_ROWS) return broken(e, "more rows than anybody asks for");
    if ((column->n & (column->n - 1)) == 0)
        column->numbers = xrealloc(
            column->numbers, (size_t)(column->n ? 2 * column->n : 1) * sizeof *column->numbers);
    column->numbers[column->n] = value;
    column->n++;
    return STATUS_OK;
}

/* StringArray, JSONArray */
static enum status take_text(void *context, const struct wire_field *field, struct error *e) {
    return is_message(field, 1) ? grow_texts(context, field->bytes, e) : STATUS_OK;
}

/* LongArray */
static enum status take_number(void *context, const struct wire_field *field, struct error *e) {
    struct text_span rest = field->bytes;
    bool is_broken = false;
    int64_t value;
    if (field->number != 1) return STATUS_OK;
    if (field->kind == WIRE_INT) return grow_numbers(context, field->value, e);
    if (field->kind != WIRE_BYTES) return broken(e, "a number of an unknown kind");
    while (wire_next_packed(&rest, &value, &is_broken))
        if (grow_numbers(context, value, e)) return e->status;
    return is_broken ? broken(e, "a list of numbers is cut off") : STATUS_OK;
}

/* ScalarField */
static enum status take_scalars(void *context, const struct wire_field *field, struct error *e) {
    struct answer_column *column = context;
    bool is_text = is_message(field, 6) || is_message(field, 9), is_number = is_message(field, 3);
    if ((is_text && column->numbers) || (is_number && column->texts))
        return broken(e, "a column of two kinds");
    if (is_text) return walk_fields(field->bytes, take_text, column, e);
    return is_number ? walk_fields(field->bytes, take_number, column, e) : STATUS_OK;
}

/* FloatArray */
static enum status take_floats(void *context, const struct wire_field *field, struct error *e) {
    if (field->number != 1) return STATUS_OK;
    if (field->kind != WIRE_BYTES || field->bytes.size % sizeof(float) != 0)
        return broken(e, "numbers of a vector are cut off");
    *(struct text_span *)context = field->bytes;
    return STATUS_OK;
}

/* VectorField */
static enum status take_vectors(void *context, const struct wire_field *field, struct error *e) {
    struct answer_column *column = context;
    if (field->number == 1 && field->kind == WIRE_INT) {
        if (field->value < 1 || field->value > 1 << 16)
            return broken(e, "vectors of an impossible length");
        column->dim = (int)field->value;
    }
    return is_message(field, 2) ? walk_fields(field->bytes, take_floats, &column->vectors, e)
                                : STATUS_OK;
}

/* FieldData */
static enum status take_column(void *context, const struct wire_field *field, struct error *e) {
    struct answer_column *column = context;
    if (is_message(field, 2)) column->name = field->bytes;
    if (is_message(field, 3)) return walk_fields(field->bytes, take_scalars, column, e);
    return is_message(field, 4) ? walk_fields(field->bytes, take_vectors, column, e) : STATUS_OK;
}

static enum status add_column(struct answer_rows *rows, struct text_span message, struct error *e) {
    if (rows->n_columns == ANSWER_COLUMNS) return broken(e, "more columns than were asked for");
    struct answer_column *column = &rows->columns[rows->n_columns];
    rows->n_columns++;
    if (walk_fields(message, take_column, column, e)) return e->status;
    if (column->vectors.size == 0) return STATUS_OK;
    if (column->dim < 1 || column->texts || column->numbers)
        return broken(e, "vectors without a length");
    size_t row = (size_t)column->dim * sizeof(float);
    if (column->vectors.size % row != 0 || column->vectors.size / row > ANSWER_ROWS)
        return broken(e, "a vector is cut off");
    column->n = (int)(column->vectors.size / row);
    return STATUS_OK;
}

/* All columns are of one length. */
static enum status measure_rows(struct answer_rows *rows, struct error *e) {
    rows->n = rows->n_columns > 0 ? rows->columns[0].n : 0;
    for (int i = 1; i < rows->n_columns; i++)
        if (rows->columns[i].n != rows->n)
            return broken(e, "its columns are not of the same length");
    return STATUS_OK;
}

static enum status take_query_field(void *context, const struct wire_field *field,
                                    struct error *e) {
    return is_message(field, 2) ? add_column(context, field->bytes, e) : STATUS_OK;
}

enum status answer_rows_read(struct answer_rows *out, struct text_span answer, struct error *e) {
    *out = (struct answer_rows){0};
    enum status status = walk_fields(answer, take_query_field, out, e);
    return status ? status : measure_rows(out, e);
}

void answer_rows_free(struct answer_rows *rows) {
    for (int i = 0; i < rows->n_columns; i++) {
        free(rows->columns[i].texts);
        free(rows->columns[i].numbers);
    }
    *rows = (struct answer_rows){0};
}

static const struct answer_column *find_column(const struct answer_rows *rows, const char *name) {
    for (int i = 0; i < rows->n_columns; i++) {
        struct text_span own = rows->columns[i].name;
        if (own.size == strlen(name) && memcmp(own.text, name, own.size) == 0)
            return &rows->columns[i];
    }
    return NULL;
}

enum status answer_texts(const struct answer_rows *rows, const char *name,
                         const struct text_span **out, struct error *e) {
    const struct answer_column *column = find_column(rows, name);
    *out = column ? column->texts : NULL;
    if (rows->n == 0 || *out) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "an answer of Milvus has no texts \"%s\"", name);
}

enum status answer_numbers(const struct answer_rows *rows, const char *name, const int64_t **out,
                           struct error *e) {
    const struct answer_column *column = find_column(rows, name);
    *out = column ? column->numbers : NULL;
    if (rows->n == 0 || *out) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "an answer of Milvus has no numbers \"%s\"", name);
}

/* Hits. */

static enum status take_result(void *context, const struct wire_field *field, struct error *e) {
    struct answer_hits *hits = context;
    struct answer_column counts = {0};
    if (is_message(field, 3)) return add_column(&hits->rows, field->bytes, e);
    if (is_message(field, 4)) {
        hits->scores = field->bytes;
        return field->bytes.size % sizeof(float) == 0 ? STATUS_OK : broken(e, "scores are cut off");
    }
    if (field->number != 6) return STATUS_OK;
    struct wire_field list = *field;
    list.number = 1;
    free(hits->counts);
    hits->counts = NULL;
    hits->n_queries = 0;
    enum status status = take_number(&counts, &list, e);
    hits->counts = counts.numbers;
    hits->n_queries = counts.n;
    return status;
}

static enum status take_hits(void *context, const struct wire_field *field, struct error *e) {
    return is_message(field, 2) ? walk_fields(field->bytes, take_result, context, e) : STATUS_OK;
}

static enum status check_hits(struct answer_hits *hits, int n_queries, struct error *e) {
    int64_t sum = 0;
    if (measure_rows(&hits->rows, e)) return e->status;
    if (hits->n_queries == 0 && hits->rows.n == 0) {
        free(hits->counts);
        hits->counts = xcalloc((size_t)n_queries, sizeof *hits->counts);
        hits->n_queries = n_queries;
    }
    if (hits->n_queries != n_queries) return broken(e, "it answers another number of queries");
    for (int i = 0; i < n_queries; i++) {
        if (hits->counts[i] < 0 || hits->counts[i] > hits->rows.n - sum)
            return broken(e, "the numbers of its hits do not fit");
        sum += hits->counts[i];
    }
    if (sum != hits->rows.n || hits->scores.size != (size_t)sum * sizeof(float))
        return broken(e, "the numbers of its hits do not fit");
    for (int i = 0; i < hits->rows.n; i++)
        if (!isfinite(answer_float(hits->scores, i))) return broken(e, "a similarity is no number");
    return STATUS_OK;
}

enum status answer_hits_read(struct answer_hits *out, struct text_span answer, int n_queries,
                             struct error *e) {
    *out = (struct answer_hits){0};
    enum status status = walk_fields(answer, take_hits, out, e);
    return status ? status : check_hits(out, n_queries, e);
}

void answer_hits_free(struct answer_hits *hits) {
    answer_rows_free(&hits->rows);
    free(hits->counts);
    *hits = (struct answer_hits){0};
}

float answer_float(struct text_span floats, int i) {
    float value;
    memcpy(&value, floats.text + (size_t)i * sizeof value, sizeof value);
    return value;
}

/* Others. */

static enum status take_description(void *context, const struct wire_field *field,
                                    struct error *e) {
    (void)e;
    if (is_message(field, 2)) *(struct text_span *)context = field->bytes;
    return STATUS_OK;
}

enum status answer_description_read(struct buffer *out, struct text_span answer, struct error *e) {
    struct text_span schema = {"", 0}, description = {"", 0};
    if (walk_fields(answer, take_description, &schema, e) ||
        walk_fields(schema, take_description, &description, e))
        return e->status;
    buffer_clear(out);
    buffer_append(out, description.text, description.size);
    buffer_append_string(out, "");
    return STATUS_OK;
}

static enum status take_second(void *context, const struct wire_field *field, struct error *e) {
    (void)e;
    if (field->number == 2 && field->kind == WIRE_INT) *(int64_t *)context = field->value;
    return STATUS_OK;
}

enum status answer_is_loaded(bool *out, struct text_span answer, struct error *e) {
    enum { LOADED = 3 };
    int64_t state = 0;
    enum status status = walk_fields(answer, take_second, &state, e);
    *out = state == LOADED;
    return status;
}

enum status answer_truth(bool *out, struct text_span answer, struct error *e) {
    int64_t value = 0;
    enum status status = walk_fields(answer, take_second, &value, e);
    *out = value != 0;
    return status;
}
