/* server/doors/mcp/reading.c: texts of documents: the tools read and fetch, and resources/read. */
#include <stdlib.h>
#include <string.h>

#include "config/base/base64.h"
#include "retrieval/picture_document.h"
#include "server/api/documents/look.h"
#include "server/api/text/neighbor_json.h"
#include "server/doors/mcp/reading.h"
#include "server/doors/mcp/tools.h"
#include "server/doors/mcp/words.h"

enum {
    USUAL_BYTES = 16 << 10, /* of a reading that names no end */
    MOST_BYTES = 100000,    /* of any */
    FETCHED_BYTES = 400000
};

struct read_arguments {
    char *id;
    int page;           /* 0: none */
    int64_t start, end; /* -1: not said */
    int64_t context;
};

#define AT(member) JSON_AT(struct read_arguments, member)
static const struct json_field read_fields[] = {
    {"id", JSON_TEXT, AT(id), .required = true, .help = "the document, as search and list name it"},
    {"page", JSON_INT, AT(page), .min = 1, .max = INT32_MAX,
     .help = "the page to read, from 1, where the document has pages"},
    {"start", JSON_INT64, AT(start), .min = 0, .max = 1e15,
     .help = "the first byte of the text to read; with page: of the text, too"},
    {"end", JSON_INT64, AT(end), .min = 0, .max = 1e15,
     .help = "the byte behind the last one to read"},
    {"context", JSON_INT64, AT(context), .min = 0, .max = 50000,
     .help = "bytes to read before start and behind end, too"},
};
#undef AT
const struct json_table mcp_read_table = JSON_TABLE(read_fields);

static const struct json_field id_fields[] = {
    {"id", JSON_TEXT, JSON_AT(struct id_arguments, id), .required = true,
     .help = "the document, as search and list name it"},
};
const struct json_table mcp_id_table = JSON_TABLE(id_fields);

/* One document, to be read. */
struct text_look {
    struct look base; /* first */
    char *address;    /* of the call, which may be gone when it is written */
    const struct served_model *model;
    struct principal who; /* held */
    char *name;           /* its id, or its path */
    bool by_path;
    struct read_arguments asked;
    char *uri; /* that is answered; NULL: a tool answers */
    void (*write)(struct text_look *reading, const struct stored_document *document);
    struct error error; /* of write */
};

/* Ranges. */

static bool begins_character(struct text_span text, uint64_t at) {
    return at >= text.size || ((uint8_t)text.text[at] & 0xC0) != 0x80;
}

/* Whole characters of the text. */
static struct text_range settle_range(struct text_span text, uint64_t start, uint64_t end) {
    struct text_range range = {start, end < text.size ? end : text.size};
    if (range.start > range.end) range.start = range.end;
    while (range.start > 0 && !begins_character(text, range.start)) range.start--;
    while (range.end < text.size && !begins_character(text, range.end)) range.end++;
    return range;
}

/* A picture's text begins with its file. */
static uint64_t text_begins(const struct stored_document *document) {
    struct picture_document picture;
    if (!picture_document_read(&picture, document->text)) return 0;
    return (uint64_t)(picture.caption.text - document->text.text);
}

/* The part of the text that is asked for, which may be too much at once. */
static bool find_range(struct text_look *reading, const struct stored_document *document,
                       struct text_range *range) {
    const struct read_arguments *asked = &reading->asked;
    struct text_span text = document->text;
    uint32_t pages = marks_last_page(document->marks);
    if (asked->page > 0 &&
        !marks_find_page(document->marks, text.size, (uint32_t)asked->page, range)) {
        error_set(&reading->error, STATUS_NOT_FOUND,
                  pages > 0 ? "page is %d, the document's last is %u"
                            : "page is %d, and the document's pages are not known: say start and "
                              "end",
                  asked->page, pages);
        return false;
    }
    if (asked->page > 0) return true;
    uint64_t start = asked->start >= 0 ? (uint64_t)asked->start : text_begins(document),
             context = (uint64_t)asked->context;
    uint64_t end = asked->end >= 0 ? (uint64_t)asked->end : start + USUAL_BYTES;
    if (start > text.size || end < start) {
        error_set(&reading->error, STATUS_INVALID,
                  "start is %llu and end is %llu, the document has %zu bytes",
                  (unsigned long long)start, (unsigned long long)end, text.size);
        return false;
    }
    *range = (struct text_range){start > context ? start - context : 0, end + context};
    return true;
}

/* Writing. */

static void put_metadata(struct json_writer *w, const struct stored_document *document) {
    const char *metadata = document->metadata[0] ? document->metadata : "{}";
    put_key(w, "metadata");
    put_raw(w, (struct text_span){metadata, strlen(metadata)});
}

static void put_title(struct json_writer *w, const struct stored_document *document) {
    put_key_string(w, "title", document->title[0] ? document->title : document->path);
}

static void put_count(struct json_writer *w, const char *key, uint64_t n) {
    if (n > 0)
        put_key_int(w, key, (int64_t)n);
    else
        put_key_null(w, key);
}

static void write_part(struct text_look *reading, const struct stored_document *document) {
    struct text_span text = document->text;
    struct text_range asked, range;
    struct json_writer w;
    if (!find_range(reading, document, &asked)) return;
    uint64_t most = asked.start + MOST_BYTES;
    range = settle_range(text, asked.start, asked.end < most ? asked.end : most);
    struct hit place = {.source = text, .marks = document->marks, .start = range.start};
    put_begin(&w, &reading->base.body);
    put_object(&w);
    put_key_string(&w, "id", document->id);
    put_key_string(&w, "path", document->path);
    put_title(&w, document);
    mcp_put_links(&w, reading->address, document->id, range.start, range.end);
    put_key_int(&w, "bytes", (int64_t)text.size);
    put_key_int(&w, "start", (int64_t)range.start);
    put_key_int(&w, "end", (int64_t)range.end);
    put_count(&w, "next_start", range.end < text.size ? range.end : 0);
    put_count(&w, "pages", marks_last_page(document->marks));
    neighbor_write_marks(&w, &place);
    put_metadata(&w, document);
    put_key_string_n(&w, "text", text.text + range.start, range.end - range.start);
    put_object_end(&w);
}

/* Metadata, and beside it what tells of the text; a name that the metadata has is the metadata's.
 */
static void put_facts(struct json_writer *w, const struct stored_document *document, bool cut) {
    struct json *metadata = NULL;
    struct error e;
    struct text_span text = {document->metadata, strlen(document->metadata)};
    if (text.size > 0 && json_parse(&metadata, text, "metadata", &e)) metadata = NULL;
    put_key_object(w, "metadata");
    for (struct json_entry it = {0}; json_next(metadata, &it);) {
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    if (!json_member(metadata, "path")) put_key_string(w, "path", document->path);
    if (!json_member(metadata, "bytes")) put_key_int(w, "bytes", (int64_t)document->text.size);
    if (!json_member(metadata, "cut")) put_key_bool(w, "cut", cut);
    put_object_end(w);
    json_close(metadata);
}

static void write_whole(struct text_look *reading, const struct stored_document *document) {
    struct text_span text = document->text;
    uint64_t start = text_begins(document);
    struct text_range range = settle_range(text, start, start + FETCHED_BYTES);
    struct json_writer w;
    put_begin(&w, &reading->base.body);
    put_object(&w);
    put_key_string(&w, "id", document->id);
    put_title(&w, document);
    put_key_string_n(&w, "text", text.text + range.start, range.end - range.start);
    mcp_put_links(&w, reading->address, document->id, 0, 0);
    put_facts(&w, document, range.end < text.size);
    put_object_end(&w);
}

const char *mcp_media_type(const char *path) {
    size_t size = strlen(path);
    return size > 3 && strcmp(path + size - 3, ".md") == 0 ? "text/markdown" : "text/plain";
}

/* A picture as its file; false: the document is none. */
static bool put_picture(struct json_writer *w, const struct stored_document *document) {
    struct picture_document picture;
    struct buffer file = {0}, text = {0};
    struct error e;
    if (!picture_document_read(&picture, document->text)) return false;
    const char *type = picture_document_file(&picture, &file, &e) == STATUS_OK
                           ? picture_media_type((struct text_span){file.data, file.size})
                           : NULL;
    if (type) {
        base64_encode((struct text_span){file.data, file.size}, &text);
        put_key_string(w, "mimeType", type);
        put_key_string_n(w, "blob", text.data, text.size);
    }
    buffer_free(&file);
    buffer_free(&text);
    return type != NULL;
}

static void write_contents(struct text_look *reading, const struct stored_document *document) {
    struct text_span text = document->text;
    struct text_range range = {0, text.size};
    struct json_writer w;
    bool whole = reading->asked.page == 0 && reading->asked.end < 0;
    if (!whole && !find_range(reading, document, &range)) return;
    range = settle_range(text, range.start, range.end);
    put_begin(&w, &reading->base.body);
    put_array(&w);
    put_object(&w);
    put_key_string(&w, "uri", reading->uri);
    if (!whole || !put_picture(&w, document)) {
        put_key_string(&w, "mimeType", mcp_media_type(document->path));
        put_key_string_n(&w, "text", text.text + range.start, range.end - range.start);
    }
    put_object_end(&w);
    put_array_end(&w);
}

/* Looking. */

static enum status read_found(struct text_look *reading, const struct stored_document *document,
                              struct error *e) {
    reading->write(reading, document);
    *e = reading->error;
    return e->status;
}

/* The walk ends with the first document of the path, whose id takes the path's place. */
static enum status note_id(void *context, const struct stored_document *document, struct error *e) {
    struct text_look *reading = context;
    if (strcmp(document->path, reading->name) != 0) return STATUS_OK;
    free(reading->name);
    reading->name = xstrdup(document->id);
    reading->by_path = false;
    return error_set(e, STATUS_CANCELLED, "it was found");
}

static enum status find_path(struct text_look *reading, struct error *e) {
    struct collection_walk walk = {.filter = principal_filter(&reading->who),
                                   .deadline = reading->who.deadline,
                                   .take = note_id,
                                   .context = reading};
    enum status status = collection_walk(reading->model->collection, &walk, e);
    if (!reading->by_path) return STATUS_OK;
    return status
               ? status
               : error_set(e, STATUS_NOT_FOUND, "no document has the path %.200s", reading->name);
}

static enum status run_reading(struct look *look, struct error *e) {
    struct text_look *reading = (struct text_look *)look;
    struct collection_found found;
    if (reading->by_path && find_path(reading, e)) return e->status;
    if (collection_find(reading->model->collection, principal_filter(&reading->who), reading->name,
                        &found, e))
        return e->status;
    enum status status = read_found(reading, &found.document, e);
    collection_found_release(&found);
    return status;
}

static void free_reading(struct look *look) {
    struct text_look *reading = (struct text_look *)look;
    principal_release(&reading->who);
    free(reading->asked.id);
    free(reading->name);
    free(reading->address);
    free(reading->uri);
    free(reading);
}

static struct text_look *make_reading(struct mcp_call *call, const struct served_model *model,
                                      const char *name) {
    struct text_look *reading = xcalloc(1, sizeof *reading);
    reading->base = (struct look){.run = run_reading, .free = free_reading};
    reading->address = call->address ? xstrdup(call->address) : NULL;
    reading->model = model;
    reading->who = principal_hold(call->who);
    reading->name = xstrdup(name);
    reading->asked.start = reading->asked.end = -1;
    return reading;
}

struct answer *mcp_tool_read(struct mcp_call *call, const struct json *arguments,
                             struct failure *failure) {
    const struct served_model *model =
        documents_model(call->api, &call->who, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct read_arguments asked = {.start = -1, .end = -1};
    if (!fields_parse(&mcp_read_table, &asked, arguments, &model->limits, failure)) {
        free(asked.id);
        return NULL;
    }
    struct text_look *reading = make_reading(call, model, asked.id);
    reading->asked = asked;
    reading->write = write_part;
    return look_ask(&reading->base, model, call->waker, failure);
}

struct answer *mcp_tool_fetch(struct mcp_call *call, const struct json *arguments,
                              struct failure *failure) {
    const struct served_model *model =
        documents_model(call->api, &call->who, DOCUMENTS_READ, failure);
    struct id_arguments asked = {0};
    struct answer *answer = NULL;
    if (model == NULL) return NULL;
    if (fields_parse(&mcp_id_table, &asked, arguments, &model->limits, failure)) {
        struct text_look *reading = make_reading(call, model, asked.id);
        reading->write = write_whole;
        answer = look_ask(&reading->base, model, call->waker, failure);
    }
    free(asked.id);
    return answer;
}

/* resources/read. */

static void wrap_contents(struct mcp_call *call, struct text_span body) {
    put_key(&call->w, "contents");
    put_raw(&call->w, body);
}

static struct answer *read_uri(struct mcp_call *call, const struct mcp_uri *uri, const char *text,
                               struct failure *failure) {
    const struct served_model *model =
        documents_model(call->api, &call->who, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct text_look *reading = make_reading(call, model, uri->name.data);
    reading->by_path = uri->place == MCP_PATH;
    if (uri->place == MCP_PAGE)
        reading->asked.page = uri->page > INT32_MAX ? INT32_MAX : (int)uri->page;
    if (uri->place == MCP_BYTES) reading->asked.start = uri->start;
    if (uri->place == MCP_BYTES) reading->asked.end = uri->end;
    reading->uri = xstrdup(text);
    reading->write = write_contents;
    return look_ask(&reading->base, model, call->waker, failure);
}

struct answer *mcp_resources_read(struct mcp_call *call, struct mcp_fault *fault) {
    const char *text = mcp_read_text(call->message.params, "uri", fault);
    struct mcp_uri uri;
    struct failure failure = {0};
    if (text == NULL) return NULL;
    if (!mcp_uri_parse(&uri, (struct text_span){text, strlen(text)})) {
        mcp_uri_free(&uri);
        mcp_fault_set(fault, MCP_NOT_FOUND, "there is no resource %.300s", text);
        return NULL;
    }
    call->wrap = wrap_contents;
    struct answer *answer = read_uri(call, &uri, text, &failure);
    mcp_uri_free(&uri);
    if (answer == NULL) mcp_fault_from(fault, &failure);
    return answer;
}
