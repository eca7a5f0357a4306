/* server/schedule/engine_quotes.c: what an answer may quote: passages in its prompt as they stand
 * there, neighbours as far as the model reads them, each once. See engine_private.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/text/tokenizer.h"
#include "server/host/prompt/quotable.h"
#include "server/schedule/engine_private.h"

static bool quotes(const struct engine_sequence *sequence) {
    const struct matcher *matcher = sequence->guide.matcher;
    return matcher && grammar_quotes(matcher->grammar);
}

static const struct hit *hit_of(const struct engine_sequence *sequence, int entry, int hit) {
    if (entry == QUOTES_EARLIER) return &sequence->sequence->answer.earlier[hit];
    return &sequence->sequence->answer.found[entry].list[hit];
}

/* Whether the same bytes of the same document may be quoted already. */
static bool is_known(const struct engine_sequence *sequence, const struct hit *hit, size_t size) {
    const struct guide_part *guide = &sequence->guide;
    for (int i = 0; hit->path && i < guide->n_passages; i++) {
        const struct quotable_passage *passage = &guide->passages[i];
        if (passage->entry == QUOTES_GIVEN) continue;
        const struct hit *known = hit_of(sequence, passage->entry, passage->hit);
        if (known->path && known->start == hit->start && passage->size == size &&
            strcmp(known->document, hit->document) == 0)
            return true;
    }
    return false;
}

static enum status add_passage(struct engine_sequence *sequence, struct quotable_passage passage,
                               const struct passage_text *text, struct error *e) {
    struct guide_part *guide = &sequence->guide;
    guide->passages = xgrow(guide->passages, guide->n_passages, &guide->passages_capacity,
                            sizeof *guide->passages);
    passage.size = text->text.size;
    guide->passages[guide->n_passages] = passage;
    guide->n_passages++;
    return matcher_add_passage(guide->matcher, text, guide->n_passages - 1, e);
}

static enum status add_hit(struct engine_sequence *sequence, int entry, int hit,
                           struct text_span text, struct error *e) {
    const struct hit *shown = hit_of(sequence, entry, hit);
    struct passage_text passage = quotable_text(shown, text);
    if (is_known(sequence, shown, text.size)) return STATUS_OK;
    return add_passage(sequence, (struct quotable_passage){.entry = entry, .hit = hit}, &passage,
                       e);
}

enum status engine_quote_passages(struct engine_sequence *sequence, int j, struct error *e) {
    const struct hits *hits = &sequence->sequence->answer.found[j];
    enum status status = STATUS_OK;
    const struct sequence_answer *answer = &sequence->sequence->answer;
    for (int i = 0; quotes(sequence) && i < hits->n && status == STATUS_OK; i++)
        status = add_hit(sequence, j, i, hits->list[i].text, e);
    for (int i = 0; quotes(sequence) && i < answer->n_earlier && status == STATUS_OK; i++)
        status = add_hit(sequence, QUOTES_EARLIER, i, answer->earlier[i].text, e);
    return status;
}

/* How many bytes of the text the model reads in these tokens. */
static size_t count_read(const struct engine_sequence *sequence, struct text_span text,
                         const int32_t *ids) {
    const struct tokenizer *tokenizer = sequence->engine->o.tokenizer;
    struct buffer read = {0};
    size_t same = 0, first = 0;
    for (int i = 0; i < sequence->engine->info.retrieved_length; i++)
        if (!tokenizer_is_special(tokenizer, ids[i])) tokenizer_piece(tokenizer, ids[i], &read);
    /* SentencePiece begins a text with a blank. */
    if (read.size > 0 && text.size > 0 && read.data[0] == ' ' && text.text[0] != ' ') first = 1;
    while (same < text.size && first + same < read.size &&
           text.text[same] == read.data[first + same])
        same++;
    buffer_free(&read);
    return same;
}

/* A chunk, and what follows it in its document as far as it is read. */
static struct text_span neighbor_text(const struct engine_sequence *sequence,
                                      const struct hits *hits, int i) {
    const struct hit *hit = &hits->list[i];
    int length = sequence->engine->info.retrieved_length;
    if (hits->ids == NULL || hit->source.text == NULL) return hit->text;
    struct text_span rest = {hit->source.text + hit->start, hit->source.size - hit->start};
    size_t read = count_read(sequence, rest, hits->ids + (ptrdiff_t)i * length);
    rest.size = read > hit->text.size ? read : hit->text.size;
    return rest;
}

enum status engine_quote_neighbors(struct engine_sequence *sequence, int j, struct error *e) {
    int entry = sequence->sequence->answer.n_searches + j;
    const struct hits *hits = &sequence->sequence->answer.found[entry];
    enum status status = STATUS_OK;
    for (int i = 0; quotes(sequence) && i < hits->n && status == STATUS_OK; i++)
        status = add_hit(sequence, entry, i, neighbor_text(sequence, hits, i), e);
    return status;
}

enum status engine_quote_given(struct engine_sequence *sequence, struct error *e) {
    const struct sequence_neighbors *asked = &sequence->sequence->asked.neighbors;
    int length = sequence->engine->info.retrieved_length;
    enum status status = STATUS_OK;
    for (int i = 0; quotes(sequence) && i < asked->n_given && status == STATUS_OK; i++) {
        struct text_span given = asked->given[i], text = given;
        text.size = count_read(sequence, given, asked->given_ids + (ptrdiff_t)i * length);
        bool torn = text.size > 0 && text.size < given.size && !is_blank(given.text[text.size]) &&
                    !is_blank(given.text[text.size - 1]);
        status = add_passage(sequence, (struct quotable_passage){.entry = QUOTES_GIVEN, .hit = i},
                             &(struct passage_text){.text = text, .torn_end = torn}, e);
    }
    return status;
}

void engine_tell_quotes(struct engine_sequence *sequence) {
    struct sequence_answer *answer = &sequence->sequence->answer;
    const struct guide_part *guide = &sequence->guide;
    if (!quotes(sequence) || answer->quotes) return;
    int n;
    struct matcher_quote *found = matcher_list_quotes(guide->matcher, &n);
    answer->quotes = xcalloc((size_t)n + 1, sizeof *answer->quotes);
    for (int i = 0; i < n; i++) {
        const struct quotable_passage *passage = &guide->passages[found[i].found.number];
        if (guide->text_start + found[i].end > sequence->text.visible) break; /* a stop cut it */
        answer->n_quotes++;
        answer->quotes[i] =
            (struct sequence_quote){.entry = passage->entry,
                                    .hit = passage->hit,
                                    .start = found[i].found.start,
                                    .end = found[i].found.end,
                                    .text_start = guide->text_start + found[i].start,
                                    .text_end = guide->text_start + found[i].end};
    }
    free(found);
}
