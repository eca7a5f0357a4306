/* retro/chat/chat_reply.c: see chat_reply.h. */
#include "retro/chat/chat_reply.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"

static const char think_begin[] = "<think>", think_end[] = "</think>";
static const char hermes_begin[] = "<tool_call>", hermes_end[] = "</tool_call>";
static const char mistral_begin[] = "[TOOL_CALLS]", mistral_arguments[] = "[ARGS]";
static const char llama_begin[] = "<|python_tag|>";

static bool contains(struct text_span s, const char *words) {
    return s.size > 0 && memmem(s.text, s.size, words, strlen(words)) != NULL;
}

enum call_format call_format_of(struct text_span literals) {
    if (contains(literals, mistral_begin)) return CALLS_MISTRAL;
    if (contains(literals, hermes_begin)) return contains(literals, "<function=") ? CALLS_NONE : CALLS_HERMES;
    if (contains(literals, "\"parameters\": dictionary of argument name")) return CALLS_LLAMA;
    return CALLS_NONE;
}

bool template_reasons(struct text_span literals) { return contains(literals, think_end); }

/* The text that has not been taken apart. */
static struct text_span rest_of(const struct chat_reply *r, const char *text, size_t size) {
    return (struct text_span){text + r->read, size - r->read};
}

static size_t find(struct text_span s, const char *mark) {
    const char *at = s.size > 0 ? memmem(s.text, s.size, mark, strlen(mark)) : NULL;
    return at ? (size_t)(at - s.text) : SIZE_MAX;
}

/* Whether the text is the beginning of the mark and not all of it. */
static bool may_become(struct text_span s, const char *mark) {
    return s.size < strlen(mark) && memcmp(s.text, mark, s.size) == 0;
}

/* The bytes that cannot be part of a mark that is still to come. */
static size_t before_mark(struct text_span s, const char *mark) {
    size_t at = s.size >= strlen(mark) ? s.size - strlen(mark) + 1 : 0;
    while (at < s.size && !may_become((struct text_span){s.text + at, s.size - at}, mark)) at++;
    return at;
}

static size_t blanks_at(struct text_span s, size_t at) {
    while (at < s.size && is_blank(s.text[at])) at++;
    return at;
}

/* How many of the first `size` bytes are there without blanks at their end. */
static size_t without_blanks(struct text_span s, size_t size) {
    while (size > 0 && is_blank(s.text[size - 1])) size--;
    return size;
}

/* The next bytes of the content. */
static void note_piece(struct chat_reply *r, size_t written, size_t size) {
    struct reply_piece *last = r->n_pieces ? &r->pieces[r->n_pieces - 1] : NULL;
    if (last && last->written + last->size == written) {
        last->size += size;
        return;
    }
    r->pieces = xgrow(r->pieces, r->n_pieces, &r->pieces_capacity, sizeof *r->pieces);
    r->pieces[r->n_pieces] = (struct reply_piece){written, r->content.size, size};
    r->n_pieces++;
}

size_t chat_reply_place(const struct chat_reply *r, size_t written) {
    size_t said = 0;
    for (int i = 0; i < r->n_pieces && r->pieces[i].written < written; i++) {
        size_t into = written - r->pieces[i].written;
        said = r->pieces[i].said + (into < r->pieces[i].size ? into : r->pieces[i].size);
    }
    return said;
}

/* Moves `size` bytes to `to`; blanks at the front go where the part before ended with a mark. */
static void take(struct chat_reply *r, struct buffer *to, struct text_span s, size_t size) {
    size_t from = 0;
    if (r->trims) {
        struct text_span part = {s.text, size};
        from = blanks_at(part, 0);
        r->trims = from == size;
    }
    if (to == &r->content && to->size == 0) r->content_start = r->read + from;
    if (to == &r->content && size > from) note_piece(r, r->read + from, size - from);
    buffer_append(to, s.text + from, size - from);
    r->read += size;
}

/* Thoughts. */

static bool read_begin(struct chat_reply *r, struct text_span s, bool last) {
    size_t at = blanks_at(s, 0);
    struct text_span rest = {s.text + at, s.size - at};
    r->part = REPLY_SAYS;
    if (!r->reasons) return true;
    if (span_starts_with(rest, think_begin)) {
        r->part = REPLY_THINKS;
        r->trims = true;
        r->read += at + strlen(think_begin);
    } else if (!last && may_become(rest, think_begin)) {
        r->part = REPLY_BEGINS;
        return false;
    }
    return true;
}

static bool read_thoughts(struct chat_reply *r, struct text_span s, bool last) {
    size_t end = find(s, think_end);
    if (end != SIZE_MAX) {
        take(r, &r->reasoning, s, without_blanks(s, end));
        r->read += end - without_blanks(s, end) + strlen(think_end);
        r->part = REPLY_SAYS;
        r->trims = true;
        return true;
    }
    /* Blanks wait: before the mark they are dropped. */
    size_t size = last ? s.size : without_blanks(s, before_mark(s, think_end));
    take(r, &r->reasoning, s, size);
    return false;
}

/* Calls. */

static void add_call(struct chat_reply *r, const char *name, const struct json *arguments) {
    struct json_writer w;
    r->calls = xgrow(r->calls, r->n_calls, &r->calls_capacity, sizeof *r->calls);
    struct tool_call *call = &r->calls[r->n_calls];
    r->n_calls++;
    *call = (struct tool_call){.name = xstrdup(name)};
    put_begin_spaced(&w, &call->arguments);
    if (json_kind(arguments) == JSON_KIND_OBJECT) {
        put_json(&w, arguments);
    } else if (json_is_text(arguments)) {
        buffer_append(&call->arguments, json_text(arguments).text, json_text(arguments).size);
    } else {
        put_object(&w);
        put_object_end(&w);
    }
}

static bool is_call(const struct json *call) {
    return json_word(json_member(call, "name")) && *json_word(json_member(call, "name"));
}

static void add_json_call(struct chat_reply *r, const struct json *call) {
    const struct json *arguments = json_member(call, "arguments");
    add_call(r, json_word(json_member(call, "name")), arguments ? arguments : json_member(call, "parameters"));
}

/* The bytes of the JSON value, object or list, that s begins with; 0: it is not complete. */
static size_t json_size(struct text_span s) {
    int depth = 0;
    bool inside = false;
    for (size_t i = 0; i < s.size; i++) {
        char c = s.text[i];
        if (inside && c == '\\')
            i++;
        else if (c == '"')
            inside = !inside;
        else if (!inside && (c == '{' || c == '['))
            depth++;
        else if (!inside && (c == '}' || c == ']') && --depth == 0)
            return i + 1;
    }
    return 0;
}

/* A call, or a list of calls; nothing is added unless all of it is good. */
static bool read_json_calls(struct chat_reply *r, struct text_span s) {
    struct error e;
    struct json *json;
    if (json_parse(&json, s, "call", &e)) return false;
    size_t n = json_is_list(json) ? json_count(json) : 1;
    bool good = n > 0;
    for (size_t i = 0; i < n; i++) good = good && is_call(json_is_list(json) ? json_item(json, i) : json);
    for (size_t i = 0; good && i < n; i++) add_json_call(r, json_is_list(json) ? json_item(json, i) : json);
    json_close(json);
    return good;
}

/* Whether the call at s was read, cannot be one, or is not there whole. */
enum call_found { CALL_READ, CALL_WRONG, CALL_WAITS };

static enum call_found read_hermes(struct chat_reply *r, struct text_span s, bool last, size_t *used) {
    size_t begin = strlen(hermes_begin), end = find(s, hermes_end);
    size_t from = blanks_at(s, begin);
    struct text_span inside = {s.text + from, (end == SIZE_MAX ? s.size : end) - from};
    if (end == SIZE_MAX && !last) return CALL_WAITS;
    inside.size = without_blanks(inside, inside.size);
    *used = end == SIZE_MAX ? s.size : end + strlen(hermes_end);
    return read_json_calls(r, inside) ? CALL_READ : CALL_WRONG;
}

/* name[ARGS]{...} or name{...}, as later models write it. */
static enum call_found read_mistral_named(struct chat_reply *r, struct text_span s, size_t from, bool last,
                                          size_t *used) {
    const char *brace = memchr(s.text + from, '{', s.size - from);
    size_t name_end = brace ? (size_t)(brace - s.text) : s.size;
    struct text_span rest = {s.text + name_end, s.size - name_end}, name = {s.text + from, name_end - from};
    size_t size = json_size(rest), arguments = find(name, mistral_arguments);
    struct error e;
    struct json *json;
    if (size == 0) return last ? CALL_WRONG : CALL_WAITS;
    if (arguments != SIZE_MAX) name.size = arguments;
    name.size = without_blanks(name, name.size);
    if (name.size == 0 || memchr(name.text, '\0', name.size) ||
        json_parse(&json, (struct text_span){rest.text, size}, "call", &e))
        return CALL_WRONG;
    char *word = xstrndup(name.text, name.size);
    add_call(r, word, json);
    free(word);
    json_close(json);
    *used = name_end + size;
    return CALL_READ;
}

static enum call_found read_mistral(struct chat_reply *r, struct text_span s, bool last, size_t *used) {
    size_t from = blanks_at(s, strlen(mistral_begin));
    if (from == s.size) return last ? CALL_WRONG : CALL_WAITS;
    if (s.text[from] != '[') return read_mistral_named(r, s, from, last, used);
    struct text_span list = {s.text + from, s.size - from};
    size_t size = json_size(list);
    if (size == 0) return last ? CALL_WRONG : CALL_WAITS;
    list.size = size;
    *used = from + size;
    return read_json_calls(r, list) ? CALL_READ : CALL_WRONG;
}

/* The whole answer: one call, or several with semicolons between them. */
static enum call_found read_llama(struct chat_reply *r, struct text_span s, bool last, size_t *used) {
    size_t at = span_starts_with(s, llama_begin) ? strlen(llama_begin) : 0;
    int before = r->n_calls;
    if (!last) return CALL_WAITS;
    while ((at = blanks_at(s, at)) < s.size) {
        struct text_span call = {s.text + at, s.size - at};
        call.size = s.text[at] == '{' ? json_size(call) : 0;
        if (call.size == 0 || !read_json_calls(r, call)) break;
        at = blanks_at(s, at + call.size);
        if (at < s.size && s.text[at] == ';') at++;
    }
    *used = at;
    return r->n_calls > before ? CALL_READ : CALL_WRONG;
}

static const char *call_mark(const struct chat_reply *r) {
    return r->format == CALLS_HERMES ? hermes_begin : mistral_begin;
}

/* Where a call begins in s, or SIZE_MAX; *sure: the bytes before it that are text for certain. */
static size_t find_call(const struct chat_reply *r, struct text_span s, bool last, size_t *sure) {
    *sure = s.size;
    if (r->format == CALLS_NONE) return SIZE_MAX;
    if (r->format == CALLS_LLAMA) {
        size_t at = blanks_at(s, 0);
        struct text_span rest = {s.text + at, s.size - at};
        bool begins = span_starts_with(rest, "{") || span_starts_with(rest, llama_begin);
        if (!last && may_become(rest, llama_begin)) *sure = 0;
        return r->content.size == 0 && begins ? at : SIZE_MAX;
    }
    size_t at = find(s, call_mark(r));
    if (at == SIZE_MAX && !last) *sure = without_blanks(s, before_mark(s, call_mark(r)));
    return at;
}

static enum call_found read_call(struct chat_reply *r, struct text_span s, bool last, size_t *used) {
    if (r->format == CALLS_HERMES) return read_hermes(r, s, last, used);
    return r->format == CALLS_MISTRAL ? read_mistral(r, s, last, used) : read_llama(r, s, last, used);
}

static bool read_words(struct chat_reply *r, struct text_span s, bool last) {
    size_t sure, used = 0, at = find_call(r, s, last, &sure);
    if (at == SIZE_MAX) {
        take(r, &r->content, s, sure);
        return false;
    }
    struct text_span call = {s.text + at, s.size - at};
    size_t words = without_blanks(s, at);
    take(r, &r->content, s, words);
    enum call_found found = read_call(r, call, last, &used);
    if (found == CALL_WAITS) return false;
    if (found == CALL_READ) {
        r->read += at - words + used;
        r->trims = true;
        return true;
    }
    /* Not a call after all: it is text, and so is the mark. */
    size_t mark = r->format == CALLS_LLAMA ? call.size : strlen(call_mark(r));
    take(r, &r->content, (struct text_span){s.text + words, s.size - words}, at - words + mark);
    return true;
}

void chat_reply_read(struct chat_reply *r, const char *text, size_t size, bool last) {
    bool more = true;
    while (more && r->read < size) {
        struct text_span rest = rest_of(r, text, size);
        if (r->part == REPLY_BEGINS)
            more = read_begin(r, rest, last);
        else if (r->part == REPLY_THINKS)
            more = read_thoughts(r, rest, last);
        else
            more = read_words(r, rest, last);
    }
}

void chat_reply_free(struct chat_reply *r) {
    for (int i = 0; i < r->n_calls; i++) {
        free(r->calls[i].name);
        buffer_free(&r->calls[i].arguments);
    }
    free(r->calls);
    free(r->pieces);
    buffer_free(&r->reasoning);
    buffer_free(&r->content);
    *r = (struct chat_reply){0};
}
