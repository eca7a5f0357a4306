/* tests/fuzz/fuzz_milvus.c: any bytes as an answer of Milvus: the first says of which call. */
#include <string.h>

#include "retrieval/milvus/client/answers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Everything that an answer says lies within it. */
static void check_within(struct text_span part, struct text_span whole) {
    CHECK(part.size == 0 ||
          (part.text >= whole.text && part.text + part.size <= whole.text + whole.size));
}

static void check_rows(const struct answer_rows *rows, struct text_span whole) {
    for (int i = 0; i < rows->n_columns; i++) {
        const struct answer_column *c = &rows->columns[i];
        CHECK(c->n == rows->n);
        check_within(c->name, whole);
        check_within(c->vectors, whole);
        CHECK(c->vectors.size == 0 ||
              c->vectors.size == (size_t)c->n * (size_t)c->dim * sizeof(float));
        for (int j = 0; c->texts && j < c->n; j++) check_within(c->texts[j], whole);
    }
}

static void read_rows(struct text_span answer, struct error *e) {
    struct answer_rows rows;
    const struct text_span *texts;
    const int64_t *numbers;
    if (answer_rows_read(&rows, answer, e) == STATUS_OK) {
        check_rows(&rows, answer);
        CHECK(answer_texts(&rows, "text", &texts, e) || rows.n == 0 || texts != NULL);
        CHECK(answer_numbers(&rows, "chunk", &numbers, e) || rows.n == 0 || numbers != NULL);
    }
    answer_rows_free(&rows);
}

static void read_hits(struct text_span answer, struct error *e) {
    struct answer_hits hits;
    int64_t sum = 0;
    if (answer_hits_read(&hits, answer, 2, e) == STATUS_OK) {
        check_rows(&hits.rows, answer);
        for (int i = 0; i < 2; i++) sum += hits.counts[i];
        CHECK(sum == hits.rows.n);
        for (int i = 0; i < hits.rows.n; i++) answer_float(hits.scores, i);
    }
    answer_hits_free(&hits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct error e = {0};
    struct buffer text = {0};
    bool truth;
    if (size == 0) return 0;
    struct text_span answer = {(const char *)data + 1, size - 1};
    switch (data[0] % 6) {
        case 0: read_rows(answer, &e); break;
        case 1: read_hits(answer, &e); break;
        case 2: answer_status_check(answer, true, &truth, &e); break;
        case 3: answer_status_check(answer, false, &truth, &e); break;
        case 4: answer_description_read(&text, answer, &e); break;
        default: answer_is_loaded(&truth, answer, &e); answer_truth(&truth, answer, &e);
    }
    buffer_free(&text);
    return 0;
}
