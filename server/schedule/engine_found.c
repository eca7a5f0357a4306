/* server/schedule/engine_found.c: found pictures on their way into a prompt: the picture thread
 * decodes those of a search, and the sequence is parked meanwhile. See engine_private.h. */
#include <stdlib.h>

#include "retrieval/picture_document.h"
#include "server/pictures/found_pictures.h"
#include "server/schedule/engine_private.h"

static struct found_pictures *latest_of(const struct engine_sequence *sequence) {
    return &sequence->sequence->answer.seen[sequence->passages.n_searched];
}

static void put_problem(struct found_picture *picture, const char *words) {
    if (picture->problem == NULL) picture->problem = xstrdup(words);
}

/* The documents of the hits that are pictures, and their data: URLs. */
static void list_pictures(const struct hits *hits, struct found_pictures *found,
                          struct text_span *urls) {
    found->list = xcalloc((size_t)hits->n + 1, sizeof *found->list);
    for (int i = 0; i < hits->n; i++) {
        const struct hit *hit = &hits->list[i];
        struct picture_document picture;
        if (hit->source.text == NULL || !picture_document_read(&picture, hit->source)) continue;
        if (found_pictures_find(found, hit->document)) continue;
        urls[found->n] = picture.url;
        found->list[found->n].document = hit->document;
        found->n++;
    }
}

/* How many of the found pictures are to be read; the others get their words. */
static int choose_pictures(const struct engine_sequence *sequence, struct found_pictures *found) {
    const struct passage_options *options = &sequence->engine->o.passages;
    int n = options->words->text.size > 0 ? min_int(found->n, options->max_pictures) : 0;
    struct error e;
    if (options->words->text.size > 0)
        error_set(&e, STATUS_TOO_LARGE,
                  "%d found pictures at most go into a prompt (option retrieval.prompt_pictures)",
                  options->max_pictures);
    else
        error_set(&e, STATUS_UNSUPPORTED,
                  "the model has no chat template that says how a picture stands in a text");
    for (int i = n; i < found->n; i++) put_problem(&found->list[i], e.text);
    return n;
}

/* On the picture thread. */
static void pictures_done(void *context) {
    struct engine_sequence *sequence = context;
    CHECK(queue_put(&sequence->engine->answered, (void *[]){sequence},
                    1)); /* as a lookup's answer: a sequence waits for one thing */
}

static bool ask_thread(struct engine_sequence *sequence, const struct text_span *urls, int n) {
    struct engine *engine = sequence->engine;
    struct found_pictures *found = latest_of(sequence);
    struct waker waker = {pictures_done, sequence};
    struct error e;
    sequence->found.job =
        picture_job_open(&(struct picture_reader){.picture_input = engine->o.picture_input}, n,
                         sequence->sequence->asked.principal, waker);
    sequence->found.job->skips = true;
    for (int i = 0; i < n; i++) sequence->found.job->files[i].url = urls[i];
    if (picture_thread_ask(engine->o.pictures, sequence->found.job, &e) == STATUS_OK) return true;
    for (int i = 0; i < n; i++) put_problem(&found->list[i], e.text);
    return false;
}

void found_part_close(struct found_part *part) { picture_job_release(part->job); }

bool engine_read_found(struct engine_sequence *sequence) {
    struct engine *engine = sequence->engine;
    const struct hits *hits = &sequence->sequence->answer.found[sequence->passages.n_searched];
    struct found_pictures *found = latest_of(sequence);
    picture_job_release(sequence->found.job);
    sequence->found.job = NULL;
    if (engine->o.picture_input == NULL || sequence->sequence->asked.n_source > 0) return false;

    struct text_span *urls = xcalloc((size_t)hits->n + 1, sizeof *urls);
    list_pictures(hits, found, urls);
    int n = choose_pictures(sequence, found);
    bool reads = n > 0 && ask_thread(sequence, urls, n);
    free(urls);
    if (!reads) return false;
    engine_sequence_park(sequence, PARKED_FOR_PICTURES);
    return true;
}

void engine_note_found(struct engine_sequence *sequence) {
    const struct picture_job *job = sequence->found.job;
    struct found_pictures *found = latest_of(sequence);
    for (int i = 0; i < job->n; i++) {
        const struct picture_file *file = &job->files[i];
        bool reached = i < job->n_done && job->error.status == STATUS_OK;
        if (file->place < 0)
            put_problem(&found->list[i], reached ? file->error.text : job->error.text);
    }
}

/* A job's file i is that of found picture i. */
int engine_list_found(const struct engine_sequence *sequence, struct passage_picture *out,
                      int *places) {
    const struct picture_job *job = sequence->found.job;
    const struct found_pictures *found = latest_of(sequence);
    int n = 0;
    for (int i = 0; job && i < job->n; i++) {
        int place = job->files[i].place;
        if (found->list[i].problem) continue;
        out[n] = (struct passage_picture){.document = found->list[i].document,
                                          .rows = job->set->list[place].taken};
        places[n] = place;
        n++;
    }
    return n;
}

void engine_tell_found(struct engine_sequence *sequence, const struct passage_picture *pictures,
                       int n) {
    struct found_pictures *found = latest_of(sequence);
    for (int i = 0; i < n; i++) {
        struct error e;
        if (pictures[i].stands) continue;
        error_set(&e, STATUS_TOO_LARGE, "the context has no room for its %d rows",
                  pictures[i].rows);
        for (int j = 0; j < found->n; j++)
            if (found->list[j].document == pictures[i].document)
                put_problem(&found->list[j], e.text);
    }
}
