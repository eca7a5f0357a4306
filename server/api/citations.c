/* server/api/citations.c: see citations.h. */
#include "server/api/citations.h"

#include "server/api/neighbor_json.h"

/* Digits of a number: more passages than these count no prompt has. */
enum { MAX_DIGITS = 6 };

bool citations_may_be(const struct generation *g, const struct progress *p) {
    return found_is_numbered(g) && p->n_found > 0;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Reads the number at *at and moves behind it; 0: there is none. */
static int read_number(struct text_span text, size_t *at) {
    int number = 0;
    size_t first = *at;
    while (*at < text.size && is_digit(text.text[*at]) && *at - first < MAX_DIGITS) {
        number = number * 10 + (text.text[*at] - '0');
        ++*at;
    }
    return number;
}

/* The end of numbers in brackets that begin at `at`, commas between them; 0: the text there is something else. */
static size_t brackets_end(struct text_span text, size_t at) {
    while (at < text.size && (text.text[at] == '[' || text.text[at] == ',')) {
        at++;
        while (at < text.size && text.text[at] == ' ') at++;
        if (read_number(text, &at) == 0) return 0;
        if (at < text.size && text.text[at] == ']') return at + 1;
        if (at < text.size && text.text[at] == '[') return 0;
    }
    return 0;
}

/* Where brackets stand in the answer, in characters. */
struct cited_place {
    int64_t start, end;
};

static void write_citation(struct json_writer *w, const struct cited_answer *a, int number, struct cited_place place) {
    const struct hit *passage = &a->generation->answer.found[0].list[number - 1];
    put_object(w);
    put_key_int(w, "index", a->index);
    put_key_int(w, "number", number);
    put_key_string(w, "document", passage->path);
    put_key_string(w, "title", passage->title);
    put_key_int(w, "start", (int64_t)passage->start);
    put_key_int(w, "end", (int64_t)passage->end);
    put_key_int(w, "answer_start", place.start);
    put_key_int(w, "answer_end", place.end);
    put_object_end(w);
}

void citations_write(struct json_writer *w, const struct cited_answer *a) {
    struct text_span text = a->text;
    int64_t characters = a->before;
    for (size_t at = 0; at < text.size; at++) {
        size_t end = text.text[at] == '[' ? brackets_end(text, at) : 0;
        struct cited_place place = {characters, characters + (int64_t)(end - at)};
        for (size_t i = at + 1; i < end;) {
            int number = read_number(text, &i);
            if (number > 0 && number <= a->generation->answer.found[0].n) write_citation(w, a, number, place);
            while (i < end && !is_digit(text.text[i])) i++;
        }
        characters += (text.text[at] & 0xC0) != 0x80;
    }
}
