/* tests/unit/test_embed_switch.c: a collection turns to the vectors of another embedder. The first
 * toy has an axis for each letter, the second one for each two: their vectors have other lengths,
 * so a query that is embedded by the wrong one cannot go unnoticed. */
#include <math.h>
#include <string.h>

#include "retrieval/retriever.h"
#include "retrieval/store/store_embed.h"
#include "tests/folder.h"

enum { LETTERS = 26, PAIRS = 13, EOD = 50, MAX_K = 4 };

struct toy {
    int dim, texts;
};
static struct toy letters_toy, pairs_toy;

static enum status embed_texts(void *self, const struct embed_request *request, struct error *e) {
    struct toy *toy = self;
    (void)e;
    toy->texts += request->n;
    for (int i = 0; i < request->n; i++) {
        float *v = request->vectors + i * toy->dim;
        double square = 0;
        memset(v, 0, (size_t)toy->dim * sizeof *v);
        for (size_t j = 0; j < request->texts[i].size; j++)
            v[(request->texts[i].text[j] - 'a') * toy->dim / LETTERS] = 1;
        for (int j = 0; j < toy->dim; j++) square += (double)v[j] * (double)v[j];
        for (int j = 0; j < toy->dim; j++) v[j] = (float)(v[j] / sqrt(square));
    }
    return STATUS_OK;
}

static const struct embedder letters = {.dim = LETTERS,
                                        .hash = 5,
                                        .name = "letters",
                                        .prompts = {"", "", ""},
                                        .embed = embed_texts,
                                        .self = &letters_toy};
static const struct embedder pairs = {.dim = PAIRS,
                                      .hash = 6,
                                      .name = "pairs",
                                      .prompts = {"", "query: ", ""},
                                      .embed = embed_texts,
                                      .self = &pairs_toy};

/* A document of one chunk. */
struct made {
    struct collection_document document;
    int32_t ids[1];
    struct chunk_range chunks[1];
    float vectors[LETTERS];
};

static void make(struct made *made, const char *text, const struct embedder *embedder) {
    struct error e;
    struct text_span span = {text, strlen(text)};
    *made = (struct made){.ids = {1}, .chunks = {{0, (uint32_t)span.size, 0, 1}}};
    struct embed_request request = {.texts = &span, .n = 1, .vectors = made->vectors};
    assert_int_equal(embedder_embed(embedder, &request, &e), STATUS_OK);
    made->document = (struct collection_document){.id = text,
                                                  .path = text,
                                                  .title = "",
                                                  .text = span,
                                                  .ids = made->ids,
                                                  .n = 1,
                                                  .chunks = made->chunks,
                                                  .n_chunks = 1,
                                                  .mark = embedder_vector_mark(embedder)};
}

static const char *const texts[] = {"cab", "xyz", "mno"};

static int build_letters(void **state) {
    const struct collection_options options = {.chunk_length = 1,
                                               .eod = EOD,
                                               .dim = LETTERS,
                                               .embedder = "letters",
                                               .embedder_hash = 5,
                                               .tokenizer = "toy",
                                               .index_factory = INDEX_EXACT};
    struct generation_builder *builder;
    struct error e;
    folder_set_up(state);
    letters_toy = (struct toy){.dim = LETTERS};
    pairs_toy = (struct toy){.dim = PAIRS};
    assert_int_equal(builder_create(&builder, test_folder, &options, &e), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct made made;
        make(&made, texts[i], &letters);
        assert_int_equal(builder_add_document(builder, &made.document, &e), STATUS_OK);
        assert_int_equal(builder_add_vectors(builder, made.vectors, 1, &e), STATUS_OK);
    }
    assert_int_equal(builder_commit(builder, &e), STATUS_OK);
    return 0;
}

static struct collection *open_collection(void) {
    struct collection *collection;
    struct error e;
    if (store_open(&collection, test_folder, &e)) fail_msg("%s", e.text);
    return collection;
}

static enum status put(struct collection *collection, const char *text,
                       const struct embedder *embedder, struct error *e) {
    struct made made;
    enum change_effect effect;
    make(&made, text, embedder);
    return collection_put(collection, NULL, &made.document, made.vectors, &effect, e);
}

/* Another program, which turns the collection to pairs. */
struct other_program {
    atomic_bool cancelled;
    bool changes, cancels;            /* what happens when the first step is told */
    bool changes_late, compacts_late; /* what happens just before the folder is locked */
    int n_embedded, n_awaited;
};

static enum status embed_again(void *context, const struct collection_document *document,
                               bool awaited, float *vectors, struct sparse_rows *sparse,
                               struct error *e) {
    struct other_program *program = context;
    (void)sparse;
    program->n_embedded++;
    program->n_awaited += awaited;
    struct embed_request request = {.texts = &document->text, .n = 1, .vectors = vectors};
    return embedder_embed(&pairs, &request, e);
}

/* Documents come, go, and come in another version; one comes and goes again. */
static void change_late(struct other_program *program) {
    struct error e;
    struct collection *collection = open_collection();
    bool compacts = program->compacts_late;
    program->changes_late = program->compacts_late = false;
    assert_int_equal(put(collection, "jkl", &letters, &e), STATUS_OK);
    assert_int_equal(put(collection, "pqr", &letters, &e), STATUS_OK);
    assert_int_equal(collection_delete(collection, NULL, "pqr", &e), STATUS_OK);
    assert_int_equal(collection_delete(collection, NULL, "cab", &e), STATUS_OK);
    assert_int_equal(collection_delete(collection, NULL, "mno", &e), STATUS_OK);
    assert_int_equal(put(collection, "mno", &letters, &e), STATUS_OK);
    if (compacts) assert_int_equal(collection_compact(collection, NULL, &e), STATUS_OK);
    collection_close(collection);
}

static void tell(void *context, const char *step) {
    struct other_program *program = context;
    struct error e;
    assert_true(step[0] != '\0');
    if (program->changes_late && strstr(step, "turning")) change_late(program);
    if (program->cancels) atomic_store(&program->cancelled, true);
    if (!program->changes) return;
    program->changes = false;
    struct collection *collection = open_collection();
    assert_int_equal(put(collection, "ghi", &letters, &e), STATUS_OK);
    assert_int_equal(collection_delete(collection, NULL, "xyz", &e), STATUS_OK);
    collection_close(collection);
}

static enum status turn(struct other_program *program, struct vector_changed *changed,
                        struct error *e) {
    const struct vector_change change = {.embedder = "pairs",
                                         .embedder_hash = pairs.hash,
                                         .query_prompt = pairs.prompts[EMBED_QUERY],
                                         .document_prompt = pairs.prompts[EMBED_DOCUMENT],
                                         .dim = pairs.dim,
                                         .embed = embed_again,
                                         .tell = tell,
                                         .context = program,
                                         .cancelled = &program->cancelled};
    return store_change_vectors(test_folder, &change, changed, e);
}

static void turn_well(void) {
    struct other_program program = {.changes = false};
    struct vector_changed changed;
    struct error e;
    if (turn(&program, &changed, &e)) fail_msg("%s", e.text);
}

/* Embedders that the program opens. */
struct shelf {
    bool fails;
    int n_opened, n_closed;
};
static struct shelf shelf;

static void close_held(struct held_embedder *held) {
    shelf.n_closed++;
    free(held);
}

static struct held_embedder *hold(const struct embedder *embedder) {
    struct held_embedder *held = xcalloc(1, sizeof *held);
    *held = (struct held_embedder){.embedder = *embedder, .close = close_held};
    atomic_init(&held->holders, 1);
    return held;
}

static enum status open_named(void *context, const struct collection_info *info,
                              struct held_embedder **out, struct error *e) {
    struct shelf *own = context;
    own->n_opened++;
    assert_int_equal(info->embedder_hash, pairs.hash);
    if (own->fails) return error_set(e, STATUS_BUSY, "no room for pairs");
    *out = hold(&pairs);
    return STATUS_OK;
}

static struct collection *open_following(bool fails) {
    struct collection *collection = open_collection();
    const struct embedder_source source = {open_named, &shelf};
    shelf = (struct shelf){.fails = fails};
    collection_follow_embedders(collection, &source, hold(&letters));
    return collection;
}

static void expect_hit(const struct hits *hits, const char *text) {
    assert_int_equal(hits->n, 1);
    assert_string_equal(hits->list[0].document, text);
    assert_true(hits->list[0].similarity > 0.999F);
}

static struct retriever_query query_of(const char *text, struct snapshot *snapshot) {
    return (struct retriever_query){.text = {text, strlen(text)},
                                    .k = 1,
                                    .choice = {.way = RETRIEVE_NEAREST},
                                    .min_similarity = -1,
                                    .snapshot = snapshot};
}

/* Queries of both states in one batch, each by its own embedder. */
static void test_states_have_their_embedders(void **state) {
    (void)state;
    struct error e;
    struct retriever *retriever;
    struct hits hits[4];
    struct collection *collection = open_following(false);
    struct snapshot *before = collection_hold(collection);
    assert_int_equal(retriever_open(&retriever, collection,
                                    (struct retriever_embedders){&letters, NULL}, MAX_K, &e),
                     STATUS_OK);
    turn_well();
    assert_int_equal(collection_follow(collection, &e), STATUS_OK);
    assert_int_equal(shelf.n_opened, 1);
    struct snapshot *after = collection_hold(collection);
    assert_string_equal(before->embedder->name, "letters");
    assert_string_equal(after->embedder->name, "pairs");
    assert_int_equal(before->info->dim, LETTERS);
    assert_int_equal(after->info->dim, PAIRS);

    letters_toy.texts = pairs_toy.texts = 0;
    const struct retriever_query queries[4] = {query_of("cab", before), query_of("xyz", after),
                                               query_of("mno", NULL), query_of("xyz", before)};
    if (retriever_search(retriever, queries, 4, hits, &e)) fail_msg("%s", e.text);
    const char *const found[] = {"cab", "xyz", "mno", "xyz"};
    for (int i = 0; i < 4; i++) {
        expect_hit(&hits[i], found[i]);
        hits_free(&hits[i]);
    }
    assert_int_equal(letters_toy.texts, 2);
    assert_int_equal(pairs_toy.texts, 2);

    /* The first one goes with the last that needs it, the second with the collection. */
    snapshot_release(after);
    assert_int_equal(collection_follow(collection, &e), STATUS_OK);
    assert_int_equal(shelf.n_closed, 0);
    snapshot_release(before);
    assert_int_equal(collection_follow(collection, &e), STATUS_OK);
    assert_int_equal(shelf.n_closed, 1);
    retriever_close(retriever);
    collection_close(collection);
    assert_int_equal(shelf.n_closed, 2);
}

/* Vectors that were made before the switch do not come in behind it. */
static void test_vectors_do_not_mix(void **state) {
    (void)state;
    struct error e;
    struct collection *collection = open_following(false);
    turn_well();
    assert_int_equal(put(collection, "def", &letters, &e), STATUS_BUSY);
    assert_non_null(strstr(e.text, "another embedder"));
    assert_int_equal(put(collection, "def", &letters, &e), STATUS_BUSY);
    assert_int_equal(put(collection, "def", &pairs, &e), STATUS_OK);
    assert_int_equal(collection_compact(collection, NULL, &e), STATUS_OK);
    struct snapshot *snapshot = collection_hold(collection);
    assert_string_equal(snapshot->embedder->name, "pairs");
    assert_int_equal(snapshot->n_documents, 4);
    snapshot_release(snapshot);
    collection_close(collection);
    assert_int_equal(shelf.n_opened, 1);
}

/* Without its embedder the new state is not turned to. */
static void test_refused(void **state) {
    (void)state;
    struct error e;
    struct collection *collection = open_following(true);
    turn_well();
    assert_int_equal(collection_follow(collection, &e), STATUS_BUSY);
    assert_string_equal(e.text, "no room for pairs");
    assert_int_equal(collection_follow(collection, &e), STATUS_OK); /* it was told */
    assert_int_equal(put(collection, "def", &letters, &e), STATUS_BUSY);
    assert_string_equal(e.text, "no room for pairs");
    assert_int_equal(shelf.n_opened, 1);
    struct snapshot *snapshot = collection_hold(collection);
    assert_string_equal(snapshot->embedder->name, "letters");
    assert_int_equal(snapshot->n_documents, 3);
    snapshot_release(snapshot);
    collection_close(collection);
    assert_int_equal(shelf.n_closed, 1);
}

/* Documents that came while it was embedded are there, and were embedded once. */
static void test_changes_meanwhile(void **state) {
    (void)state;
    struct other_program program = {.changes = true};
    struct vector_changed changed;
    struct error e;
    if (turn(&program, &changed, &e)) fail_msg("%s", e.text);
    assert_int_equal(program.n_embedded, 4);
    assert_int_equal(changed.n_later, 2);
    struct collection *collection = open_collection();
    struct snapshot *snapshot = collection_hold(collection);
    struct collection_found found = {0};
    assert_int_equal(snapshot->n_documents, 3);
    assert_int_equal(collection_find(collection, NULL, "ghi", &found, &e), STATUS_OK);
    collection_found_release(&found);
    assert_int_equal(collection_find(collection, NULL, "xyz", &found, &e), STATUS_NOT_FOUND);
    snapshot_release(snapshot);
    collection_close(collection);
}

static void check_there(const char *const *ids, int n) {
    struct collection *collection = open_collection();
    struct snapshot *snapshot = collection_hold(collection);
    struct error e;
    assert_int_equal(snapshot->info->dim, PAIRS);
    assert_int_equal(snapshot->n_documents, n);
    for (int i = 0; i < n; i++) {
        struct collection_found found = {0};
        assert_int_equal(collection_find(collection, NULL, ids[i], &found, &e), STATUS_OK);
        collection_found_release(&found);
    }
    snapshot_release(snapshot);
    collection_close(collection);
}

/* While the folder is locked, what came since the last look is brought over and nothing else is
 * looked at. */
static void test_changes_before_the_lock(void **state) {
    (void)state;
    static const char *const left[] = {"xyz", "jkl", "mno"};
    struct other_program program = {.changes_late = true};
    struct vector_changed changed;
    struct error e;
    if (turn(&program, &changed, &e)) fail_msg("%s", e.text);
    assert_int_equal(program.n_awaited, 1); /* mno is the same again */
    assert_int_equal(program.n_embedded, 4);
    assert_int_equal(changed.n_later, 2); /* jkl, and cab that went */
    check_there(left, 3);
}

/* A compaction just before the lock: the folder is let go of, and all is looked at without it. */
static void test_compaction_before_the_lock(void **state) {
    (void)state;
    static const char *const left[] = {"xyz", "jkl", "mno"};
    struct other_program program = {.changes_late = true, .compacts_late = true};
    struct vector_changed changed;
    struct error e;
    if (turn(&program, &changed, &e)) fail_msg("%s", e.text);
    assert_int_equal(program.n_awaited, 0);
    assert_int_equal(program.n_embedded, 4);
    check_there(left, 3);
}

/* A change that is broken off leaves the collection as it was, and what it made is used again. */
static void test_goes_on(void **state) {
    (void)state;
    struct other_program program = {.cancels = true};
    struct vector_changed changed;
    struct error e;
    bool there;
    assert_int_equal(turn(&program, &changed, &e), STATUS_CANCELLED);
    assert_int_equal(program.n_embedded, 3);
    struct collection *collection = open_collection();
    struct snapshot *snapshot = collection_hold(collection);
    assert_int_equal(snapshot->info->dim, LETTERS);
    snapshot_release(snapshot);
    collection_close(collection);

    program = (struct other_program){.changes = true};
    if (turn(&program, &changed, &e)) fail_msg("%s", e.text);
    assert_int_equal(program.n_embedded, 1); /* the one that came meanwhile */
    assert_int_equal(store_embedding_remove(test_folder, &there, &e), STATUS_OK);
    assert_false(there);
}

static void test_nothing_there(void **state) {
    (void)state;
    struct other_program program = {.changes = false};
    struct vector_changed changed;
    struct error e;
    struct collection *collection = open_collection();
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        assert_int_equal(collection_delete(collection, NULL, texts[i], &e), STATUS_OK);
    collection_close(collection);
    assert_int_equal(turn(&program, &changed, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "every document is deleted"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, build_letters, folder_tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(test_states_have_their_embedders),
                                       TEST(test_vectors_do_not_mix),
                                       TEST(test_refused),
                                       TEST(test_changes_meanwhile),
                                       TEST(test_changes_before_the_lock),
                                       TEST(test_compaction_before_the_lock),
                                       TEST(test_goes_on),
                                       TEST(test_nothing_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
