/* server/doors/messages/citable.c: see citable.h. */
#include "server/doors/messages/citable.h"

#include <stdlib.h>

#include "config/base/base64.h"
#include "config/base/text.h"
#include "config/text/sentences.h"

enum {
    PASSAGE_BYTES = 240,   /* sentences are joined to passages of at least so many */
    FILE_BYTES = 64 << 20, /* of a file, and of its text */
    FILE_SECONDS = 10      /* that a file may take to be read */
};

const char citable_words[] =
    "Passages of the documents have numbers in brackets. Behind each statement that a passage "
    "supports, write the passage's number, as [1] or [2, 3].";

/* Whether citations are wanted. */

static bool wants(const struct json *block) {
    return citable_block_is(block) &&
           json_bool(json_member(json_member(block, "citations"), "enabled"));
}

bool citable_block_is(const struct json *block) {
    const struct json *type = json_member(block, "type");
    return json_text_is(type, "document") || json_text_is(type, "search_result");
}

static bool any_wants(const struct json *blocks) {
    for (size_t i = 0; json_is_list(blocks) && i < json_count(blocks); i++) {
        const struct json *block = json_item(blocks, i);
        const struct json *within = json_member(block, "content");
        if (wants(block)) return true;
        for (size_t j = 0; json_is_list(within) && j < json_count(within); j++)
            if (wants(json_item(within, j))) return true;
    }
    return false;
}

bool citable_is_wanted(const struct json *messages) {
    for (size_t i = 0; i < json_count(messages); i++)
        if (any_wants(json_member(json_item(messages, i), "content"))) return true;
    return false;
}

/* One document on its way into the prompt. */
struct citing {
    struct citable_list *list;
    struct conversation *conversation;
    struct citable passage; /* all but its text and place */
    struct buffer shown;    /* the document as the model reads it */
    size_t at;              /* byte and character up to which places were counted */
    int64_t characters;
};

static void show_passage(struct citing *citing, struct text_span text) {
    buffer_printf(&citing->shown, "[%d] ", citing->list->n);
    buffer_append(&citing->shown, text.text, text.size);
    buffer_append(&citing->shown, "\n", 1);
}

static void add_passage(struct citing *citing, struct text_span text, int64_t start, int64_t end) {
    struct citable_list *list = citing->list;
    if (!list->enabled) {
        buffer_append(&citing->shown, text.text, text.size);
        buffer_append(&citing->shown, "\n", 1);
        return;
    }
    citing->passage.text = text;
    citing->passage.start = start;
    citing->passage.end = end;
    list->all = xgrow(list->all, list->n, &list->capacity, sizeof *list->all);
    list->all[list->n] = citing->passage;
    list->n++;
    show_passage(citing, text);
}

/* Texts in sentences. */

static int64_t count_to(struct citing *citing, struct text_span text, size_t end) {
    for (; citing->at < end; citing->at++)
        citing->characters += (text.text[citing->at] & 0xC0) != 0x80;
    return citing->characters;
}

static void add_span(struct citing *citing, struct text_span text, size_t begin, size_t end) {
    int64_t start = count_to(citing, text, begin);
    add_passage(citing, (struct text_span){text.text + begin, end - begin}, start,
                count_to(citing, text, end));
}

/* A whole text in passages of one sentence, or of several that are short. */
static void add_text(struct citing *citing, struct text_span text) {
    struct sentence sentence;
    size_t at = 0, begin = 0, end = 0;
    citing->passage.kind = CITES_CHARACTERS;
    if (!citing->list->enabled) {
        add_passage(citing, text, 0, 0);
        return;
    }
    while (sentence_next(text, &at, &sentence)) {
        if (end == 0) begin = sentence.begin;
        end = sentence.end;
        if (end - begin < PASSAGE_BYTES) continue;
        add_span(citing, text, begin, end);
        end = 0;
    }
    if (end > 0) add_span(citing, text, begin, end);
}

/* Blocks that are not cut. */

static bool refuse(struct failure *failure, const char *what) {
    return failure_set(failure, 400, "invalid_value", "messages", "%s", what);
}

static bool add_blocks(struct citing *citing, const struct json *blocks, enum citable_kind kind,
                       struct failure *failure) {
    citing->passage.kind = kind;
    for (size_t i = 0; i < json_count(blocks); i++) {
        const struct json *block = json_item(blocks, i), *text = json_member(block, "text");
        if (!json_text_is(json_member(block, "type"), "text") || !json_is_text(text))
            return refuse(failure,
                          "the content of a document or search result is a text, or "
                          "blocks {\"type\": \"text\", \"text\": ...}");
        add_passage(citing, json_text(text), (int64_t)i, (int64_t)i + 1);
    }
    return true;
}

/* Files. */

static void add_pages(struct citing *citing, const struct document_text *file) {
    struct text_span text = {file->text.data, file->text.size};
    struct mark_span marks = marks_of(&file->marks);
    size_t begin = 0;
    int64_t page = 1;
    citing->passage.kind = CITES_PAGES;
    for (uint32_t i = 0; i <= marks.n; i++) {
        struct mark mark = {.at = (uint32_t)text.size, .kind = MARK_PAGE};
        if (i < marks.n) memcpy(&mark, (const char *)marks.bytes + i * sizeof mark, sizeof mark);
        if (mark.kind != MARK_PAGE) continue;
        if (mark.at > begin)
            add_passage(citing, (struct text_span){text.text + begin, mark.at - begin}, page,
                        page + 1);
        begin = mark.at;
        page = mark.value;
    }
}

static bool read_pdf(struct citing *citing, const struct json *source, struct failure *failure) {
    struct citable_list *list = citing->list;
    struct extract_limits limits = extract_limits_of(FILE_BYTES);
    struct buffer bytes = {0};
    struct error e;
    if (!json_text_is(json_member(source, "media_type"), "application/pdf"))
        return refuse(failure, "a document of base64 is application/pdf");
    limits.seconds = FILE_SECONDS;
    list->texts = xrealloc(list->texts, ((size_t)list->n_texts + 1) * sizeof *list->texts);
    struct document_text *file = &list->texts[list->n_texts];
    *file = (struct document_text){0};
    list->n_texts++;
    bool ok = base64_decode(json_text(json_member(source, "data")), &bytes) ||
              refuse(failure, "the data of a document is not base64");
    if (ok && document_extract_upload("document.pdf", (struct text_span){bytes.data, bytes.size},
                                      &limits, file, &e))
        ok = failure_set(failure, 400, "invalid_document", "messages", "a document: %s", e.text);
    buffer_free(&bytes);
    if (ok) add_pages(citing, file);
    return ok;
}

static bool read_source(struct citing *citing, const struct json *source, struct failure *failure) {
    const struct json *type = json_member(source, "type"), *data = json_member(source, "data"),
                      *content = json_member(source, "content");
    if (json_text_is(type, "text") && json_is_text(data)) {
        add_text(citing, json_text(data));
        return true;
    }
    if (json_text_is(type, "content") && json_is_text(content)) {
        citing->passage.kind = CITES_BLOCKS;
        add_passage(citing, json_text(content), 0, 1);
        return true;
    }
    if (json_text_is(type, "content")) return add_blocks(citing, content, CITES_BLOCKS, failure);
    if (json_text_is(type, "base64")) return read_pdf(citing, source, failure);
    if (json_text_is(type, "url"))
        return refuse(failure, "a document's source of type url is not fetched: send its bytes");
    return refuse(failure, "a document's source is of type text, content or base64");
}

/* Blocks. */

/* Citations are for all documents of a request or for none, and the same of search results. */
static bool check_enabled(const struct citable_list *list, const struct json *block,
                          struct failure *failure) {
    const struct json *citations = json_member(block, "citations");
    if (json_is_absent(citations) && !list->enabled) return true;
    if (wants(block) == list->enabled) return true;
    return refuse(failure,
                  "citations are enabled for all documents and search results of a "
                  "request, or for none");
}

static void begin_shown(struct citing *citing, const struct json *block, const char *name) {
    struct text_span context = json_text(json_member(block, "context"));
    citing->passage.title = json_text(json_member(block, "title"));
    buffer_printf(&citing->shown, "<%s", name);
    if (citing->passage.title.size > 0) {
        buffer_append_string(&citing->shown, " title=\"");
        buffer_append(&citing->shown, citing->passage.title.text, citing->passage.title.size);
        buffer_append_string(&citing->shown, "\"");
    }
    buffer_append_string(&citing->shown, ">\n");
    if (context.size == 0) return;
    buffer_append(&citing->shown, context.text, context.size);
    buffer_append_string(&citing->shown, "\n\n");
}

bool citable_read(struct citable_list *list, const struct json *block,
                  struct conversation *conversation, struct failure *failure) {
    struct citing citing = {.list = list, .conversation = conversation};
    bool result = json_text_is(json_member(block, "type"), "search_result"), ok;
    const char *name = result ? "search_result" : "document";
    if (!check_enabled(list, block, failure)) return false;
    citing.passage.document = result ? list->n_results++ : list->n_documents++;
    begin_shown(&citing, block, name);
    if (result) {
        citing.passage.source = json_text(json_member(block, "source"));
        ok = add_blocks(&citing, json_member(block, "content"), CITES_RESULT, failure);
    } else {
        ok = read_source(&citing, json_member(block, "source"), failure);
    }
    buffer_printf(&citing.shown, "</%s>", name);
    if (ok)
        conversation_say(conversation, (struct text_span){citing.shown.data, citing.shown.size});
    buffer_free(&citing.shown);
    return ok;
}

void citable_free(struct citable_list *list) {
    for (int i = 0; i < list->n_texts; i++) document_text_free(&list->texts[i]);
    free(list->texts);
    free(list->all);
    *list = (struct citable_list){0};
}
