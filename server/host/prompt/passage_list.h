/* server/host/prompt/passage_list.h: hits as passages that a reader can follow: whole sentences,
 * each place of a document once, in the order of their documents. */
#pragma once

#include "retrieval/retriever.h"
#include "retro/text/tokenizer.h"

/* Bytes that either end of a hit may move by to the end of a sentence; where none is so near, it
 * stays. */
enum { PASSAGE_WIDEN_BYTES = 400 };

/* Widens a hit to whole sentences of its document's text. A hit that comes without that text stays
 * as it is. */
void passage_widen(struct hit *hit);

/* Grows a widened hit within its section, by so many tokens at most: to all of the section, or by
 * about as much on both sides, to whole sentences. Passages [n] of earlier turns that have a part
 * of the section end it: none of their text is written twice. So do pages of which OCR was less
 * sure than min_confidence. A hit without its document's text stays as it is. */
struct passage_growth {
    const struct tokenizer *tokenizer;
    const struct hit *earlier;
    int n_earlier;
    int min_confidence; /* 0: any page */
};
void passage_grow(const struct passage_growth *growth, struct hit *hit, int tokens);

/* Adds a widened hit to list [n], which has room for it, and returns the new n. It is joined with
 * passages of its document that it overlaps or touches, blanks between them included; a joined
 * passage is as similar as its most similar hit. Documents stand in the order of their first hits,
 * passages of one in the order of its text. */
int passage_list_add(struct hit *list, int n, struct hit hit);
