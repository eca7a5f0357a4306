/* tools/eval/beir.c: see beir.h. */
#include "tools/eval/beir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_value.h"

/* Names. */

static int find_name(const struct beir_names *names, struct text_span name) {
    uint64_t hash = lookup_hash(name.text, name.size);
    size_t at = 0;
    for (int i = lookup_next(&names->lookup, hash, &at); i >= 0;
         i = lookup_next(&names->lookup, hash, &at)) {
        const char *found = names->names[i];
        if (strlen(found) == name.size && memcmp(found, name.text, name.size) == 0) return i;
    }
    return -1;
}

static int put_name(struct beir_names *names, struct text_span name) {
    int found = find_name(names, name);
    if (found >= 0) return found;
    names->names = xgrow(names->names, names->n, &names->capacity, sizeof *names->names);
    names->names[names->n] = xstrndup(name.text, name.size);
    lookup_add(&names->lookup, lookup_hash(name.text, name.size), names->n);
    names->n++;
    return names->n - 1;
}

static void free_names(struct beir_names *names) {
    for (int i = 0; i < names->n; i++) free(names->names[i]);
    free(names->names);
    lookup_free(&names->lookup);
}

/* Lines of a file. */

struct beir_line {
    struct text_span text;
    const char *path;
    long long number; /* from 1 */
};
typedef enum status beir_line_taker(struct beir_set *set, const struct beir_line *line,
                                    struct error *e);

/* Empty lines are skipped. */
static enum status read_lines(struct beir_set *set, const char *path, beir_line_taker *take,
                              struct error *e) {
    FILE *file = fopen(path, "re");
    if (!file) return error_errno(e, "%s", path);
    struct beir_line line = {.path = path};
    char *text = NULL;
    size_t room = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && getline(&text, &room, file) >= 0) {
        line.number++;
        line.text = (struct text_span){text, strcspn(text, "\r\n")};
        if (line.text.size > 0) status = take(set, &line, e);
    }
    if (status == STATUS_OK && ferror(file)) status = error_errno(e, "%s", path);
    fclose(file);
    free(text);
    return status;
}

static enum status refuse_line(const struct beir_line *line, const char *why, struct error *e) {
    return error_set(e, STATUS_INVALID, "%s:%lld: %s", line->path, line->number, why);
}

/* Grades: a query, a document and a number, with tabs between them. */

static int put_query(struct beir_set *set, struct text_span name) {
    int n = set->names.n, query = put_name(&set->names, name);
    if (query < n) return query;
    set->queries = xgrow(set->queries, n, &set->capacity, sizeof *set->queries);
    set->queries[query] = (struct beir_query){.own = put_name(&set->documents, name)};
    return query;
}

static void put_grade(struct beir_query *query, struct beir_grade grade) {
    query->grades = xgrow(query->grades, query->n, &query->capacity, sizeof *query->grades);
    query->grades[query->n] = grade;
    query->n++;
}

/* Cuts what stands before the next tab off a line. */
static struct text_span cut_cell(struct text_span *rest) {
    const char *tab = memchr(rest->text, '\t', rest->size);
    struct text_span cell = {rest->text, tab ? (size_t)(tab - rest->text) : rest->size};
    size_t taken = cell.size + (tab ? 1 : 0);
    *rest = (struct text_span){rest->text + taken, rest->size - taken};
    return cell;
}

static bool read_grade(struct text_span cell, int *grade) {
    char number[16], *end;
    if (cell.size == 0 || cell.size >= sizeof number) return false;
    memcpy(number, cell.text, cell.size);
    number[cell.size] = '\0';
    long value = strtol(number, &end, 10);
    *grade = (int)value;
    return *end == '\0' && value >= INT16_MIN && value <= INT16_MAX;
}

static enum status take_grade(struct beir_set *set, const struct beir_line *line, struct error *e) {
    struct text_span rest = line->text;
    struct text_span query = cut_cell(&rest), document = cut_cell(&rest);
    int grade;
    if (query.size == 0 || document.size == 0)
        return refuse_line(line, "expected QUERY, DOCUMENT and GRADE with tabs between them", e);
    if (!read_grade(rest, &grade)) {
        if (line->number == 1) return STATUS_OK; /* names of the columns */
        return refuse_line(line, "the grade must be a whole number", e);
    }
    if (grade <= 0) return STATUS_OK;
    int number = put_query(set, query);
    put_grade(&set->queries[number],
              (struct beir_grade){put_name(&set->documents, document), grade});
    return STATUS_OK;
}

/* Queries and documents: objects with "_id". */

static enum status open_object(struct json **object, const struct beir_line *line,
                               struct text_span *name, struct error *e) {
    struct error why;
    if (json_parse(object, line->text, "object", &why)) return refuse_line(line, why.text, e);
    *name = json_text(json_member(*object, "_id"));
    if (name->size > 0) return STATUS_OK;
    json_close(*object);
    return refuse_line(line, "\"_id\" is missing", e);
}

static enum status take_query(struct beir_set *set, const struct beir_line *line, struct error *e) {
    struct json *object;
    struct text_span name;
    if (open_object(&object, line, &name, e)) return e->status;
    struct text_span text = json_text(json_member(object, "text"));
    int query = find_name(&set->names, name);
    if (query >= 0 && !set->queries[query].text)
        set->queries[query].text = xstrndup(text.text, text.size);
    json_close(object);
    return STATUS_OK;
}

static enum status take_document(struct beir_set *set, const struct beir_line *line,
                                 struct error *e) {
    struct json *object;
    struct text_span name;
    if (open_object(&object, line, &name, e)) return e->status;
    int document = find_name(&set->documents, name);
    if (document >= 0) set->lines[document] = line->number;
    json_close(object);
    return STATUS_OK;
}

/* The whole. */

static enum status check_queries(const struct beir_set *set, const char *grades, const char *path,
                                 struct error *e) {
    if (set->names.n == 0) return error_set(e, STATUS_INVALID, "%s: no grade above 0", grades);
    for (int i = 0; i < set->names.n; i++)
        if (!set->queries[i].text || set->queries[i].text[0] == '\0')
            return error_set(e, STATUS_INVALID, "%s: no text of query \"%s\", which %s has", path,
                             set->names.names[i], grades);
    return STATUS_OK;
}

enum status beir_read(struct beir_set *set, const char *folder, const char *split,
                      struct error *e) {
    struct buffer grades = {0}, queries = {0}, corpus = {0};
    buffer_printf(&grades, "%s/qrels/%s.tsv", folder, split);
    buffer_printf(&queries, "%s/queries.jsonl", folder);
    buffer_printf(&corpus, "%s/corpus.jsonl", folder);

    enum status status = read_lines(set, grades.data, take_grade, e);
    if (status == STATUS_OK) status = read_lines(set, queries.data, take_query, e);
    if (status == STATUS_OK) status = check_queries(set, grades.data, queries.data, e);
    if (status == STATUS_OK) {
        set->lines = xcalloc((size_t)set->documents.n, sizeof *set->lines);
        status = read_lines(set, corpus.data, take_document, e);
    }

    buffer_free(&grades);
    buffer_free(&queries);
    buffer_free(&corpus);
    return status;
}

void beir_free(struct beir_set *set) {
    for (int i = 0; i < set->names.n; i++) {
        free(set->queries[i].text);
        free(set->queries[i].grades);
    }
    free(set->queries);
    free(set->lines);
    free_names(&set->documents);
    free_names(&set->names);
}
