/* retrieval/retriever.c: what every retriever's answers share. See retriever.h. */
#include "retrieval/retriever.h"

#include <stdlib.h>
#include <string.h>

void hits_free(struct hits *h) {
    free(h->list);
    free(h->ids);
    snapshot_release(h->pinned);
    *h = (struct hits){0};
}

int hit_list_names(const struct hit *hit, const char *names[HIT_LISTS]) {
    static const struct {
        enum hit_list list;
        const char *name;
    } lists[HIT_LISTS] = {{HIT_BY_PASSAGES, "passages"}, {HIT_BY_WORDS, "words"}, {HIT_BY_PICTURES, "pictures"}};
    int n = 0;
    for (int i = 0; i < HIT_LISTS; i++) {
        if ((hit->by & (unsigned)lists[i].list) == 0) continue;
        names[n] = lists[i].name;
        n++;
    }
    return n;
}

void hit_put_lists(struct json_writer *w, const struct hit *hit) {
    const char *names[HIT_LISTS];
    int n = hit_list_names(hit, names);
    if (n == 0) return;
    put_key_array(w, "by");
    for (int i = 0; i < n; i++) put_string(w, names[i]);
    put_array_end(w);
}

enum status retriever_search(struct retriever *t, const struct retriever_query *queries, int n, struct hits *hits,
                             struct error *e) {
    memset(hits, 0, (size_t)n * sizeof *hits);
    enum status status = t->ops->search(t, queries, n, hits, e);
    for (int i = 0; i < n && status; i++) hits_free(&hits[i]);
    return status;
}
