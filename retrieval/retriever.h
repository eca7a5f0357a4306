/* retrieval/retriever.h: query -> hits, wherever the documents are: a collection and the embedders
 * that it was made with.
 *
 * A hit shows nothing that can be closed under it: `hits` hold the snapshot that all their pointers
 * lead into. */
#pragma once

#include "config/json/json_writer.h"
#include "retrieval/collection.h"

enum retriever_way {
    RETRIEVE_NEAREST, /* by the embedder's vectors */
    RETRIEVE_WORDS,   /* by the words of the text */
    RETRIEVE_BOTH,    /* by both (docs/search.md) */
    RETRIEVE_USUAL    /* by both where that can be, else by vectors: query_ranks_words */
};

/* How hits are chosen among what a query finds. Zeroed: the nearest, whatever they are. */
struct retriever_choice {
    enum retriever_way way;
    int per_document; /* at most so many chunks of a document; 0: any */
    float
        distinct; /* a chunk whose cosine with a better one is above this is left out; 0: none is */
    int min_confidence; /* a chunk of a page that OCR was less sure of is left out, 1 .. 100; 0:
                           none is */
    int rerank; /* so many hits, k or more, are put in order by the retriever's reranker; 0: none
                   are */
    bool operators;   /* the text has operators (retrieval/words/word_demands.h) */
    bool no_pictures; /* the vectors that pictures have of their own embedder are not searched */
};

/* Where pictures have an embedder of their own, a query is sought in two lists, of passages by the
 * documents' embedder and of pictures by theirs, and the lists are fused by rank: cosines of two
 * embedders cannot be compared. A picture is sought among the pictures alone. So is no query whose
 * hits a model reads by cross attention (r): it reads tokens. */
struct retriever_query {
    struct text_span text; /* embedded as the documents were */
    const struct embedder_picture
        *picture;        /* in place of the text; only vectors find by it; NULL: none */
    const float *vector; /* [dim], unit length, in place of the text; NULL: none */
    const float
        *picture_vector; /* [pictures.dim], the same for the pictures' embedder; NULL: none */
    int k;               /* at most so many hits; 0 or less: none */
    int r; /* tokens of a hit for a model that reads hits by cross attention; 0: none are wanted */
    struct retriever_choice choice;
    const struct word_demands
        *demands; /* of choice.operators: retriever_search reads them, callers leave it NULL */
    float min_similarity;  /* the floor of the cosine, in each list by itself; -1: none */
    struct filter *filter; /* documents that may be found; borrowed. NULL: all */
    /* [n_excluded] documents, by path or id, that are found as little as if there were none such;
     * borrowed. The next nearest chunks take the places of theirs. */
    const struct text_span *excluded;
    int n_excluded;
    struct snapshot *snapshot; /* of this retriever, what is searched; borrowed. NULL: the newest */
    const atomic_bool *cancelled; /* true: nobody waits for it any more; NULL: somebody does */
    int *n_embedded; /* tokens that embedder and reranker have read for it are added here; NULL:
                        nobody counts */
};

/* Whether its hits are ranked by words, where the collection can. A picture has none, nor has a
 * vector. */
static inline bool query_ranks_words(const struct retriever_query *query) {
    if (query->choice.way != RETRIEVE_USUAL) return query->choice.way != RETRIEVE_NEAREST;
    return query->picture == NULL && query->text.size > 0;
}

/* The parts of a hit's worth, by which vectors and words are joined. */
struct hit_worth {
    bool joined;          /* vectors and words were: the rest counts */
    float vectors, words; /* 0 .. 1 */
    float weight;         /* of words, for this query */
    float sparse;         /* 0 .. 1, where the collection has sparse weights */
    float sparse_weight;  /* 0: it has none, or the query */
    int exact;            /* rare identifiers of the query that it has */
    int told;             /* of these: a line of it begins with the identifier */
    float total;          /* of the query's last chunk by vectors 0, where it has no word */
};

/* The lists that a hit was in, as bits. */
enum hit_list { HIT_BY_PASSAGES = 1, HIT_BY_WORDS = 2, HIT_BY_PICTURES = 4, HIT_BY_SPARSE = 8 };

/* One chunk of a document. */
struct hit {
    const char *document;     /* its id: the same in every snapshot that has it */
    const char *path, *title; /* title may be "" */
    int64_t chunk;            /* its number in this snapshot; in Milvus: in its document */
    uint64_t start, end;      /* bytes of the document's text */
    struct text_span text;    /* these bytes: UTF-8, any tokenizer's */
    struct text_span
        source; /* all of the document's text, which `text` is part of; NULL: it is not at hand */
    struct mark_span marks; /* of the document, for place_find; none without `source` */
    const uint32_t
        *tokens; /* [n_tokens] of the chunk, by the tokenizer that the documents were cut with */
    int n_tokens;
    float similarity; /* cosine, of the list in which it stands best */
    unsigned by;      /* bits of enum hit_list; 0: pictures have no embedder of their own */
    int confidence;   /* of OCR in the chunk's least sure page, 1 .. 100; 0: it was not read so */
    float relevance;  /* by a reranker, 0 .. 1; -1: it was not asked */
    struct hit_worth worth;
    uint64_t version; /* hit_version; 0: nobody asked */
    int number;       /* by which the prompt that it stands in calls it, from 1; 0: it is in none */
};
/* A hash of all that is shown of the hit's document: another one once that has changed. 0: its text
 * is not at hand. */
uint64_t hit_version(const struct hit *hit);

/* The names of the lists that a hit was in, into names; returns how many. */
enum { HIT_LISTS = 4 };
int hit_list_names(const struct hit *hit, const char *names[HIT_LISTS]);
/* Writes these as "by" of an open object; nothing where there are none. */
void hit_put_lists(struct json_writer *w, const struct hit *hit);
/* Where the hit stands on its pages, as "boxes" of an open object: one for each page, with its
 * number, its size and the rectangles of the lines, in points from the left top corner of the page
 * as a viewer shows it. An empty list where no place is known; null for a text of no document. */
void hit_put_boxes(struct json_writer *w, const struct hit *hit);
/* Writes its worth as "worth" of an open object; nothing where vectors and words were not joined.
 */
void hit_put_worth(struct json_writer *w, const struct hit *hit);

struct hits {
    struct hit *list; /* [n], best first */
    int n;
    /* [n, r] what the model reads of each: the chunk and what follows it in its document, cut or
     * padded with the end-of-document id (docs/spec/retro-data.md 9). NULL when r is 0. */
    int32_t *ids;
    struct snapshot *pinned; /* what list points into */
    int n_again; /* of passages in a prompt: the last ones stand in an earlier turn of it too */
};
void hits_free(struct hits *hits); /* of zeroed ones: nothing */

/* A chunk as a hit, which borrows from the chunk's snapshot. */
void hit_show(struct hit *hit, const struct chunk *chunk, float similarity);

struct retriever;

/* The embedders that a collection was made with. */
struct retriever_embedders {
    const struct embedder *texts;    /* and pictures, where these have no other */
    const struct embedder *pictures; /* their own; NULL: they have none */
};
/* A query gets max_k hits at most. Collection and embedders are borrowed. STATUS_INVALID where the
 * collection was made with others. */
enum status retriever_open(struct retriever **out, struct collection *collection,
                           struct retriever_embedders embedders, int max_k, struct error *e);
/* Snapshots and hits that are held outlive it. NULL: nothing. */
void retriever_close(struct retriever *retriever);
/* The newest snapshot, held for the caller. Any thread. */
struct snapshot *retriever_hold(struct retriever *retriever);
/* The words that a ranking by words needs of a snapshot, which are made when they are first needed:
 * whether that takes no time any more, and to make them now. Any thread, beside searches.
 * STATUS_NO_MEMORY. */
bool retriever_has_words(const struct retriever *retriever, const struct snapshot *snapshot);
enum status retriever_make_words(struct retriever *retriever, struct snapshot *snapshot,
                                 struct error *e);
/* From now on queries can be reranked (retriever_choice.rerank). The reranker is borrowed. */
void retriever_set_reranker(struct retriever *retriever, const struct embedder *reranker);
/* A passage that was found before, to be shown again. */
struct recalled {
    const char *document; /* its stored id; borrowed */
    uint64_t version, start, end;
    struct hit hit; /* comes with the passage's number and similarity; once it is recalled, with all
                       but its ranks */
    struct snapshot *pinned; /* held for the caller: what `hit` points into; NULL: its document has
                                changed, has gone, or is not for the asker */
};
/* Of a collection on a disk, whose documents are at hand. */
struct recall {
    struct recalled *list; /* [n] */
    int n;
    const struct filter *filter; /* NULL: all */
    const struct text_span *excluded;
    int n_excluded;
};
/* Looks at the newest state. Any thread. */
void retriever_recall(struct retriever *retriever, const struct recall *recall);
void recalled_release(struct recalled *list, int n);
/* Whether passages of the retriever's collection can be recalled. */
bool retriever_recalls(const struct retriever *retriever);
/* Embeds the texts of all n queries and searches. hits [n] are filled in, free each; after a
 * failure there are none. A query's hits do not depend on the other queries. A query that nobody
 * waits for any more may find anything; STATUS_CANCELLED when these are all. One caller at a time.
 * STATUS_UNSUPPORTED for a ranking by words in Milvus, whose hits are what is there when they are
 * sought, whatever snapshot a query names: it keeps no older state. */
enum status retriever_search(struct retriever *retriever, const struct retriever_query *queries,
                             int n, struct hits *hits, struct error *e);
