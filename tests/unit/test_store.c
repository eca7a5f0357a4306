/* tests/unit/test_store.c: collections that change: random changes against a model of what should
 * be there, snapshots that stay as they were, programs that end anywhere, damaged logs, several
 * programs and threads at once. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "retrieval/generation/generation_private.h"
#include "retrieval/store/store.h"
#include "tests/documents.h"
#include "tests/folder.h"

enum { K = 5 };

/* Whether collections are built with an embedder for pictures. */
static bool sees;

static int remove_folder(void **state) {
    disk_step_hook = NULL;
    sees = false;
    return folder_tear_down(state);
}

static void make(struct made_document *d, int id, int version) {
    (sees ? make_seen_document : make_document)(d, id, version);
}

static void build(const char *factory, int n_documents) {
    struct collection_options o = {.chunk_length = CHUNK,
                                   .eod = EOD,
                                   .dim = DIM,
                                   .embedder = "toy",
                                   .tokenizer = "toy",
                                   .index_factory = factory};
    struct generation_builder *b;
    struct error e;
    if (sees) o.pictures = made_pictures();
    if (builder_create(&b, test_folder, &o, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n_documents; i++) {
        struct made_document d;
        make(&d, i, 1);
        if (builder_add_document(b, &d.document, &e) ||
            builder_add_vectors(b, d.vectors, document_count_chunks(d.document.n, CHUNK), &e))
            fail_msg("%s", e.text);
    }
    if (builder_commit(b, &e)) fail_msg("%s", e.text);
}

static struct collection *open_store(void) {
    struct collection *l;
    struct error e;
    if (store_open(&l, test_folder, &e)) fail_msg("%s", e.text);
    return l;
}

/* The versions of all documents, 0: it is not there. */
struct model {
    int versions[IDS];
};

static enum status put(struct collection *l, int id, int version, enum change_effect *effect) {
    struct made_document d;
    struct error e;
    make(&d, id, version);
    return collection_put(l, NULL, &d.document, d.vectors, effect, &e);
}

static void put_ok(struct collection *l, struct model *m, int id, int version) {
    enum change_effect effect, expected = m->versions[id] == 0         ? CHANGE_ADDED
                                          : m->versions[id] == version ? CHANGE_NOTHING
                                                                       : CHANGE_REPLACED;
    assert_int_equal(put(l, id, version, &effect), STATUS_OK);
    assert_int_equal(effect, expected);
    m->versions[id] = version;
}

static void delete_ok(struct collection *l, struct model *m, int id) {
    struct error e;
    char name[16];
    snprintf(name, sizeof name, "id %d", id);
    assert_int_equal(collection_delete(l, NULL, name, &e),
                     m->versions[id] ? STATUS_OK : STATUS_NOT_FOUND);
    m->versions[id] = 0;
}

/* The documents that a snapshot shows. */
struct seen {
    struct model model;
    int n;
};

static enum status see(void *context, const struct stored_document *d, struct error *e) {
    struct seen *seen = context;
    struct made_document made;
    int id, version;
    (void)e;
    assert_int_equal(sscanf(d->id, "id %d", &id), 1);
    assert_int_equal(sscanf(d->metadata, "{\"version\":%d}", &version), 1);
    assert_in_range(id, 0, IDS - 1);
    assert_int_equal(seen->model.versions[id], 0);
    make_document(&made, id, version);
    assert_int_equal(d->text.size, made.document.text.size);
    assert_memory_equal(d->text.text, made.text, d->text.size);
    assert_string_equal(d->path, made.path);
    assert_string_equal(d->source, id % 3 ? made.source : "");
    assert_true(marks_equal(d->marks, made.document.marks));
    assert_int_equal(place_find(d->marks, d->text, d->text.size - 1).page, version);
    assert_string_equal(d->title, "a title");
    seen->model.versions[id] = version;
    seen->n++;
    return STATUS_OK;
}

static float multiply(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < DIM; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* The best similarity below `below` of any chunk that the model has. */
static float next_best(const struct model *m, const float *query, int rank) {
    float best[IDS * 3];
    int n = 0;
    for (int id = 0; id < IDS; id++) {
        struct made_document d;
        if (m->versions[id] == 0) continue;
        make_document(&d, id, m->versions[id]);
        for (int i = 0; i < document_count_chunks(d.document.n, CHUNK); i++) {
            float similarity = multiply(query, d.vectors + i * DIM);
            int at = n;
            while (at > 0 && best[at - 1] < similarity) {
                best[at] = best[at - 1];
                at--;
            }
            best[at] = similarity;
            n++;
        }
    }
    return rank < n ? best[rank] : -2;
}

static void check_chunk(const struct snapshot *snapshot, const struct model *m, int64_t chunk) {
    struct chunk c = snapshot_chunk(snapshot, chunk);
    struct made_document d;
    int id, version;
    int32_t tokens[LONGEST + 2];
    assert_true(store_has_chunk(snapshot, chunk));
    assert_int_equal(sscanf(c.document_id, "id %d", &id), 1);
    assert_int_equal(sscanf(c.metadata, "{\"version\":%d}", &version), 1);
    assert_int_equal(m->versions[id], version);
    make_document(&d, id, version);
    assert_int_equal(c.source.size, d.document.text.size);
    assert_memory_equal(c.text.text, d.text + c.start, c.text.size);
    int first = (int)c.start / 2;
    for (int i = 0; i < c.n_tokens; i++) assert_int_equal(c.tokens[i], d.ids[first + i]);
    snapshot_neighbor_tokens(snapshot, chunk, LONGEST + 2, tokens);
    for (int i = 0; i < LONGEST + 2; i++)
        assert_int_equal(tokens[i], first + i < d.document.n ? d.ids[first + i] : EOD);
}

static float multiply_pictures(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < PICTURE_DIM; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* The best similarity of any picture that the model has, but for the best `rank`. */
static float next_best_picture(const struct model *m, const float *query, int rank) {
    float best[IDS];
    int n = 0;
    for (int id = 0; id < IDS; id++) {
        struct made_document d;
        if (m->versions[id] == 0 || !is_made_picture(id, m->versions[id])) continue;
        make_seen_document(&d, id, m->versions[id]);
        float similarity = multiply_pictures(query, d.picture);
        int at = n;
        for (; at > 0 && best[at - 1] < similarity; at--) best[at] = best[at - 1];
        best[at] = similarity;
        n++;
    }
    return rank < n ? best[rank] : -2;
}

/* Pictures are found by their own vectors, at their first chunks. */
static void check_pictures(const struct snapshot *snapshot, const struct model *m) {
    struct error e;
    int64_t ids[2 * K];
    float similarities[2 * K], queries[2 * PICTURE_DIM] = {[PICTURE_DIM + 1] = 1},
                                           vector[PICTURE_DIM];
    struct made_document d;
    make_seen_document(&d, (int)(snapshot->version % IDS), 2);
    memcpy(queries, d.picture, sizeof d.picture);
    struct nearest_query query = {.vectors = queries, .n = 2, .k = K, .pictures = true};
    assert_int_equal(store_search(snapshot, &query, ids, similarities, &e), STATUS_OK);
    for (int i = 0; i < 2 * K; i++) {
        float expected = next_best_picture(m, queries + i / K * PICTURE_DIM, i % K);
        bool has;
        assert_true(fabsf(similarities[i] - expected) < 1e-5F);
        if (ids[i] < 0) continue;
        check_chunk(snapshot, m, ids[i]);
        assert_int_equal(snapshot_chunk(snapshot, ids[i]).start, 0);
        assert_int_equal(snapshot_picture_vector(snapshot, ids[i], vector, &has, &e), STATUS_OK);
        assert_true(has && fabsf(multiply_pictures(queries + i / K * PICTURE_DIM, vector) -
                                 expected) < 1e-5F);
    }
    int n = 0;
    for (int id = 0; id < IDS; id++)
        n += m->versions[id] > 0 && is_made_picture(id, m->versions[id]);
    assert_int_equal(store_count_pictures(snapshot), n);
}

/* The snapshot shows the model and nothing else, and finds the nearest of it. */
static void check_snapshot(const struct snapshot *snapshot, const struct model *m) {
    struct seen seen = {0};
    struct error e;
    int64_t ids[2 * K];
    float similarities[2 * K], queries[2 * DIM];
    assert_int_equal(store_walk(snapshot, see, &seen, &e), STATUS_OK);
    assert_memory_equal(&seen.model, m, sizeof *m);

    struct made_document d;
    make_document(&d, (int)(snapshot->version % IDS), 3);
    memcpy(queries, d.vectors, DIM * sizeof *queries);
    for (int i = 0; i < DIM; i++) queries[DIM + i] = i == 3 ? 1 : 0;
    struct nearest_query query = {.vectors = queries, .n = 2, .k = K};
    assert_int_equal(store_search(snapshot, &query, ids, similarities, &e), STATUS_OK);
    for (int i = 0; i < 2 * K; i++) {
        float expected = next_best(m, queries + i / K * DIM, i % K);
        assert_true(fabsf(similarities[i] - expected) < 1e-5F);
        if (ids[i] >= 0) check_chunk(snapshot, m, ids[i]);
    }
    if (sees) check_pictures(snapshot, m);
}

static void check_living(struct collection *l, const struct model *m) {
    struct snapshot *snapshot = collection_hold(l);
    int n = 0;
    for (int id = 0; id < IDS; id++) n += m->versions[id] > 0;
    assert_int_equal(snapshot->n_documents, n);
    check_snapshot(snapshot, m);
    snapshot_release(snapshot);
}

static int count_documents(const struct model *m) {
    int n = 0;
    for (int i = 0; i < IDS; i++) n += m->versions[i] > 0;
    return n;
}

/* Random changes. */

static void change_at_random(const char *factory, uint32_t seed) {
    struct model m = {0};
    struct snapshot *held = NULL;
    struct model when_held = {0};
    struct error e;
    build(factory, 5);
    for (int i = 0; i < 5; i++) m.versions[i] = 1;
    struct collection *l = open_store();
    for (uint32_t step = 0; step < 150; step++) {
        uint32_t r = mix(seed, step);
        int id = (int)(r / 64 % IDS);
        switch (r % 16) {
            case 0: /* snapshots that are held live on, and learn of no change after this */
                snapshot_release(held);
                held = NULL;
                collection_close(l);
                l = open_store();
                break;
            case 1:
                if (count_documents(&m) > 0)
                    assert_int_equal(collection_compact(l, NULL, &e), STATUS_OK);
                break;
            case 2:
                snapshot_release(held);
                held = collection_hold(l);
                when_held = m;
                break;
            case 3:
            case 4:
            case 5:
            case 6:
                delete_ok(l, &m, id);
                when_held.versions[id] = 0; /* it is in no snapshot any more */
                break;
            default: put_ok(l, &m, id, 1 + (int)(r / 1024 % 3));
        }
        check_living(l, &m);
        if (held) check_snapshot(held, &when_held);
    }
    snapshot_release(held);
    collection_close(l);
}

static void check_same_pictures(const char *one, const char *other) {
    struct collection *ends[2];
    struct error e;
    int64_t found[2][K];
    float similarities[2][K], query[PICTURE_DIM] = {1};
    const char *const dirs[] = {one, other};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_open(&ends[i], dirs[i], &e), STATUS_OK);
        struct snapshot *snapshot = collection_hold(ends[i]);
        struct nearest_query asked = {.vectors = query, .n = 1, .k = K, .pictures = true};
        assert_int_equal(store_search(snapshot, &asked, found[i], similarities[i], &e), STATUS_OK);
        snapshot_release(snapshot);
        collection_close(ends[i]);
    }
    assert_memory_equal(found[0], found[1], sizeof found[0]);
    assert_memory_equal(similarities[0], similarities[1], sizeof similarities[0]);
}

static void test_random_changes(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        change_at_random(INDEX_EXACT, seed);
        folder_remove(test_folder);
        folder_make(test_folder);
    }
}

static void test_random_changes_faiss(void **state) {
    (void)state;
    if (HAVE_FAISS) change_at_random("Flat", 5);
}

/* All of so few lists are read. Compactions leave more vectors and fewer. */
static void test_random_changes_lists(void **state) {
    (void)state;
    if (!HAVE_FAISS) return;
    for (uint32_t seed = 1; seed <= 2; seed++) {
        change_at_random("ivfsq8", seed);
        folder_remove(test_folder);
        folder_make(test_folder);
    }
}

/* The same of collections whose pictures have an embedder of their own, and of a copy of each. */
static void test_random_changes_of_pictures(void **state) {
    (void)state;
    struct error e;
    const char *const factories[] = {INDEX_EXACT, INDEX_EXACT, HAVE_FAISS ? "Flat" : INDEX_EXACT};
    char copy[FOLDER_SIZE + 8];
    for (uint32_t i = 0; i < ARRAY_COUNT(factories); i++) {
        sees = true;
        change_at_random(factories[i], 11 + i);
        snprintf(copy, sizeof copy, "%s-copy", test_folder);
        assert_int_equal(store_copy(test_folder, copy, NULL, &e), STATUS_OK);
        assert_int_equal(disk_generation_verify(copy, &e), STATUS_OK);
        check_same_pictures(test_folder, copy);
        folder_remove(copy);
        folder_remove(test_folder);
        folder_make(test_folder);
    }
}

/* A snapshot shows what it showed, but for what was deleted. */
static void test_views_stay(void **state) {
    (void)state;
    struct model m = {.versions = {1, 1, 1}}, first = m, second;
    build(INDEX_EXACT, 3);
    struct collection *l = open_store();
    struct snapshot *before = collection_hold(l);
    put_ok(l, &m, 0, 2);
    put_ok(l, &m, 5, 1);
    second = m;
    struct snapshot *between = collection_hold(l);
    put_ok(l, &m, 0, 3);
    put_ok(l, &m, 5, 2);
    put_ok(l, &m, 6, 1);
    check_snapshot(before, &first);
    check_snapshot(between, &second);
    assert_true(between->version > before->version);

    delete_ok(l, &m, 0);
    first.versions[0] = second.versions[0] = 0;
    check_snapshot(before, &first);
    check_snapshot(between, &second);
    put_ok(l, &m, 0, 1);
    check_snapshot(before, &first);
    check_living(l, &m);
    collection_close(l);
    check_snapshot(before, &first);
    snapshot_release(before);
    snapshot_release(between);
}

static void test_refused_changes(void **state) {
    (void)state;
    struct error e;
    enum change_effect effect;
    struct made_document d;
    build(INDEX_EXACT, 1);
    struct collection *l = open_store();
    make_document(&d, 3, 1);
    struct collection_document no_text = d.document, no_id = d.document, bad = d.document;
    no_text.n = 0;
    assert_int_equal(collection_put(l, NULL, &no_text, d.vectors, &effect, &e), STATUS_INVALID);
    no_id.id = "";
    assert_int_equal(collection_put(l, NULL, &no_id, d.vectors, &effect, &e), STATUS_INVALID);
    bad.text.text =
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
        "\xff";
    assert_int_equal(collection_put(l, NULL, &bad, d.vectors, &effect, &e), STATUS_INVALID);
    d.vectors[0] += 1;
    assert_int_equal(collection_put(l, NULL, &d.document, d.vectors, &effect, &e), STATUS_INVALID);
    assert_int_equal(collection_delete(l, NULL, "id 7", &e), STATUS_NOT_FOUND);
    assert_int_equal(collection_delete(l, NULL, "id 0", &e), STATUS_OK);
    assert_int_equal(collection_compact(l, NULL, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "every document is deleted"));
    atomic_bool cancelled = true;
    assert_int_equal(put(l, 2, 1, &effect), STATUS_OK);
    assert_int_equal(collection_compact(l, &cancelled, &e), STATUS_CANCELLED);
    check_living(l, &(struct model){.versions = {0, 0, 1}});
    collection_close(l);
}

/* Programs that end anywhere. */

static int steps_left;
static void end_process(const char *step) {
    (void)step;
    if (steps_left-- == 0) _exit(7);
}

enum { SCRIPT = 8 };

/* Step `i` of a fixed row of changes. */
static enum status run_change(struct collection *l, struct model *m, int i) {
    struct error e;
    enum change_effect effect;
    switch (i) {
        case 0: m->versions[4] = 1; return put(l, 4, 1, &effect);
        case 1: m->versions[0] = 2; return put(l, 0, 2, &effect);
        case 2: m->versions[1] = 0; return collection_delete(l, NULL, "id 1", &e);
        case 3: return collection_compact(l, NULL, &e);
        case 4: m->versions[1] = 3; return put(l, 1, 3, &effect);
        case 5: m->versions[4] = 0; return collection_delete(l, NULL, "id 4", &e);
        case 6: m->versions[5] = 1; return put(l, 5, 1, &effect);
        default: return collection_compact(l, NULL, &e);
    }
}

/* The child writes a byte for each change that it was told is kept. */
static void run_script(int acknowledged, int steps) {
    struct model m = {.versions = {1, 1, 1}};
    struct error e;
    struct collection *l;
    steps_left = steps;
    disk_step_hook = end_process;
    if (store_open(&l, test_folder, &e)) _exit(1);
    for (int i = 0; i < SCRIPT; i++) {
        if (run_change(l, &m, i)) _exit(1);
        if (write(acknowledged, "x", 1) != 1) _exit(1);
    }
    _exit(0);
}

static int run_child(int steps, bool *ended) {
    int ends[2], code, n = 0;
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) run_script(ends[1], steps);
    close(ends[1]);
    while (read(ends[0], &byte, 1) == 1) n++;
    close(ends[0]);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && (WEXITSTATUS(code) == 0 || WEXITSTATUS(code) == 7));
    *ended = WEXITSTATUS(code) == 7;
    return n;
}

static struct model model_after(int n) {
    struct model m = {.versions = {1, 1, 1}};
    static const int steps[SCRIPT][2] = {{4, 1}, {0, 2}, {1, 0}, {4, 1},
                                         {1, 3}, {4, 0}, {5, 1}, {5, 1}};
    for (int i = 0; i < n; i++) m.versions[steps[i][0]] = steps[i][1];
    return m;
}

/* Every acknowledged change is there; the change after it is there as a whole or not at all. */
static void test_ending_anywhere(void **state) {
    (void)state;
    bool ended = true;
    int steps = 0, kept_early = 0;
    for (; ended; steps++) {
        folder_remove(test_folder);
        folder_make(test_folder);
        build(INDEX_EXACT, 3);
        int n = run_child(steps, &ended);
        struct collection *l = open_store();
        struct snapshot *snapshot = collection_hold(l);
        struct seen seen = {0};
        struct error e;
        assert_int_equal(store_walk(snapshot, see, &seen, &e), STATUS_OK);
        struct model now = model_after(n), next = model_after(min_int(n + 1, SCRIPT));
        bool is_now = memcmp(&seen.model, &now, sizeof now) == 0;
        bool is_next = memcmp(&seen.model, &next, sizeof next) == 0;
        assert_true(is_now || is_next);
        kept_early += !is_now;
        /* And it goes on. */
        put_ok(l, &seen.model, 7, 1);
        assert_int_equal(collection_compact(l, NULL, &e), STATUS_OK);
        check_living(l, &seen.model);
        snapshot_release(snapshot);
        collection_close(l);
    }
    print_message("ended before each of %d steps; %d unacknowledged changes were there\n",
                  steps - 1, kept_early);
    assert_true(steps > 50);
}

/* Damage. */

static void read_log(struct buffer *b, char path[FOLDER_PATH_SIZE]) {
    struct error e;
    folder_path(path, test_folder, "gen-000001/changes.log");
    if (file_read(path, 1 << 20, b, &e)) fail_msg("%s", e.text);
}

static void write_log(const char *bytes, size_t size) {
    folder_write(test_folder, "gen-000001/changes.log", bytes, size);
}

/* How many of the changes a damaged log still gives; each state is one that there was. -1: it does
 * not open. *noticed: that changes are missing which had been acknowledged. */
static int count_changes(const struct model *states, int n, bool *noticed) {
    struct collection *l;
    struct error e;
    if (store_open(&l, test_folder, &e)) return -1;
    struct snapshot *snapshot = collection_hold(l);
    int sequence = (int)snapshot->n_changes;
    assert_in_range(sequence, 0, n);
    check_snapshot(snapshot, &states[sequence]);
    snapshot_release(snapshot);
    struct collection_changes changes;
    assert_int_equal(collection_count_changes(l, &changes, &e), STATUS_OK);
    *noticed = changes.damaged;
    collection_close(l);
    return sequence;
}

static void test_damaged_log(void **state) {
    (void)state;
    enum { CHANGES = 4 };
    struct model states[CHANGES + 1] = {{.versions = {1, 1, 1}}};
    struct buffer log = {0}, mark = {0};
    struct error e;
    enum change_effect effect;
    bool noticed;
    char path[FOLDER_PATH_SIZE];
    build(INDEX_EXACT, 3);
    struct collection *l = open_store();
    for (int i = 0; i < CHANGES; i++) {
        states[i + 1] = states[i];
        if (i == 2)
            delete_ok(l, &states[i + 1], 1);
        else
            put_ok(l, &states[i + 1], 3 + i, 1);
    }
    collection_close(l);
    folder_path(path, test_folder, "gen-000001/changes.kept");
    assert_int_equal(file_read(path, 100, &mark, &e), STATUS_OK);
    read_log(&log, path);

    int refused = 0, shorter = 0;
    for (size_t i = 0; i < log.size; i++) {
        log.data[i] ^= (char)(1 << i % 8);
        write_log(log.data, log.size);
        int n = count_changes(states, CHANGES, &noticed);
        assert_true(n < CHANGES && (n < 0 || noticed));
        refused += n < 0;
        shorter += n >= 0;
        log.data[i] ^= (char)(1 << i % 8);
    }
    assert_true(refused == 32 && shorter > 100);

    /* Cut anywhere, it gives what is whole. changes.kept tells that acknowledged changes are
     * missing; where that does not say so, as after a cut of the power, the log takes changes
     * again. */
    for (size_t i = 0; i < log.size; i++) {
        write_log(log.data, i);
        folder_write(test_folder, "gen-000001/changes.kept", mark.data, mark.size);
        int n = count_changes(states, CHANGES, &noticed);
        assert_in_range(n, 0, CHANGES - 1);
        assert_true(noticed);
        folder_write(test_folder, "gen-000001/changes.kept", "", 0);
        assert_int_equal(count_changes(states, CHANGES, &noticed), n);
        assert_false(noticed);
        l = open_store();
        struct model m = states[n];
        put_ok(l, &m, 9, 2);
        check_living(l, &m);
        collection_close(l);
    }

    /* Damage before an acknowledged change is not cut off by itself. */
    log.data[60] ^= 1;
    write_log(log.data, log.size);
    l = open_store();
    assert_int_equal(put(l, 9, 1, &effect), STATUS_CORRUPT);
    assert_int_equal(collection_delete(l, NULL, "id 0", &e), STATUS_CORRUPT);
    assert_non_null(strstr(e.text, "verify --repair"));
    collection_close(l);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, log.size);

    /* A person who gives it up goes on with the changes before it. */
    struct store_repaired repaired;
    assert_int_equal(store_repair(test_folder, &repaired, &e), STATUS_OK);
    assert_true(repaired.n_kept == 0 && repaired.n_cut > 0);
    assert_int_equal(store_repair(test_folder, &repaired, &e), STATUS_OK);
    assert_false(repaired.log_cut || repaired.fell_back);
    l = open_store();
    struct model m = states[0];
    put_ok(l, &m, 9, 1);
    check_living(l, &m);
    collection_close(l);
    buffer_free(&log);
    buffer_free(&mark);
}

/* Several programs: each has its own struct store, and locks the folder by itself. */
static void test_two_programs(void **state) {
    (void)state;
    struct model m = {.versions = {1, 1, 1}};
    struct error e;
    build(INDEX_EXACT, 3);
    struct collection *a = open_store(), *b = open_store();
    put_ok(a, &m, 3, 1);
    check_living(b, &m);
    delete_ok(b, &m, 0);
    check_living(a, &m);
    put_ok(a, &m, 3, 2);
    assert_int_equal(collection_compact(a, NULL, &e), STATUS_OK);
    assert_int_equal(collection_follow(b, &e), STATUS_OK);
    check_living(b, &m);
    delete_ok(a, &m, 3);
    check_living(b, &m);
    assert_int_equal(collection_compact(a, NULL, &e), STATUS_OK);
    put_ok(b, &m, 4, 1); /* which turns to the newest generation first */
    check_living(a, &m);
    collection_close(a);
    collection_close(b);
}

/* A program that could not put its changes on the disk takes them off the log again. A reader that
 * has them already reads the log anew. */
static void test_changes_that_are_taken_back(void **state) {
    (void)state;
    struct model m = {.versions = {1, 1, 1}}, kept;
    struct buffer log = {0}, before = {0};
    struct error e;
    char path[FOLDER_PATH_SIZE];
    build(INDEX_EXACT, 3);
    struct collection *l = open_store(), *reader = open_store();
    put_ok(l, &m, 3, 1);
    kept = m;
    read_log(&before, path);
    put_ok(l, &m, 4, 1);
    put_ok(l, &m, 5, 1);
    check_living(reader, &m);

    /* The changes of 4 and 5 go, a longer one comes in their place. */
    collection_close(l);
    write_log(before.data, before.size);
    folder_write(test_folder, "gen-000001/changes.kept", "", 0);
    m = kept;
    l = open_store();
    for (int version = 1; version <= 6; version++) put_ok(l, &m, 6, version);
    read_log(&log, path);
    assert_true(log.size > before.size);
    snapshot_release(collection_hold(reader));
    assert_int_equal(collection_follow(reader, &e), STATUS_OK);
    check_living(reader, &m);

    /* And shorter than what was read. */
    collection_close(l);
    write_log(before.data, before.size);
    folder_write(test_folder, "gen-000001/changes.kept", "", 0);
    snapshot_release(collection_hold(reader));
    assert_int_equal(collection_follow(reader, &e), STATUS_OK);
    check_living(reader, &kept);
    put_ok(reader, &kept, 7, 1);
    check_living(reader, &kept);
    collection_close(reader);
    buffer_free(&log);
    buffer_free(&before);
}

static void remove_log(void) {
    char log[FOLDER_PATH_SIZE], kept[FOLDER_PATH_SIZE];
    folder_path(log, test_folder, "gen-000001/changes.log");
    folder_path(kept, test_folder, "gen-000001/changes.kept");
    assert_int_equal(unlink(log), 0);
    assert_int_equal(unlink(kept), 0);
}

/* A program that cannot put a new log on the disk removes it. A reader may have seen its head: it
 * writes one anew. */
static void test_new_log_that_is_removed(void **state) {
    (void)state;
    struct model m = {.versions = {1, 1, 1}};
    struct buffer log = {0};
    char path[FOLDER_PATH_SIZE];
    build(INDEX_EXACT, 3);
    struct collection *l = open_store();
    put_ok(l, &m, 3, 1);
    collection_close(l);
    read_log(&log, path);
    remove_log();
    m.versions[3] = 0;

    l = open_store();
    write_log(log.data, 32);
    folder_write(test_folder, "gen-000001/changes.kept", "", 0);
    check_living(l, &m); /* it sees the head */
    remove_log();
    put_ok(l, &m, 4, 1);
    collection_close(l);
    l = open_store();
    check_living(l, &m);
    collection_close(l);
    buffer_free(&log);
}

/* Another change in the place of the one that was read, of the same size: nothing is written behind
 * the old one. */
static void test_change_in_place_of_another(void **state) {
    (void)state;
    struct model m = {.versions = {1, 1, 1}}, other;
    struct buffer log = {0}, with = {0};
    char path[FOLDER_PATH_SIZE];
    build(INDEX_EXACT, 3);
    struct collection *l = open_store();
    put_ok(l, &m, 3, 1);
    read_log(&log, path);
    other = m;
    delete_ok(l, &other, 0);
    collection_close(l);
    read_log(&with, path);
    write_log(log.data, log.size);
    folder_write(test_folder, "gen-000001/changes.kept", "", 0);
    l = open_store();
    delete_ok(l, &m, 1);
    collection_close(l);
    buffer_clear(&log);
    read_log(&log, path);
    assert_int_equal(log.size, with.size);

    write_log(with.data, with.size);
    folder_write(test_folder, "gen-000001/changes.kept", "", 0);
    l = open_store();
    check_living(l, &other);
    write_log(log.data, log.size);
    put_ok(l, &m, 6, 1);
    check_living(l, &m);
    collection_close(l);
    l = open_store();
    check_living(l, &m);
    collection_close(l);
    buffer_free(&log);
    buffer_free(&with);
}

/* Copies, beside a program that changes and compacts what is copied: each is a state that there
 * was. */
static void *copy_again(void *argument) {
    bool *wrong = argument;
    for (int i = 0; i < 12; i++) {
        char to[FOLDER_PATH_SIZE];
        struct error e;
        struct collection *l;
        struct seen seen = {0};
        snprintf(to, sizeof to, "%s-copy", test_folder);
        if (store_copy(test_folder, to, NULL, &e) || store_open(&l, to, &e)) {
            print_message("%s\n", e.text);
            *wrong = true;
            return NULL;
        }
        struct snapshot *snapshot = collection_hold(l);
        *wrong = *wrong || store_walk(snapshot, see, &seen, &e) != STATUS_OK;
        /* Documents 0 and 1 are changed in turns: they are never more than one version apart. */
        int apart = seen.model.versions[0] - seen.model.versions[1];
        *wrong = *wrong || seen.model.versions[2] != 1 || apart < 0 || apart > 1;
        snapshot_release(snapshot);
        collection_close(l);
    }
    return NULL;
}

static void remove_copy(void) {
    char copy[FOLDER_PATH_SIZE];
    snprintf(copy, sizeof copy, "%s-copy", test_folder);
    folder_remove(copy);
}

static void test_copies_beside_changes(void **state) {
    (void)state;
    struct model m = {.versions = {1, 1, 1}};
    pthread_t copier;
    bool wrong = false;
    struct error e;
    build(INDEX_EXACT, 3);
    struct collection *l = open_store();
    assert_int_equal(pthread_create(&copier, NULL, copy_again, &wrong), 0);
    for (int version = 2; version < 40; version++) {
        put_ok(l, &m, 0, version);
        put_ok(l, &m, 1, version);
        if (version % 3 == 0) assert_int_equal(collection_compact(l, NULL, &e), STATUS_OK);
    }
    pthread_join(copier, NULL);
    remove_copy();
    assert_false(wrong);
    check_living(l, &m);
    collection_close(l);
}

/* Threads. */

enum { WRITERS = 4, ROUNDS = 30 };

struct writer_thread {
    pthread_t thread;
    struct collection *store;
    int first; /* changes ids first, first + 1 and first + 2 */
    int versions[3];
    bool wrong;
};

static void *change_again(void *argument) {
    struct writer_thread *w = argument;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t r = mix((uint32_t)w->first, i);
        int which = (int)(r % 3), version = 1 + (int)(r / 8 % 4);
        char id[16];
        struct error e;
        enum change_effect effect;
        snprintf(id, sizeof id, "id %d", w->first + which);
        if (r / 64 % 3 == 0) {
            enum status expected = w->versions[which] ? STATUS_OK : STATUS_NOT_FOUND;
            w->wrong = w->wrong || collection_delete(w->store, NULL, id, &e) != expected;
            w->versions[which] = 0;
        } else {
            w->wrong = w->wrong || put(w->store, w->first + which, version, &effect);
            w->versions[which] = version;
        }
        /* An acknowledged change is in the next snapshot. */
        struct collection_found d;
        bool found = collection_find(w->store, NULL, id, &d, &e) == STATUS_OK;
        w->wrong = w->wrong || found != (w->versions[which] > 0);
        collection_found_release(&d);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    struct writer_thread writers[WRITERS];
    struct model m = {0};
    struct error e;
    build(INDEX_EXACT, 1);
    struct collection *l = open_store();
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer_thread){.store = l, .first = 3 * i, .versions = {i == 0}};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, change_again, &writers[i]), 0);
    }
    for (int i = 0; i < 10; i++) {
        enum status status = collection_compact(l, NULL, &e);
        if (status && status != STATUS_INVALID) fail_msg("%s", e.text);
        struct snapshot *snapshot = collection_hold(l);
        struct seen seen = {0};
        assert_int_equal(store_walk(snapshot, see, &seen, &e), STATUS_OK);
        snapshot_release(snapshot);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        assert_false(writers[i].wrong);
        memcpy(m.versions + 3 * i, writers[i].versions, sizeof writers[i].versions);
    }
    check_living(l, &m);
    collection_close(l);
    l = open_store();
    check_living(l, &m);
    collection_close(l);
}

enum { COPIED_ID = 16 };

static enum status take_one(void *context, const struct stored_document *document,
                            struct error *e) {
    snprintf(context, COPIED_ID, "%s", document->id);
    return error_set(e, STATUS_CANCELLED, "one is enough");
}

/* A walk begins at the document that it is to begin behind, and looks at none before it: a page of
 * a long list takes no longer than the first. */
static void test_walk_begins_late(void **state) {
    (void)state;
    struct model m = {0};
    struct error e;
    char id[COPIED_ID];
    static const char *const begins[] = {"id 4", "id 2", "id 7"};
    build(INDEX_EXACT, 5);
    for (int i = 0; i < 5; i++) m.versions[i] = 1;
    struct collection *l = open_store();
    put_ok(l, &m, 7, 1);
    put_ok(l, &m, 2, 2); /* behind the others now */
    for (size_t i = 0; i < ARRAY_COUNT(begins); i++) {
        struct collection_walk walk = {.after = begins[i], .take = take_one, .context = id};
        assert_int_equal(l->ops->walk(l, &walk, &e), STATUS_CANCELLED);
        assert_string_equal(id, begins[i]);
    }
    struct collection_walk walk = {.after = "id 3", .take = take_one, .context = id};
    delete_ok(l, &m, 3);
    assert_int_equal(collection_walk(l, &walk, &e), STATUS_NOT_FOUND);
    walk.after = "id 7";
    assert_int_equal(collection_walk(l, &walk, &e), STATUS_CANCELLED);
    assert_string_equal(id, "id 2");
    collection_close(l);
}

/* The vectors of an index that compresses stay what they were. */
static void test_compressed_index(void **state) {
    (void)state;
    struct model m = {0};
    struct error e;
    if (!HAVE_FAISS) return;
    build("SQ8", 10);
    for (int i = 0; i < 10; i++) m.versions[i] = 1;
    struct collection *l = open_store();
    put_ok(l, &m, 2, 2);
    delete_ok(l, &m, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(collection_compact(l, NULL, &e), STATUS_OK);
    collection_close(l);
    struct disk_generation *c;
    assert_int_equal(disk_generation_open(&c, test_folder, &e), STATUS_OK);
    assert_string_equal(disk_generation_info(c)->index_factory, "SQ8");
    for (int64_t i = 0; i < disk_generation_info(c)->n_documents; i++) {
        struct stored_document d = disk_generation_document_at(c, i);
        struct made_document made;
        float vectors[(LONGEST / CHUNK + 1) * DIM];
        int id;
        assert_int_equal(sscanf(d.id, "id %d", &id), 1);
        make_document(&made, id, m.versions[id]);
        assert_int_equal(
            index_vectors(disk_generation_index(c), d.first_chunk, (int)d.n_chunks, vectors, &e),
            STATUS_OK);
        assert_memory_equal(vectors, made.vectors, (size_t)d.n_chunks * DIM * sizeof *vectors);
    }
    disk_generation_close(c);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_set_up, remove_folder)

int main(void) {
    log_set_level(LOG_LEVEL_ERROR); /* damage is warned of, hundreds of times */
    const struct CMUnitTest tests[] = {IN_FOLDER(test_random_changes),
                                       IN_FOLDER(test_random_changes_of_pictures),
                                       IN_FOLDER(test_walk_begins_late),
                                       IN_FOLDER(test_random_changes_lists),
                                       IN_FOLDER(test_random_changes_faiss),
                                       IN_FOLDER(test_views_stay),
                                       IN_FOLDER(test_refused_changes),
                                       IN_FOLDER(test_ending_anywhere),
                                       IN_FOLDER(test_damaged_log),
                                       IN_FOLDER(test_two_programs),
                                       IN_FOLDER(test_changes_that_are_taken_back),
                                       IN_FOLDER(test_new_log_that_is_removed),
                                       IN_FOLDER(test_change_in_place_of_another),
                                       IN_FOLDER(test_copies_beside_changes),
                                       IN_FOLDER(test_threads),
                                       IN_FOLDER(test_compressed_index)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
