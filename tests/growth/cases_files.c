/* tests/growth/cases_files.c: documents: HTML, texts with headings, mail, archives, tables, lines
 * of JSON, front matter. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"
#include "retrieval/extract/extract_private.h"
#include "retrieval/extract/front_matter.h"
#include "tests/growth/growth.h"

static void run_html(struct text_span text) {
    struct document_text out = {0};
    struct error e;
    extract_html("page", text, true, &out, &e);
    document_text_free(&out);
}

static void mark(enum document_kind kind, struct text_span text) {
    struct buffer marks = {0};
    document_mark(kind, text, &marks);
    buffer_free(&marks);
}
static void run_markdown(struct text_span text) { mark(DOCUMENT_MARKDOWN, text); }
static void run_rst(struct text_span text) { mark(DOCUMENT_RST, text); }

/* The documents go nowhere. */
static void read_several(enum document_kind kind, struct text_span text) {
    static struct child_writer writer = {.fd = -1};
    struct error e;
    if (writer.fd < 0) writer.fd = open("/dev/null", O_WRONLY);
    struct extract_file f = {
        .name = "file", .bytes = text, .kind = kind, .limits = extract_limits_of(1 << 26)};
    if (kind == DOCUMENT_ARCHIVE)
        extract_members(&f, &writer, &e);
    else if (kind == DOCUMENT_EML || kind == DOCUMENT_MBOX)
        extract_mail(&f, &writer, &e);
    else
        extract_records(&f, &writer, &e);
}
static void run_mail(struct text_span text) { read_several(DOCUMENT_EML, text); }
static void run_mailbox(struct text_span text) { read_several(DOCUMENT_MBOX, text); }
static void run_table(struct text_span text) { read_several(DOCUMENT_CSV, text); }
static void run_lines(struct text_span text) { read_several(DOCUMENT_JSONL, text); }
static void run_archive(struct text_span text) { read_several(DOCUMENT_ARCHIVE, text); }

struct name_set {
    struct key_set set;
    struct json_writer w;
};

static bool begin_member(void *context, struct text_span name) {
    struct name_set *names = context;
    if (!key_set_add(&names->set, hash_bytes(name.text, name.size, 0), name.size)) return false;
    put_key_n(&names->w, name.text, name.size);
    return true;
}

static void run_front_matter(struct text_span text) {
    struct name_set names = {.set = {.n = 0}};
    struct buffer out = {0};
    put_begin(&names.w, &out);
    put_object(&names.w);
    front_matter_read(text, &names.w, begin_member, &names);
    put_object_end(&names.w);
    key_set_free(&names.set);
    buffer_free(&out);
}

/* HTML. */

static void make_nested(int n, struct buffer *out) { put_times(out, n, "<div>a "); }
static void make_inline(int n, struct buffer *out) { put_times(out, n, "<b><i>a"); }
static void make_paragraphs(int n, struct buffer *out) { put_times(out, n, "<p>a<b>b"); }
static void make_cells(int n, struct buffer *out) {
    buffer_append_string(out, "<table>");
    put_times(out, n, "<tr><td>a<td>b");
}
static void make_attributes(int n, struct buffer *out) {
    buffer_append_string(out, "<p");
    for (int i = 0; i < n; i++) buffer_printf(out, " a%d=\"%d\"", i, i);
    buffer_append_string(out, ">text");
}
static void make_page_headings(int n, struct buffer *out) {
    for (int i = 0; i < n; i++)
        buffer_printf(out, "<h%d>heading %d</h%d>a\n", 1 + i % 6, i, 1 + i % 6);
}
static void make_comments(int n, struct buffer *out) { put_times(out, n, "<!-- a "); }
static void make_blanks(int n, struct buffer *out) {
    buffer_append_string(out, "<p>a");
    put_times(out, n, " <b> </b>\n");
}
static void make_items(int n, struct buffer *out) { put_times(out, n, "<ul><li>a"); }

/* Texts. */

static void make_headings(int n, struct buffer *out) {
    for (int i = 0; i < n; i++)
        buffer_printf(out, "%.*s heading %d\n\ntext\n", 1 + i % 6, "######", i);
}
static void make_fences(int n, struct buffer *out) { put_times(out, n, "``` a\n~~~\n"); }
static void make_underlines(int n, struct buffer *out) {
    put_times(out, n, "title\n=====\nother\n-----\n");
}
static void make_matter(int n, struct buffer *out) {
    buffer_append_string(out, "---\n");
    for (int i = 0; i < n; i++) buffer_printf(out, "name%d: [a, b, %d]\n", i, i);
    buffer_append_string(out, "---\n");
}
static void make_matter_list(int n, struct buffer *out) {
    buffer_append_string(out, "---\na:\n");
    put_times(out, n, "- value\n");
    buffer_append_string(out, "---\n");
}
static void make_open_matter(int n, struct buffer *out) {
    buffer_append_string(out, "---\n");
    put_times(out, n, "a: [b\n");
}

/* Mail. */

static void make_headers(int n, struct buffer *out) {
    for (int i = 0; i < n; i++) buffer_printf(out, "X-Header-%d: value\r\n", i);
    buffer_append_string(out, "\r\ntext\r\n");
}
static void make_folded(int n, struct buffer *out) {
    buffer_append_string(out, "Subject: a");
    put_times(out, n, "\r\n b");
    buffer_append_string(out, "\r\n\r\ntext\r\n");
}
static void make_words(int n, struct buffer *out) {
    buffer_append_string(out, "Subject: ");
    put_times(out, n, "=?utf-8?Q?=C3=A4a?= ");
    buffer_append_string(out, "\r\n\r\ntext\r\n");
}
static void make_open_words(int n, struct buffer *out) {
    buffer_append_string(out, "Subject: ");
    put_times(out, n, "=?utf-8?Q?");
    buffer_append_string(out, "\r\n\r\ntext\r\n");
}
static void make_parts(int n, struct buffer *out) {
    buffer_append_string(out, "Content-Type: multipart/mixed; boundary=b\r\n\r\n");
    put_times(out, n, "--b\r\nContent-Type: text/plain\r\n\r\ntext\r\n");
    buffer_append_string(out, "--b--\r\n");
}
static void make_nested_parts(int n, struct buffer *out) {
    for (int i = 0; i < n; i++)
        buffer_printf(out, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i);
    buffer_append_string(out, "\r\ntext\r\n");
}
static void make_boundaries(int n, struct buffer *out) {
    buffer_append_string(out, "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n");
    put_times(out, n, "--c\r\n--\r\n-");
}
static void make_mailbox(int n, struct buffer *out) {
    put_times(out, n, "From alice Mon Jan  1 00:00:00 2024\r\nSubject: a\r\n\r\ntext\r\n\r\n");
}
static void make_parameters(int n, struct buffer *out) {
    buffer_append_string(out, "Content-Type: text/plain");
    for (int i = 0; i < n; i++) buffer_printf(out, "; name*%d=a", i);
    buffer_append_string(out, "\r\n\r\ntext\r\n");
}

/* Tables and lines of JSON. */

static void make_columns(int n, struct buffer *out) {
    for (int line = 0; line < 3; line++) {
        for (int i = 0; i < n; i++) buffer_printf(out, "%sc%d", i ? "," : "", i);
        buffer_append_string(out, "\n");
    }
}
static void make_rows(int n, struct buffer *out) {
    buffer_append_string(out, "a,b\n");
    put_times(out, n, "1,\"2\n\"\"\"\n");
}
static void make_quotes(int n, struct buffer *out) { put_times(out, n, "a,\"b\n"); }
static void make_records(int n, struct buffer *out) {
    put_times(out, n, "{\"a\": 1, \"b\": [1, 2]}\n");
}
static void make_wide_record(int n, struct buffer *out) {
    buffer_append_string(out, "{");
    for (int i = 0; i < n; i++) buffer_printf(out, "%s\"m%d\":{\"a\":%d}", i ? "," : "", i, i);
    buffer_append_string(out, "}\n");
}

/* A tar of n small members. */
static void make_archive(int n, struct buffer *out) {
    for (int i = 0; i < n; i++) {
        char head[1024] = {0};
        unsigned sum = 0;
        snprintf(head, 100, "folder/name%d.md", i);
        strcpy(head + 100, "0000644");
        strcpy(head + 124, "00000000005");
        strcpy(head + 136, "00000000000");
        memset(head + 148, ' ', 8);
        head[156] = '0';
        memcpy(head + 257, "ustar\00000", 8);
        memcpy(head + 512, "text\n", 5);
        for (int k = 0; k < 512; k++) sum += (unsigned char)head[k];
        snprintf(head + 148, 8, "%06o", sum);
        buffer_append(out, head, sizeof head);
    }
    static const char zeros[1024];
    buffer_append(out, zeros, sizeof zeros);
}

static const struct growth_case cases[] = {
    {"html/nested", 100, make_nested, run_html},
    {"html/inline", 100, make_inline, run_html},
    {"html/paragraphs", 200, make_paragraphs, run_html},
    {"html/cells", 200, make_cells, run_html},
    {"html/attributes", 150, make_attributes, run_html},
    {"html/headings", 200, make_page_headings, run_html},
    {"html/comments", 2000, make_comments, run_html},
    {"html/blanks", 500, make_blanks, run_html},
    {"html/items", 100, make_items, run_html},
    {"markdown/headings", 1000, make_headings, run_markdown},
    {"markdown/fences", 2000, make_fences, run_markdown},
    {"rst/headings", 1000, make_underlines, run_rst},
    {"front-matter/names", 400, make_matter, run_front_matter},
    {"front-matter/list", 800, make_matter_list, run_front_matter},
    {"front-matter/open", 2000, make_open_matter, run_front_matter},
    {"mail/headers", 2000, make_headers, run_mail},
    {"mail/folded", 2000, make_folded, run_mail},
    {"mail/words", 1000, make_words, run_mail},
    {"mail/open-words", 1000, make_open_words, run_mail},
    {"mail/parts", 1000, make_parts, run_mail},
    {"mail/nested", 100, make_nested_parts, run_mail},
    {"mail/boundaries", 2000, make_boundaries, run_mail},
    {"mail/parameters", 1000, make_parameters, run_mail},
    {"mail/mailbox", 500, make_mailbox, run_mailbox},
    {"table/columns", 600, make_columns, run_table},
    {"table/rows", 600, make_rows, run_table},
    {"table/quotes", 1000, make_quotes, run_table},
    {"jsonl/records", 300, make_records, run_lines},
    {"jsonl/members", 500, make_wide_record, run_lines},
    {"archive/names", 200, make_archive, run_archive},
};
const struct growth_table file_growth = GROWTH_TABLE(cases);
