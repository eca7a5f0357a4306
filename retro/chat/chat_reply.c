/* retro/chat/chat_reply.c: see chat_reply.h. */
#include "retro/chat/chat_reply.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/chat/chat_reply_private.h"
#include "retro/chat/harmony.h"
#include "retro/chat/tagged_calls.h"

static const char hermes_begin[] = "<tool_call>", hermes_end[] = "</tool_call>";
static const char mistral_begin[] = "[TOOL_CALLS]", mistral_arguments[] = "[ARGS]";
static const char llama_begin[] = "<|python_tag|>";
static const char olmo_tools[] = "<functions>";
static const char lfm_tools[] = "<|tool_list_start|>"; /* templates of LFM2 write no calls */

static bool contains(struct text_span span, const char *words) {
    return span.size > 0 && memmem(span.text, span.size, words, strlen(words)) != NULL;
}

enum call_format call_format_of(struct text_span literals) {
    if (harmony_is_written(literals)) return CALLS_HARMONY;
    if (contains(literals, mistral_begin)) return CALLS_MISTRAL;
    if (contains(literals, tagged_calls_begin(CALLS_MINIMAX))) return CALLS_MINIMAX;
    if (contains(literals, tagged_calls_begin(CALLS_DEEPSEEK)))
        return contains(literals, "```json") ? CALLS_DEEPSEEK_BLOCK : CALLS_DEEPSEEK;
    if (contains(literals, tagged_calls_begin(CALLS_PYTHON)) || contains(literals, lfm_tools))
        return CALLS_PYTHON;
    if (contains(literals, tagged_calls_begin(CALLS_GEMMA))) return CALLS_GEMMA;
    if (contains(literals, tagged_calls_begin(CALLS_GRANITE))) return CALLS_GRANITE;
    if (contains(literals, tagged_calls_begin(CALLS_OLMO)) && contains(literals, olmo_tools))
        return CALLS_OLMO;
    if (contains(literals, tagged_calls_begin(CALLS_APERTUS))) return CALLS_APERTUS;
    if (contains(literals, "<arg_key>")) return CALLS_GLM;
    if (contains(literals, "<function=") && contains(literals, "<parameter="))
        return CALLS_FUNCTION;
    if (contains(literals, hermes_begin))
        return contains(literals, "<function=") ? CALLS_NONE : CALLS_HERMES;
    if (contains(literals, "\"parameters\": dictionary of argument name")) return CALLS_LLAMA;
    return CALLS_NONE;
}

/* Where a call ends at the earliest; NULL: where its JSON does. */
static const char *call_end_mark(enum call_format format) {
    const char *tag = tagged_calls_end(format);
    return format == CALLS_HERMES ? hermes_end : tag;
}

/* A mark may be read at a cost of all that is behind it, and may still begin no call; and a call
 * that is not whole is read from its front each time. So the first of these are bounded in an
 * answer, and a call is read often only while it is short: taking apart stays linear. */
enum { MOST_WRONG = 64, EAGER_TRIES = 32 };

/* The text that has not been taken apart. */
static struct text_span rest_of(const struct chat_reply *reply, const char *text, size_t size) {
    return (struct text_span){text + reply->read, size - reply->read};
}

size_t span_find(struct text_span span, const char *mark) {
    const char *at = span.size > 0 ? memmem(span.text, span.size, mark, strlen(mark)) : NULL;
    return at ? (size_t)(at - span.text) : SIZE_MAX;
}

size_t span_find_first(struct text_span span, const char *const *marks, int n, int *which) {
    for (size_t at = 0; at < span.size; at++) {
        const char *angle = memchr(span.text + at, *marks[0], span.size - at);
        if (angle == NULL) break;
        at = (size_t)(angle - span.text);
        for (*which = 0; *which < n; (*which)++)
            if (span_starts_with((struct text_span){angle, span.size - at}, marks[*which]))
                return at;
    }
    return SIZE_MAX;
}

bool span_may_become(struct text_span span, const char *mark) {
    return span.size < strlen(mark) && memcmp(span.text, mark, span.size) == 0;
}

size_t span_before_mark(struct text_span span, const char *mark) {
    size_t at = span.size >= strlen(mark) ? span.size - strlen(mark) + 1 : 0;
    while (at < span.size &&
           !span_may_become((struct text_span){span.text + at, span.size - at}, mark))
        at++;
    return at;
}

static size_t blanks_at(struct text_span span, size_t at) {
    while (at < span.size && is_blank(span.text[at])) at++;
    return at;
}

/* How many of the first `size` bytes are there without blanks at their end. */
static size_t without_blanks(struct text_span span, size_t size) {
    while (size > 0 && is_blank(span.text[size - 1])) size--;
    return size;
}

/* Whether nothing but blanks is left to read. They may wait for ever, so each is looked at once. */
static bool only_blanks(struct chat_reply *reply, const char *text, size_t size) {
    if (reply->blanks_end < reply->read) reply->blanks_end = reply->read;
    reply->blanks_end = blanks_at((struct text_span){text, size}, reply->blanks_end);
    return reply->blanks_end == size;
}

/* The next bytes of the content. */
static void note_piece(struct chat_reply *reply, size_t written, size_t size) {
    struct reply_piece *last = reply->n_pieces ? &reply->pieces[reply->n_pieces - 1] : NULL;
    if (last && last->written + last->size == written) {
        last->size += size;
        return;
    }
    reply->pieces =
        xgrow(reply->pieces, reply->n_pieces, &reply->pieces_capacity, sizeof *reply->pieces);
    reply->pieces[reply->n_pieces] = (struct reply_piece){written, reply->content.size, size};
    reply->n_pieces++;
}

/* There may be as many places to find as pieces: an answer's citations, between its calls. */
size_t chat_reply_place(const struct chat_reply *reply, size_t written) {
    int before = 0, behind = reply->n_pieces;
    while (before < behind) {
        int middle = before + (behind - before) / 2;
        if (reply->pieces[middle].written < written)
            before = middle + 1;
        else
            behind = middle;
    }
    if (before == 0) return 0;
    const struct reply_piece *piece = &reply->pieces[before - 1];
    size_t into = written - piece->written;
    return piece->said + (into < piece->size ? into : piece->size);
}

/* Blanks at the front go where the part before ended with a mark. */
void reply_take(struct chat_reply *reply, struct buffer *to, struct text_span span, size_t size) {
    size_t from = 0;
    if (reply->trims) {
        struct text_span part = {span.text, size};
        from = blanks_at(part, 0);
        reply->trims = from == size;
    }
    if (to == &reply->content && !reply->says) reply->content_start = reply->read + from;
    if (to == &reply->content && size > from) reply->says = true;
    if (to == &reply->content && size > from) note_piece(reply, reply->read + from, size - from);
    buffer_append(to, span.text + from, size - from);
    reply->read += size;
}

/* Thoughts. */

static bool read_begin(struct chat_reply *reply, struct text_span span, bool last) {
    size_t at = reply->blanks_end - reply->read;
    struct text_span rest = {span.text + at, span.size - at};
    const char *begin = thought_marks_of(reply->thoughts)->begin;
    reply->part = REPLY_SAYS;
    if (reply->thoughts == THOUGHTS_NONE) return true;
    if (span_starts_with(rest, begin)) {
        reply->part = REPLY_THINKS;
        reply->trims = true;
        reply->read += at + strlen(begin);
    } else if (!last && span_may_become(rest, begin)) {
        reply->part = REPLY_BEGINS;
        return false;
    }
    return true;
}

/* Apertus calls tools while it thinks: thoughts end before a call, too. NULL: they do not. */
static const char *call_in_thoughts(const struct chat_reply *reply) {
    return reply->format == CALLS_APERTUS ? tagged_calls_begin(CALLS_APERTUS) : NULL;
}

static bool read_thoughts(struct chat_reply *reply, struct text_span span, bool last) {
    const char *mark = thought_marks_of(reply->thoughts)->end, *call = call_in_thoughts(reply);
    size_t end = span_find(span, mark), begun = call ? span_find(span, call) : SIZE_MAX;
    if (end != SIZE_MAX || begun != SIZE_MAX) {
        size_t first = end < begun ? end : begun;
        reply_take(reply, &reply->reasoning, span, without_blanks(span, first));
        reply->read += first - without_blanks(span, first) + (end < begun ? strlen(mark) : 0);
        reply->part = REPLY_SAYS;
        reply->trims = true;
        return true;
    }
    /* Blanks wait: before the mark they are dropped. */
    size_t sure = span_before_mark(span, mark),
           before = call ? span_before_mark(span, call) : span.size;
    if (before < sure) sure = before;
    reply_take(reply, &reply->reasoning, span, last ? span.size : without_blanks(span, sure));
    return false;
}

/* Calls. */

enum call_found span_json(struct text_span span, size_t *size) {
    int depth = 0;
    bool inside = false;
    *size = 0;
    for (size_t i = 0; i < span.size; i++) {
        char c = span.text[i];
        bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
        if (inside && c == '\\')
            i++;
        else if (c == '"')
            inside = !inside;
        else if (!inside)
            depth += opens - closes;
        if (closes && depth == 0) {
            *size = i + 1;
            return CALL_READ;
        }
        if (depth < 1 || (!inside && c == '<')) return CALL_WRONG;
    }
    return CALL_WAITS;
}

/* Whether the tag came since the call was looked at last: without it the call cannot be whole. */
static bool call_ends(const struct chat_reply *reply, struct text_span call, const char *end) {
    size_t tag = strlen(end), from = reply->looked < tag ? 0 : reply->looked - tag + 1;
    return span_find((struct text_span){call.text + from, call.size - from}, end) != SIZE_MAX;
}

bool reply_is_due(struct chat_reply *reply, struct text_span call, const char *end, bool last) {
    if (last) return true;
    if (call.size < reply->next_try) return false;
    bool ends = end == NULL || call_ends(reply, call, end);
    reply->looked = call.size;
    return ends;
}

void reply_note_try(struct chat_reply *reply, enum call_found found, size_t size) {
    bool waits = found == CALL_WAITS;
    reply->tries = waits ? reply->tries + 1 : 0;
    reply->looked = waits ? size : 0;
    reply->next_try = reply->tries < EAGER_TRIES ? 0 : 2 * size;
    reply->wrong += found == CALL_WRONG;
}

bool reply_reads_calls(const struct chat_reply *reply) { return reply->wrong < MOST_WRONG; }

/* The tag is sought behind the JSON, whose texts may have it too. */
static enum call_found read_hermes(struct chat_reply *reply, struct text_span span, bool last,
                                   size_t *used) {
    size_t from = blanks_at(span, strlen(hermes_begin)), size;
    struct text_span inside = {span.text + from, span.size - from};
    enum call_found found = span_json(inside, &size);
    struct text_span behind = {inside.text + size, inside.size - size};
    size_t end = span_find(behind, hermes_end);
    if (!last && (found == CALL_WAITS || end == SIZE_MAX)) return CALL_WAITS;
    *used = end == SIZE_MAX ? span.size : from + size + end + strlen(hermes_end);
    inside.size = without_blanks(inside, end == SIZE_MAX ? inside.size : size + end);
    return json_calls_read(reply, inside) ? CALL_READ : CALL_WRONG;
}

/* name[ARGS]{...} or name{...}, as later models write it. */
static enum call_found read_mistral_named(struct chat_reply *reply, struct text_span span,
                                          size_t from, bool last, size_t *used) {
    const char *brace = memchr(span.text + from, '{', span.size - from);
    size_t name_end = brace ? (size_t)(brace - span.text) : span.size;
    struct text_span rest = {span.text + name_end, span.size - name_end},
                     name = {span.text + from, name_end - from};
    size_t size, arguments = span_find(name, mistral_arguments);
    if (span_json(rest, &size) != CALL_READ) return last ? CALL_WRONG : CALL_WAITS;
    if (arguments != SIZE_MAX) name.size = arguments;
    name.size = without_blanks(name, name.size);
    *used = name_end + size;
    return reply_add_call(reply, name, (struct text_span){rest.text, size}) ? CALL_READ
                                                                            : CALL_WRONG;
}

static enum call_found read_mistral(struct chat_reply *reply, struct text_span span, bool last,
                                    size_t *used) {
    size_t from = blanks_at(span, strlen(mistral_begin));
    if (from == span.size) return last ? CALL_WRONG : CALL_WAITS;
    if (span.text[from] != '[') return read_mistral_named(reply, span, from, last, used);
    struct text_span list = {span.text + from, span.size - from};
    size_t size;
    if (span_json(list, &size) != CALL_READ) return last ? CALL_WRONG : CALL_WAITS;
    list.size = size;
    *used = from + size;
    return json_calls_read(reply, list) ? CALL_READ : CALL_WRONG;
}

/* The whole answer: one call, or several with semicolons between them. */
static enum call_found read_llama(struct chat_reply *reply, struct text_span span, bool last,
                                  size_t *used) {
    size_t at = span_starts_with(span, llama_begin) ? strlen(llama_begin) : 0;
    int before = reply->n_calls;
    if (!last) return CALL_WAITS;
    while ((at = blanks_at(span, at)) < span.size) {
        struct text_span call = {span.text + at, span.size - at};
        bool object = span.text[at] == '{' && span_json(call, &call.size) == CALL_READ;
        if (!object || !json_calls_read(reply, call)) break;
        at = blanks_at(span, at + call.size);
        if (at < span.size && span.text[at] == ';') at++;
    }
    *used = at;
    return reply->n_calls > before ? CALL_READ : CALL_WRONG;
}

static const char *call_mark(const struct chat_reply *reply) {
    const char *tag = tagged_calls_begin(reply->format);
    if (tag) return tag;
    return reply->format == CALLS_HERMES ? hermes_begin : mistral_begin;
}

/* How many of the first `size` bytes that have not been read are words: blanks wait behind them. */
static size_t words_before(const struct chat_reply *reply, struct text_span span, size_t size) {
    size_t blanks = reply->blanks_end - reply->read;
    return size <= blanks ? 0 : without_blanks(span, size);
}

/* Where a call begins in the span, or SIZE_MAX; *sure: the bytes before it that are text for
 * certain. */
static size_t find_call(const struct chat_reply *reply, struct text_span span, bool last,
                        size_t *sure) {
    *sure = span.size;
    if (reply->format == CALLS_NONE || !reply_reads_calls(reply)) return SIZE_MAX;
    size_t blanks = reply->blanks_end - reply->read;
    struct text_span behind = {span.text + blanks, span.size - blanks};
    if (reply->format == CALLS_LLAMA) {
        bool begins = span_starts_with(behind, "{") || span_starts_with(behind, llama_begin);
        if (!last && span_may_become(behind, llama_begin)) *sure = 0;
        return !reply->says && begins ? blanks : SIZE_MAX;
    }
    size_t at = span_find(behind, call_mark(reply));
    if (at == SIZE_MAX && !last)
        *sure = words_before(reply, span, blanks + span_before_mark(behind, call_mark(reply)));
    return at == SIZE_MAX ? SIZE_MAX : blanks + at;
}

static enum call_found read_call(struct chat_reply *reply, struct text_span span, bool last,
                                 size_t *used) {
    if (tagged_calls_begin(reply->format)) return tagged_calls_read(reply, span, last, used);
    if (reply->format == CALLS_HERMES) return read_hermes(reply, span, last, used);
    return reply->format == CALLS_MISTRAL ? read_mistral(reply, span, last, used)
                                          : read_llama(reply, span, last, used);
}

static bool read_words(struct chat_reply *reply, struct text_span span, bool last) {
    size_t sure, used = 0, at = find_call(reply, span, last, &sure);
    if (at == SIZE_MAX) {
        reply_take(reply, &reply->content, span, sure);
        return false;
    }
    struct text_span call = {span.text + at, span.size - at};
    size_t words = words_before(reply, span, at);
    reply_take(reply, &reply->content, span, words);
    if (!reply_is_due(reply, call, call_end_mark(reply->format), last)) return false;
    enum call_found found = read_call(reply, call, last, &used);
    reply_note_try(reply, found, call.size);
    if (found == CALL_WAITS) return false;
    if (found == CALL_READ) {
        reply->read += at - words + used;
        reply->trims = true;
        return true;
    }
    /* Not a call after all: it is text, and so is the mark. */
    size_t mark = reply->format == CALLS_LLAMA ? call.size : strlen(call_mark(reply));
    reply_take(reply, &reply->content, (struct text_span){span.text + words, span.size - words},
               at - words + mark);
    return true;
}

/* Whether blanks at the end wait for what stands behind them. */
static bool waits_on_blanks(const struct chat_reply *reply) {
    bool thinks = reply->part == REPLY_BEGINS ? reply->thoughts != THOUGHTS_NONE
                                              : reply->part == REPLY_THINKS;
    return thinks || (reply->format != CALLS_NONE && reply_reads_calls(reply));
}

void chat_reply_read(struct chat_reply *reply, const char *text, size_t size, bool last) {
    bool more = true;
    while (more && reply->read < size) {
        struct text_span rest = rest_of(reply, text, size);
        bool blanks = only_blanks(reply, text, size);
        if (blanks && !last && !reply->channels && waits_on_blanks(reply)) return;
        if (reply->channels)
            more = harmony_read(reply, rest, last);
        else if (reply->part == REPLY_BEGINS)
            more = read_begin(reply, rest, last);
        else if (reply->part == REPLY_THINKS)
            more = read_thoughts(reply, rest, last);
        else
            more = read_words(reply, rest, last);
    }
}

void chat_reply_turn(struct chat_reply *reply) {
    reply->read = reply->blanks_end = reply->looked = reply->next_try = 0;
    reply->tries = reply->wrong = 0;
    reply->part = REPLY_BEGINS;
    reply->n_pieces = 0;
    reply->content_start = 0;
    reply->says = reply->trims = false;
}

struct tool_call chat_reply_take_call(struct chat_reply *reply, int i) {
    struct tool_call call = reply->calls[i];
    reply->n_calls--;
    for (; i < reply->n_calls; i++) reply->calls[i] = reply->calls[i + 1];
    return call;
}

void chat_reply_drop_call(struct chat_reply *reply) {
    reply->n_calls--;
    free(reply->calls[reply->n_calls].name);
    buffer_free(&reply->calls[reply->n_calls].arguments);
}

void chat_reply_free(struct chat_reply *reply) {
    while (reply->n_calls > 0) chat_reply_drop_call(reply);
    free(reply->calls);
    free(reply->pieces);
    buffer_free(&reply->reasoning);
    buffer_free(&reply->content);
    *reply = (struct chat_reply){0};
}
