/* server/doors/stores/membership.c: files into vector stores and out of them: changes of documents'
 * metadata, which the document thread carries out as it does all others. */
#include <stdlib.h>
#include <string.h>

#include "server/api/core/client_text.h"
#include "server/doors/stores/stores_private.h"

/* Jobs. */

static void free_job(struct shared_answer *base) {
    struct member_job *job = (struct member_job *)base;
    for (int i = 0; i < job->n; i++) {
        struct member_file *file = &job->files[i];
        collection_found_release(&file->found);
        buffer_free(&file->metadata);
        json_close(file->attributes);
        free(file->document);
    }
    free(job->files);
    free(job->job.items);
    principal_release(&job->who);
    free(job);
}

static enum answer_progress poll_job(struct answer *base, struct buffer *out) {
    struct member_job *job = (struct member_job *)base;
    struct json_writer w;
    if (!shared_answer_is_done(&job->base)) return ANSWER_WAITING;
    const struct member_file *first = &job->files[0];
    if (first->state != FILE_COMPLETED) {
        struct failure failure = {0};
        failure_from_error(&failure, &first->error);
        failure_answer(&failure, base, out);
        return ANSWER_COMPLETE;
    }
    put_begin(&w, out);
    job->write(job, &w);
    return ANSWER_COMPLETE;
}

struct member_job *member_job_make(struct api *api, const struct api_request *request,
                                   enum member_change change, const char *store) {
    static const struct answer_ops ops = {poll_job, shared_answer_cancel, shared_answer_close};
    struct member_job *job = xcalloc(1, sizeof *job);
    shared_answer_init(&job->base, &ops, (struct waker){0}, free_job);
    job->stores = api->stores;
    job->model = &api->models[0];
    job->who = principal_hold(request->principal);
    job->change = change;
    job->created = time(NULL);
    snprintf(job->store, sizeof job->store, "%s", store);
    make_store_id("vsfb_", job->batch);
    return job;
}

struct json *json_duplicate(const struct json *value) {
    struct buffer text = {0};
    struct json_writer w;
    struct json *copy = NULL;
    struct error e;
    if (json_is_absent(value)) return NULL;
    put_begin(&w, &text);
    put_json(&w, value);
    CHECK(json_parse(&copy, (struct text_span){text.data, text.size}, "attributes", &e) ==
          STATUS_OK);
    buffer_free(&text);
    return copy;
}

void member_job_add(struct member_job *job, char *document, const struct json *attributes) {
    job->files = xrealloc(job->files, (size_t)(job->n + 1) * sizeof *job->files);
    job->files[job->n] =
        (struct member_file){.document = document, .attributes = json_duplicate(attributes)};
    job->n++;
}

struct member_job *member_job_find(struct stores *stores, const char *batch) {
    struct member_job *job = stores->jobs;
    while (job && strcmp(job->batch, batch) != 0) job = job->next;
    return job;
}

/* On the document thread. */

struct known_stores {
    const struct records *records;
    const char *owner;
};

static bool knows_store(const void *context, const char *store) {
    const struct known_stores *known = context;
    return store_of(known->records, known->owner, store) != NULL;
}

static enum status find_file(struct member_job *job, struct member_file *file, struct error *e) {
    struct file_facts facts;
    collection_found_release(&file->found);
    if (collection_find(job->model->collection, job->job.filter, file->document, &file->found, e))
        return e->status;
    file_facts_read(&facts, &file->found.document);
    if (facts.uploaded) return STATUS_OK;
    return error_set(e, STATUS_NOT_FOUND, "it is no file that was uploaded");
}

static enum status fits(const struct member_job *job, const struct member_file *file,
                        struct error *e) {
    struct json *metadata = NULL;
    const struct buffer *text = &file->metadata;
    if (json_parse(&metadata, (struct text_span){text->data, text->size}, "metadata", e))
        return e->status;
    enum status status = metadata_fits(metadata, text->size, &job->model->limits.metadata, e);
    json_close(metadata);
    return status;
}

static enum status write_metadata(struct member_job *job, struct member_file *file,
                                  struct error *e) {
    struct known_stores known = {registry_look(job->stores->registry, e), stores_owner(&job->who)};
    const struct file_metadata_change change = {.store = job->store,
                                                .is_in = job->change != MEMBER_REMOVE,
                                                .since = job->created,
                                                .attributes = file->attributes,
                                                .knows = knows_store,
                                                .context = &known};
    if (known.records == NULL) return e->status;
    const struct store_record *store = store_of(known.records, known.owner, job->store);
    enum status status = STATUS_OK;
    if (store == NULL || store_is_expired(store, time(NULL)))
        status = error_set(e, STATUS_NOT_FOUND, "the vector store is not there any more");
    if (status == STATUS_OK)
        status = file_metadata_change(&file->metadata, file->found.document.metadata, &change, e);
    registry_end(job->stores->registry);
    return status == STATUS_OK && change.is_in ? fits(job, file, e) : status;
}

/* The document as it is, with other metadata. */
static enum status fill_item(struct document_job *base, struct document_item *item,
                             struct error *e) {
    struct member_job *job = base->context;
    struct member_file *file = &job->files[item - base->items];
    enum status status = find_file(job, file, e);
    if (status == STATUS_OK) status = write_metadata(job, file, e);
    if (status) return status;
    item->document = document_again(&file->found.document);
    item->document.id = file->document;
    item->document.metadata = file->metadata.data;
    return STATUS_OK;
}

static const char *code_of(enum status status) {
    switch (status) {
        case STATUS_UNSUPPORTED: return "unsupported_file";
        case STATUS_INVALID:
        case STATUS_TOO_LARGE:
        case STATUS_NOT_FOUND: return "invalid_file";
        default: return "server_error";
    }
}

/* As clients read it. */
static void note_error(struct member_file *file, const struct error *e) {
    struct buffer text = {0};
    client_text(e, &text);
    error_set(&file->error, e->status, "%s", text.data);
    file->code = code_of(e->status);
    buffer_free(&text);
}

/* A file that is deleted is in no store. */
static void note_outcomes(struct member_job *job, bool cancelled) {
    for (int i = 0; i < job->n; i++) {
        struct document_item *item = &job->job.items[i];
        if (job->change == MEMBER_REMOVE && item->status == STATUS_NOT_FOUND)
            item->status = STATUS_OK;
        struct member_file *file = &job->files[i];
        file->state = item->status == STATUS_OK ? FILE_COMPLETED : FILE_FAILED;
        if (item->status == STATUS_CANCELLED && cancelled) file->state = FILE_CANCELLED;
        if (item->status) note_error(file, &item->error);
    }
}

/* Records. */

static void write_entries(const struct member_job *job, struct batch_record *batch) {
    struct file_entry *entries = batch->files.items;
    for (int i = 0; i < job->n && (size_t)i < batch->files.count; i++) {
        const struct member_file *file = &job->files[i];
        bool failed = file->state == FILE_FAILED;
        free(entries[i].code);
        free(entries[i].message);
        entries[i].state = file->state;
        entries[i].code = xstrdup(failed ? file->code : "");
        entries[i].message = xstrdup(failed ? file->error.text : "");
    }
}

static struct batch_record *find_batch(struct records *records, const char *id) {
    struct batch_record *batches = records->batches.items;
    for (size_t i = 0; i < records->batches.count; i++)
        if (strcmp(batches[i].id, id) == 0) return &batches[i];
    return NULL;
}

/* The owner's oldest make room. */
static void drop_old_batches(struct records *records, const char *owner) {
    const struct batch_record *batches = records->batches.items;
    int n = 0;
    for (size_t i = records->batches.count; i > 0; i--) {
        if (strcmp(batches[i - 1].owner, owner) != 0) continue;
        n++;
        if (n >= KEPT_BATCHES) records_drop_batch(records, i - 1);
    }
}

static struct batch_record *add_batch(struct records *records, const struct member_job *job) {
    const char *owner = stores_owner(&job->who);
    drop_old_batches(records, owner);
    struct batch_record *batch = list_add(&records->batches, sizeof *batch);
    *batch = (struct batch_record){.id = xstrdup(job->batch),
                                   .owner = xstrdup(owner),
                                   .store = xstrdup(job->store),
                                   .created = job->created,
                                   .server = registry_server(job->stores->registry),
                                   .hidden = job->hidden};
    batch->files.items = xcalloc((size_t)job->n, sizeof(struct file_entry));
    batch->files.count = (size_t)job->n;
    struct file_entry *entries = batch->files.items;
    for (int i = 0; i < job->n; i++)
        entries[i] = (struct file_entry){.document = xstrdup(job->files[i].document),
                                         .code = xstrdup(""),
                                         .message = xstrdup("")};
    return batch;
}

/* A file that was taken out is no failed one of its store any more. */
static bool mark_gone(struct records *records, const struct member_job *job) {
    struct batch_record *batches = records->batches.items;
    bool any = false;
    for (size_t i = 0; i < records->batches.count; i++) {
        struct file_entry *entries = batches[i].files.items;
        for (size_t j = 0; strcmp(batches[i].store, job->store) == 0 && j < batches[i].files.count;
             j++) {
            if (entries[j].gone || strcmp(entries[j].document, job->files[0].document) != 0)
                continue;
            entries[j].gone = any = true;
        }
    }
    return any;
}

static bool is_whole(const struct member_job *job) {
    for (int i = 0; i < job->n; i++)
        if (job->files[i].state != FILE_COMPLETED) return false;
    return true;
}

/* Tells the records how it went; true: they are changed. */
static bool record_outcome(struct records *records, const struct member_job *job) {
    if (job->change == MEMBER_REMOVE) return mark_gone(records, job);
    if (job->change != MEMBER_ADD) return false;
    struct batch_record *batch = find_batch(records, job->batch);
    if (batch == NULL && job->hidden && !is_whole(job) &&
        store_of(records, stores_owner(&job->who), job->store))
        batch = add_batch(records, job);
    if (batch) write_entries(job, batch);
    return batch != NULL;
}

static void record_end(struct member_job *job) {
    struct registry *registry = job->stores->registry;
    struct error e;
    if (job->change == MEMBER_MODIFY || (job->hidden && is_whole(job))) return;
    struct records *records = registry_change(registry, &e);
    enum status status = records ? STATUS_OK : e.status;
    if (records && record_outcome(records, job))
        status = registry_write(registry, &e);
    else if (records)
        registry_end(registry);
    if (status) log_error("files of a vector store: %s", e.text);
}

static void unlist(struct member_job *job) {
    struct member_job **at = &job->stores->jobs;
    pthread_mutex_lock(&job->stores->lock);
    while (*at && *at != job) at = &(*at)->next;
    if (*at) *at = job->next;
    pthread_mutex_unlock(&job->stores->lock);
}

static void job_done(struct document_job *base) {
    struct member_job *job = base->context;
    bool cancelled = atomic_load(&job->cancelled);
    pthread_mutex_lock(&job->stores->lock);
    note_outcomes(job, cancelled);
    pthread_mutex_unlock(&job->stores->lock);
    record_end(job);
    unlist(job);
    shared_answer_finish(&job->base);
}

/* Asking. */

static void fill_job(struct member_job *job) {
    job->job = (struct document_job){.client = job->who.client,
                                     .filter = principal_filter(&job->who),
                                     .who = &job->who,
                                     .items = xcalloc((size_t)job->n, sizeof *job->job.items),
                                     .n_items = job->n,
                                     .fill = fill_item,
                                     .done = job_done,
                                     .context = job};
    if (job->change == MEMBER_ADD) job->job.cancelled = &job->cancelled;
    for (int i = 0; i < job->n; i++)
        job->job.items[i].document =
            (struct collection_document){.id = job->files[i].document, .title = ""};
}

static enum status record_begin(struct member_job *job, struct error *e) {
    if (job->change != MEMBER_ADD || job->hidden) return STATUS_OK;
    struct records *records = registry_change(job->stores->registry, e);
    if (records == NULL) return e->status;
    add_batch(records, job);
    return registry_write(job->stores->registry, e);
}

static void forget(struct member_job *job) {
    struct error e;
    if (job->change != MEMBER_ADD || job->hidden) return;
    struct records *records = registry_change(job->stores->registry, &e);
    if (records == NULL) return;
    const struct batch_record *batches = records->batches.items;
    for (size_t i = records->batches.count; i > 0; i--)
        if (strcmp(batches[i - 1].id, job->batch) == 0) records_drop_batch(records, i - 1);
    if (registry_write(job->stores->registry, &e)) log_error("%s", e.text);
}

static void list_job(struct member_job *job) {
    pthread_mutex_lock(&job->stores->lock);
    job->next = job->stores->jobs;
    job->stores->jobs = job;
    pthread_mutex_unlock(&job->stores->lock);
}

static enum status send_job(struct member_job *job, struct error *e) {
    fill_job(job);
    if (record_begin(job, e)) return e->status;
    list_job(job);
    shared_answer_begin(&job->base);
    if (document_thread_ask(job->model->document_thread, &job->job, e) == STATUS_OK)
        return STATUS_OK;
    unlist(job);
    forget(job);
    shared_answer_release(&job->base);
    return e->status;
}

struct answer *member_job_ask(struct member_job *job, struct waker waker,
                              void (*now)(const struct member_job *job, struct json_writer *w),
                              struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    struct error e;
    if (job->write) job->base.waker = waker;
    if (job->n > 0 && send_job(job, &e)) {
        failure_from_error(failure, &e);
        answer_close(&job->base.base);
        return NULL;
    }
    if (job->write) return &job->base.base;
    put_begin(&w, &body);
    now(job, &w);
    answer_close(&job->base.base);
    return answer_text(200, JSON_TYPE, &body);
}
