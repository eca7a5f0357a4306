/* tests/crash/worker.c: changes collections of small documents (tests/documents.h) in the ways that
 * retro-index does, and looks at what is there. It prints what it begins and what it has been told
 * is kept; tests/crash/test_crash.py runs it under shim.c.
 *
 *   build DIR N VERSION FACTORY [pictures]   documents 0 .. N - 1, some of them pictures with
 * vectors of their own change DIR                    a fixed list of puts and deletions together
 * DIR                  three threads with documents of their own compact DIR, copy FROM TO, repair
 * DIR embed DIR [change]        turns to the second embedder, where `change` beside other changes
 * verify DIR...                 prints the documents of each, or that it is damaged check
 * DIR...                  prints the documents of each, changes it, compacts it and looks again */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/generation/generation_private.h"
#include "retrieval/store/store_embed.h"
#include "tests/documents.h"

/* One line, at once: the shim asks how many were printed. */
#define SAY(...) (printf(__VA_ARGS__), fflush(stdout))

static int complain(const char *what, const struct error *e) {
    SAY("failed %s: %s\n", what, e->text);
    return 1;
}

/* Building. */

static void make(struct made_document *d, bool sees, int id, int version) {
    (sees ? make_seen_document : make_document)(d, id, version);
}

static enum status add_documents(struct generation_builder *b, bool sees, int n, int version,
                                 struct error *e) {
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        struct made_document d;
        make(&d, sees, i, version);
        status = builder_add_document(b, &d.document, e);
        if (status == STATUS_OK)
            status =
                builder_add_vectors(b, d.vectors, document_count_chunks(d.document.n, CHUNK), e);
        if (status == STATUS_OK)
            status = builder_add_sparse(b, &d.document.sparse, d.document.n_chunks, e);
    }
    return status;
}

static int build(char **words, bool sees) {
    struct collection_options o = {.chunk_length = CHUNK,
                                   .eod = EOD,
                                   .dim = DIM,
                                   .sparse = true,
                                   .embedder = "toy",
                                   .tokenizer = "toy",
                                   .index_factory = words[3]};
    struct generation_builder *b;
    struct error e;
    SAY("try build\n");
    if (sees) o.pictures = made_pictures();
    if (builder_create(&b, words[0], &o, &e)) return complain("build", &e);
    enum status status = add_documents(b, sees, atoi(words[1]), atoi(words[2]), &e);
    if (status)
        builder_abandon(b);
    else
        status = builder_commit(b, &e);
    if (status) return complain("build", &e);
    SAY("done build\n");
    return 0;
}

/* Changing. */

static struct collection *open_store(const char *dir) {
    struct collection *l;
    struct error e;
    if (store_open(&l, dir, &e) == STATUS_OK) return l;
    complain("open", &e);
    return NULL;
}

static bool sees_pictures(const struct snapshot *snapshot) {
    return snapshot->info->pictures.embedder != NULL;
}

/* Version 0: it is deleted. */
static enum status change(struct collection *l, int id, int version, struct error *e) {
    struct made_document d;
    enum change_effect effect;
    struct snapshot *snapshot = collection_hold(l);
    make(&d, sees_pictures(snapshot), id, version);
    const float *vectors = made_vectors(&d, snapshot->info);
    d.document.mark = collection_vector_mark(snapshot->info);
    snapshot_release(snapshot);
    if (version > 0) return collection_put(l, NULL, &d.document, vectors, &effect, e);
    enum status status = collection_delete(l, NULL, d.id, e);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status try_change(struct collection *l, int id, int version) {
    struct error e;
    SAY("try %d %d\n", id, version);
    enum status status = change(l, id, version, &e);
    if (status)
        SAY("failed %d %d: %s\n", id, version, e.text);
    else
        SAY("done %d %d\n", id, version);
    return status;
}

/* A change that failed is tried again; where that fails, too, after a new beginning, as that of
 * another program. */
static int change_all(const char *dir) {
    static const int steps[][2] = {{4, 1}, {0, 2}, {1, 0}, {4, 1}, {1, 3},
                                   {4, 0}, {5, 1}, {5, 1}, {0, 2}};
    struct collection *l = open_store(dir);
    for (size_t i = 0; i < ARRAY_COUNT(steps) && l; i++) {
        if (try_change(l, steps[i][0], steps[i][1]) == STATUS_OK) continue;
        if (try_change(l, steps[i][0], steps[i][1]) == STATUS_OK) continue;
        SAY("opened anew\n");
        collection_close(l);
        l = open_store(dir);
        if (l) try_change(l, steps[i][0], steps[i][1]);
    }
    collection_close(l);
    return l == NULL;
}

struct changer {
    pthread_t thread;
    struct collection *store;
    int id;
};

static void *change_one(void *argument) {
    struct changer *c = argument;
    for (int version = 1; version <= 3; version++) try_change(c->store, c->id, version);
    try_change(c->store, c->id, 0);
    try_change(c->store, c->id, 4);
    return NULL;
}

static int change_together(const char *dir) {
    enum { CHANGERS = 3 };
    struct changer changers[CHANGERS];
    struct error e;
    struct collection *l = open_store(dir);
    if (l == NULL) return 1;
    for (int i = 0; i < CHANGERS; i++) {
        changers[i] = (struct changer){.store = l, .id = 6 + i};
        CHECK(pthread_create(&changers[i].thread, NULL, change_one, &changers[i]) == 0);
    }
    if (collection_compact(l, NULL, &e)) complain("compact", &e);
    for (int i = 0; i < CHANGERS; i++) pthread_join(changers[i].thread, NULL);
    collection_close(l);
    return 0;
}

static int compact(const char *dir) {
    struct error e;
    struct collection *l = open_store(dir);
    if (l == NULL) return 1;
    SAY("try compact\n");
    enum status status = collection_compact(l, NULL, &e);
    collection_close(l);
    if (status) return complain("compact", &e);
    SAY("done compact\n");
    return 0;
}

static int copy(const char *from, const char *to) {
    struct error e;
    SAY("try copy\n");
    if (store_copy(from, to, NULL, &e)) return complain("copy", &e);
    SAY("done copy\n");
    return 0;
}

static int repair(const char *dir) {
    struct store_repaired r;
    struct error e;
    SAY("try repair\n");
    if (store_repair(dir, &r, &e)) return complain("repair", &e);
    SAY("done repair\n");
    return 0;
}

/* Another embedder. */

static enum status read_made(const struct stored_document *d, int *id, int *version,
                             struct error *e) {
    bool known =
        sscanf(d->id, "id %d", id) == 1 && sscanf(d->metadata, "{\"version\":%d}", version) == 1;
    return known && *id >= 0 && *id < IDS ? STATUS_OK
                                          : error_set(e, STATUS_CORRUPT, "document %s", d->id);
}

/* Another program, which changes the collection at each step. */
struct other_program {
    const char *dir; /* NULL: there is none */
    int n_steps;
};

static void change_beside(void *context, const char *step) {
    static const int changes[][2] = {{7, 1}, {2, 0}, {7, 2}, {3, 4}, {2, 2}, {7, 0}};
    struct other_program *other = context;
    (void)step;
    if (other->dir == NULL || other->n_steps >= 3) return;
    struct collection *l = open_store(other->dir);
    for (int i = 0; i < 2 && l; i++)
        try_change(l, changes[2 * other->n_steps + i][0], changes[2 * other->n_steps + i][1]);
    collection_close(l);
    other->n_steps++;
}

static enum status embed_document(void *context, const struct collection_document *document,
                                  bool awaited, float *vectors, struct sparse_rows *sparse,
                                  struct error *e) {
    (void)awaited;
    struct made_document made;
    int id, version;
    const struct stored_document stored = {.id = document->id, .metadata = document->metadata};
    if (read_made(&stored, &id, &version, e)) return e->status;
    make_document(&made, id, version);
    CHECK(document->n_chunks == made.document.n_chunks);
    (void)context;
    for (int i = 0; i < document->n_chunks; i++)
        sparse_rows_add(sparse, sparse_table_row(&made.document.sparse, i));
    memcpy(vectors, made.other, (size_t)document->n_chunks * OTHER_DIM * sizeof *vectors);
    return STATUS_OK;
}

static bool is_turned(const char *dir) {
    struct collection *l = open_store(dir);
    struct snapshot *snapshot = l ? collection_hold(l) : NULL;
    bool turned = snapshot && snapshot->info->embedder_hash == OTHER_HASH;
    snapshot_release(snapshot);
    collection_close(l);
    return turned;
}

static int embed(const char *dir, bool changes) {
    struct error e;
    struct vector_changed changed;
    struct other_program other = {.dir = changes ? dir : NULL};
    const struct vector_change change = {.embedder = "other toy",
                                         .embedder_hash = OTHER_HASH,
                                         .query_prompt = "",
                                         .document_prompt = "passage: ",
                                         .dim = OTHER_DIM,
                                         .sparse = true,
                                         .embed = embed_document,
                                         .tell = change_beside,
                                         .context = &other};
    bool there;
    SAY("begin embed\n");
    enum status status = is_turned(dir) ? store_embedding_remove(dir, &there, &e)
                                        : store_change_vectors(dir, &change, &changed, &e);
    if (status) return complain("embed", &e);
    SAY("done embed\n");
    return 0;
}

/* Checking. */

static enum status say_document(void *context, const struct stored_document *d, struct error *e) {
    struct made_document made;
    int id = -1, version = -1;
    (void)context;
    if (read_made(d, &id, &version, e)) return e->status;
    make_document(&made, id, version);
    if (d->text.size != made.document.text.size ||
        memcmp(d->text.text, made.text, d->text.size) != 0 || strcmp(d->path, made.path) != 0)
        return error_set(e, STATUS_CORRUPT, "document %s is not whole", d->id);
    SAY("document %d %d\n", id, version);
    return STATUS_OK;
}

/* A picture has the vector that follows from its number, and is found by it; other documents have
 * none. */
static enum status check_picture(const struct snapshot *snapshot, const struct stored_document *d,
                                 const float *expected, struct error *e) {
    float vector[PICTURE_DIM], similarity;
    int64_t found;
    bool has;
    if (snapshot_picture_vector(snapshot, d->first_chunk, vector, &has, e)) return e->status;
    if (has != (expected != NULL) || (has && memcmp(vector, expected, sizeof vector) != 0))
        return error_set(e, STATUS_CORRUPT, "document %s: the vector of its picture", d->id);
    struct nearest_query query = {.vectors = vector, .n = 1, .k = 1, .pictures = true};
    if (has && store_search(snapshot, &query, &found, &similarity, e)) return e->status;
    return !has || (found == d->first_chunk && similarity > 0.999F)
               ? STATUS_OK
               : error_set(e, STATUS_CORRUPT, "document %s: its picture is not found", d->id);
}

/* Each chunk has the sparse weights that follow from its number, and is found by them. */
static enum status check_sparse(const struct snapshot *snapshot, const struct stored_document *d,
                                const struct collection_document *made, struct error *e) {
    struct sparse_rows rows = {0};
    bool same = true;
    enum status status = snapshot_sparse(snapshot, d->first_chunk, (int)d->n_chunks, &rows, e);
    for (int i = 0; i < d->n_chunks && status == STATUS_OK && same; i++) {
        struct sparse_row row = sparse_table_row(&made->sparse, i),
                          there = sparse_rows_row(&rows, i);
        int64_t found = FOUND_NONE;
        float score;
        struct sparse_found best = {&found, &score};
        same = row.n == there.n &&
               (row.n == 0 || memcmp(row.list, there.list, (size_t)row.n * sizeof *row.list) == 0);
        status =
            store_search_sparse(snapshot, &(struct sparse_query){.weights = row, .k = 1}, &best, e);
        same = same && (row.n == 0 || score >= sparse_row_multiply(row, row));
    }
    sparse_rows_free(&rows);
    return status || same ? status
                          : error_set(e, STATUS_CORRUPT, "document %s: its sparse weights", d->id);
}

/* The nearest chunk of each document's vector is as near as itself. */
static enum status search_document(void *context, const struct stored_document *d,
                                   struct error *e) {
    const struct snapshot *snapshot = context;
    struct made_document made;
    int id, version;
    int64_t found;
    float similarity;
    CHECK(sscanf(d->id, "id %d", &id) == 1 &&
          sscanf(d->metadata, "{\"version\":%d}", &version) == 1);
    make(&made, sees_pictures(snapshot), id, version);
    if (check_picture(snapshot, d, made.document.picture, e) ||
        check_sparse(snapshot, d, &made.document, e))
        return e->status;
    struct nearest_query query = {.vectors = made_vectors(&made, snapshot->info), .n = 1, .k = 1};
    if (store_search(snapshot, &query, &found, &similarity, e)) return e->status;
    return found >= 0 && similarity > 0.999F
               ? STATUS_OK
               : error_set(e, STATUS_CORRUPT, "document %s is not found", d->id);
}

static int look(struct collection *l) {
    struct error e;
    struct snapshot *snapshot = collection_hold(l);
    SAY("embedder %s\n", snapshot->info->embedder_hash == OTHER_HASH ? "second" : "first");
    enum status status = store_walk(snapshot, say_document, NULL, &e);
    if (status == STATUS_OK) status = store_walk(snapshot, search_document, snapshot, &e);
    snapshot_release(snapshot);
    return status ? complain("look", &e) : 0;
}

/* Changes and compacts it: it goes on. */
static int go_on(const char *dir) {
    struct error e;
    struct collection *l = open_store(dir);
    if (l == NULL) return 1;
    int bad = look(l);
    SAY("goes on\n");
    if (!bad && (change(l, 9, 1, &e) || collection_compact(l, NULL, &e) || change(l, 10, 1, &e)))
        bad = complain("on", &e);
    collection_close(l);
    if (bad) return 1;
    if (disk_generation_verify(dir, &e)) return complain("verify", &e);
    l = open_store(dir);
    if (l == NULL) return 1;
    bad = look(l);
    collection_close(l);
    return bad;
}

static int check_all(int n, char **dirs) {
    int bad = 0;
    for (int i = 0; i < n; i++) {
        SAY("folder %s\n", dirs[i]);
        bool fails = go_on(dirs[i]) != 0;
        if (!fails) SAY("well\n");
        bad += fails;
    }
    return bad > 0;
}

/* As retro-index verify does. */
static int verify(const char *dir) {
    struct error e;
    if (disk_generation_verify(dir, &e)) return complain("verify", &e);
    struct collection *l = open_store(dir);
    if (l == NULL) return 1;
    int bad = 0;
    struct collection_changes changes;
    if (collection_count_changes(l, &changes, &e) || changes.damaged)
        SAY("failed log\n");
    else
        bad = look(l);
    collection_close(l);
    return bad;
}

static int verify_all(int n, char **dirs) {
    for (int i = 0; i < n; i++) {
        SAY("folder %s\n", dirs[i]);
        verify(dirs[i]);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    char **words = argv + 2;
    int n = argc - 2;
    bool sees = n == 5 && strcmp(words[4], "pictures") == 0;
    if (strcmp(what, "build") == 0 && (n == 4 || sees)) return build(words, sees);
    if (strcmp(what, "change") == 0 && n == 1) return change_all(words[0]);
    if (strcmp(what, "together") == 0 && n == 1) return change_together(words[0]);
    if (strcmp(what, "compact") == 0 && n == 1) return compact(words[0]);
    if (strcmp(what, "embed") == 0 && n == 1) return embed(words[0], false);
    if (strcmp(what, "embed") == 0 && n == 2) return embed(words[0], true);
    if (strcmp(what, "copy") == 0 && n == 2) return copy(words[0], words[1]);
    if (strcmp(what, "repair") == 0 && n == 1) return repair(words[0]);
    if (strcmp(what, "verify") == 0) return verify_all(n, words);
    if (strcmp(what, "check") == 0) return check_all(n, words);
    fprintf(stderr,
            "usage: worker build|change|together|compact|copy|embed|repair|verify|check DIR...\n");
    return 2;
}
