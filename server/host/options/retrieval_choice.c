/* server/host/options/retrieval_choice.c: the rows, and how what is asked goes before what is
 * usual. See retrieval_choice.h. */
#include "server/host/options/retrieval_choice.h"

#include <string.h>

static const struct json_choice modes[] = {{"auto", RETRIEVAL_AUTO},
                                           {"attention", RETRIEVAL_ATTENTION},
                                           {"prompt", RETRIEVAL_PROMPT},
                                           {"both", RETRIEVAL_BOTH},
                                           {NULL, 0}};
static const struct json_choice queries[] = {{"message", RETRIEVAL_BY_MESSAGE},
                                             {"conversation", RETRIEVAL_BY_CONVERSATION},
                                             {"rewritten", RETRIEVAL_BY_REWRITTEN},
                                             {NULL, 0}};
static const struct json_choice conversations[] = {
    {"latest", RETRIEVAL_OF_LATEST}, {"keep", RETRIEVAL_KEPT}, {NULL, 0}};
static const struct json_choice reads[] = {
    {"chunk", RETRIEVAL_READ_CHUNK}, {"section", RETRIEVAL_READ_SECTION}, {NULL, 0}};
static const struct json_choice orders[] = {
    {"relevance", RETRIEVAL_BY_RELEVANCE}, {"stable", RETRIEVAL_STABLE}, {NULL, 0}};

#define ANY .min = 0
#define RANGE(low, high) .min = (low), .max = (high)
#define ONE_OF(names) .choices = (names)
#define ASKED_K \
    .min = 1, .option = "retrieval.max_k", .limit_offset = offsetof(struct retrieval_limits, max_k)

/* ROW(row, member, type, default, values of the option, values in a request, meaning) */
#define ROWS(ROW) \
    ROW(CHOICE_ENABLED, enabled, JSON_BOOL, true, ANY, ANY, \
        "false: the model runs without neighbours unless a request says otherwise or brings its " \
        "own") \
    ROW(CHOICE_MODE, mode, JSON_CHOICE, RETRIEVAL_AUTO, ONE_OF(modes), ONE_OF(modes), \
        "how the model reads what is found: by chunked cross attention, as text in its prompt, " \
        "or both; auto: " \
        "attention where the model has it, else prompt") \
    ROW(CHOICE_QUERY, query, JSON_CHOICE, RETRIEVAL_BY_MESSAGE, ONE_OF(queries), ONE_OF(queries), \
        "what passages of a chat are sought by: the user's last message, with the turns before " \
        "it, or rewritten: the model writes a question that needs no turns before it") \
    ROW(CHOICE_CONVERSATION, conversation, JSON_CHOICE, RETRIEVAL_OF_LATEST, \
        ONE_OF(conversations), ONE_OF(conversations), \
        "passages in the prompt of a chat: those of its latest turn, or keep: earlier turns keep " \
        "those that they were answered with") \
    ROW(CHOICE_READ, read, JSON_CHOICE, RETRIEVAL_READ_CHUNK, ONE_OF(reads), ONE_OF(reads), \
        "what stands in a prompt of a chunk that was found: its sentences, or section: more of " \
        "the section around it, as far as retrieval.prompt_tokens has room") \
    ROW(CHOICE_ORDER, order, JSON_CHOICE, RETRIEVAL_BY_RELEVANCE, ONE_OF(orders), ONE_OF(orders), \
        "passages in a prompt: the most relevant first, or stable: among documents that are " \
        "about " \
        "as relevant (retrieval.order_distance) those first with which a prompt was read lately") \
    ROW(CHOICE_EVERY, every, JSON_INT, 0, RANGE(0, 1 << 20), RANGE(0, 1 << 20), \
        "tokens of an answer after which passages in the prompt are sought again, by what was " \
        "written, and " \
        "replaced; 0: never") \
    ROW(CHOICE_QUOTES, quotes, JSON_BOOL, false, ANY, ANY, \
        "what stands between quotation marks in an answer is a quote: it stands word for word in " \
        "a passage that was read") \
    ROW(CHOICE_QUOTE_WORDS, quote_words, JSON_INT, 3, RANGE(1, 64), RANGE(1, 64), \
        "words that a quote has at least") \
    ROW(CHOICE_SUPPORT, support, JSON_BOOL, false, ANY, ANY, \
        "tell for each sentence of an answer how much what was read supports it, and which " \
        "passage " \
        "most") \
    ROW(CHOICE_K, k, JSON_INT, 0, RANGE(0, 1024), ASKED_K, \
        "neighbours per chunk; 0: as the model was trained, or 4 passages for one that reads " \
        "them in its prompt") \
    ROW(CHOICE_MIN_SIMILARITY, min_similarity, JSON_DOUBLE, -1, RANGE(-1, 1), RANGE(-1, 1), \
        "cosine similarity below which a neighbour is dropped, among passages and among " \
        "pictures; -1: none is") \
    ROW(CHOICE_HYBRID, hybrid, JSON_BOOL, true, ANY, ANY, \
        "rank chunks by the words that they share with the query (BM25) beside their vectors; " \
        "collections in Milvus are not") \
    ROW(CHOICE_RERANK, rerank, JSON_BOOL, true, ANY, ANY, \
        "put what is found in the order of the reranker, where there is one (retrieval.reranker)") \
    ROW(CHOICE_PICTURES, pictures, JSON_BOOL, true, ANY, ANY, \
        "seek pictures by the embedder of their own, where the collection has one, and fuse " \
        "their ranks with those " \
        "of passages") \
    ROW(CHOICE_PER_DOCUMENT, per_document, JSON_INT, 0, RANGE(0, 1024), RANGE(0, 1024), \
        "at most so many neighbours of one document; 0: any number") \
    ROW(CHOICE_DISTINCT, distinct, JSON_DOUBLE, 0, RANGE(0, 1), RANGE(0, 1), \
        "a neighbour whose cosine similarity with a better one is above this is left out; 0: " \
        "none is") \
    ROW(CHOICE_MIN_CONFIDENCE, min_confidence, JSON_INT, 0, RANGE(0, 100), RANGE(0, 100), \
        "neighbours from pages that OCR was less sure of are left out, 1 .. 100; 0: none is")

#define OPTION(row, member, type, value, range, asked, words) \
    [row] = {.field = {#member, type, JSON_AT(struct retrieval_choice, member), \
                       .fallback = (value), range}, \
             .help = (words)},
#define FIELD(row, member, type, value, range, asked, words) \
    [row] = {#member, type, JSON_AT(struct retrieval_choice, member), asked, .help = (words)},

static const struct option_row options[] = {ROWS(OPTION)};
static const struct json_field fields[] = {ROWS(FIELD)};

const struct option_section retrieval_choice_section = {"retrieval", options, CHOICE_ROWS};
const struct json_table retrieval_choice_table = {.fields = fields, .count = CHOICE_ROWS};
const struct json_table search_choice_table = {.fields = fields + CHOICE_K,
                                               .count = CHOICE_ROWS - CHOICE_K};
const struct json_table picture_choice_table = {.fields = fields + CHOICE_K,
                                                .count = CHOICE_HYBRID - CHOICE_K};

void retrieval_choice_note(struct retrieval_choice *choice, const struct json *object) {
    for (int i = 0; i < CHOICE_ROWS; i++)
        if (!json_is_absent(json_member(object, fields[i].name))) choice->said |= 1U << i;
}

static size_t row_bytes(const struct json_field *field) {
    if (field->type == JSON_BOOL) return sizeof(bool);
    return field->type == JSON_DOUBLE ? sizeof(double) : sizeof(int);
}

struct retrieval_choice retrieval_choice_merge(const struct retrieval_choice *usual,
                                               const struct retrieval_choice *asked) {
    struct retrieval_choice all = *usual;
    for (int i = 0; i < CHOICE_ROWS; i++) {
        size_t at = fields[i].offset;
        if (choice_says(asked, (enum choice_row)i))
            memcpy((char *)&all + at, (const char *)asked + at, row_bytes(&fields[i]));
    }
    if (all.mode == RETRIEVAL_AUTO) all.mode = usual->mode;
    all.said = asked->said;
    return all;
}

struct retriever_choice retrieval_choice_ranking(const struct retrieval_choice *choice,
                                                 int candidates) {
    enum retriever_way wanted = choice_says(choice, CHOICE_HYBRID) ? RETRIEVE_BOTH : RETRIEVE_USUAL;
    return (struct retriever_choice){.way = choice->hybrid ? wanted : RETRIEVE_NEAREST,
                                     .per_document = choice->per_document,
                                     .distinct = (float)choice->distinct,
                                     .min_confidence = choice->min_confidence,
                                     .rerank = choice->rerank ? candidates : 0,
                                     .no_pictures = !choice->pictures};
}

const char *retrieval_mode_name(int mode) { return modes[mode].name; }
