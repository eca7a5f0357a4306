/* retrieval/words/word_demands.c: see word_demands.h. */
#include "retrieval/words/word_demands.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/text.h"
#include "config/base/utf8.h"

/* Reading. */

/* A part of a query: a phrase between quotes, or what stands between blanks. */
struct query_part {
    struct text_span text;
    bool without, quoted;
};

/* The next part behind *at; its text is empty at the end. */
static enum status read_part(struct text_span query, size_t *at, struct query_part *part,
                             struct error *e) {
    *part = (struct query_part){.quoted = false};
    while (*at < query.size && is_blank(query.text[*at])) *at += 1;
    part->without =
        query.size - *at > 1 && query.text[*at] == '-' && !is_blank(query.text[*at + 1]);
    if (part->without) *at += 1;
    part->quoted = *at < query.size && query.text[*at] == '"';
    if (part->quoted) *at += 1;
    size_t first = *at;
    while (*at < query.size && query.text[*at] != '"' &&
           (part->quoted || !is_blank(query.text[*at])))
        *at += 1;
    part->text = (struct text_span){query.text + first, *at - first};
    if (!part->quoted) return STATUS_OK;
    if (*at == query.size)
        return error_set(e, STATUS_INVALID,
                         "the query has a \" without its end; a phrase stands between two");
    *at += 1;
    return STATUS_OK;
}

static enum status add_demand(struct word_demands *demands, const struct query_part *part,
                              struct error *e) {
    struct word_reader reader;
    struct read_word word;
    struct word_demand demand = {.without = part->without};
    uint32_t first = 0;
    bool fits = true;
    word_reader_open(&reader, part->text);
    while (fits && word_reader_next(&reader, &word)) {
        fits = demand.n < PHRASE_WORDS;
        if (!fits) break;
        if (demand.n == 0) first = word.position;
        demand.places[demand.n] = word.position - first;
        demand.words[demand.n].size = word.size;
        memcpy(demand.words[demand.n].bytes, word.bytes, word.size);
        demand.n++;
    }
    word_reader_close(&reader);
    if (!fits)
        return error_set(e, STATUS_INVALID, "a phrase of the query has more than %d words",
                         PHRASE_WORDS);
    if (demand.n == 0) return STATUS_OK;
    if (demands->n == WORD_DEMANDS)
        return error_set(e, STATUS_INVALID, "the query has more than %d phrases and excluded words",
                         WORD_DEMANDS);
    demands->list[demands->n] = demand;
    demands->n++;
    return STATUS_OK;
}

/* The last word of a part before its '*'; those before it are sought as they are. */
static enum status add_prefix(struct word_demands *demands, struct text_span text,
                              struct error *e) {
    struct word_reader reader;
    struct read_word word;
    struct word_text latest = {.size = 0};
    word_reader_open(&reader, text);
    while (word_reader_next(&reader, &word)) {
        if (latest.size > 0) {
            buffer_append(&demands->sought, latest.bytes, latest.size);
            buffer_append(&demands->sought, " ", 1);
        }
        latest = (struct word_text){.size = word.size};
        memcpy(latest.bytes, word.bytes, word.size);
    }
    word_reader_close(&reader);
    if (latest.size == 0) return STATUS_OK;
    if (utf8_count(latest.bytes, latest.size) < 2)
        return error_set(e, STATUS_INVALID,
                         "a word's beginning before * needs two characters or more");
    if (demands->n_prefixes == WORD_PREFIXES)
        return error_set(e, STATUS_INVALID, "the query has more than %d words with *",
                         WORD_PREFIXES);
    demands->prefixes[demands->n_prefixes] = latest;
    demands->n_prefixes++;
    return STATUS_OK;
}

static void put_text(struct buffer *out, struct text_span text) {
    buffer_append(out, text.text, text.size);
    buffer_append(out, " ", 1);
}

static enum status add_part(struct word_demands *demands, const struct query_part *part,
                            struct error *e) {
    struct text_span text = part->text;
    bool demanded = part->without || part->quoted;
    if (demanded && add_demand(demands, part, e)) return e->status;
    if (part->without) return STATUS_OK;
    bool begins = !part->quoted && text.size > 1 && text.text[text.size - 1] == '*';
    if (begins) text.size--;
    put_text(&demands->text, text);
    if (begins) return add_prefix(demands, text, e);
    put_text(&demands->sought, text);
    return STATUS_OK;
}

enum status word_demands_parse(struct word_demands **out, struct text_span query, struct error *e) {
    struct word_demands *demands = xcalloc(1, sizeof *demands);
    struct query_part part;
    enum status status = STATUS_OK;
    struct word_text any;
    for (size_t at = 0; at < query.size && status == STATUS_OK;) {
        status = read_part(query, &at, &part, e);
        if (status == STATUS_OK && part.text.size > 0) status = add_part(demands, &part, e);
    }
    buffer_append(&demands->text, "", 0);
    buffer_append(&demands->sought, "", 0);
    struct text_span text = {demands->text.data, demands->text.size};
    if (status == STATUS_OK && words_split(text, &any, 1) == 0)
        status = error_set(e, STATUS_INVALID,
                           "the query has no word that is sought, besides those after -");
    if (status) {
        word_demands_free(demands);
        return status;
    }
    *out = demands;
    return STATUS_OK;
}

void word_demands_free(struct word_demands *demands) {
    if (demands == NULL) return;
    buffer_free(&demands->text);
    buffer_free(&demands->sought);
    free(demands);
}

void word_demands_describe(const struct word_demands *demands, struct buffer *out) {
    for (int i = 0; i < demands->n; i++) {
        const struct word_demand *demand = &demands->list[i];
        buffer_append_string(out, demand->without ? "in no hit:" : "in each hit:");
        for (int j = 0; j < demand->n; j++)
            buffer_printf(out, " %.*s", (int)demand->words[j].size, demand->words[j].bytes);
        buffer_append_string(out, "\n");
    }
    for (int i = 0; i < demands->n_prefixes; i++)
        buffer_printf(out, "any word that begins with: %.*s\n", (int)demands->prefixes[i].size,
                      demands->prefixes[i].bytes);
}

/* A text. */

struct text_word {
    uint64_t hash;
    uint32_t position;
};

/* Whether the demand's words stand where its first is word `at` of the text's [n]. */
static bool stands_at(const struct word_demand *demand, const uint64_t *hashes,
                      const struct text_word *words, size_t n, size_t at) {
    uint32_t base = words[at].position;
    for (int i = 0; i < demand->n; i++) {
        uint32_t place = base + demand->places[i];
        size_t from = at;
        while (from < n && words[from].position < place) from++;
        while (from < n && words[from].position == place && words[from].hash != hashes[i]) from++;
        if (from == n || words[from].position != place) return false;
    }
    return true;
}

static bool stands_in(const struct word_demand *demand, const struct text_word *words, size_t n) {
    uint64_t hashes[PHRASE_WORDS];
    for (int i = 0; i < demand->n; i++)
        hashes[i] = hash_bytes(demand->words[i].bytes, demand->words[i].size, 0);
    for (size_t i = 0; i < n; i++) {
        /* Words of one position are looked at from the first of them. */
        size_t first = i;
        while (first > 0 && words[first - 1].position == words[i].position) first--;
        if (words[i].hash == hashes[0] && stands_at(demand, hashes, words, n, first)) return true;
    }
    return false;
}

bool word_demands_allow(const struct word_demands *demands, struct text_span text) {
    struct buffer found = {0};
    struct word_reader reader;
    struct read_word word;
    bool allowed = true;
    if (demands->n == 0) return true;
    word_reader_open(&reader, text);
    while (word_reader_next(&reader, &word)) {
        struct text_word one = {hash_bytes(word.bytes, word.size, 0), word.position};
        buffer_append(&found, &one, sizeof one);
    }
    word_reader_close(&reader);
    for (int i = 0; i < demands->n && allowed; i++)
        allowed = stands_in(&demands->list[i], (const void *)found.data,
                            found.size / sizeof(struct text_word)) != demands->list[i].without;
    buffer_free(&found);
    return allowed;
}
