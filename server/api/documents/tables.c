/* server/api/documents/tables.c: /v1/tables: the tables of the collection's documents, and
 * questions about one. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "retrieval/tables/table_find.h"
#include "server/api/api.h"
#include "server/api/documents/look.h"
#include "server/api/fields/table_fields.h"

/* Seconds that a question, or a list, may take. */
static const double MOST_SECONDS = 10;

struct table_job {
    struct look base; /* first */
    const struct served_model *model;
    struct principal who; /* held: no other documents are there than it sees */
    bool lists;
    struct table_request ask;
    struct table_list_request list;
};

static void job_free(struct look *base) {
    struct table_job *job = (struct table_job *)base;
    principal_release(&job->who);
    table_request_free(&job->ask);
    table_list_free(&job->list);
    free(job);
}

static struct table_search search_of(const struct table_job *job) {
    double until = time_now() + MOST_SECONDS, deadline = job->who.deadline;
    return (struct table_search){.collection = job->model->collection,
                                 .filter = principal_filter(&job->who),
                                 .deadline = deadline > 0 && deadline < until ? deadline : until};
}

/* Tables. */

static void write_columns(struct json_writer *w, const struct data_table *table) {
    static const char *const kinds[] = {[CELL_EMPTY] = "text",
                                        [CELL_TEXT] = "text",
                                        [CELL_NUMBER] = "number",
                                        [CELL_DATE] = "date"};
    put_key_array(w, "columns");
    for (int i = 0; i < table->n_columns; i++) {
        const struct data_column *column = &table->columns[i];
        put_object(w);
        put_key_string(w, "name", column->name.data);
        put_key_string(w, "type", kinds[column->kind]);
        if (column->unit.size > 0) put_key_string(w, "unit", column->unit.data);
        put_object_end(w);
    }
    put_array_end(w);
}

static void write_table(struct json_writer *w, int number, const struct data_table *table) {
    put_key_int(w, "number", number);
    put_key_string(w, "name", table->name.data);
    put_key_string(w, "sheet", table->sheet.data);
    put_key_int(w, "rows", table->n_rows);
    write_columns(w, table);
    put_key_bool(w, "cut", table->is_cut);
}

struct table_listing {
    struct json_writer w;
    int64_t n, limit;
    bool more;
};

static bool list_table(void *context, const char *id, const char *path, int number,
                       const struct data_table *table) {
    struct table_listing *listing = context;
    listing->more = listing->n == listing->limit;
    if (listing->more) return false;
    put_object(&listing->w);
    put_key_string(&listing->w, "document", id);
    put_key_string(&listing->w, "path", path);
    write_table(&listing->w, number, table);
    put_object_end(&listing->w);
    listing->n++;
    return true;
}

static enum status list_one(const struct table_job *job, struct table_listing *listing,
                            struct error *e) {
    struct data_tables tables = {0};
    struct table_search search = search_of(job);
    char *id = NULL, *path = NULL;
    enum status status = tables_find(&search, job->list.document, &tables, &id, &path, e);
    for (int i = 0; i < tables.n && status == STATUS_OK; i++)
        if (!list_table(listing, id, path, i + 1, &tables.list[i])) break;
    data_tables_free(&tables);
    free(id);
    free(path);
    return status;
}

static enum status list_tables(struct table_job *job, struct error *e) {
    struct table_listing listing = {.limit = job->list.limit};
    struct table_search search = search_of(job);
    put_begin(&listing.w, &job->base.body);
    put_object(&listing.w);
    put_key_string(&listing.w, "object", "list");
    put_key(&listing.w, "tool");
    put_raw(&listing.w, (struct text_span){table_tool_json, strlen(table_tool_json)});
    put_key_array(&listing.w, "data");
    enum status status = job->list.document
                             ? list_one(job, &listing, e)
                             : tables_walk(&search, job->list.after, list_table, &listing, e);
    if (status) return status;
    put_array_end(&listing.w);
    put_key_bool(&listing.w, "has_more", listing.more);
    put_object_end(&listing.w);
    return STATUS_OK;
}

/* Questions. */

static void write_value(struct json_writer *w, const struct table_reply *reply,
                        const struct answer_value *value) {
    struct buffer number = {0};
    if (value->kind == CELL_NUMBER) {
        cell_print_number(&number, value->number);
        put_raw(w, (struct text_span){number.data, number.size});
    } else if (value->kind == CELL_EMPTY) {
        put_null(w);
    } else {
        put_string_n(w, reply->text.data + value->text, value->size);
    }
    buffer_free(&number);
}

static void write_rows(struct json_writer *w, const struct table_reply *reply) {
    const struct answer_value *values = (const struct answer_value *)(void *)reply->values.data;
    const char *cells = reply->cells.data;
    put_key_array(w, "rows");
    for (int row = 0; row < reply->n_rows; row++) {
        put_object(w);
        put_key_array(w, "values");
        for (int i = 0; i < reply->n_columns; i++)
            write_value(w, reply, &values[(size_t)row * (size_t)reply->n_columns + (size_t)i]);
        put_array_end(w);
        put_key_string(w, "cells", cells);
        put_object_end(w);
        cells += strlen(cells) + 1;
    }
    put_array_end(w);
}

static void write_reply(struct json_writer *w, struct table_reply *reply) {
    const char *name = reply->names.data;
    put_key_array(w, "columns");
    for (int i = 0; i < reply->n_columns; i++) {
        put_string(w, name);
        name += strlen(name) + 1;
    }
    put_array_end(w);
    write_rows(w, reply);
    put_key_bool(w, "has_more", reply->has_more);
    put_key_int(w, "matched", reply->n_matched);
    buffer_append(&reply->left_out, "", 0);
    buffer_append(&reply->totals, "", 0);
    put_key_object(w, "left_out");
    put_key_int(w, "not_numbers", reply->n_left_out);
    put_key_string(w, "cells", reply->left_out.data);
    put_key_int(w, "totals", reply->n_totals);
    put_key_string(w, "total_cells", reply->totals.data);
    put_object_end(w);
}

static int number_of(const struct data_tables *tables, const struct data_table *table) {
    return (int)(table - tables->list) + 1;
}

static enum status answer_question(struct table_job *job, const struct data_tables *tables,
                                   const char *id, const char *path, struct error *e) {
    struct table_reply reply = {0};
    struct json_writer w;
    const struct data_table *table = tables_choose(tables, job->ask.table, e);
    if (table == NULL) return e->status;
    enum status status = table_ask(table, &job->ask.question, &reply, e);
    if (status == STATUS_OK) {
        put_begin(&w, &job->base.body);
        put_object(&w);
        put_key_string(&w, "object", "table.answer");
        put_key_string(&w, "document", id);
        put_key_string(&w, "path", path);
        put_key_object(&w, "table");
        write_table(&w, number_of(tables, table), table);
        put_object_end(&w);
        write_reply(&w, &reply);
        put_object_end(&w);
    }
    table_reply_free(&reply);
    return status;
}

static enum status ask_table(struct table_job *job, struct error *e) {
    struct data_tables tables = {0};
    struct table_search search = search_of(job);
    char *id = NULL, *path = NULL;
    job->ask.question.until = search.deadline;
    enum status status = tables_find(&search, job->ask.document, &tables, &id, &path, e);
    if (status == STATUS_OK) status = answer_question(job, &tables, id, path, e);
    data_tables_free(&tables);
    free(id);
    free(path);
    return status;
}

static enum status job_run(struct look *base, struct error *e) {
    struct table_job *job = (struct table_job *)base;
    enum status status = job->lists ? list_tables(job, e) : ask_table(job, e);
    if (status != STATUS_CANCELLED) return status;
    return error_set(e, STATUS_TOO_LARGE,
                     "the documents were not looked through in time: name the document by its id");
}

static struct table_job *make_job(const struct served_model *model,
                                  const struct api_request *request, bool lists) {
    struct table_job *job = xcalloc(1, sizeof *job);
    job->base = (struct look){.run = job_run, .free = job_free};
    job->model = model;
    job->who = principal_hold(request->principal);
    job->lists = lists;
    return job;
}

struct answer *tables_list(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct table_job *job = make_job(model, request, true);
    if (table_list_parse(&job->list, request->arguments, request->n_arguments, &model->limits,
                         failure))
        return look_ask(&job->base, model, waker, failure);
    look_free(&job->base);
    return NULL;
}

struct answer *tables_query(struct api *api, const struct api_request *request, struct waker waker,
                            struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct table_job *job = make_job(model, request, false);
    if (table_request_parse(&job->ask, (struct text_span){request->body, request->size},
                            &model->limits, failure))
        return look_ask(&job->base, model, waker, failure);
    look_free(&job->base);
    return NULL;
}
