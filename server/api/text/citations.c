/* server/api/text/citations.c: see citations.h. */
#include "server/api/text/citations.h"

#include "config/base/text.h"
#include "server/api/text/neighbor_json.h"

/* Digits of a number: more passages than these count no prompt has. */
enum { MAX_DIGITS = 6 };

bool citations_may_be(const struct sequence *sequence, const struct progress *progress) {
    return sequence->answer.n_searches > 0 && progress->n_found > 0;
}

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

/* The end of numbers in brackets that begin at `at`, commas between them; 0: the text there is
 * something else. */
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

/* The passages that stood in the prompt when byte `at` of the answer was written. */
static const struct hits *passages_at(const struct told_answer *told_answer, size_t at) {
    const struct sequence_answer *answer = &told_answer->sequence->answer;
    int every = told_answer->sequence->asked.choice.every,
        latest = min_int(told_answer->progress->n_found, answer->n_searches) - 1;
    size_t written = at + (told_answer->said ? told_answer->said->content_start
                                             : 0); /* thoughts come before the text */
    int token = 0;
    if (every == 0) return &answer->found[0];
    while (token < told_answer->progress->n_ids && answer->text_ends[token] <= written) token++;
    return &answer->found[min_int(token / every, latest)];
}

static void write_citation(struct json_writer *w, const struct told_answer *answer,
                           const struct hit *passage, int number, struct cited_place place) {
    put_object(w);
    put_key_int(w, "index", answer->index);
    put_key_int(w, "number", number);
    neighbor_write_place(w, passage);
    put_key_int(w, "answer_start", place.start);
    put_key_int(w, "answer_end", place.end);
    put_object_end(w);
}

void citations_write(struct json_writer *w, const struct told_answer *answer) {
    struct text_span text = answer->text;
    int64_t characters = answer->before;
    if (!citations_may_be(answer->sequence, answer->progress)) return;
    for (size_t at = 0; at < text.size; at++) {
        size_t end = text.text[at] == '[' ? brackets_end(text, at) : 0;
        struct cited_place place = {characters, characters + (int64_t)(end - at)};
        const struct hits *passages = end > 0 ? passages_at(answer, at) : NULL;
        for (size_t i = at + 1; i < end;) {
            int number = read_number(text, &i);
            if (number > 0 && number <= passages->n)
                write_citation(w, answer, &passages->list[number - 1], number, place);
            while (i < end && !is_digit(text.text[i])) i++;
        }
        characters += (text.text[at] & 0xC0) != 0x80;
    }
}
