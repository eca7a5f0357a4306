/* tools/eval/eval_quotes.c: retro-eval quotes. Questions are answered from passages, and what
 * stands between quotation marks in the answers is looked for in these, byte by byte, without
 * anything that wrote it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_table.h"
#include "tools/eval/quote_answers.h"

/* A line of the file. */
struct quote_question {
    char *text, *manual;
    struct json_list documents; /* paths, char * each */
};

static const struct json_field path_item = {.name = "path", .type = JSON_TEXT};
static const struct json_field question_fields[] = {
    {"question", JSON_TEXT, JSON_AT(struct quote_question, text), .required = true},
    {"manual", JSON_TEXT, JSON_AT(struct quote_question, manual), .text = ""},
    {"documents", JSON_LIST, JSON_AT(struct quote_question, documents), .item = &path_item,
     .item_size = sizeof(char *), .max = 1000},
};
static const struct json_table question_table = JSON_TABLE(question_fields);

struct quotes_eval {
    struct config config;
    struct quote_writer writer;
    bool json, answers;
    int n, n_quoting, n_quotes, n_verbatim;
    int n_known, n_right; /* verbatim quotes for questions with known documents, and those in one */
};

/* Quotes of a text. */

struct mark_pair {
    const char *open, *close[2];
};

static const struct mark_pair pairs[] = {{"\"", {"\"", NULL}},
                                         {"\xE2\x80\x9C", {"\xE2\x80\x9D", NULL}},
                                         {"\xE2\x80\x9E", {"\xE2\x80\x9C", "\xE2\x80\x9D"}},
                                         {"\xC2\xAB", {"\xC2\xBB", NULL}}};

static bool has_at(struct text_span text, size_t at, const char *word) {
    size_t size = strlen(word);
    return text.size - at >= size && memcmp(text.text + at, word, size) == 0;
}

/* The bytes of the mark that closes at `at`; 0: none does. */
static size_t close_at(struct text_span text, size_t at, const struct mark_pair *pair) {
    for (size_t i = 0; i < ARRAY_COUNT(pair->close); i++)
        if (pair->close[i] && has_at(text, at, pair->close[i])) return strlen(pair->close[i]);
    return 0;
}

/* The next quote from *at on, which moves behind it. False: there is none that is closed. */
static bool next_quote(struct text_span text, size_t *at, struct text_span *quote) {
    for (; *at < text.size; ++*at) {
        for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
            if (!has_at(text, *at, pairs[i].open)) continue;
            size_t first = *at + strlen(pairs[i].open), end = first;
            while (end < text.size && close_at(text, end, &pairs[i]) == 0) end++;
            if (end == text.size) return false;
            *quote = (struct text_span){text.text + first, end - first};
            *at = end + close_at(text, end, &pairs[i]);
            return true;
        }
    }
    return false;
}

/* Judging. */

static bool holds(struct text_span text, struct text_span part) {
    return part.size > 0 && text.size >= part.size &&
           memmem(text.text, text.size, part.text, part.size) != NULL;
}

static bool is_right(const struct quote_question *question, const char *path) {
    char *const *paths = question->documents.items;
    for (size_t i = 0; i < question->documents.count; i++)
        if (strcmp(paths[i], path) == 0) return true;
    return *question->manual && strcmp(path_name(path), question->manual) == 0;
}

static void judge_quote(struct quotes_eval *eval, const struct quote_question *question,
                        const struct passages *passages, struct text_span quote) {
    bool known = question->documents.count > 0 || *question->manual, found = false, right = false;
    for (int i = 0; i < passages->n; i++) {
        if (!holds(passages->list[i].text, quote)) continue;
        found = true;
        right = right || is_right(question, passages->list[i].path);
    }
    eval->n_quotes++;
    eval->n_verbatim += found;
    eval->n_known += found && known;
    eval->n_right += found && known && right;
}

static void judge_answer(struct quotes_eval *eval, const struct quote_question *question,
                         const struct quote_answer *answer) {
    struct text_span text = {answer->text.data, answer->text.size}, quote;
    size_t at = 0;
    int before = eval->n_quotes;
    while (next_quote(text, &at, &quote)) judge_quote(eval, question, &answer->passages, quote);
    eval->n++;
    eval->n_quoting += eval->n_quotes > before;
    if (eval->answers)
        fprintf(stderr, "%s\n%.*s\n\n", question->text, (int)text.size, text.text ? text.text : "");
}

static enum status take_question(void *context, const struct json *record, struct error *e) {
    struct quotes_eval *eval = context;
    struct quote_question question = {0};
    struct quote_answer answer;
    struct json_reader reader = {.e = e};
    enum status status = json_table_read(&reader, &question_table, record, &question);
    if (status == STATUS_OK) status = quote_writer_answer(&eval->writer, question.text, &answer, e);
    if (status == STATUS_OK) {
        judge_answer(eval, &question, &answer);
        quote_answer_free(&answer);
    }
    json_table_free(&question_table, &question);
    return status;
}

/* Printing. */

static void print_share(const char *what, int n, int of) {
    printf("%-34s %5d of %5d", what, n, of);
    if (of > 0) printf("  %.3f", (double)n / of);
    printf("\n");
}

static void print_table(const struct quotes_eval *eval) {
    subject_print(&eval->writer.model);
    print_share("answers with quotes", eval->n_quoting, eval->n);
    print_share("quotes that stand in a passage", eval->n_verbatim, eval->n_quotes);
    print_share("of these, in a right document", eval->n_right, eval->n_known);
}

static void print_json(const struct quotes_eval *eval) {
    struct buffer line = {0};
    struct json_writer w;
    put_begin(&w, &line);
    put_object(&w);
    subject_put(&eval->writer.model, &w);
    put_key_bool(&w, "free", eval->writer.free);
    put_key_int(&w, "answers", eval->n);
    put_key_int(&w, "answers_with_quotes", eval->n_quoting);
    put_key_int(&w, "quotes", eval->n_quotes);
    put_key_int(&w, "verbatim", eval->n_verbatim);
    put_key_int(&w, "verbatim_with_known_documents", eval->n_known);
    put_key_int(&w, "in_right_documents", eval->n_right);
    put_object_end(&w);
    put_line(&w, stdout);
    buffer_free(&line);
}

static enum status run(struct quotes_eval *eval, int n, char **files, struct error *e) {
    enum status status = quote_writer_open(&eval->writer, &eval->config, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = json_parse_lines(files[i], take_question, eval, e);
    if (status == STATUS_OK && eval->n == 0)
        status = error_set(e, STATUS_INVALID, "%s: no question", files[0]);
    if (status == STATUS_OK) (eval->json ? print_json : print_table)(eval);
    quote_writer_close(&eval->writer);
    return status;
}

int eval_quotes(const struct usage *self, int argc, char **argv) {
    struct error e = {0};
    struct quotes_eval eval = {.writer.max_tokens = 128};
    const struct eval_option options[] = {
        {"--tokens", "N", "tokens of an answer at most (128)", EVAL_OPTION_COUNT,
         &eval.writer.max_tokens},
        {"--free", NULL, "answers are held to nothing: what the model quotes by itself",
         EVAL_OPTION_FLAG, &eval.writer.free},
        {"--answers", NULL, "print questions and answers on standard error", EVAL_OPTION_FLAG,
         &eval.answers},
        {"--json", NULL, "one JSON object in place of the table", EVAL_OPTION_FLAG, &eval.json},
        {0}};
    config_init(&eval.config);
    int first = eval_parse(self, argc, argv, options, &eval.config, &e);
    if (first >= 0 && argc - first < 1)
        error_set(&e, STATUS_INVALID, "expected one FILE.jsonl or more");
    bool failed =
        first != EVAL_HELPED && (first < 0 || argc - first < 1 || config_check(&eval.config, &e) ||
                                 run(&eval, argc - first, argv + first, &e));
    if (failed) line_print(stderr, "retro-eval quotes: %s", e.text);
    config_free(&eval.config);
    return failed;
}
