/* server/doors/stores/members.c: the files of vector stores: those whose documents say so, and
 * those that were to become such and did not yet, or failed to. */
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "server/doors/stores/stores_private.h"

void member_free(struct store_member *member) {
    free(member->document);
    free(member->code);
    free(member->message);
    *member = (struct store_member){0};
}

void members_free(struct store_members *members) {
    for (int i = 0; i < members->n; i++) member_free(&members->list[i]);
    free(members->list);
    *members = (struct store_members){0};
}

static struct store_member *add_member(struct store_members *members) {
    members->list = xgrow(members->list, members->n, &members->capacity, sizeof *members->list);
    struct store_member *member = &members->list[members->n];
    *member = (struct store_member){0};
    members->n++;
    return member;
}

void member_copy(struct store_members *members, const struct store_member *member, const char *code,
                 const char *message) {
    struct store_member *copy = add_member(members);
    *copy = *member;
    if (member->state != FILE_FAILED) return;
    copy->code = xstrdup(code);
    copy->message = xstrdup(message);
}

/* Attempts: files that were to be added, the latest attempt first. */

struct attempt {
    const char *document, *code, *message; /* the last two of FILE_FAILED */
    enum file_state state;
    int64_t created;
    bool gone;
};

/* Looks at one; false ends the visit. */
typedef bool attempt_taker(void *context, const char *store, const struct attempt *attempt);

struct attempt_visit {
    struct stores *stores;
    const struct records *records;
    const char *owner;
    attempt_taker *take;
    void *context;
};

static bool visit_job(const struct attempt_visit *visit, const struct member_job *job) {
    if (job->change != MEMBER_ADD || strcmp(stores_owner(&job->who), visit->owner) != 0)
        return true;
    for (int i = job->n - 1; i >= 0; i--) {
        const struct member_file *file = &job->files[i];
        const struct attempt attempt = {.document = file->document,
                                        .code = file->code,
                                        .message = file->error.text,
                                        .state = file->state,
                                        .created = job->created};
        if (!visit->take(visit->context, job->store, &attempt)) return false;
    }
    return true;
}

/* A file in progress at a server that does not run was lost with it. */
static struct attempt attempt_of(const struct attempt_visit *visit,
                                 const struct batch_record *batch, const struct file_entry *entry) {
    struct registry *registry = visit->stores->registry;
    struct attempt attempt = {.document = entry->document,
                              .code = entry->code,
                              .message = entry->message,
                              .state = (enum file_state)entry->state,
                              .created = batch->created,
                              .gone = entry->gone};
    bool elsewhere = batch->server != registry_server(registry);
    if (attempt.state != FILE_IN_PROGRESS || (elsewhere && registry_runs(registry, batch->server)))
        return attempt;
    attempt.state = batch->cancelled ? FILE_CANCELLED : FILE_FAILED;
    attempt.code = "server_error";
    attempt.message = "the server ended before the file was added: add it again";
    return attempt;
}

static bool visit_batch(const struct attempt_visit *visit, const struct batch_record *batch) {
    const struct file_entry *entries = batch->files.items;
    if (strcmp(batch->owner, visit->owner) != 0 || member_job_find(visit->stores, batch->id))
        return true;
    for (size_t i = batch->files.count; i > 0; i--) {
        const struct attempt attempt = attempt_of(visit, batch, &entries[i - 1]);
        if (!visit->take(visit->context, batch->store, &attempt)) return false;
    }
    return true;
}

/* While the records are held. */
static void visit_attempts(const struct attempt_visit *visit) {
    const struct batch_record *batches = visit->records->batches.items;
    bool goes_on = true;
    pthread_mutex_lock(&visit->stores->lock);
    for (const struct member_job *job = visit->stores->jobs; job && goes_on; job = job->next)
        goes_on = visit_job(visit, job);
    for (size_t i = visit->records->batches.count; i > 0 && goes_on; i--)
        goes_on = visit_batch(visit, &batches[i - 1]);
    pthread_mutex_unlock(&visit->stores->lock);
}

/* All of some stores. */

struct collecting {
    const struct store_ids *stores;
    struct store_members *members;
    int n_documents;      /* members whose documents say so; they are in order */
    struct key_set tried; /* files of stores whose latest attempt was seen */
    int64_t now;
};

static int number_of(const struct store_ids *stores, const char *id) {
    int i = 0;
    while (i < stores->n && strcmp(stores->ids[i], id) != 0) i++;
    return i < stores->n ? i : -1;
}

static enum status collect_document(void *context, const struct stored_document *document,
                                    struct error *e) {
    struct collecting *collecting = context;
    struct file_facts facts;
    struct fact fact;
    (void)e;
    file_facts_read(&facts, document);
    if (!facts.uploaded || (facts.until > 0 && facts.until <= collecting->now)) return STATUS_OK;
    for (size_t at = 0; facts_next(document->facts, &at, &fact);) {
        char id[STORE_ID_BYTES];
        int store = fact_is_membership(&fact, id) ? number_of(collecting->stores, id) : -1;
        if (store < 0) continue;
        struct store_member *member = add_member(collecting->members);
        member->store = store;
        member->document = xstrdup(document->id);
        member->state = FILE_COMPLETED;
        member->created = fact.whole;
        member->bytes = (int64_t)document->text.size;
    }
    return STATUS_OK;
}

static int by_document(const void *a, const void *b) {
    const struct store_member *left = a, *right = b;
    return left->store != right->store ? left->store - right->store
                                       : strcmp(left->document, right->document);
}

static void copy_attempt(struct store_member *member, const struct attempt *attempt) {
    member->state = attempt->state;
    member->created = attempt->created;
    if (attempt->state != FILE_FAILED) return;
    member->code = xstrdup(attempt->code ? attempt->code : "server_error");
    member->message = xstrdup(attempt->message);
}

static bool collect_attempt(void *context, const char *store, const struct attempt *attempt) {
    struct collecting *collecting = context;
    struct store_members *members = collecting->members;
    struct store_member wanted = {.store = number_of(collecting->stores, store),
                                  .document = (char *)(uintptr_t)attempt->document};
    size_t size = strlen(attempt->document);
    if (wanted.store < 0 ||
        !key_set_add(&collecting->tried,
                     hash_bytes(attempt->document, size, (uint64_t)wanted.store),
                     hash_bytes(attempt->document, size, ~(uint64_t)wanted.store)))
        return true;
    struct store_member *there =
        collecting->n_documents > 0
            ? bsearch(&wanted, members->list, (size_t)collecting->n_documents,
                      sizeof *members->list, by_document)
            : NULL;
    if (there && attempt->state == FILE_IN_PROGRESS) there->state = FILE_IN_PROGRESS;
    if (there || attempt->gone || attempt->state == FILE_COMPLETED) return true;
    struct store_member *member = add_member(members);
    member->store = wanted.store;
    member->document = xstrdup(attempt->document);
    copy_attempt(member, attempt);
    return true;
}

enum status members_collect(struct api *api, const struct principal *who,
                            const struct store_ids *stores, struct store_members *out,
                            struct error *e) {
    struct collecting collecting = {.stores = stores, .members = out, .now = time(NULL)};
    const struct collection_walk walk = {.filter = principal_filter(who),
                                         .deadline = who->deadline,
                                         .take = collect_document,
                                         .context = &collecting};
    *out = (struct store_members){0};
    if (stores->n == 0) return STATUS_OK;
    if (collection_walk(api->models[0].collection, &walk, e)) return e->status;
    if (out->n > 0) qsort(out->list, (size_t)out->n, sizeof *out->list, by_document);
    collecting.n_documents = out->n;
    struct attempt_visit visit = {.stores = api->stores,
                                  .records = registry_look(api->stores->registry, e),
                                  .owner = stores_owner(who),
                                  .take = collect_attempt,
                                  .context = &collecting};
    if (visit.records == NULL) return e->status;
    visit_attempts(&visit);
    registry_end(api->stores->registry);
    key_set_free(&collecting.tried);
    return STATUS_OK;
}

/* One. */

struct finding {
    const char *store, *document;
    struct store_member *out;
    bool there, tried; /* its document says so; its latest attempt was seen */
};

static bool find_attempt(void *context, const char *store, const struct attempt *attempt) {
    struct finding *finding = context;
    if (strcmp(store, finding->store) != 0 || strcmp(attempt->document, finding->document) != 0)
        return true;
    if (finding->there) {
        if (attempt->state == FILE_IN_PROGRESS) finding->out->state = FILE_IN_PROGRESS;
        return false;
    }
    finding->tried = !attempt->gone && attempt->state != FILE_COMPLETED;
    if (finding->tried) copy_attempt(finding->out, attempt);
    return false;
}

static enum status find_document(struct api *api, const struct principal *who,
                                 struct finding *finding, struct error *e) {
    struct collection_found found;
    struct file_facts facts;
    struct fact fact;
    char id[STORE_ID_BYTES];
    if (collection_find(api->models[0].collection, principal_filter(who), finding->document, &found,
                        e))
        return e->status == STATUS_NOT_FOUND ? STATUS_OK : e->status;
    file_facts_read(&facts, &found.document);
    bool expired = facts.until > 0 && facts.until <= time(NULL);
    for (size_t at = 0; !expired && facts_next(found.document.facts, &at, &fact);) {
        if (!fact_is_membership(&fact, id) || strcmp(id, finding->store) != 0) continue;
        finding->there = true;
        finding->out->state = FILE_COMPLETED;
        finding->out->created = fact.whole;
        finding->out->bytes = (int64_t)found.document.text.size;
    }
    collection_found_release(&found);
    return STATUS_OK;
}

enum status member_find(struct api *api, const struct principal *who, const char *store,
                        const char *document, struct store_member *out, struct error *e) {
    struct finding finding = {.store = store, .document = document, .out = out};
    *out = (struct store_member){.document = xstrdup(document)};
    if (find_document(api, who, &finding, e)) return e->status;
    struct attempt_visit visit = {.stores = api->stores,
                                  .records = registry_look(api->stores->registry, e),
                                  .owner = stores_owner(who),
                                  .take = find_attempt,
                                  .context = &finding};
    if (visit.records == NULL) return e->status;
    visit_attempts(&visit);
    registry_end(api->stores->registry);
    if (finding.there || finding.tried) return STATUS_OK;
    return error_set(e, STATUS_NOT_FOUND, "the vector store has no such file");
}
