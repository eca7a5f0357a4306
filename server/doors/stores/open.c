/* server/doors/stores/open.c: opening and closing, and what is done by the clock: files whose time
 * is over are deleted, and stores that expired long ago are forgotten. */
#include <stdlib.h>
#include <string.h>

#include "server/doors/stores/stores_private.h"

enum {
    SWEEP_SECONDS = 20,
    SWEEP_FILES = 1000, /* deleted at a time */
    FORGET_DAYS = 7     /* that an expired store is shown */
};

/* Files that are over. */

struct sweep {
    struct document_job job;
    char **ids; /* [n] as they are stored */
    int n, capacity;
    int64_t now;
};

static void sweep_free(struct sweep *sweep) {
    for (int i = 0; i < sweep->n; i++) free(sweep->ids[i]);
    free(sweep->ids);
    free(sweep->job.items);
    free(sweep);
}

static void sweep_done(struct document_job *job) {
    struct sweep *sweep = job->context;
    for (int i = 0; i < sweep->n; i++) {
        const struct document_item *item = &job->items[i];
        if (item->status && item->status != STATUS_NOT_FOUND && item->status != STATUS_CANCELLED)
            log_warn("a file whose time is over is not deleted: %s", item->error.text);
    }
    sweep_free(sweep);
}

static enum status take_over(void *context, const struct stored_document *document,
                             struct error *e) {
    struct sweep *sweep = context;
    struct file_facts facts;
    file_facts_read(&facts, document);
    if (facts.until == 0 || facts.until > sweep->now) return STATUS_OK;
    if (sweep->n == SWEEP_FILES) return error_set(e, STATUS_CANCELLED, "enough");
    sweep->ids = xgrow(sweep->ids, sweep->n, &sweep->capacity, sizeof(char *));
    sweep->ids[sweep->n] = xstrdup(document->id);
    sweep->n++;
    return STATUS_OK;
}

static void ask_deletion(struct sweep *sweep, const struct served_model *model) {
    struct error e;
    sweep->job = (struct document_job){.deletes = true,
                                       .items = xcalloc((size_t)sweep->n, sizeof *sweep->job.items),
                                       .n_items = sweep->n,
                                       .done = sweep_done,
                                       .context = sweep};
    for (int i = 0; i < sweep->n; i++) sweep->job.items[i].document.id = sweep->ids[i];
    if (document_thread_ask(model->document_thread, &sweep->job, &e)) sweep_free(sweep);
}

/* A failure is tried again at the next sweep. */
static void sweep_files(struct stores *stores) {
    const struct served_model *model = &stores->api->models[0];
    struct sweep *sweep = xcalloc(1, sizeof *sweep);
    const struct collection_walk walk = {.take = take_over, .context = sweep};
    struct error e;
    sweep->now = time(NULL);
    enum status status = collection_walk(model->collection, &walk, &e);
    if (status && status != STATUS_CANCELLED) log_warn("files are not swept: %s", e.text);
    if (sweep->n > 0)
        ask_deletion(sweep, model);
    else
        sweep_free(sweep);
}

/* Stores that are over. */

static bool is_forgotten(const struct store_record *store, int64_t now) {
    return store_is_expired(store, now - FORGET_DAYS * (int64_t)DAY_SECONDS);
}

static void forget_stores(struct stores *stores, int64_t now) {
    struct error e;
    struct records *records = registry_change(stores->registry, &e);
    if (records == NULL) {
        log_warn("expired vector stores stay: %s", e.text);
        return;
    }
    for (size_t i = records->stores.count; i > 0; i--) {
        const struct store_record *store = (struct store_record *)records->stores.items + i - 1;
        if (is_forgotten(store, now)) records_drop_store(records, i - 1);
    }
    if (registry_write(stores->registry, &e)) log_warn("expired vector stores stay: %s", e.text);
}

/* The clock. */

/* The work that the records ask for. */
struct wanted {
    bool files, stores;
};

static struct wanted look_around(struct stores *stores, int64_t now) {
    struct wanted wanted = {false, false};
    struct error e;
    const struct records *records = registry_look(stores->registry, &e);
    if (records == NULL) return wanted;
    if (records->owned) keys_part();
    wanted.files = records->expires;
    for (size_t i = 0; i < records->stores.count; i++)
        wanted.stores |= is_forgotten((struct store_record *)records->stores.items + i, now);
    registry_end(stores->registry);
    return wanted;
}

static void tend(void *context) {
    struct stores *stores = context;
    struct wanted wanted = look_around(stores, time(NULL));
    double now = time_now();
    if (now < stores->sweeps) return;
    stores->sweeps = now + SWEEP_SECONDS;
    if (wanted.files) sweep_files(stores);
    if (wanted.stores) forget_stores(stores, time(NULL));
}

/* Opening. */

enum status stores_open(struct stores **out, const struct stores_options *options,
                        struct error *e) {
    const struct served_model *model = &options->api->models[0];
    struct stores *stores = xcalloc(1, sizeof *stores);
    stores->api = options->api;
    stores->max_stores = options->max_stores;
    pthread_mutex_init(&stores->lock, NULL);
    *out = stores;
    if (options->folder == NULL || model->document_thread == NULL) return STATUS_OK;
    if (registry_open(&stores->registry, options->folder, e)) return e->status;
    const struct records *records = registry_look(stores->registry, e);
    if (records == NULL) return e->status;
    if (records->owned) keys_part();
    registry_end(stores->registry);
    document_thread_tend(model->document_thread, (struct document_tender){tend, stores});
    return STATUS_OK;
}

void stores_close(struct stores *stores) {
    if (stores == NULL) return;
    CHECK(stores->jobs == NULL);
    registry_close(stores->registry);
    pthread_mutex_destroy(&stores->lock);
    free(stores);
}
