/* retrieval/milvus/milvus_collection.c: opening and making collections in Milvus, and what all else
 * asks through. See remote.h. */
#include "retrieval/milvus/milvus_collection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "retrieval/milvus/milvus_private.h"

/* How often and how long a collection that is being loaded is asked for. */
static const double load_pause_seconds = 0.1, load_seconds = 120;
enum { FORMAT_VERSION = 4 };

/* Messages. */

enum status milvus_ask(struct milvus_collection *milvus, struct milvus_message *message,
                       struct buffer *reply, struct error *e) {
    struct milvus_call call = {.method = message->method,
                               .message = {message->body.data, message->body.size},
                               .answers_status = message->answers_status};
    enum status status = milvus_call(milvus->milvus, &call, reply, e);
    buffer_free(&message->body);
    if (status == STATUS_NOT_FOUND)
        return error_set(e, status, "Milvus has no collection %s; retro-index build makes one",
                         milvus->address.collection);
    return status;
}

static struct milvus_message message_of(const struct milvus_collection *milvus,
                                        const char *method) {
    struct milvus_message message = {.method = method};
    wire_put_string(&message.body, 3, milvus->address.collection);
    return message;
}

static void put_pair(struct buffer *out, int field, const char *key, const char *value) {
    size_t pair = wire_begin(out, field);
    wire_put_string(out, 1, key);
    wire_put_string(out, 2, value);
    wire_end(out, pair);
}

/* ConsistencyLevel of common.proto. Milvus takes an absent one for the first. */
static const int levels[] = {
    [MILVUS_STRONG] = 0, [MILVUS_SESSION] = 1, [MILVUS_BOUNDED] = 2, [MILVUS_EVENTUALLY] = 3};

void milvus_put_consistency(const struct milvus_collection *milvus, struct buffer *out,
                            int timestamp_field, int level_field) {
    enum milvus_consistency consistency = milvus_settings_of(milvus->milvus)->consistency;
    int64_t written = atomic_load(&milvus->written);
    if (consistency == MILVUS_SESSION)
        wire_put_int(out, timestamp_field, written > 0 ? written : 1);
    wire_put_int(out, level_field, levels[consistency]);
}

/* guarantee_timestamp 8, consistency_level 11 of a QueryRequest. */
static void put_sight(const struct milvus_collection *milvus, struct buffer *out,
                      enum milvus_sight sight) {
    if (sight == MILVUS_AS_ASKED) milvus_put_consistency(milvus, out, 8, 11);
    if (sight == MILVUS_ALL) wire_put_int(out, 11, levels[MILVUS_STRONG]);
    if (sight == MILVUS_ARRIVED) wire_put_int(out, 11, levels[MILVUS_EVENTUALLY]);
}

enum status milvus_query(struct milvus_collection *milvus, const struct milvus_query *query,
                         struct buffer *reply, struct answer_rows *rows, struct error *e) {
    struct milvus_message message = message_of(milvus, "Query");
    char limit[16];
    *rows = (struct answer_rows){0};
    wire_put_string(&message.body, 4, query->expression);
    for (int i = 0; i < query->n_columns; i++) wire_put_string(&message.body, 5, query->columns[i]);
    snprintf(limit, sizeof limit, "%d", query->limit);
    if (query->limit > 0) put_pair(&message.body, 9, "limit", limit);
    put_sight(milvus, &message.body, query->sight);
    if (milvus_ask(milvus, &message, reply, e)) return e->status;
    return answer_rows_read(rows, (struct text_span){reply->data, reply->size}, e);
}

void milvus_key(const char *id, int chunk, char key[MILVUS_KEY_SIZE]) {
    char document[DOCUMENT_ID_SIZE];
    document_id_of_path(id, document);
    snprintf(key, MILVUS_KEY_SIZE, "%s%08x", document, (unsigned)chunk);
}

void milvus_express_keys(struct buffer *out, const char *id, int first, int n) {
    char key[MILVUS_KEY_SIZE];
    for (int i = 0; i < n; i++) {
        milvus_key(id, first + i, key);
        buffer_printf(out, "%s\"%s\"", i == 0 ? COLUMN_KEY " in [" : ", ", key);
    }
    buffer_append_string(out, "]");
}

enum status milvus_check_keys(const struct text_span *keys, int n, struct error *e) {
    for (int i = 0; i < n; i++)
        if (keys[i].size != MILVUS_KEY_SIZE - 1 ||
            strspn(keys[i].text, "0123456789abcdef") < keys[i].size)
            return error_set(e, STATUS_CORRUPT, "Milvus answers with keys that are none of ours");
    return STATUS_OK;
}

/* The description: JSON that tells what the collection was made with. */

struct milvus_facts {
    int version, chunk_length, cut, context, overlap, dim, eod, max_token;
    uint64_t embedder_hash, tokenizer_hash;
    char *embedder, *tokenizer, *query_prompt, *document_prompt, *index;
};

static const struct json_field fact_fields[] = {
    {"retro", JSON_INT, JSON_AT(struct milvus_facts, version), .min = FORMAT_VERSION,
     .max = FORMAT_VERSION, .required = true},
    {"chunk_length", JSON_INT, JSON_AT(struct milvus_facts, chunk_length), .min = 1, .max = 65536,
     .required = true},
    {"chunks_end", JSON_CHOICE, JSON_AT(struct milvus_facts, cut), .choices = chunk_cuts,
     .required = true},
    {"context", JSON_INT, JSON_AT(struct milvus_facts, context), .min = 0, .max = CHUNK_MAX_CONTEXT,
     .required = true},
    {"overlap", JSON_INT, JSON_AT(struct milvus_facts, overlap), .min = 0, .max = CHUNK_MAX_CONTEXT,
     .required = true},
    {"dim", JSON_INT, JSON_AT(struct milvus_facts, dim), .min = 1, .max = 32768, .required = true},
    {"eod", JSON_INT, JSON_AT(struct milvus_facts, eod), .min = 0, .max = INT32_MAX,
     .required = true},
    {"max_token", JSON_INT, JSON_AT(struct milvus_facts, max_token), .min = 0, .max = INT32_MAX,
     .required = true},
    {"embedder_hash", JSON_HEX, JSON_AT(struct milvus_facts, embedder_hash), .required = true},
    {"tokenizer_hash", JSON_HEX, JSON_AT(struct milvus_facts, tokenizer_hash), .required = true},
    {"embedder", JSON_TEXT, JSON_AT(struct milvus_facts, embedder), .required = true},
    {"tokenizer", JSON_TEXT, JSON_AT(struct milvus_facts, tokenizer), .required = true},
    {"query_prompt", JSON_TEXT, JSON_AT(struct milvus_facts, query_prompt), .required = true},
    {"document_prompt", JSON_TEXT, JSON_AT(struct milvus_facts, document_prompt), .required = true},
    {"index", JSON_TEXT, JSON_AT(struct milvus_facts, index), .required = true},
};
static const struct json_table fact_table = JSON_TABLE(fact_fields, .open = true);

static void write_description(struct buffer *out, const struct collection_options *options,
                              int32_t max_token, const char *index) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_int(&w, "retro", FORMAT_VERSION);
    put_key_int(&w, "chunk_length", options->chunk_length);
    put_key_string(&w, "chunks_end", chunk_cut_name(options->cut));
    put_key_int(&w, "context", options->context);
    put_key_int(&w, "overlap", options->overlap);
    put_key_int(&w, "dim", options->dim);
    put_key_int(&w, "eod", options->eod);
    put_key_int(&w, "max_token", max_token > options->eod ? max_token : options->eod);
    put_key_hex(&w, "embedder_hash", options->embedder_hash);
    put_key_hex(&w, "tokenizer_hash", options->tokenizer_hash);
    put_key_string(&w, "embedder", options->embedder);
    put_key_string(&w, "tokenizer", options->tokenizer);
    put_key_string(&w, "query_prompt", options->query_prompt ? options->query_prompt : "");
    put_key_string(&w, "document_prompt", options->document_prompt ? options->document_prompt : "");
    put_key_string(&w, "index", index);
    put_object_end(&w);
}

static enum status read_description(struct milvus_collection *milvus,
                                    const struct buffer *description, struct error *e) {
    struct milvus_facts facts = {0};
    struct json *root;
    struct json_reader reader = {.name = "its description", .e = e};
    enum status status = json_parse(&root, (struct text_span){description->data, description->size},
                                    "its description", e);
    if (status == STATUS_OK) status = json_table_read(&reader, &fact_table, root, &facts);
    json_close(root);
    if (status) {
        json_table_free(&fact_table, &facts);
        return error_prefix(e, "collection %s in Milvus was not made by retro-index",
                            milvus->address.collection);
    }
    milvus->info = (struct collection_info){.chunk_length = facts.chunk_length,
                                            .cut = (enum chunk_cut)facts.cut,
                                            .context = facts.context,
                                            .overlap = facts.overlap,
                                            .eod = facts.eod,
                                            .max_token = facts.max_token,
                                            .dim = facts.dim,
                                            .embedder_hash = facts.embedder_hash,
                                            .tokenizer_hash = facts.tokenizer_hash,
                                            .embedder = facts.embedder,
                                            .tokenizer = facts.tokenizer,
                                            .query_prompt = facts.query_prompt,
                                            .document_prompt = facts.document_prompt,
                                            .index_factory = facts.index};
    return STATUS_OK;
}

static enum status describe(struct milvus_collection *milvus, struct error *e) {
    struct milvus_message message = message_of(milvus, "DescribeCollection");
    struct buffer reply = {0}, description = {0};
    enum status status = milvus_ask(milvus, &message, &reply, e);
    if (status == STATUS_OK)
        status =
            answer_description_read(&description, (struct text_span){reply.data, reply.size}, e);
    if (status == STATUS_OK) status = read_description(milvus, &description, e);
    buffer_free(&reply);
    buffer_free(&description);
    return status;
}

/* Milvus searches what it has loaded. */
static enum status ask_loaded(struct milvus_collection *milvus, bool *loaded, struct error *e) {
    struct milvus_message message = {.method = "GetLoadState"};
    struct buffer reply = {0};
    wire_put_string(&message.body, 2, milvus->address.collection);
    enum status status = milvus_ask(milvus, &message, &reply, e);
    if (status == STATUS_OK)
        status = answer_is_loaded(loaded, (struct text_span){reply.data, reply.size}, e);
    buffer_free(&reply);
    return status;
}

static enum status load(struct milvus_collection *milvus, struct error *e) {
    struct buffer reply = {0};
    bool loaded = false;
    if (ask_loaded(milvus, &loaded, e)) return e->status;
    if (loaded) return STATUS_OK;
    struct milvus_message message = message_of(milvus, "LoadCollection");
    message.answers_status = true;
    wire_put_int(&message.body, 4, 1);
    enum status status = milvus_ask(milvus, &message, &reply, e);
    double until = time_now() + load_seconds;
    while (status == STATUS_OK && !loaded) {
        struct timespec pause = {.tv_nsec = (long)(1e9 * load_pause_seconds)};
        status = ask_loaded(milvus, &loaded, e);
        if (status == STATUS_OK && !loaded && time_now() > until)
            status = error_set(e, STATUS_BUSY, "Milvus has not loaded collection %s in %.0f s",
                               milvus->address.collection, load_seconds);
        if (status == STATUS_OK && !loaded) nanosleep(&pause, NULL);
    }
    buffer_free(&reply);
    return status;
}

/* Opening. */

static void free_counts(struct snapshot *snapshot) { free(snapshot); }

/* The newest counts. Nothing is read from it: what is found has snapshots of its own. */
static void renew(struct milvus_collection *milvus, int64_t n_documents, int64_t n_chunks) {
    static const struct snapshot_ops ops = {.close = free_counts};
    struct snapshot *snapshot = xcalloc(1, sizeof *snapshot), *old;
    snapshot->ops = &ops;
    snapshot->info = &milvus->info;
    snapshot->n_documents = n_documents;
    snapshot->n_chunks = n_chunks;
    snapshot->chunk_limit = MILVUS_MOST_HITS;
    snapshot->max_token = milvus->info.max_token;
    atomic_init(&snapshot->holders, 1);
    pthread_mutex_lock(&milvus->lock);
    old = milvus->newest;
    snapshot->version = old ? old->version + 1 : 1;
    milvus->newest = snapshot;
    pthread_mutex_unlock(&milvus->lock);
    snapshot_release(old);
}

struct snapshot *milvus_hold(struct collection *collection) {
    struct milvus_collection *milvus = milvus_of(collection);
    pthread_mutex_lock(&milvus->lock);
    struct snapshot *snapshot = snapshot_hold(milvus->newest);
    pthread_mutex_unlock(&milvus->lock);
    return snapshot;
}

static enum status follow_counts(struct collection *collection, struct error *e) {
    int64_t n_documents, n_chunks;
    if (milvus_count(collection, &n_documents, &n_chunks, e)) return e->status;
    struct snapshot *newest = milvus_hold(collection);
    bool same = newest->n_documents == n_documents && newest->n_chunks == n_chunks;
    snapshot_release(newest);
    if (!same) renew(milvus_of(collection), n_documents, n_chunks);
    return STATUS_OK;
}

static enum status refuse_words(struct collection *collection, struct snapshot *snapshot,
                                const struct word_query *query, struct word_found *found,
                                struct error *e) {
    (void)collection, (void)snapshot, (void)query, (void)found;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "a collection in Milvus is not ranked by words: hybrid search needs a collection on a disk "
        "(set retrieval.hybrid, or hybrid in the request, to false)");
}

static void close_collection(struct collection *collection) {
    struct milvus_collection *milvus = milvus_of(collection);
    for (int i = 0; i < milvus->cache.n; i++) milvus_document_release(milvus->cache.list[i]);
    free(milvus->cache.list);
    free((char *)(uintptr_t)milvus->info.embedder);
    free((char *)(uintptr_t)milvus->info.tokenizer);
    free((char *)(uintptr_t)milvus->info.query_prompt);
    free((char *)(uintptr_t)milvus->info.document_prompt);
    free((char *)(uintptr_t)milvus->info.index_factory);
    snapshot_release(milvus->newest);
    milvus_close(milvus->milvus);
    pthread_mutex_destroy(&milvus->cache.lock);
    pthread_mutex_destroy(&milvus->lock);
    free(milvus);
}

static const struct collection_ops milvus_ops = {.remote = true,
                                                 .ordered = true,
                                                 .close = close_collection,
                                                 .hold = milvus_hold,
                                                 .follow = follow_counts,
                                                 .search = milvus_search,
                                                 .search_words = refuse_words,
                                                 .find = milvus_find,
                                                 .walk = milvus_walk,
                                                 .count = milvus_count,
                                                 .shows_all = milvus_shows_all,
                                                 .has_all = milvus_has_all,
                                                 .put_all = milvus_put_all,
                                                 .remove = milvus_delete};

static enum status begin(struct milvus_collection **out, const char *address,
                         const struct milvus_settings *settings, struct error *e) {
    struct milvus_collection *milvus = xcalloc(1, sizeof *milvus);
    milvus->base.ops = &milvus_ops;
    pthread_mutex_init(&milvus->lock, NULL);
    pthread_mutex_init(&milvus->cache.lock, NULL);
    atomic_init(&milvus->written, 0);
    *out = milvus;
    if (milvus_address_parse(&milvus->address, address, e)) return e->status;
    return milvus_open(&milvus->milvus, milvus->address.server, settings, e);
}

enum status milvus_collection_open(struct collection **out, const char *address,
                                   const struct milvus_settings *settings, struct error *e) {
    struct milvus_collection *milvus;
    enum status status = begin(&milvus, address, settings, e);
    if (status == STATUS_OK) status = describe(milvus, e);
    if (status == STATUS_OK) status = load(milvus, e);
    if (status == STATUS_OK) renew(milvus, 0, 0);
    if (status == STATUS_OK) status = follow_counts(&milvus->base, e);
    if (status) {
        collection_close(&milvus->base);
        return status;
    }
    *out = &milvus->base;
    return STATUS_OK;
}

/* Making. */

static void put_column(struct buffer *out, const struct milvus_column *column, int dim) {
    char length[16];
    size_t field = wire_begin(out, 4);
    wire_put_string(out, 2, column->name);
    wire_put_int(out, 3, strcmp(column->name, COLUMN_KEY) == 0);
    wire_put_int(out, 5, column->type);
    snprintf(length, sizeof length, "%d",
             column->type == MILVUS_FLOAT_VECTOR ? dim : column->length);
    if (column->type == MILVUS_FLOAT_VECTOR) put_pair(out, 6, "dim", length);
    if (column->type == MILVUS_VARCHAR) put_pair(out, 6, "max_length", length);
    wire_end(out, field);
}

static enum status create(struct milvus_collection *milvus,
                          const struct collection_options *options, const char *description,
                          struct error *e) {
    struct milvus_message message = message_of(milvus, "CreateCollection");
    struct buffer reply = {0};
    message.answers_status = true;
    size_t schema = wire_begin(&message.body, 4);
    wire_put_string(&message.body, 1, milvus->address.collection);
    wire_put_string(&message.body, 2, description);
    for (int i = 0; i < MILVUS_COLUMNS; i++)
        put_column(&message.body, &milvus_columns[i], options->dim);
    wire_end(&message.body, schema);
    wire_put_int(&message.body, 5, 1);
    enum status status = milvus_ask(milvus, &message, &reply, e);
    buffer_free(&reply);
    return status;
}

static enum status create_index(struct milvus_collection *milvus, const char *index,
                                struct error *e) {
    struct milvus_message message = message_of(milvus, "CreateIndex");
    struct buffer reply = {0};
    message.answers_status = true;
    wire_put_string(&message.body, 4, COLUMN_VECTOR);
    put_pair(&message.body, 5, "index_type", index);
    put_pair(&message.body, 5, "metric_type", "IP");
    put_pair(&message.body, 5, "params",
             strcmp(index, "HNSW") == 0 ? "{\"M\": 16, \"efConstruction\": 200}" : "{}");
    enum status status = milvus_ask(milvus, &message, &reply, e);
    buffer_free(&reply);
    return status;
}

static enum status ask_there(struct milvus_collection *milvus, bool *there, struct error *e) {
    struct milvus_message message = message_of(milvus, "HasCollection");
    struct buffer reply = {0};
    enum status status = milvus_ask(milvus, &message, &reply, e);
    if (status == STATUS_OK)
        status = answer_truth(there, (struct text_span){reply.data, reply.size}, e);
    buffer_free(&reply);
    return status;
}

static enum status check_index(const char *index, struct error *e) {
    if (strcmp(index, "HNSW") == 0 || strcmp(index, "FLAT") == 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "--index %.40s: a collection in Milvus has HNSW or FLAT",
                     index);
}

enum status milvus_collection_create(const char *address, const struct milvus_settings *settings,
                                     const struct collection_options *options, int32_t max_token,
                                     struct error *e) {
    const char *index = options->index_factory ? options->index_factory : "HNSW";
    struct buffer description = {0};
    struct milvus_collection *milvus;
    bool there = false;
    if (check_index(index, e)) return e->status;
    if (options->pictures.embedder)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "a collection in Milvus has one embedder; pictures with one of their own (%s) need a "
            "collection in a folder",
            options->pictures.embedder);
    enum status status = begin(&milvus, address, settings, e);
    if (status == STATUS_OK) status = ask_there(milvus, &there, e);
    if (status == STATUS_OK && there)
        status = error_set(e, STATUS_INVALID,
                           "Milvus has a collection %s already: retro-index add adds to it, and "
                           "nothing here drops one",
                           milvus->address.collection);
    write_description(&description, options, max_token, index);
    if (status == STATUS_OK) status = create(milvus, options, description.data, e);
    if (status == STATUS_OK) status = create_index(milvus, index, e);
    if (status == STATUS_OK) status = load(milvus, e);
    buffer_free(&description);
    collection_close(&milvus->base);
    return status;
}
