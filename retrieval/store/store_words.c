/* retrieval/store/store_words.c: the chunks of a snapshot that share words with a text, by BM25.
 * Statistics are those of the documents that are searched, so a filter leaves nothing of the others
 * in a rank. The words of a generation are a file of it; those of a document of the log are made of
 * its text when they are first asked for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/word_search.h"
#include "retrieval/words/chunk_words.h"

/* How common a word may be where rarer ones are there: more than an eighth of all chunks have it.
 */
enum { COMMON_SHARE = 8, RARE_ENOUGH = 2 };
/* To seek a chunk in a list costs as much as to read so many of it. */
enum { SEEK_COST = 32 };

static struct text_span logged_text(void *context, int64_t chunk) {
    return chunk_words_read(context, (int)chunk);
}

/* The document of the log, where it is searched; else NULL. */
static const struct logged_document *logged_in_scope(const struct word_search *search, int number) {
    const struct epoch *epoch = search->snapshot->epoch;
    const struct logged_document *document = epoch_logged(epoch, number);
    if (!store_snapshot_has(search->snapshot, document->added, &document->gone)) return NULL;
    struct stored_document stored =
        epoch_document(epoch, disk_generation_info(epoch->generation)->n_documents + number);
    return document_is_allowed(search->filter, &stored) ? document : NULL;
}

enum status query_word_list(const struct query_word *word, const struct words *words,
                            struct buffer *own, struct word_list *list, struct error *e) {
    struct text_span text = {word->text.bytes, word->text.size};
    return word->begins ? words_gather(words, text, own, list, e)
                        : words_find(words, text, list, e);
}

/* Counting. */

/* Documents of the generation that tell in how many chunks of the scope a word is: those of a
 * narrow filter, or those that went, which are taken off all. */
struct counted_documents {
    int64_t *numbers; /* [n] rising */
    int64_t n, n_chunks;
    int64_t total; /* their words */
};

static void add_counted(const struct word_search *search, struct counted_documents *counted,
                        int64_t number) {
    struct stored_document document =
        disk_generation_document_at(search->snapshot->epoch->generation, number);
    counted->numbers[counted->n] = number;
    counted->n++;
    counted->n_chunks += document.n_chunks;
    for (int64_t i = 0; i < document.n_chunks; i++)
        counted->total += words_length(search->generation, document.first_chunk + i);
}

/* Of all documents of the generation, or of those of the filter, the ones that are not in the
 * snapshot. */
static void find_gone(const struct word_search *search, struct counted_documents *gone) {
    struct epoch *epoch = search->snapshot->epoch;
    int64_t n = atomic_load_explicit(&epoch->n_gone_listed, memory_order_acquire);
    gone->numbers = xmalloc((size_t)(n + 1) * sizeof *gone->numbers);
    for (int64_t i = 0; i < n; i++) {
        int64_t number = epoch->gone_list[i];
        if (search->among && !selection_has(search->among, number)) continue;
        if (!store_snapshot_has(search->snapshot, 0, &epoch->gone[number]))
            add_counted(search, gone, number);
    }
}

static int compare_int64(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Chunks of these documents that have the word. */
static int64_t count_within(struct word_search *search, const struct counted_documents *documents,
                            struct word_cursor *cursor) {
    int64_t n = 0;
    for (int64_t i = 0; i < documents->n && cursor->chunk != WORD_END; i++) {
        struct stored_document document =
            disk_generation_document_at(search->snapshot->epoch->generation, documents->numbers[i]);
        int64_t end = document.first_chunk + document.n_chunks;
        for (word_cursor_seek(cursor, (uint32_t)document.first_chunk);
             cursor->chunk != WORD_END && cursor->chunk < end; word_cursor_next(cursor))
            n++;
    }
    return n;
}

static int64_t count_each(const struct word_search *search, struct word_cursor *cursor) {
    const struct disk_generation *generation = search->snapshot->epoch->generation;
    int64_t n = 0;
    for (; cursor->chunk != WORD_END; word_cursor_next(cursor))
        n += word_search_has_document(search,
                                      disk_generation_document_of(generation, cursor->chunk));
    return n;
}

/* allowed: the documents of the filter, where they are few; NULL: there is none, or there are
 * many. */
static enum status count_word(struct word_search *search, struct query_word *word,
                              const struct counted_documents *allowed,
                              const struct counted_documents *gone, struct error *e) {
    struct word_cursor *cursor = &search->cursors[0];
    if (query_word_list(word, search->generation, &word->own, &word->list, e)) return e->status;
    word_cursor_open(cursor, search->generation, &word->list);
    if (search->among == NULL && gone->n * SEEK_COST <= word->list.n)
        word->n_chunks += word->list.n - count_within(search, gone, cursor);
    else if (allowed && allowed->n * SEEK_COST <= word->list.n)
        word->n_chunks += count_within(search, allowed, cursor);
    else
        word->n_chunks += count_each(search, cursor);
    return cursor->damage ? words_fail(search->generation, cursor->damage, e) : STATUS_OK;
}

/* The documents of a narrow filter that are in the snapshot; false: it is not narrow. */
static bool find_allowed(const struct word_search *search, struct counted_documents *allowed) {
    int64_t n = disk_generation_info(search->snapshot->epoch->generation)->n_documents;
    if (search->among == NULL || search->among->n_documents * SEEK_COST > n) return false;
    allowed->numbers = xmalloc((size_t)(search->among->n_documents + 1) * sizeof *allowed->numbers);
    for (int64_t i = 0; i < n; i++)
        if (selection_has(search->among, i) && word_search_has_document(search, i))
            add_counted(search, allowed, i);
    return true;
}

static enum status count_generation(struct word_search *search, struct error *e) {
    const struct disk_generation *generation = search->snapshot->epoch->generation;
    struct counted_documents gone = {0}, allowed = {0};
    find_gone(search, &gone);
    if (gone.n > 0) qsort(gone.numbers, (size_t)gone.n, sizeof *gone.numbers, compare_int64);
    bool narrow = find_allowed(search, &allowed);
    search->n_chunks =
        search->among ? search->among->n_chunks : disk_generation_info(generation)->n_chunks;
    search->total = search->among ? search->among->n_words : words_total(search->generation);
    search->n_chunks -= gone.n_chunks;
    search->total -= gone.total;
    enum status status = STATUS_OK;
    for (int i = 0; i < search->n_words && status == STATUS_OK; i++)
        status = count_word(search, &search->words[i], narrow ? &allowed : NULL, &gone, e);
    free(gone.numbers);
    free(allowed.numbers);
    return status;
}

static enum status count_logged(struct word_search *search, struct error *e) {
    for (int number = 0; number < search->snapshot->n_logged; number++) {
        const struct logged_document *document = logged_in_scope(search, number);
        if (document == NULL) continue;
        search->n_chunks += document->bytes->image.document.n_chunks;
        search->total += words_total(search->logged[number]);
        for (int i = 0; i < search->n_words; i++) {
            struct query_word *word = &search->words[i];
            struct buffer own = {0};
            struct word_list list;
            enum status status = query_word_list(word, search->logged[number], &own, &list, e);
            buffer_free(&own);
            if (status) return status;
            word->n_chunks += list.n;
        }
    }
    return STATUS_OK;
}

/* Common words are left out where rarer ones are there: they cost most and tell least. */
static void weigh_words(struct word_search *search) {
    int n_rare = 0;
    search->average = (double)search->total / (double)(search->n_chunks > 0 ? search->n_chunks : 1);
    for (int i = 0; i < search->n_words; i++)
        n_rare += search->words[i].n_chunks > 0 &&
                  search->words[i].n_chunks * COMMON_SHARE <= search->n_chunks;
    for (int i = 0; i < search->n_words; i++) {
        double there = (double)search->words[i].n_chunks,
               missing = (double)search->n_chunks - there;
        bool common =
            search->words[i].n_chunks * COMMON_SHARE > search->n_chunks && n_rare >= RARE_ENOUGH;
        search->words[i].weight =
            there > 0 && !common ? log(1 + (missing + 0.5) / (there + 0.5)) : 0;
    }
}

/* Scoring. */

static enum status score_all(struct word_search *search, struct error *e) {
    const struct disk_generation *generation = search->snapshot->epoch->generation;
    struct scored_words scored = {.words = search->generation,
                                  .n = disk_generation_info(generation)->n_chunks};
    enum status status = word_search_score(search, &scored, e);
    for (int number = 0; number < search->snapshot->n_logged && status == STATUS_OK; number++) {
        const struct logged_document *document = logged_in_scope(search, number);
        if (document == NULL) continue;
        scored = (struct scored_words){.words = search->logged[number],
                                       .first = document->first_chunk,
                                       .n = document->bytes->image.document.n_chunks,
                                       .logged = true};
        status = word_search_score(search, &scored, e);
    }
    best_chunks_sort(&search->best);
    return status;
}

/* Telling. */

static double weigh_all(const struct word_search *search) {
    double all = 0, none = log(1 + ((double)search->n_chunks + 0.5) / 0.5);
    for (int i = 0; i < search->n_words; i++)
        all += search->words[i].n_chunks > 0 ? search->words[i].weight : none;
    return all;
}

/* A chunk that was found, and its place among them. */
struct told {
    int64_t id;
    int place;
};

static int compare_told(const void *left, const void *right) {
    const struct told *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

/* Adds the weight of a word to the shares of the chunks that have it, which are in the order of
 * their numbers. */
static enum status tell_word(struct word_search *search, const struct query_word *word,
                             const struct told *told, double *own, struct error *e) {
    const struct epoch *epoch = search->snapshot->epoch;
    int64_t n_generation = disk_generation_info(epoch->generation)->n_chunks;
    struct word_cursor *cursor = &search->cursors[0];
    struct buffer list_bytes = {0};
    enum status status = STATUS_OK;
    word_cursor_open(cursor, search->generation, &word->list);
    for (int i = 0; i < search->best.n && status == STATUS_OK; i++) {
        int64_t chunk = told[i].id;
        if (chunk >= n_generation) {
            struct word_list list;
            int number = store_snapshot_logged(search->snapshot, chunk);
            chunk -= epoch_logged(epoch, number)->first_chunk;
            buffer_clear(&list_bytes);
            status = query_word_list(word, search->logged[number], &list_bytes, &list, e);
            if (status) break;
            word_cursor_open(cursor, search->logged[number], &list);
        }
        word_cursor_seek(cursor, (uint32_t)chunk);
        if (cursor->chunk == chunk) own[told[i].place] += word->weight;
    }
    buffer_free(&list_bytes);
    if (status) return status;
    return cursor->damage ? words_fail(cursor->words, cursor->damage, e) : STATUS_OK;
}

static enum status tell_shares(struct word_search *search, struct word_found *found,
                               struct error *e) {
    double all = weigh_all(search);
    int n = search->best.n;
    struct told *told = xmalloc(((size_t)n + 1) * sizeof *told);
    double *own = xcalloc((size_t)n + 1, sizeof *own);
    enum status status = STATUS_OK;
    for (int i = 0; i < n; i++) told[i] = (struct told){search->best.list[i].id, i};
    if (n > 0) qsort(told, (size_t)n, sizeof *told, compare_told);
    for (int i = 0; i < search->n_words && status == STATUS_OK; i++)
        if (search->words[i].weight > 0)
            status = tell_word(search, &search->words[i], told, own, e);
    for (int i = 0; i < search->best.k; i++) {
        found->ids[i] = i < n ? search->best.list[i].id : FOUND_NONE;
        found->shares[i] = i < n && all > 0 ? (float)(own[i] / all) : 0;
    }
    free(told);
    free(own);
    return status;
}

/* The words of the log are made where nobody has made them yet. */
static enum status open_words(struct word_search *search, struct error *e) {
    struct epoch *epoch = search->snapshot->epoch;
    int n = search->snapshot->n_logged;
    enum status status = STATUS_OK;
    search->generation = disk_generation_words(epoch->generation);
    search->logged = xcalloc((size_t)n + 1, sizeof(struct words *));
    for (int number = 0; number < n && status == STATUS_OK; number++) {
        struct logged_bytes *bytes = epoch_logged(epoch, number)->bytes;
        struct chunk_words_reader reader = {.document = &bytes->image.document};
        struct words_request one = {logged_text, &reader, bytes->image.document.n_chunks,
                                    search->cancelled};
        status = words_once_get(&bytes->words, &one, &search->logged[number], e);
        buffer_free(&reader.text);
    }
    if (status == STATUS_OK && atomic_load(&epoch->n_with_words) < n)
        atomic_store(&epoch->n_with_words, n);
    return status;
}

static void select_documents(struct word_search *search, struct selection **selection) {
    struct epoch *epoch = search->snapshot->epoch;
    if (search->filter == NULL) return;
    *selection = selections_find(&epoch->selections, epoch->generation,
                                 (struct filter *)(uintptr_t)search->filter);
    bool all = (*selection)->n_documents == disk_generation_info(epoch->generation)->n_documents;
    search->among = all ? NULL : *selection;
}

/* The words that are ranked by: beginnings first, which are few. */
static void read_query(struct word_search *search, const struct word_query *query) {
    struct word_text *words = xmalloc(QUERY_WORDS * sizeof *words);
    const struct word_demands *demands = query->demands;
    struct text_span text = query->text;
    for (int i = 0; demands && i < demands->n_prefixes; i++) {
        search->words[i].text = demands->prefixes[i];
        search->words[i].begins = true;
        search->n_words++;
    }
    if (demands) text = (struct text_span){demands->sought.data, demands->sought.size};
    int n = words_split(text, words, QUERY_WORDS - search->n_words);
    for (int i = 0; i < n; i++) search->words[search->n_words + i].text = words[i];
    search->n_words += n;
    search->demands = demands;
    free(words);
}

static void free_search(struct word_search *search) {
    for (int i = 0; i < search->n_words; i++) buffer_free(&search->words[i].own);
    free(search->logged);
    free(search->best.list);
    free(search);
}

enum status store_search_words(const struct snapshot *snapshot, const struct word_query *query,
                               struct word_found *found, struct error *e) {
    struct word_search *search = xcalloc(1, sizeof *search);
    struct selection *selection = NULL;
    for (int i = 0; i < query->k; i++) found->ids[i] = FOUND_NONE;
    search->snapshot = store_snapshot_read(snapshot);
    search->filter = query->filter;
    search->cancelled = query->cancelled;
    search->best.k = query->k;
    search->best.list = xmalloc((size_t)query->k * sizeof *search->best.list);
    select_documents(search, &selection);
    read_query(search, query);
    enum status status = open_words(search, e);
    if (status == STATUS_OK) status = count_generation(search, e);
    if (status == STATUS_OK) status = count_logged(search, e);
    if (status == STATUS_OK) {
        weigh_words(search);
        status = score_all(search, e);
    }
    if (status == STATUS_OK) status = tell_shares(search, found, e);
    free_search(search);
    selection_release(selection);
    return status;
}
