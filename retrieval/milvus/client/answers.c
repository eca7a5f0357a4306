/* retrieval/milvus/client/answers.c: see answers.h. Field numbers are those of milvus.proto, schema.proto and
 * common.proto of milvus-io/milvus-proto, which only ever adds. */
#include "retrieval/milvus/client/answers.h"

#include <stdlib.h>
#include <string.h>

static enum status broken(struct error *e, const char *what) {
    return error_set(e, STATUS_CORRUPT, "an answer of Milvus: %s", what);
}

/* Calls take for each field of a message, until one fails. */
typedef enum status field_taker(void *context, const struct wire_field *f, struct error *e);

static enum status walk_fields(struct text_span message, field_taker *take, void *context, struct error *e) {
    struct wire_field field;
    enum wire_step step;
    while ((step = wire_next(&message, &field)) == WIRE_FIELD)
        if (take(context, &field, e)) return e->status;
    return step == WIRE_END ? STATUS_OK : broken(e, "a field is cut off");
}

static bool is_message(const struct wire_field *f, int number) { return f->number == number && f->kind == WIRE_BYTES; }

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

static enum status take_status(void *context, const struct wire_field *f, struct error *e) {
    struct told_status *s = context;
    (void)e;
    if (f->number == 1 && f->kind == WIRE_INT) s->old_code = f->value;
    if (f->number == 2 && f->kind == WIRE_BYTES) s->reason = f->bytes;
    if (f->number == 3 && f->kind == WIRE_INT) s->code = f->value;
    if (f->number == 4 && f->kind == WIRE_INT) s->retriable = f->value;
    return STATUS_OK;
}

/* The server is there and cannot at the moment. */
static bool is_for_now(const struct told_status *s) {
    switch (s->code) {
        case CODE_SERVICE_NOT_READY:
        case CODE_SERVICE_UNAVAILABLE:
        case CODE_RATE_LIMIT:
        case CODE_COLLECTION_NOT_LOADED:
        case CODE_COLLECTION_NOT_FULLY_LOADED: return true;
        default: break;
    }
    switch (s->old_code) {
        case OLD_NOT_SHARD_LEADER:
        case OLD_NO_REPLICA:
        case OLD_RATE_LIMIT:
        case OLD_TIME_TICK_DELAY:
        case OLD_NOT_READY: return true;
        default: break;
    }
    return s->retriable != 0;
}

static enum status judge_status(const struct told_status *s, bool *again, struct error *e) {
    bool is_missing =
        s->code == CODE_COLLECTION_NOT_FOUND ||
        (s->code == 0 && (s->old_code == OLD_COLLECTION_NOT_EXISTS || s->old_code == OLD_COLLECTION_NAME_NOT_FOUND));
    int size = s->reason.size < 500 ? (int)s->reason.size : 500;
    *again = false;
    if (s->code == 0 && s->old_code == 0) return STATUS_OK;
    if (is_missing) return error_set(e, STATUS_NOT_FOUND, "%.*s", size, s->reason.text ? s->reason.text : "");
    /* Anything else is a server that does not do what it should: another one, or the same a moment later, may. */
    *again = is_for_now(s);
    return error_set(e, STATUS_BUSY, "it says: %.*s (code %lld)", size, s->reason.text ? s->reason.text : "",
                     (long long)(s->code ? s->code : s->old_code));
}

static enum status take_first(void *context, const struct wire_field *f, struct error *e) {
    (void)e;
    if (is_message(f, 1)) *(struct text_span *)context = f->bytes;
    return STATUS_OK;
}

enum status answer_status_check(struct text_span answer, bool is_status, bool *again, struct error *e) {
    struct told_status told = {0};
    struct text_span message = {"", 0};
    *again = true;
    if (is_status) message = answer;
    if (!is_status && walk_fields(answer, take_first, &message, e)) return error_set(e, STATUS_BUSY, "%s", e->text);
    if (walk_fields(message, take_status, &told, e)) return error_set(e, STATUS_BUSY, "%s", e->text);
    return judge_status(&told, again, e);
}

/* Columns. */

static enum status grow_texts(struct answer_column *c, struct text_span bytes, struct error *e) {
    if (c->n >= ANSWER_ROWS) return broken(e, "more rows than anybody asks for");
    if ((c->n & (c->n - 1)) == 0) c->texts = xrealloc(c->texts, (size_t)(c->n ? 2 * c->n : 1) * sizeof *c->texts);
    c->texts[c->n] = bytes;
    c->n++;
    return STATUS_OK;
}

static enum status grow_numbers(struct answer_column *c, int64_t value, struct error *e) {
    if (c->n >= ANSWER_ROWS) return broken(e, "more rows than anybody asks for");
    if ((c->n & (c->n - 1)) == 0) c->numbers = xrealloc(c->numbers, (size_t)(c->n ? 2 * c->n : 1) * sizeof *c->numbers);
    c->numbers[c->n] = value;
    c->n++;
    return STATUS_OK;
}

/* StringArray, JSONArray */
static enum status take_text(void *context, const struct wire_field *f, struct error *e) {
    return is_message(f, 1) ? grow_texts(context, f->bytes, e) : STATUS_OK;
}

/* LongArray */
static enum status take_number(void *context, const struct wire_field *f, struct error *e) {
    struct text_span rest = f->bytes;
    bool is_broken = false;
    int64_t value;
    if (f->number != 1) return STATUS_OK;
    if (f->kind == WIRE_INT) return grow_numbers(context, f->value, e);
    if (f->kind != WIRE_BYTES) return broken(e, "a number of an unknown kind");
    while (wire_next_packed(&rest, &value, &is_broken))
        if (grow_numbers(context, value, e)) return e->status;
    return is_broken ? broken(e, "a list of numbers is cut off") : STATUS_OK;
}

/* ScalarField */
static enum status take_scalars(void *context, const struct wire_field *f, struct error *e) {
    struct answer_column *c = context;
    bool is_text = is_message(f, 6) || is_message(f, 9), is_number = is_message(f, 3);
    if ((is_text && c->numbers) || (is_number && c->texts)) return broken(e, "a column of two kinds");
    if (is_text) return walk_fields(f->bytes, take_text, c, e);
    return is_number ? walk_fields(f->bytes, take_number, c, e) : STATUS_OK;
}

/* FloatArray */
static enum status take_floats(void *context, const struct wire_field *f, struct error *e) {
    if (f->number != 1) return STATUS_OK;
    if (f->kind != WIRE_BYTES || f->bytes.size % sizeof(float) != 0)
        return broken(e, "numbers of a vector are cut off");
    *(struct text_span *)context = f->bytes;
    return STATUS_OK;
}

/* VectorField */
static enum status take_vectors(void *context, const struct wire_field *f, struct error *e) {
    struct answer_column *c = context;
    if (f->number == 1 && f->kind == WIRE_INT) {
        if (f->value < 1 || f->value > 1 << 16) return broken(e, "vectors of an impossible length");
        c->dim = (int)f->value;
    }
    return is_message(f, 2) ? walk_fields(f->bytes, take_floats, &c->vectors, e) : STATUS_OK;
}

/* FieldData */
static enum status take_column(void *context, const struct wire_field *f, struct error *e) {
    struct answer_column *c = context;
    if (is_message(f, 2)) c->name = f->bytes;
    if (is_message(f, 3)) return walk_fields(f->bytes, take_scalars, c, e);
    return is_message(f, 4) ? walk_fields(f->bytes, take_vectors, c, e) : STATUS_OK;
}

static enum status add_column(struct answer_rows *r, struct text_span message, struct error *e) {
    if (r->n_columns == ANSWER_COLUMNS) return broken(e, "more columns than were asked for");
    struct answer_column *c = &r->columns[r->n_columns];
    r->n_columns++;
    if (walk_fields(message, take_column, c, e)) return e->status;
    if (c->vectors.size == 0) return STATUS_OK;
    if (c->dim < 1 || c->texts || c->numbers) return broken(e, "vectors without a length");
    size_t row = (size_t)c->dim * sizeof(float);
    if (c->vectors.size % row != 0 || c->vectors.size / row > ANSWER_ROWS) return broken(e, "a vector is cut off");
    c->n = (int)(c->vectors.size / row);
    return STATUS_OK;
}

/* All columns are of one length. */
static enum status measure_rows(struct answer_rows *r, struct error *e) {
    r->n = r->n_columns > 0 ? r->columns[0].n : 0;
    for (int i = 1; i < r->n_columns; i++)
        if (r->columns[i].n != r->n) return broken(e, "its columns are not of the same length");
    return STATUS_OK;
}

static enum status take_query_field(void *context, const struct wire_field *f, struct error *e) {
    return is_message(f, 2) ? add_column(context, f->bytes, e) : STATUS_OK;
}

enum status answer_rows_read(struct answer_rows *out, struct text_span answer, struct error *e) {
    *out = (struct answer_rows){0};
    enum status status = walk_fields(answer, take_query_field, out, e);
    return status ? status : measure_rows(out, e);
}

void answer_rows_free(struct answer_rows *r) {
    for (int i = 0; i < r->n_columns; i++) {
        free(r->columns[i].texts);
        free(r->columns[i].numbers);
    }
    *r = (struct answer_rows){0};
}

static const struct answer_column *find_column(const struct answer_rows *r, const char *name) {
    for (int i = 0; i < r->n_columns; i++) {
        struct text_span own = r->columns[i].name;
        if (own.size == strlen(name) && memcmp(own.text, name, own.size) == 0) return &r->columns[i];
    }
    return NULL;
}

enum status answer_texts(const struct answer_rows *r, const char *name, const struct text_span **out, struct error *e) {
    const struct answer_column *c = find_column(r, name);
    *out = c ? c->texts : NULL;
    if (r->n == 0 || *out) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "an answer of Milvus has no texts \"%s\"", name);
}

enum status answer_numbers(const struct answer_rows *r, const char *name, const int64_t **out, struct error *e) {
    const struct answer_column *c = find_column(r, name);
    *out = c ? c->numbers : NULL;
    if (r->n == 0 || *out) return STATUS_OK;
    return error_set(e, STATUS_CORRUPT, "an answer of Milvus has no numbers \"%s\"", name);
}

/* Hits. */

static enum status take_result(void *context, const struct wire_field *f, struct error *e) {
    struct answer_hits *h = context;
    struct answer_column counts = {0};
    if (is_message(f, 3)) return add_column(&h->rows, f->bytes, e);
    if (is_message(f, 4)) {
        h->scores = f->bytes;
        return f->bytes.size % sizeof(float) == 0 ? STATUS_OK : broken(e, "scores are cut off");
    }
    if (f->number != 6) return STATUS_OK;
    struct wire_field list = *f;
    list.number = 1;
    free(h->counts);
    h->counts = NULL;
    h->n_queries = 0;
    enum status status = take_number(&counts, &list, e);
    h->counts = counts.numbers;
    h->n_queries = counts.n;
    return status;
}

static enum status take_hits(void *context, const struct wire_field *f, struct error *e) {
    return is_message(f, 2) ? walk_fields(f->bytes, take_result, context, e) : STATUS_OK;
}

static enum status check_hits(struct answer_hits *h, int n_queries, struct error *e) {
    int64_t sum = 0;
    if (measure_rows(&h->rows, e)) return e->status;
    if (h->n_queries == 0 && h->rows.n == 0) {
        free(h->counts);
        h->counts = xcalloc((size_t)n_queries, sizeof *h->counts);
        h->n_queries = n_queries;
    }
    if (h->n_queries != n_queries) return broken(e, "it answers another number of queries");
    for (int i = 0; i < n_queries; i++) {
        if (h->counts[i] < 0 || h->counts[i] > h->rows.n - sum) return broken(e, "the numbers of its hits do not fit");
        sum += h->counts[i];
    }
    if (sum != h->rows.n || h->scores.size != (size_t)sum * sizeof(float))
        return broken(e, "the numbers of its hits do not fit");
    return STATUS_OK;
}

enum status answer_hits_read(struct answer_hits *out, struct text_span answer, int n_queries, struct error *e) {
    *out = (struct answer_hits){0};
    enum status status = walk_fields(answer, take_hits, out, e);
    return status ? status : check_hits(out, n_queries, e);
}

void answer_hits_free(struct answer_hits *h) {
    answer_rows_free(&h->rows);
    free(h->counts);
    *h = (struct answer_hits){0};
}

float answer_float(struct text_span floats, int i) {
    float value;
    memcpy(&value, floats.text + (size_t)i * sizeof value, sizeof value);
    return value;
}

/* Others. */

static enum status take_description(void *context, const struct wire_field *f, struct error *e) {
    (void)e;
    if (is_message(f, 2)) *(struct text_span *)context = f->bytes;
    return STATUS_OK;
}

enum status answer_description_read(struct buffer *out, struct text_span answer, struct error *e) {
    struct text_span schema = {"", 0}, description = {"", 0};
    if (walk_fields(answer, take_description, &schema, e) || walk_fields(schema, take_description, &description, e))
        return e->status;
    buffer_clear(out);
    buffer_append(out, description.text, description.size);
    buffer_append_string(out, "");
    return STATUS_OK;
}

static enum status take_second(void *context, const struct wire_field *f, struct error *e) {
    (void)e;
    if (f->number == 2 && f->kind == WIRE_INT) *(int64_t *)context = f->value;
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
