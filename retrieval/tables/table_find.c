/* retrieval/tables/table_find.c: see table_find.h. */
#include "retrieval/tables/table_find.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "config/base/text.h"

/* Of a collection on another machine: records that are fetched one by one, and files of records in
 * a list. */
enum { MOST_FETCHED = 2000, MOST_RECORD_FILES = 1000 };

/* The size of the path of the file that a record is in: "prices.csv#12"; 0: it is no record. */
static size_t measure_file(const char *path) {
    const char *hash = strrchr(path, '#');
    if (hash == NULL || hash == path || hash[1] == '\0') return 0;
    return hash[1 + strspn(hash + 1, "0123456789")] == '\0' ? (size_t)(hash - path) : 0;
}

/* Whether a name is the path, or, unless the whole is asked for, its end behind a slash. */
static bool path_is(const char *path, size_t size, const char *name, bool exact) {
    struct text_span whole = {path, size};
    if (!span_ends_with(whole, name)) return false;
    size_t n = strlen(name);
    return n == size || (!exact && path[size - n - 1] == '/');
}

/* Looking for one. */

struct table_hunt {
    const struct table_search *search;
    const char *name;
    bool exact; /* the name is a whole path */
    struct data_tables *tables;
    char *id, *path;
    struct data_table records; /* of a file */
    char **ids;                /* [n_ids] of documents whose text is not at hand */
    int n_ids, capacity;
};

static void note_source(struct table_hunt *hunt, const struct stored_document *document,
                        size_t size) {
    if (hunt->path) return;
    hunt->path = xstrndup(document->path, size);
    hunt->id = xstrdup(document->id);
}

/* A document that the name means. */
static void take_document(struct table_hunt *hunt, const struct stored_document *document) {
    size_t file = measure_file(document->path);
    if (file > 0 && data_table_add_record(&hunt->records, document)) {
        note_source(hunt, document, file);
        return;
    }
    note_source(hunt, document, strlen(document->path));
    data_tables_read(hunt->tables, document);
}

static enum status hunt_document(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct table_hunt *hunt = context;
    size_t file = measure_file(document->path);
    bool means = path_is(document->path, strlen(document->path), hunt->name, hunt->exact) ||
                 (file > 0 && path_is(document->path, file, hunt->name, hunt->exact));
    (void)e;
    if (!means) return STATUS_OK;
    if (document->text.text) {
        take_document(hunt, document);
    } else if (hunt->n_ids < MOST_FETCHED) {
        hunt->ids = xgrow(hunt->ids, hunt->n_ids, &hunt->capacity, sizeof *hunt->ids);
        hunt->ids[hunt->n_ids] = xstrdup(document->id);
        hunt->n_ids++;
    }
    return STATUS_OK;
}

static enum status hunt_by_id(struct table_hunt *hunt, const char *id, struct error *e) {
    struct collection_found found;
    const struct table_search *search = hunt->search;
    if (collection_find(search->collection, search->filter, id, &found, e)) return e->status;
    take_document(hunt, &found.document);
    collection_found_release(&found);
    return STATUS_OK;
}

static enum status hunt_by_path(struct table_hunt *hunt, struct error *e) {
    const struct table_search *search = hunt->search;
    struct error gone;
    struct collection_walk walk = {.filter = search->filter,
                                   .deadline = search->deadline,
                                   .take = hunt_document,
                                   .context = hunt};
    if (collection_walk(search->collection, &walk, e)) return e->status;
    for (int i = 0; i < hunt->n_ids; i++) hunt_by_id(hunt, hunt->ids[i], &gone);
    return STATUS_OK;
}

/* The id of a record means the table that it is a row of, as the list of tables names it. */
static enum status hunt_whole_file(struct table_hunt *hunt, struct error *e) {
    if (hunt->records.cells.size == 0) return STATUS_OK;
    data_table_free(&hunt->records);
    hunt->records = (struct data_table){.n_columns = 0};
    hunt->name = hunt->path;
    hunt->exact = true;
    return hunt_by_path(hunt, e);
}

static void add_records(struct table_hunt *hunt) {
    struct data_tables *tables = hunt->tables;
    if (hunt->records.cells.size == 0) return;
    buffer_append_string(&hunt->records.name, hunt->path);
    data_table_finish(&hunt->records);
    tables->list = xgrow(tables->list, tables->n, &tables->capacity, sizeof *tables->list);
    tables->list[tables->n] = hunt->records;
    tables->n++;
    hunt->records = (struct data_table){.n_columns = 0};
}

enum status tables_find(const struct table_search *search, const char *name,
                        struct data_tables *tables, char **id, char **path, struct error *e) {
    struct table_hunt hunt = {.search = search, .name = name, .tables = tables};
    enum status status = hunt_by_id(&hunt, name, e);
    if (status == STATUS_NOT_FOUND)
        status = hunt_by_path(&hunt, e);
    else if (status == STATUS_OK)
        status = hunt_whole_file(&hunt, e);
    if (status == STATUS_OK) add_records(&hunt);
    if (status == STATUS_OK && hunt.path == NULL)
        status = error_set(e, STATUS_NOT_FOUND, "no document has the id or path \"%.200s\"", name);
    else if (status == STATUS_OK && tables->n == 0)
        status = error_set(e, STATUS_NOT_FOUND, "the document \"%.200s\" has no table", name);
    for (int i = 0; i < hunt.n_ids; i++) free(hunt.ids[i]);
    free(hunt.ids);
    data_table_free(&hunt.records);
    *id = hunt.id;
    *path = hunt.path;
    return status;
}

/* Choosing. */

static bool is_named(const struct data_table *table, const char *name) {
    struct buffer both = {0};
    buffer_printf(&both, "%s > %s", table->sheet.data, table->name.data);
    bool is = strcasecmp(table->name.data, name) == 0 || strcasecmp(table->sheet.data, name) == 0 ||
              strcasecmp(both.data, name) == 0;
    buffer_free(&both);
    return is;
}

static enum status fail_choice(const struct data_tables *tables, const char *name,
                               struct error *e) {
    struct buffer names = {0};
    for (int i = 0; i < tables->n && names.size < 500; i++)
        buffer_printf(&names, "%s%d (\"%s\")", i > 0 ? ", " : "", i + 1, tables->list[i].name.data);
    if (name)
        error_set(e, STATUS_NOT_FOUND, "the document has no table \"%.100s\"; it has %s", name,
                  names.data);
    else
        error_set(e, STATUS_INVALID, "the document has %d tables, name one: %s", tables->n,
                  names.data);
    buffer_free(&names);
    return e->status;
}

const struct data_table *tables_choose(const struct data_tables *tables, const char *name,
                                       struct error *e) {
    if (name == NULL && tables->n == 1) return &tables->list[0];
    for (int i = 0; i < tables->n && name; i++)
        if (is_named(&tables->list[i], name)) return &tables->list[i];
    bool is_number = name && name[0] && name[strspn(name, "0123456789")] == '\0';
    long number = is_number ? strtol(name, NULL, 10) : 0;
    if (number >= 1 && number <= tables->n) return &tables->list[number - 1];
    fail_choice(tables, name, e);
    return NULL;
}

/* All. */

struct record_file {
    char *path, *id;
    struct data_table table;
};
struct table_tour {
    table_taker *take;
    void *context;
    bool more;
    struct record_file *files; /* [n] */
    int n, capacity;
    struct key_set by_path;
};

static void add_record(struct table_tour *tour, const struct stored_document *document,
                       size_t size) {
    bool added;
    int64_t *place = key_set_put(&tour->by_path, hash_bytes(document->path, size, 0),
                                 hash_bytes(document->path, size, 1), &added);
    if (added) {
        *place = tour->n;
        if (tour->n < MOST_RECORD_FILES) {
            tour->files = xgrow(tour->files, tour->n, &tour->capacity, sizeof *tour->files);
            tour->files[tour->n] = (struct record_file){.path = xstrndup(document->path, size),
                                                        .id = xstrdup(document->id)};
            tour->n++;
        } else {
            *place = -1;
        }
    }
    if (*place >= 0) data_table_add_record(&tour->files[*place].table, document);
}

static enum status tour_document(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct table_tour *tour = context;
    struct data_tables tables = {0};
    size_t file = measure_file(document->path);
    if (file > 0 && document->text.text) add_record(tour, document, file);
    if (file == 0 && document->text.text) data_tables_read(&tables, document);
    for (int i = 0; i < tables.n && tour->more; i++)
        tour->more =
            tour->take(tour->context, document->id, document->path, i + 1, &tables.list[i]);
    data_tables_free(&tables);
    return tour->more ? STATUS_OK : error_set(e, STATUS_CANCELLED, "the list is full");
}

enum status tables_walk(const struct table_search *search, const char *after, table_taker *take,
                        void *context, struct error *e) {
    struct table_tour tour = {.take = take, .context = context, .more = true};
    struct collection_walk walk = {.filter = search->filter,
                                   .after = after,
                                   .deadline = search->deadline,
                                   .take = tour_document,
                                   .context = &tour};
    enum status status = collection_walk(search->collection, &walk, e);
    if (status && !tour.more) status = STATUS_OK;
    for (int i = 0; i < tour.n; i++) {
        struct record_file *file = &tour.files[i];
        if (tour.more && status == STATUS_OK && file->table.cells.size > 0) {
            data_table_finish(&file->table);
            tour.more = take(context, file->id, file->path, 1, &file->table);
        }
        data_table_free(&file->table);
        free(file->path);
        free(file->id);
    }
    free(tour.files);
    key_set_free(&tour.by_path);
    return status;
}
