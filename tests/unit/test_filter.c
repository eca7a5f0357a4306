/* tests/unit/test_filter.c: filters: what they allow, against a model that is asked in another way;
 * what is wrong with others; and searches that they narrow, against comparing every vector. */
#include <math.h>
#include <string.h>

#include "retrieval/store/store.h"
#include "tests/folder.h"

static struct filter *parse(const char *text) {
    struct filter *f;
    struct error e;
    if (filter_parse(&f, text, "test", &e)) fail_msg("%s: %s", text, e.text);
    return f;
}

static bool allows(const char *text, const char *metadata) {
    struct buffer facts = {0};
    struct error e;
    struct filter *f = parse(text);
    assert_int_equal(facts_append(&facts, metadata, &e), STATUS_OK);
    struct filter_subject s = {
        .id = "id/1", .path = "docs/one.md", .facts = {facts.data, facts.size}};
    bool allowed = filter_allows(f, &s);
    filter_release(f);
    buffer_free(&facts);
    return allowed;
}

static void test_conditions(void **state) {
    static const struct {
        const char *filter, *metadata;
        bool allowed;
    } cases[] = {
        {"{\"eq\":{\"a\":\"x\"}}", "{\"a\":\"x\"}", true},
        {"{\"eq\":{\"a\":\"x\"}}", "{\"a\":\"xy\"}", false},
        {"{\"eq\":{\"a\":\"x\"}}", "", false},
        {"{\"eq\":{\"a\":\"x\"}}", "{\"a\":[\"y\",\"x\"]}", true},
        {"{\"eq\":{\"a\":\"\"}}", "{\"a\":\"\"}", true},
        {"{\"eq\":{\"a\":1}}", "{\"a\":1.0}", true},
        {"{\"eq\":{\"a\":1}}", "{\"a\":\"1\"}", false},
        {"{\"eq\":{\"a\":true}}", "{\"a\":true}", true},
        {"{\"eq\":{\"a\":true}}", "{\"a\":1}", false},
        {"{\"eq\":{\"a\":\"x\",\"b\":2}}", "{\"a\":\"x\",\"b\":2}", true},
        {"{\"eq\":{\"a\":\"x\",\"b\":2}}", "{\"a\":\"x\",\"b\":3}", false},
        {"{\"eq\":{\"a\":\"\\u00e4\\u0000b\"}}", "{\"a\":\"\\u00e4\\u0000b\"}", true},
        {"{\"eq\":{\"a\":9007199254740993}}", "{\"a\":9007199254740992.0}", false},
        {"{\"in\":{\"a\":[1,\"x\"]}}", "{\"a\":\"x\"}", true},
        {"{\"in\":{\"a\":[1,\"x\"]}}", "{\"a\":2}", false},
        {"{\"prefix\":{\"a\":\"x\"}}", "{\"a\":\"xy\"}", true},
        {"{\"prefix\":{\"a\":\"xyz\"}}", "{\"a\":\"xy\"}", false},
        {"{\"prefix\":{\"a\":\"\"}}", "{\"a\":\"xy\"}", true},
        {"{\"prefix\":{\"a\":\"1\"}}", "{\"a\":12}", false},
        {"{\"range\":{\"a\":{\"gte\":1,\"lt\":2}}}", "{\"a\":1}", true},
        {"{\"range\":{\"a\":{\"gte\":1,\"lt\":2}}}", "{\"a\":2}", false},
        {"{\"range\":{\"a\":{\"gt\":1,\"lte\":2}}}", "{\"a\":1}", false},
        {"{\"range\":{\"a\":{\"gt\":1,\"lte\":2}}}", "{\"a\":[0,1.5]}", true},
        {"{\"range\":{\"a\":{\"gt\":1}}}", "{\"a\":\"2\"}", false},
        {"{\"range\":{\"a\":{\"gte\":\"2024-01-01\"}}}", "{\"a\":\"2024-01-01\"}", true},
        {"{\"range\":{\"a\":{\"gt\":\"2024-01-01\"}}}", "{\"a\":\"2024-01-01T00:00:00.000001Z\"}",
         true},
        {"{\"range\":{\"a\":{\"lt\":\"2024-03-01\"}}}", "{\"a\":\"2024-02-29T23:59\"}", true},
        {"{\"range\":{\"a\":{\"lt\":\"2024-01-01T00:00:00+02:00\"}}}",
         "{\"a\":\"2023-12-31 21:59:59\"}", true},
        {"{\"range\":{\"a\":{\"lt\":\"2024-01-01T00:00:00+02:00\"}}}",
         "{\"a\":\"2023-12-31 22:00:00\"}", false},
        {"{\"range\":{\"a\":{\"lt\":\"2024-01-01\"}}}", "{\"a\":\"yesterday\"}", false},
        {"{\"range\":{\"a\":{\"lt\":\"2024-01-01\"}}}", "{\"a\":5}", false},
        {"{\"eq\":{\"id\":\"id/1\"}}", "{\"id\":\"other\"}", true},
        {"{\"prefix\":{\"path\":\"docs/\"}}", "{}", true},
        {"{\"not\":{\"eq\":{\"a\":1}}}", "", true},
        {"{\"not\":{\"eq\":{\"a\":1}}}", "{\"a\":1}", false},
        {"{\"and\":[{\"eq\":{\"a\":1}},{\"eq\":{\"b\":1}}]}", "{\"a\":1}", false},
        {"{\"or\":[{\"eq\":{\"a\":1}},{\"eq\":{\"b\":1}}]}", "{\"a\":1}", true},
        {"{\"or\":[{\"eq\":{\"a\":1}},{\"eq\":{\"b\":1}}]}", "{}", false},
        {"{\"eq\":{\"a\":1}}", "{\"a\":{\"a\":1},\"b\":null,\"c\":[[1]]}", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        if (allows(cases[i].filter, cases[i].metadata) != cases[i].allowed)
            fail_msg("%s of %s", cases[i].filter, cases[i].metadata);
}

static void test_refused_filters(void **state) {
    static const struct {
        const char *filter, *why;
    } cases[] = {
        {"[]", "expected an object"},
        {"{}", "one operator"},
        {"{\"eq\":{\"a\":1},\"in\":{\"a\":[1]}}", "one operator"},
        {"{\"equals\":{\"a\":1}}", "equals: there is no such operator"},
        {"{\"eq\":[]}", "\"eq\" is"},
        {"{\"eq\":{}}", "at least one name"},
        {"{\"eq\":{\"a\":null}}", "\"eq.a\""},
        {"{\"eq\":{\"a\":[1]}}", "\"eq.a\""},
        {"{\"eq\":{\"\":1}}", "empty"},
        {"{\"eq\":{\"a\\u0000b\":1}}", "NUL"},
        {"{\"in\":{\"a\":[]}}", "at least one value"},
        {"{\"in\":{\"a\":1}}", "at least one value"},
        {"{\"in\":{\"a\":[1,{}]}}", "in.a[1]"},
        {"{\"prefix\":{\"a\":1}}", "expected a string"},
        {"{\"range\":{\"a\":{}}}", "gt, gte, lt or lte"},
        {"{\"range\":{\"a\":{\"ge\":1}}}", "range.a.ge: a range has gt, gte, lt and lte"},
        {"{\"range\":{\"a\":{\"gt\":1,\"gte\":1}}}", "one of gt and gte"},
        {"{\"range\":{\"a\":{\"gt\":1,\"lt\":\"2024-01-01\"}}}", "both dates"},
        {"{\"range\":{\"a\":{\"gt\":\"2024-02-30\"}}}", "must be a date"},
        {"{\"range\":{\"a\":{\"gt\":true}}}", "a number or a date"},
        {"{\"and\":[]}", "at least one filter"},
        {"{\"and\":[{\"eq\":{\"a\":1}},{\"or\":[{\"not\":{\"eq\":{\"b\":{}}}}]}]}",
         "and[1].or[0].not.eq.b"},
        {"{\"not\":[]}", "expected an object"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct filter *f;
        struct error e;
        if (filter_parse(&f, cases[i].filter, "test", &e) != STATUS_INVALID)
            fail_msg("%s", cases[i].filter);
        if (strstr(e.text, cases[i].why) == NULL) fail_msg("%s: %s", cases[i].filter, e.text);
        assert_null(f);
    }
}

/* A value among many is found as it is one by one: booleans, numbers of both kinds, texts. */
static void test_values(void **state) {
    static const char *const values[] = {
        "true", "false", "0",     "-0.0",   "1",     "1.5",   "9007199254740993",
        "-7",   "\"\"",  "\"a\"", "\"ab\"", "\"b\"", "1e300", "9007199254740992.0"};
    struct buffer all = {0}, facts = {0};
    struct error e;
    (void)state;
    for (size_t skipped = 0; skipped < ARRAY_COUNT(values); skipped++) {
        struct filter *several, *one;
        buffer_clear(&all);
        buffer_append_string(&all, "{\"in\":{\"a\":[\"other\"");
        for (size_t i = 0; i < ARRAY_COUNT(values); i++)
            if (i != skipped) buffer_printf(&all, ",%s", values[i]);
        buffer_append_string(&all, "]}}");
        assert_int_equal(filter_parse(&several, all.data, "test", &e), STATUS_OK);
        for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
            bool expected = false;
            buffer_clear(&all);
            buffer_printf(&all, "{\"a\":%s}", values[i]);
            buffer_clear(&facts);
            assert_int_equal(facts_append(&facts, all.data, &e), STATUS_OK);
            struct filter_subject s = {.id = "i", .path = "p", .facts = {facts.data, facts.size}};
            for (size_t k = 0; k < ARRAY_COUNT(values); k++) {
                if (k == skipped) continue;
                buffer_clear(&all);
                buffer_printf(&all, "{\"eq\":{\"a\":%s}}", values[k]);
                assert_int_equal(filter_parse(&one, all.data, "test", &e), STATUS_OK);
                expected = expected || filter_allows(one, &s);
                filter_release(one);
            }
            if (filter_allows(several, &s) != expected)
                fail_msg("%s without %s", values[i], values[skipped]);
        }
        filter_release(several);
    }
    buffer_free(&all);
    buffer_free(&facts);
}

static enum status fits(const char *metadata, struct metadata_limits limits, struct error *e) {
    struct json *object;
    assert_int_equal(
        json_parse(&object, (struct text_span){metadata, strlen(metadata)}, "metadata", e),
        STATUS_OK);
    enum status status = metadata_fits(object, strlen(metadata), &limits, e);
    json_close(object);
    return status;
}

static void test_metadata_limits(void **state) {
    static const char metadata[] = "{\"a\":[1,2,3],\"b\":1}";
    int size = sizeof metadata - 1;
    struct error e;
    (void)state;
    assert_int_equal(fits(metadata, (struct metadata_limits){4, size}, &e), STATUS_OK);
    assert_int_equal(fits(metadata, (struct metadata_limits){3, size}, &e), STATUS_TOO_LARGE);
    assert_string_equal(
        e.text, "the metadata has 4 values, the limit is 3 (option retrieval.max_metadata_values)");
    assert_int_equal(fits(metadata, (struct metadata_limits){4, size - 1}, &e), STATUS_TOO_LARGE);
    assert_non_null(strstr(e.text, "(option retrieval.max_metadata_bytes)"));
}

static void test_limits(void **state) {
    struct buffer text = {0};
    struct filter *f;
    struct error e;
    (void)state;
    for (int i = 0; i < FILTER_MAX_DEPTH; i++) buffer_append_string(&text, "{\"not\":");
    buffer_append_string(&text, "{\"eq\":{\"a\":1}}");
    for (int i = 0; i < FILTER_MAX_DEPTH; i++) buffer_append_string(&text, "}");
    assert_int_equal(filter_parse(&f, text.data, "test", &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "more than 16 levels"));

    buffer_clear(&text);
    buffer_append_string(&text, "{\"in\":{\"a\":[0");
    for (int i = 0; i < FILTER_MAX_VALUES; i++) buffer_append_string(&text, ",1");
    buffer_append_string(&text, "]}}");
    assert_int_equal(filter_parse(&f, text.data, "test", &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "more than 10000 values"));

    buffer_clear(&text);
    buffer_append_string(&text, "{\"and\":[");
    for (int i = 0; i < FILTER_MAX_PARTS; i++)
        buffer_printf(&text, "%s{\"eq\":{\"a\":1}}", i ? "," : "");
    buffer_append_string(&text, "]}");
    assert_int_equal(filter_parse(&f, text.data, "test", &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "more than 1000 conditions and operators"));
    buffer_free(&text);
}

static void test_dates(void **state) {
    static const struct {
        const char *text;
        int64_t seconds;
    } dates[] = {{"1970-01-01", 0},
                 {"2000-03-01", 951868800},
                 {"2024-02-29T12:00:00Z", 1709208000},
                 {"1969-12-31T23:59:59Z", -1},
                 {"0001-01-01", -62135596800},
                 {"9999-12-31T23:59:59Z", 253402300799},
                 {"2024-06-01 01:30+01:30", 1717200000}};
    static const char *const none[] = {
        "",           "2024",        "2024-1-01",         "2024-13-01",
        "2023-02-29", "2024-01-01T", "2024-01-01T25:00Z", "2024-01-01T10:00:00.Z",
        "2024-01-01x"};
    int64_t found;
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(dates); i++) {
        assert_true(
            fact_parse_date((struct text_span){dates[i].text, strlen(dates[i].text)}, &found));
        assert_int_equal(found, dates[i].seconds * 1000000);
    }
    for (size_t i = 0; i < ARRAY_COUNT(none); i++)
        assert_false(fact_parse_date((struct text_span){none[i], strlen(none[i])}, &found));
}

static void check_filled(const char *filter, const char *metadata, const char *expected) {
    struct buffer text = {0};
    struct error e;
    struct filter *f = parse(filter);
    buffer_append_string(&text, metadata);
    assert_int_equal(filter_fill(f, &text, &e), STATUS_OK);
    assert_string_equal(text.data, expected);
    filter_release(f);
    buffer_free(&text);
}

static void test_filling(void **state) {
    (void)state;
    check_filled("{\"eq\":{\"tenant\":\"a\"}}", "", "{\"tenant\":\"a\"}");
    check_filled("{\"eq\":{\"tenant\":\"a\"}}", "{\"tenant\":\"b\",\"x\":[1]}",
                 "{\"tenant\":\"b\",\"x\":[1]}");
    check_filled(
        "{\"and\":[{\"eq\":{\"t\":\"a\",\"id\":\"x\"}},{\"in\":{\"y\":[1,2]}},{\"or\":[{\"eq\":{"
        "\"z\":1}}]}]}",
        "{\"x\":1}", "{\"x\":1,\"t\":\"a\"}");
}

static bool admits(const char *text, const char *metadata) {
    struct buffer facts = {0};
    struct error e;
    struct filter *f = parse(text);
    assert_int_equal(facts_append(&facts, metadata, &e), STATUS_OK);
    struct filter_subject s = {
        .id = "id/1", .path = "docs/one.md", .facts = {facts.data, facts.size}};
    bool admitted = filter_admits(f, &s);
    if (admitted) assert_true(filter_allows(f, &s));
    filter_release(f);
    buffer_free(&facts);
    return admitted;
}

/* A search takes a document where one value of a list fits; to put it, all have to. */
static void test_admitting(void **state) {
    static const struct {
        const char *filter, *metadata;
        bool admitted;
    } cases[] = {
        {"{\"eq\":{\"t\":\"a\"}}", "{\"t\":\"a\",\"x\":[\"b\",\"c\"]}", true},
        {"{\"eq\":{\"t\":\"a\"}}", "{\"t\":[\"a\",\"b\"]}", false},
        {"{\"eq\":{\"t\":\"a\"}}", "{\"t\":[\"a\"]}", false},
        {"{\"eq\":{\"t\":\"a\"}}", "{\"t\":[]}", false},
        {"{\"eq\":{\"t\":\"a\"}}", "{\"T\":\"a\"}", false},
        {"{\"eq\":{\"t\":\"a\"}}", "{\"t\":\"a\\u0000\"}", false},
        {"{\"eq\":{\"t\":1}}", "{\"t\":[1,1.0]}", false},
        {"{\"in\":{\"t\":[\"a\",\"b\"]}}", "{\"t\":[\"b\",\"a\"]}", true},
        {"{\"in\":{\"t\":[\"a\",\"b\"]}}", "{\"t\":[\"a\",\"c\"]}", false},
        {"{\"prefix\":{\"t\":\"a/\"}}", "{\"t\":[\"a/1\",\"b/1\"]}", false},
        {"{\"prefix\":{\"t\":\"a/\"}}", "{\"t\":[\"a/1\",\"a/2\"]}", true},
        {"{\"range\":{\"t\":{\"lt\":9}}}", "{\"t\":[1,10]}", false},
        {"{\"range\":{\"t\":{\"lt\":9}}}", "{\"t\":[1,2]}", true},
        {"{\"not\":{\"eq\":{\"t\":\"b\"}}}", "{\"t\":[\"a\",\"b\"]}", false},
        {"{\"not\":{\"eq\":{\"t\":\"b\"}}}", "{\"t\":[\"a\",\"c\"]}", true},
        {"{\"not\":{\"not\":{\"eq\":{\"t\":\"a\"}}}}", "{\"t\":[\"a\",\"b\"]}", false},
        {"{\"not\":{\"not\":{\"eq\":{\"t\":\"a\"}}}}", "{\"t\":\"a\"}", true},
        {"{\"not\":{\"in\":{\"t\":[\"b\",\"c\"]}}}", "{}", true},
        {"{\"and\":[{\"in\":{\"t\":[\"a\",\"b\"]}},{\"in\":{\"t\":[\"b\",\"c\"]}}]}",
         "{\"t\":[\"a\",\"c\"]}", false},
        {"{\"or\":[{\"eq\":{\"t\":\"a\"}},{\"eq\":{\"u\":\"a\"}}]}",
         "{\"t\":[\"a\",\"b\"],\"u\":[\"a\",\"b\"]}", false},
        {"{\"or\":[{\"eq\":{\"t\":\"a\"}},{\"eq\":{\"u\":\"a\"}}]}", "{\"u\":\"a\"}", true},
        {"{\"prefix\":{\"path\":\"docs/\"}}", "{\"path\":\"other\"}", true},
        {"{\"prefix\":{\"path\":\"other\"}}", "{\"path\":\"other\"}", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        if (admits(cases[i].filter, cases[i].metadata) != cases[i].admitted)
            fail_msg("%s of %s", cases[i].filter, cases[i].metadata);
}

/* A made-up document: its metadata, and the same as numbers. */
enum { DIM = 8, CHUNK = 4, DOCUMENTS = 6000, COLORS = 5, K = 7 };
struct facts_model {
    int color, other_color, year, day; /* -1: it has none; a second color makes a list */
};

static uint32_t seed = 1;
static uint32_t draw(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static struct facts_model draw_facts(void) {
    return (struct facts_model){.color = draw(6) ? (int)draw(COLORS) : -1,
                                .other_color = draw(3) ? -1 : (int)draw(COLORS),
                                .year = draw(5) ? 2000 + (int)draw(30) : -1,
                                .day = draw(5) ? 1 + (int)draw(28) : -1};
}

static void print_metadata(const struct facts_model *m, char *out, size_t size) {
    char color[64] = "", year[32] = "", day[48] = "";
    if (m->color >= 0 && m->other_color >= 0)
        snprintf(color, sizeof color, ",\"color\":[\"c%d\",\"c%d\"]", m->color, m->other_color);
    else if (m->color >= 0)
        snprintf(color, sizeof color, ",\"color\":\"c%d\"", m->color);
    if (m->year >= 0) snprintf(year, sizeof year, ",\"year\":%d", m->year);
    if (m->day >= 0) snprintf(day, sizeof day, ",\"day\":\"2024-05-%02dT10:00:00Z\"", m->day);
    snprintf(out, size, "{\"all\":true%s%s%s}", color, year, day);
}

static bool has_color(const struct facts_model *m, int color) {
    return m->color >= 0 && (m->color == color || m->other_color == color);
}

/* Writes a random filter and fills in what it allows of n documents. */
static void draw_filter(struct buffer *text, const struct facts_model *models, bool *allowed, int n,
                        int depth) {
    uint32_t kind = draw(depth > 0 ? 8 : 5), a = draw(COLORS), b = draw(COLORS);
    int low = 2000 + (int)draw(30), high = low + (int)draw(15), day = 1 + (int)draw(28),
        part = (int)draw(400);
    bool *other = calloc((size_t)n, sizeof *other);
    if (kind == 0) buffer_printf(text, "{\"eq\":{\"color\":\"c%u\"}}", a);
    if (kind == 1) buffer_printf(text, "{\"in\":{\"color\":[\"c%u\",7,\"c%u\"]}}", a, b);
    if (kind == 2)
        buffer_printf(text, "{\"range\":{\"year\":{\"gte\":%d,\"lt\":%d.5}}}", low, high);
    if (kind == 3) buffer_printf(text, "{\"range\":{\"day\":{\"gt\":\"2024-05-%02d\"}}}", day);
    if (kind == 4) buffer_printf(text, "{\"prefix\":{\"id\":\"%d\"}}", part);
    for (int i = 0; i < n && kind < 5; i++) {
        const struct facts_model *m = &models[i];
        char id[16], begin[16];
        snprintf(id, sizeof id, "%d", i);
        snprintf(begin, sizeof begin, "%d", part);
        allowed[i] = kind == 0   ? has_color(m, (int)a)
                     : kind == 1 ? has_color(m, (int)a) || has_color(m, (int)b)
                     : kind == 2 ? m->year >= low && m->year <= high
                     : kind == 3 ? m->day >= day
                                 : strncmp(id, begin, strlen(begin)) == 0;
    }
    if (kind == 5) {
        buffer_append_string(text, "{\"not\":");
        draw_filter(text, models, allowed, n, depth - 1);
        buffer_append_string(text, "}");
        for (int i = 0; i < n; i++) allowed[i] = !allowed[i];
    } else if (kind > 5) {
        buffer_append_string(text, kind == 6 ? "{\"and\":[" : "{\"or\":[");
        draw_filter(text, models, allowed, n, depth - 1);
        buffer_append_string(text, ",");
        draw_filter(text, models, other, n, depth - 1);
        buffer_append_string(text, "]}");
        for (int i = 0; i < n; i++)
            allowed[i] = kind == 6 ? allowed[i] && other[i] : allowed[i] || other[i];
    }
    free(other);
}

static void draw_unit(float *v) {
    double square = 1e-9;
    for (int j = 0; j < DIM; j++) {
        v[j] = (float)draw(2001) / 1000 - 1;
        square += (double)v[j] * (double)v[j];
    }
    for (int j = 0; j < DIM; j++) v[j] = (float)(v[j] / sqrt(square));
}

/* A document of two chunks. */
struct made {
    char id[16], path[16], metadata[200];
    int32_t ids[CHUNK + 1];
    struct chunk_range chunks[2];
    struct collection_document document;
};

static void make(struct made *m, int number, const struct facts_model *facts) {
    *m = (struct made){.chunks = {{0, 2, 0, CHUNK}, {2, 4, CHUNK, 1}}};
    snprintf(m->id, sizeof m->id, "%d", number);
    snprintf(m->path, sizeof m->path, "p/%d", number);
    print_metadata(facts, m->metadata, sizeof m->metadata);
    m->document = (struct collection_document){.id = m->id,
                                               .path = m->path,
                                               .title = "",
                                               .metadata = m->metadata,
                                               .text = {"abcd", 4},
                                               .ids = m->ids,
                                               .chunks = m->chunks,
                                               .n_chunks = 2,
                                               .n = CHUNK + 1};
}

struct world {
    struct facts_model facts[DOCUMENTS];
    bool there[DOCUMENTS], allowed[DOCUMENTS];
    float vectors[DOCUMENTS][2 * DIM];
};

static void build(struct world *w, const char *factory, int n) {
    struct collection_options o = {.chunk_length = CHUNK,
                                   .eod = 9,
                                   .dim = DIM,
                                   .embedder = "toy",
                                   .tokenizer = "toy",
                                   .index_factory = factory};
    struct generation_builder *b;
    struct error e;
    if (builder_create(&b, test_folder, &o, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < DOCUMENTS; i++) {
        struct made made;
        w->facts[i] = draw_facts();
        draw_unit(w->vectors[i]);
        draw_unit(w->vectors[i] + DIM);
        if (i >= n) continue;
        make(&made, i, &w->facts[i]);
        w->there[i] = true;
        if (builder_add_document(b, &made.document, &e) ||
            builder_add_vectors(b, w->vectors[i], 2, &e))
            fail_msg("%s", e.text);
    }
    if (builder_commit(b, &e)) fail_msg("%s", e.text);
}

/* The similarity that is the `rank`-th best of all chunks that are allowed. */
static void find_best(const struct world *w, const float *query, float best[K]) {
    for (int i = 0; i < K; i++) best[i] = -2;
    for (int i = 0; i < 2 * DOCUMENTS; i++) {
        float sum = 0;
        if (!w->there[i / 2] || !w->allowed[i / 2]) continue;
        for (int j = 0; j < DIM; j++) sum += query[j] * w->vectors[i / 2][i % 2 * DIM + j];
        if (sum <= best[K - 1]) continue;
        int at = K - 1;
        for (; at > 0 && best[at - 1] < sum; at--) best[at] = best[at - 1];
        best[at] = sum;
    }
}

static void check_search(const struct world *w, struct collection *l, struct filter *f,
                         const char *text) {
    float query[2 * DIM], similarities[2 * K], best[K];
    int64_t ids[2 * K], n_documents, n_chunks, expected = 0;
    struct error e;
    draw_unit(query);
    draw_unit(query + DIM);
    struct snapshot *snapshot = collection_hold(l);
    struct nearest_query asked = {.vectors = query, .n = 2, .k = K, .filter = f};
    if (store_search(snapshot, &asked, ids, similarities, &e)) fail_msg("%s: %s", text, e.text);
    for (int i = 0; i < 2 * K; i++) {
        if (i % K == 0) find_best(w, query + i / K * DIM, best);
        if (!(fabsf(similarities[i] - best[i % K]) < 1e-5F))
            fail_msg("%s: %g, %g", text, similarities[i], best[i % K]);
        if (ids[i] < 0) continue;
        int number = atoi(snapshot_chunk(snapshot, ids[i]).document_id);
        assert_true(w->there[number] && w->allowed[number]);
    }
    for (int i = 0; i < DOCUMENTS; i++) expected += w->there[i] && w->allowed[i];
    snapshot_release(snapshot);
    assert_int_equal(collection_count(l, f, &n_documents, &n_chunks, &e), STATUS_OK);
    assert_int_equal(n_documents, expected);
    assert_int_equal(n_chunks, 2 * expected);
}

static void check_random_filters(const char *factory, int n_filters) {
    struct world *w = calloc(1, sizeof *w);
    struct collection *l;
    struct error e;
    enum change_effect effect;
    build(w, factory, DOCUMENTS - 200);
    assert_int_equal(store_open(&l, test_folder, &e), STATUS_OK);
    for (int i = 0; i < n_filters; i++) {
        struct buffer text = {0};
        struct made made;
        draw_filter(&text, w->facts, w->allowed, DOCUMENTS, 3);
        struct filter *f = parse(text.data);
        check_search(w, l, f, text.data);
        check_search(w, l, f, text.data); /* it is remembered now */
        filter_release(f);
        buffer_free(&text);

        int gone = (int)draw(DOCUMENTS), came = DOCUMENTS - 200 + i % 200;
        snprintf(made.id, sizeof made.id, "%d", gone);
        if (w->there[gone]) assert_int_equal(collection_delete(l, NULL, made.id, &e), STATUS_OK);
        w->there[gone] = false;
        make(&made, came, &w->facts[came]);
        assert_int_equal(collection_put(l, NULL, &made.document, w->vectors[came], &effect, &e),
                         STATUS_OK);
        w->there[came] = true;
    }
    collection_close(l);
    free(w);
}

static void test_random_filters(void **state) {
    (void)state;
    check_random_filters(INDEX_EXACT, 100);
}

static void test_random_filters_faiss(void **state) {
    (void)state;
    if (HAVE_FAISS) check_random_filters("Flat", 60);
}

/* Of an inverted file all lists are read here, so it is exact. */
static void test_random_filters_lists(void **state) {
    (void)state;
    if (HAVE_FAISS) check_random_filters("IVF16,Flat", 60);
    if (HAVE_FAISS) check_random_filters("IVF16,SQ8", 60);
}

/* Under the id as it is, not under the client's own. */
static enum status put_stored(struct collection *c, const struct filter *f, const struct made *made,
                              const float *vectors, enum change_effect *effect) {
    struct document_put put = {.document = &made->document, .vectors = vectors};
    c->ops->put_all(c, f, &put, 1);
    *effect = put.effect;
    return put.status;
}

/* Documents of another client are not there. */
static void test_changes_within_a_filter(void **state) {
    struct world *w = calloc(1, sizeof *w);
    struct collection *l;
    struct error e, none;
    enum change_effect effect;
    struct made made;
    struct collection_found found;
    (void)state;
    build(w, INDEX_EXACT, 5);
    struct facts_model blue = {1, -1, 2001, 3}, red = {2, -1, 2002, 4};
    struct filter *only_blue = parse("{\"eq\":{\"color\":\"c1\"}}");
    assert_int_equal(store_open(&l, test_folder, &e), STATUS_OK);
    make(&made, 100, &red);
    assert_int_equal(put_stored(l, only_blue, &made, w->vectors[0], &effect), STATUS_INVALID);
    assert_int_equal(effect, CHANGE_REFUSED);
    assert_int_equal(collection_put(l, NULL, &made.document, w->vectors[0], &effect, &e),
                     STATUS_OK);

    make(&made, 100, &blue); /* the id is another's */
    assert_int_equal(put_stored(l, only_blue, &made, w->vectors[0], &effect), STATUS_INVALID);
    assert_int_equal(effect, CHANGE_REFUSED);
    assert_int_equal(l->ops->find(l, only_blue, "100", &found, &e), STATUS_NOT_FOUND);
    assert_int_equal(l->ops->remove(l, only_blue, "100", &e), STATUS_NOT_FOUND);
    assert_int_equal(l->ops->find(l, only_blue, "none", &found, &none), STATUS_NOT_FOUND);
    assert_memory_equal(e.text, none.text, strlen("no document has the id "));

    make(&made, 101, &blue);
    assert_int_equal(put_stored(l, only_blue, &made, w->vectors[0], &effect), STATUS_OK);
    assert_int_equal(l->ops->find(l, only_blue, "101", &found, &e), STATUS_OK);
    collection_found_release(&found);
    assert_int_equal(l->ops->remove(l, only_blue, "101", &e), STATUS_OK);
    collection_close(l);
    filter_release(only_blue);
    free(w);
}

/* A filter as it is written again is the same filter. */
static void test_writing(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct facts_model model = {0};
        struct buffer text = {0};
        bool allowed;
        draw_filter(&text, &model, &allowed, 1, 4);
        struct filter *f = parse(text.data), *again = parse(filter_text(f));
        assert_true(filter_is_same(f, again));
        struct filter *both = filter_join(f, again), *same = filter_join(NULL, f);
        assert_false(filter_is_same(both, f));
        assert_ptr_equal(same, f);
        filter_release(same);
        filter_release(both);
        filter_release(again);
        filter_release(f);
        buffer_free(&text);
    }
}

static void test_bad_metadata(void **state) {
    struct buffer facts = {0};
    struct error e;
    (void)state;
    assert_int_equal(facts_append(&facts, "[1]", &e), STATUS_INVALID);
    assert_int_equal(facts_append(&facts, "{\"a\":", &e), STATUS_INVALID);
    assert_int_equal(facts.size, 0);
    buffer_free(&facts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_refused_filters),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_metadata_limits),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_filling),
        cmocka_unit_test(test_admitting),
        cmocka_unit_test(test_writing),
        cmocka_unit_test(test_bad_metadata),
        cmocka_unit_test_setup_teardown(test_random_filters, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_random_filters_faiss, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_random_filters_lists, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_changes_within_a_filter, folder_set_up,
                                        folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
