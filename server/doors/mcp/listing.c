/* server/doors/mcp/listing.c: which documents there are: the tool list, resources/list, and what
 * completes a name that is being typed.
 *
 * Lists are in the order of ids, and a page begins behind the last id of the page before: whatever
 * comes, goes or is replaced meanwhile, a document that stays is in one page. A collection
 * elsewhere has an order of its own that is kept to in the same way. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "server/api/documents/look.h"
#include "server/doors/mcp/reading.h"
#include "server/doors/mcp/tools.h"
#include "server/doors/mcp/words.h"

enum { MOST_LISTED = 100, RESOURCES_PAGE = 100, COMPLETIONS = 100 };
static const char list_name[] = "documents";

struct list_arguments {
    int limit;
    char *cursor, *prefix;
    struct filter *filter;
};

static enum status parse_filter(struct json_reader *reader, const struct json *value,
                                void *object) {
    return field_read_filter(&((struct list_arguments *)object)->filter, reader, value);
}

#define AT(member) JSON_AT(struct list_arguments, member)
static const struct json_field list_fields[] = {
    {"limit", JSON_INT, AT(limit), .min = 1, .max = MOST_LISTED, .fallback = 50,
     .help = "documents of one page; 50 where it is not said"},
    {"cursor", JSON_TEXT, AT(cursor), .help = "next_cursor of the page before"},
    {"prefix", JSON_TEXT, AT(prefix), .help = "what the paths of the documents begin with"},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"object\"}",
     .help = "the documents that are listed, by their metadata, id and path"},
};
#undef AT
const struct json_table mcp_list_table = JSON_TABLE(list_fields);

/* A document that is shown, with copies of its words. */
struct listed {
    char *id, *path, *title, *metadata;
    int64_t bytes, n_chunks;
};

/* A page of a list. */
struct list_look {
    struct look base; /* first */
    const struct served_model *model;
    struct principal who; /* held */
    struct buffer after;  /* the id behind which it begins; empty: at the first */
    struct list_arguments asked;
    char *address;
    struct listed *items; /* [n] in the order of ids, one more than are wanted at most */
    int n;
    void (*write)(struct list_look *listing, bool more);
};

/* Walking. */

static void listed_free(struct listed *item) {
    free(item->id);
    free(item->path);
    free(item->title);
    free(item->metadata);
}

static struct listed copy_document(const struct stored_document *document) {
    return (struct listed){.id = xstrdup(document->id),
                           .path = xstrdup(document->path),
                           .title = xstrdup(document->title),
                           .metadata = xstrdup(document->metadata[0] ? document->metadata : "{}"),
                           .bytes = (int64_t)document->text.size,
                           .n_chunks = document->n_chunks};
}

/* The first place whose id is not below. */
static int place_of(const struct list_look *listing, const char *id) {
    int low = 0, high = listing->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(listing->items[middle].id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert(struct list_look *listing, int at, const struct stored_document *document) {
    if (listing->n > listing->asked.limit) {
        listing->n--;
        listed_free(&listing->items[listing->n]);
    }
    memmove(listing->items + at + 1, listing->items + at,
            (size_t)(listing->n - at) * sizeof *listing->items);
    listing->items[at] = copy_document(document);
    listing->n++;
}

static bool is_asked_for(const struct list_look *listing, const struct stored_document *document) {
    return listing->asked.prefix == NULL || starts_with(document->path, listing->asked.prefix);
}

/* Keeps the lowest ids behind `after`. */
static enum status take_lowest(void *context, const struct stored_document *document,
                               struct error *e) {
    struct list_look *listing = context;
    (void)e;
    if (!is_asked_for(listing, document)) return STATUS_OK;
    if (listing->after.size > 0 && strcmp(document->id, listing->after.data) <= 0) return STATUS_OK;
    int at = place_of(listing, document->id);
    if (at <= listing->asked.limit) insert(listing, at, document);
    return STATUS_OK;
}

/* Keeps the first ones of a walk that begins behind `after`. */
static enum status take_first(void *context, const struct stored_document *document,
                              struct error *e) {
    struct list_look *listing = context;
    if (!is_asked_for(listing, document)) return STATUS_OK;
    if (listing->n > listing->asked.limit)
        return error_set(e, STATUS_CANCELLED, "the page is full");
    listing->items[listing->n] = copy_document(document);
    listing->n++;
    return STATUS_OK;
}

static enum status run_listing(struct look *look, struct error *e) {
    struct list_look *listing = (struct list_look *)look;
    struct collection *collection = listing->model->collection;
    bool ordered = collection->ops->ordered;
    struct collection_walk walk = {
        .filter = principal_filter(&listing->who),
        .narrow = listing->asked.filter,
        .deadline = listing->who.deadline,
        .after = ordered && listing->after.size > 0 ? listing->after.data : NULL,
        .n_wanted = ordered ? listing->asked.limit + 1 : 0,
        .take = ordered ? take_first : take_lowest,
        .context = listing};
    listing->items = xcalloc((size_t)listing->asked.limit + 2, sizeof *listing->items);
    enum status status = collection_walk(collection, &walk, e);
    bool more = listing->n > listing->asked.limit;
    if (status && !more) return status;
    if (more) {
        listing->n--;
        listed_free(&listing->items[listing->n]);
    }
    listing->write(listing, more);
    return STATUS_OK;
}

static void free_listing(struct look *look) {
    struct list_look *listing = (struct list_look *)look;
    for (int i = 0; i < listing->n; i++) listed_free(&listing->items[i]);
    principal_release(&listing->who);
    filter_release(listing->asked.filter);
    free(listing->asked.cursor);
    free(listing->asked.prefix);
    buffer_free(&listing->after);
    free(listing->address);
    free(listing->items);
    free(listing);
}

static struct list_look *make_listing(struct mcp_call *call, const struct served_model *model) {
    struct list_look *listing = xcalloc(1, sizeof *listing);
    listing->base = (struct look){.run = run_listing, .free = free_listing};
    listing->model = model;
    listing->who = principal_hold(call->who);
    listing->address = call->address ? xstrdup(call->address) : NULL;
    listing->asked.limit = RESOURCES_PAGE;
    return listing;
}

/* The tool list. */

static void put_next(struct json_writer *w, const char *key, const struct list_look *listing) {
    struct buffer cursor = {0};
    mcp_cursor_print(list_name, listing->items[listing->n - 1].id, &cursor);
    put_key_string(w, key, cursor.data);
    buffer_free(&cursor);
}

static void write_documents(struct list_look *listing, bool more) {
    struct json_writer w;
    put_begin(&w, &listing->base.body);
    put_object(&w);
    put_key_array(&w, "documents");
    for (int i = 0; i < listing->n; i++) {
        const struct listed *item = &listing->items[i];
        put_object(&w);
        put_key_string(&w, "id", item->id);
        put_key_string(&w, "path", item->path);
        put_key_string(&w, "title", item->title[0] ? item->title : item->path);
        put_key_int(&w, "bytes", item->bytes);
        put_key_int(&w, "chunks", item->n_chunks);
        mcp_put_links(&w, listing->address, item->id, 0, 0);
        put_key(&w, "metadata");
        put_raw(&w, (struct text_span){item->metadata, strlen(item->metadata)});
        put_object_end(&w);
    }
    put_array_end(&w);
    if (more)
        put_next(&w, "next_cursor", listing);
    else
        put_key_null(&w, "next_cursor");
    put_object_end(&w);
}

static bool read_list(struct list_look *listing, const struct json *arguments,
                      struct failure *failure) {
    const struct request_limits *limits = &listing->model->limits;
    listing->asked = (struct list_arguments){0};
    if (!fields_parse(&mcp_list_table, &listing->asked, arguments, limits, failure)) return false;
    const char *cursor = listing->asked.cursor;
    if (cursor == NULL || cursor[0] == '\0') return true;
    if (mcp_cursor_parse(list_name, (struct text_span){cursor, strlen(cursor)}, &listing->after))
        return true;
    return failure_set(failure, 400, "invalid_value", "cursor",
                       "cursor is none of this list: send the next_cursor of the page before");
}

struct answer *mcp_tool_list(struct mcp_call *call, const struct json *arguments,
                             struct failure *failure) {
    const struct served_model *model =
        documents_model(call->api, &call->who, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct list_look *listing = make_listing(call, model);
    listing->write = write_documents;
    if (read_list(listing, arguments, failure))
        return look_ask(&listing->base, model, call->waker, failure);
    look_free(&listing->base);
    return NULL;
}

/* resources/list. */

static void write_resources(struct list_look *listing, bool more) {
    struct json_writer w;
    put_begin(&w, &listing->base.body);
    put_object(&w);
    put_key_array(&w, "resources");
    for (int i = 0; i < listing->n; i++) {
        const struct listed *item = &listing->items[i];
        struct buffer uri = {0};
        mcp_uri_print(item->id, &uri);
        put_object(&w);
        put_key_string(&w, "uri", uri.data);
        put_key_string(&w, "name", item->path);
        if (item->title[0]) put_key_string(&w, "title", item->title);
        put_key_string(&w, "mimeType", mcp_media_type(item->path));
        put_key_int(&w, "size", item->bytes);
        put_object_end(&w);
        buffer_free(&uri);
    }
    put_array_end(&w);
    if (more) put_next(&w, "nextCursor", listing);
    put_object_end(&w);
}

static void wrap_members(struct mcp_call *call, struct text_span body) {
    mcp_put_members(&call->w, body);
}

/* Whom documents are not shown, there are none. */
static bool sees_documents(const struct mcp_call *call) {
    return documents_right(call->api, &call->who) >= DOCUMENTS_READ &&
           call->api->models[0].collection;
}

struct answer *mcp_resources_list(struct mcp_call *call, struct mcp_fault *fault) {
    const struct served_model *model = &call->api->models[0];
    struct failure failure = {0};
    struct buffer after = {0};
    if (!mcp_read_cursor(call, list_name, &after, fault)) {
        buffer_free(&after);
        return NULL;
    }
    if (!sees_documents(call)) {
        buffer_free(&after);
        put_key_array(&call->w, "resources");
        put_array_end(&call->w);
        return NULL;
    }
    struct list_look *listing = make_listing(call, model);
    listing->write = write_resources;
    listing->after = after;
    call->wrap = wrap_members;
    struct answer *answer = look_ask(&listing->base, model, call->waker, &failure);
    if (answer == NULL) mcp_fault_from(fault, &failure);
    return answer;
}

/* completion/complete. */

/* Names that begin as what was typed. */
struct completing {
    struct look base; /* first */
    const struct served_model *model;
    struct principal who; /* held */
    char *typed;
    bool ids;      /* names are ids, else paths */
    char **values; /* [n] the lowest, in order, each once */
    int n;
    int64_t total; /* documents, of which several may have one path */
};

static enum status take_name(void *context, const struct stored_document *document,
                             struct error *e) {
    struct completing *completing = context;
    const char *name = completing->ids ? document->id : document->path;
    int at = 0;
    (void)e;
    if (!starts_with(name, completing->typed)) return STATUS_OK;
    completing->total++;
    while (at < completing->n && strcmp(completing->values[at], name) < 0) at++;
    bool known = at < completing->n && strcmp(completing->values[at], name) == 0;
    if (known || at == COMPLETIONS) return STATUS_OK;
    if (completing->n == COMPLETIONS) {
        completing->n--;
        free(completing->values[completing->n]);
    }
    memmove(completing->values + at + 1, completing->values + at,
            (size_t)(completing->n - at) * sizeof(char *));
    completing->values[at] = xstrdup(name);
    completing->n++;
    return STATUS_OK;
}

static void write_completion(struct json_writer *w, char *const *values, int n, int64_t total) {
    put_object(w);
    put_key_array(w, "values");
    for (int i = 0; i < n; i++) put_string(w, values[i]);
    put_array_end(w);
    put_key_int(w, "total", total);
    put_key_bool(w, "hasMore", total > n);
    put_object_end(w);
}

static enum status run_completing(struct look *look, struct error *e) {
    struct completing *completing = (struct completing *)look;
    struct collection_walk walk = {.filter = principal_filter(&completing->who),
                                   .deadline = completing->who.deadline,
                                   .take = take_name,
                                   .context = completing};
    struct json_writer w;
    if (collection_walk(completing->model->collection, &walk, e)) return e->status;
    put_begin(&w, &completing->base.body);
    write_completion(&w, completing->values, completing->n,
                     completing->n < COMPLETIONS ? completing->n : completing->total);
    return STATUS_OK;
}

static void free_completing(struct look *look) {
    struct completing *completing = (struct completing *)look;
    for (int i = 0; i < completing->n; i++) free(completing->values[i]);
    principal_release(&completing->who);
    free(completing->values);
    free(completing->typed);
    free(completing);
}

static void wrap_completion(struct mcp_call *call, struct text_span body) {
    put_key(&call->w, "completion");
    put_raw(&call->w, body);
}

static struct answer *complete(struct mcp_call *call, const char *typed, bool ids,
                               struct mcp_fault *fault) {
    struct completing *completing = xcalloc(1, sizeof *completing);
    struct failure failure = {0};
    completing->base = (struct look){.run = run_completing, .free = free_completing};
    completing->model = &call->api->models[0];
    completing->who = principal_hold(call->who);
    completing->typed = xstrdup(typed);
    completing->ids = ids;
    completing->values = xcalloc(COMPLETIONS + 1, sizeof(char *));
    call->wrap = wrap_completion;
    struct answer *answer = look_ask(&completing->base, completing->model, call->waker, &failure);
    if (answer == NULL) mcp_fault_from(fault, &failure);
    return answer;
}

struct answer *mcp_complete(struct mcp_call *call, struct mcp_fault *fault) {
    const struct json *argument = json_member(call->message.params, "argument");
    const char *type = mcp_read_text(json_member(call->message.params, "ref"), "type", fault),
               *name = type ? mcp_read_text(argument, "name", fault) : NULL,
               *typed = json_word(json_member(argument, "value"));
    if (name == NULL) return NULL;
    if (typed == NULL) {
        mcp_fault_set(fault, MCP_BAD_PARAMS, "argument.value must be a string");
        return NULL;
    }
    if (strcmp(type, "ref/resource") != 0 && strcmp(type, "ref/prompt") != 0) {
        mcp_fault_set(fault, MCP_BAD_PARAMS, "ref.type must be ref/resource or ref/prompt");
        return NULL;
    }
    bool ids = strcmp(name, "id") == 0, paths = strcmp(name, "path") == 0;
    if ((ids || paths) && sees_documents(call)) return complete(call, typed, ids, fault);
    put_key(&call->w, "completion");
    write_completion(&call->w, NULL, 0, 0);
    return NULL;
}
