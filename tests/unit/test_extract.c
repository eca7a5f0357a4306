/* tests/unit/test_extract.c: text out of files, and the reasons why there is none. */
#include <string.h>

#include "config/sandbox/sandbox.h"
#include "retrieval/extract/extract_private.h"
#include "tests/folder.h"

enum { LIMIT = 1 << 20 };

static const char *put(const char *name, const void *bytes, size_t size) {
    static char path[FOLDER_PATH_SIZE];
    folder_write(test_folder, name, bytes, size);
    folder_path(path, test_folder, name);
    return path;
}

/* A file of this name and these bytes gives this text; title may be NULL. */
static void expect_bytes(const char *name, const char *bytes, size_t size, const char *text,
                         const char *title) {
    struct document_text d = {0};
    struct error e = {0};
    const char *path = put(name, bytes, size);
    if (document_extract(path, document_kind(path), LIMIT, &d, &e)) fail_msg("%s", e.text);
    assert_string_equal(d.text.data, text);
    assert_int_equal(d.text.size, strlen(text));
    if (title) assert_string_equal(d.title.data, title);
    assert_null(marks_fault(marks_of(&d.marks), d.text.size));
    document_text_free(&d);
    unlink(path);
}

static void expect(const char *name, const char *bytes, const char *text, const char *title) {
    expect_bytes(name, bytes, strlen(bytes), text, title);
}

static void expect_error(const char *name, const void *bytes, size_t size, enum status status,
                         const char *message) {
    struct document_text d = {0};
    struct error e = {0};
    const char *path = put(name, bytes, size);
    assert_int_equal(document_extract(path, document_kind(path), LIMIT, &d, &e), status);
    if (!strstr(e.text, message) || !strstr(e.text, name))
        fail_msg("\"%s\" does not say \"%s\"", e.text, message);
    document_text_free(&d);
    unlink(path);
}

static void extract_ok(const char *name, const char *bytes, struct document_text *d) {
    struct error e = {0};
    const char *path = put(name, bytes, strlen(bytes));
    if (document_extract(path, document_kind(path), LIMIT, d, &e)) fail_msg("%s", e.text);
    assert_null(marks_fault(marks_of(&d->marks), d->text.size));
    unlink(path);
}

static void test_kinds(void **state) {
    (void)state;
    static const struct {
        const char *path;
        enum document_kind kind;
    } cases[] = {
        {"a.txt", DOCUMENT_TEXT},    {"x/a.MD", DOCUMENT_MARKDOWN}, {"a.rst", DOCUMENT_RST},
        {"a.html", DOCUMENT_HTML},   {"a.htm", DOCUMENT_HTML},      {"a.xhtml", DOCUMENT_HTML},
        {"ls.1", DOCUMENT_MAN},      {"ls.1.gz", DOCUMENT_MAN},     {"x.3ssl.gz", DOCUMENT_MAN},
        {"x.3p", DOCUMENT_MAN},      {"foo.0", DOCUMENT_UNKNOWN},   {"a.png", DOCUMENT_PICTURE},
        {"a", DOCUMENT_BARE},        {".1", DOCUMENT_UNKNOWN},      {"lib.so.1.2", DOCUMENT_MAN},
        {"a.txt.gz", DOCUMENT_TEXT}, {"txt", DOCUMENT_BARE},        {"a.PY", DOCUMENT_TEXT},
        {"a.c", DOCUMENT_TEXT},      {"a.d/b", DOCUMENT_BARE},      {"v1.10", DOCUMENT_UNKNOWN},
        {"", DOCUMENT_UNKNOWN},      {"a.md/", DOCUMENT_UNKNOWN}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        if (document_kind(cases[i].path) != cases[i].kind) fail_msg("%s", cases[i].path);
}

/* docs/files.md names the suffixes of every kind but text and source code, and none that is
 * unknown. */
static void test_page_of_kinds(void **state) {
    struct buffer page = {0}, suffix = {0};
    struct error e;
    (void)state;
    if (file_read("docs/files.md", LIMIT, &page, &e)) fail_msg("%s", e.text);
    for (int kind = DOCUMENT_TEXT + 1; kind < DOCUMENT_KINDS; kind++) {
        const char *all = document_form_of((enum document_kind)kind)->suffixes;
        for (const char *at = all; at && *at; at += strspn(at, " ")) {
            size_t n = strcspn(at, " ");
            buffer_clear(&suffix);
            buffer_printf(&suffix, "`.%.*s`", (int)n, at);
            if (strstr(page.data, suffix.data) == NULL)
                fail_msg("docs/files.md says nothing of %s", suffix.data);
            at += n;
        }
    }
    const char *table = strstr(page.data, "| kind | names |"), *end = strstr(table, "\n\n");
    for (const char *at = strstr(table, "`."); at && at < end; at = strstr(at + 2, "`.")) {
        buffer_clear(&suffix);
        buffer_printf(&suffix, "a.%.*s", (int)strcspn(at + 2, "`"), at + 2);
        bool is_packed = strcmp(suffix.data, "a.gz") == 0;
        if (!is_packed && document_kind(suffix.data) == DOCUMENT_UNKNOWN)
            fail_msg("%s is no kind", suffix.data);
    }
    buffer_free(&page);
    buffer_free(&suffix);
}

static void test_text(void **state) {
    (void)state;
    expect("a.txt", "one\r\ntwo\r\n", "one\r\ntwo\r\n", "");
    expect("a.md", "\xef\xbb\xbf# The title \n\ntext", "# The title \n\ntext", "The title");
    expect("b.md", "## Not this\n\nA heading\n=========\n", "## Not this\n\nA heading\n=========\n",
           "A heading");
    expect("a.rst", "=====\nTitle\n=====\n\nText.\n", "=====\nTitle\n=====\n\nText.\n", "Title");
    expect("c.txt", "no newline at the end", "no newline at the end", "");
    /* A damaged character among whole ones becomes U+FFFD, which is told. */
    struct document_text d = {0};
    struct buffer text = {0}, repaired = {0};
    for (int i = 0; i < 100; i++) buffer_append_string(&text, "\u00fcx");
    buffer_append_string(&repaired, text.data);
    buffer_append_string(&text, "\xff end");
    buffer_append_string(&repaired, "\ufffd end");
    extract_ok("d.txt", text.data, &d);
    assert_string_equal(d.text.data, repaired.data);
    assert_non_null(strstr(d.note, "U+FFFD"));
    buffer_free(&text);
    buffer_free(&repaired);
    document_text_free(&d);
}

/* With a byte order mark; halves of pairs become U+FFFD as long as they are few. */
static void test_utf16(void **state) {
    (void)state;
    static const char big[] = "\xfe\xff\0a\x20\xac\xd8\x3d\xde\x00\0\n";
    expect_bytes("a.md", "\xff\xfe#\0 \0T\0\xe9\0\n\0\x3d\xd8\x00\xde!\0", 18,
                 "# T\u00e9\n\U0001f600!", "T\u00e9");
    expect_bytes("b.txt", big, sizeof big - 1, "a\u20ac\U0001f600\n", "");
    char units[402] = "\xff\xfe";
    for (int i = 2; i < 402; i += 2) units[i] = 'x';
    units[100] = '\0', units[101] = '\xd8';
    char text[210];
    int half = 49;
    memset(text, 'x', sizeof text);
    memcpy(text + half, "\xef\xbf\xbd", 3);
    text[202] = '\0';
    expect_bytes("c.txt", units, sizeof units, text, "");
    expect_error("d.txt", "\xff\xfe\0\xd8", 4, STATUS_INVALID, "not UTF-8: 1 of 1");
    expect_error("e.txt", "\xff\xfe", 2, STATUS_INVALID, "empty");
    expect_error("f.txt",
                 "\xff\xfe"
                 "a",
                 3, STATUS_INVALID, "not UTF-8: 1 of 1");
    expect_error("g.txt",
                 "\xff\xfe"
                 "a\0\0\0",
                 6, STATUS_INVALID, "binary: a NUL at byte 1");
    expect_bytes("h.txt", "\xff\xfe\0\0a\0\0\0\x00\xf6\x01\0", 12, "a\U0001f600", "");
    expect_bytes("h.txt", "\0\0\xfe\xff\0\0\0a\0\x01\xf6\x00", 12, "a\U0001f600", "");
    expect_error("h.txt", "\xff\xfe\0\0a\0\0\0\x00\xf6\x11\0", 12, STATUS_INVALID,
                 "not UTF-8: 1 of 2");
    /* Many damaged characters of UTF-16 are no letters of Latin-1. */
    expect_error("i.txt",
                 "\xff\xfe"
                 "a\0b\0c\0d\0e\0f\0g\0h\0\0\xd8",
                 20, STATUS_INVALID, "not UTF-8: 1 of 9");
    expect_error("k.txt", "caf\xe9 \xe9t\xe9", 8, STATUS_INVALID,
                 "if it is Latin-1: iconv -f ISO-8859-1");
}

/* Text in UTF-16, `little` bytes and the same the other way round; `text` NULL: it is taken for no
 * text. */
static void expect_unmarked(const char *little, size_t size, const char *text) {
    struct document_text d = {0};
    struct error e = {0};
    for (int big = 0; big < 2; big++) {
        char *bytes = xmalloc(size);
        for (size_t i = 0; i < size; i++) bytes[i] = little[i ^ (size_t)big];
        const char *path = put("a.txt", bytes, size);
        enum status status = document_extract(path, DOCUMENT_TEXT, LIMIT, &d, &e);
        if (text && status) fail_msg("%s", e.text);
        if (text) assert_string_equal(d.text.data, text);
        if (text)
            assert_non_null(strstr(d.note, big ? "UTF-16, big endian" : "UTF-16, little endian"));
        if (text == NULL) assert_non_null(strstr(e.text, "binary: a NUL at byte"));
        free(bytes);
    }
    document_text_free(&d);
}

static void test_utf16_without_mark(void **state) {
    (void)state;
    expect_unmarked("T\0\xe9\0 \0\x3d\xd8\x00\xde\n\0", 12, "T\u00e9 \U0001f600\n");
    /* Kanji with a full stop and the kanji U+4E00, whose bytes are N's in the other order. */
    expect_unmarked("\x87\x65\x00\x4e\xf6\x4e\xd8\x8a\x02\x30\n\0", 12,
                    "\u6587\u4e00\u4ef6\u8ad8\u3002\n");
    expect_unmarked("\x1f\x04\x40\x04\x38\x04 \0\x3c\x04", 10, "\u041f\u0440\u0438 \u043c");
    /* Numbers, a half of a pair, what no text has, and characters without a common one. */
    expect_unmarked("\x01\0\x02\0a\0 \0", 8, NULL);
    expect_unmarked("a\0 \0\x00\xd8 \0", 8, NULL);
    expect_unmarked("a\0 \0\xff\xff \0", 8, NULL);
    expect_unmarked("a\0\0\0b\0 \0", 8, NULL);
    char rare[400];
    for (size_t i = 0; i < sizeof rare; i += 2) rare[i] = (char)(i / 2), rare[i + 1] = 0x5b;
    expect_unmarked(rare, sizeof rare, NULL);
    expect_error("a.txt", "text\0tex", 8, STATUS_INVALID, "binary: a NUL at byte 4");
    expect_error("a.txt", "a\0b\0c", 5, STATUS_INVALID, "binary: a NUL at byte 1");
}

static void test_western(void **state) {
    (void)state;
    struct document_text d = {0};
    extract_ok("a.txt", "Le caf\xe9 co\xfbte \x80 2,50 \x97 s'il vous pla\xeet, monsieur\n", &d);
    assert_string_equal(
        d.text.data, "Le caf\u00e9 co\u00fbte \u20ac 2,50 \u2014 s'il vous pla\u00eet, monsieur\n");
    assert_non_null(strstr(d.note, "Windows-1252"));
    /* A few such letters in a long text that has no others: no damage of UTF-8. */
    struct buffer letter = {0};
    for (int i = 0; i < 100; i++) buffer_append_string(&letter, "many words ");
    buffer_append_string(&letter, "\xe9t\xe9");
    extract_ok("e.txt", letter.data, &d);
    assert_non_null(strstr(d.text.data, "\u00e9t\u00e9"));
    assert_non_null(strstr(d.note, "Windows-1252"));
    buffer_free(&letter);
    document_text_free(&d);
    /* Cyrillic in KOI8-R, a byte that is no character, and a control character are no such text. */
    expect_error("b.txt", "\xf0\xd2\xc9\xd7\xc5\xd4, \xcd\xc9\xd2 abc", 15, STATUS_INVALID,
                 "not UTF-8");
    expect_error("c.txt", "many letters \xe9 and \x81 one", 24, STATUS_INVALID, "not UTF-8");
    expect_error("d.txt", "many letters \xe9 and \x01 one", 24, STATUS_INVALID, "not UTF-8");
}

static void test_text_errors(void **state) {
    (void)state;
    expect_error("a.txt", "", 0, STATUS_INVALID, "empty");
    expect_error("a.txt", " \n\t\n", 4, STATUS_INVALID, "empty");
    expect_error("a.md", "text\0text", 9, STATUS_INVALID, "binary: a NUL at byte 4");
    expect_error("a.rst", "caf\xe9 ol\xe9", 8, STATUS_INVALID, "not UTF-8: 2 of 8");
    char *large = calloc(1, LIMIT + 1);
    memset(large, 'a', LIMIT + 1);
    expect_error("a.txt", large, LIMIT + 1, STATUS_TOO_LARGE, "the limit is 1048576");
    free(large);
    expect_error("a.exe", "text", 4, STATUS_UNSUPPORTED, "not a known kind");
    expect_error("a.png", "text", 4, STATUS_UNSUPPORTED, "no JPEG, PNG, WebP or GIF");
    struct document_text d = {0};
    struct error e = {0};
    assert_int_equal(document_extract("/nonexistent/a.txt", DOCUMENT_TEXT, LIMIT, &d, &e),
                     STATUS_IO);
    assert_int_equal(document_extract("/dev/null", DOCUMENT_TEXT, LIMIT, &d, &e), STATUS_INVALID);
    char path[FOLDER_PATH_SIZE];
    folder_path(path, test_folder, "fifo.txt");
    assert_int_equal(mkfifo(path, 0600), 0);
    for (int kind = DOCUMENT_TEXT; kind <= DOCUMENT_MAN; kind++)
        assert_int_equal(document_extract(path, (enum document_kind)kind, LIMIT, &d, &e),
                         STATUS_INVALID);
    unlink(path);
    document_text_free(&d);
}

static void test_html(void **state) {
    (void)state;
    expect("a.html",
           "<html><head><title> A \n title </title><style>p{}</style></head><body><script>if (a<b) "
           "x();</script>"
           "<nav>menu</nav><h1>Heading</h1><p>First  <b>bold</b>\nline &amp; "
           "more&nbsp;text.<p>Second<br>line"
           "<ul><li>one<li><p>two</p></ul><footer>foot</footer></body></html>",
           "Heading\n\nFirst bold line & more text.\n\nSecond\nline\n\n- one\n- two\n", "A title");
    expect("a.html", "<p>before<pre>\n  int x;\n\n    y;\n</pre>after",
           "before\n\n  int x;\n\n    y;\n\nafter\n", "");
    expect("a.html", "<table><tr><th>a<th>b<tr><td><p>1</p><td>2</table>end",
           "a | b\n1 | b: 2\n\nend\n", "");
    expect("a.html", "<dl><dt>term<dd>what it is<dt>other<dd>more</dl>",
           "term\nwhat it is\nother\nmore\n", "");
    expect("a.html",
           "so\xc2\xad"
           "ft\xc2\xa9 \xe2\x82\xac",
           "soft\xc2\xa9 \xe2\x82\xac\n", "");
    expect("a.html", "just text", "just text\n", "");
}

static void test_html_furniture(void **state) {
    (void)state;
    expect("a.html", "<body>outside<main><p>inside</main>outside", "inside\n", NULL);
    expect("a.html", "<div>outside</div><article>inside</article>", "inside\n", NULL);
    expect("a.html", "<article>one</article><article>two</article>", "one\n\ntwo\n", NULL);
    expect("a.html",
           "<div class='sphinxsidebar'>x</div><div id=toc>x</div><div class='protocol "
           "stock'>kept</div>",
           "kept\n", NULL);
    expect("a.html",
           "<div role=navigation>x</div><p hidden>x</p><p class='a breadcrumbs'>x</p><p>kept",
           "kept\n", NULL);
    expect("a.html", "<div class='with-sidebar'><h1>Page</h1><p>kept</div>", "Page\n\nkept\n",
           NULL);
    expect("a.html",
           "<div class=header><p>Next: <a rel=next href=x>x</a></div><div "
           "class=header><h2>kept</h2></div>",
           "kept\n", NULL);
    expect("a.html", "<body class='toc sidebar'>kept", "kept\n", NULL);
}

static void test_html_encodings(void **state) {
    (void)state;
    static const char damaged[] =
        "<p>"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aa"
        "aaaaaaaaaaaaaaaaa\xff!";
    expect("a.html", "<meta charset=iso-8859-1><p>caf\xe9", "caf\xc3\xa9\n", NULL);
    expect("a.html", "<p>caf\xe9", "caf\xc3\xa9\n", NULL);
    expect("a.html", "<p>caf\xc3\xa9", "caf\xc3\xa9\n", NULL);
    expect("a.html", "\xef\xbb\xbf<p>caf\xc3\xa9", "caf\xc3\xa9\n", NULL);
    struct document_text d = {0};
    const char *path = put("a.html", damaged, sizeof damaged - 1);
    assert_int_equal(document_extract(path, DOCUMENT_HTML, LIMIT, &d, NULL), STATUS_OK);
    assert_non_null(strstr(d.text.data, "\xef\xbf\xbd!"));
    document_text_free(&d);
    unlink(path);
}

/* Bad pages end, in time, with text or an error. */
static void test_html_hostile(void **state) {
    (void)state;
    struct buffer b = {0};
    for (int i = 0; i < 100000; i++) buffer_append_string(&b, "<div class=nav>");
    expect_error("a.html", b.data, LIMIT, STATUS_INVALID, "nest deeper");
    buffer_free(&b);
    static const char entities[] =
        "<!DOCTYPE html [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY x SYSTEM "
        "'file:///etc/passwd'>]>"
        "<p>&b;&x;</p>";
    const char *path = put("a.html", entities, sizeof entities - 1);
    struct document_text d = {0};
    assert_int_equal(document_extract(path, DOCUMENT_HTML, LIMIT, &d, NULL), STATUS_OK);
    assert_null(strstr(d.text.data, "root:"));
    assert_null(strstr(d.text.data, "aaaaaaaaaaa"));
    buffer_clear(&b);
    for (int i = 0; i < 20000; i++) buffer_append_string(&b, "<p>x</b></i></table><td>");
    path = put("a.html", b.data, b.size);
    assert_int_equal(document_extract(path, DOCUMENT_HTML, LIMIT, &d, NULL), STATUS_OK);
    expect_error("a.html", "<script>x</script>", 18, STATUS_INVALID, "no text");
    expect_error("a.html", "<p>a\0b", 6, STATUS_INVALID, "binary");
    expect_error("a.html", "<!-- only a comment", 19, STATUS_INVALID, "a.html");
    buffer_free(&b);
    document_text_free(&d);
}

static void test_man(void **state) {
    (void)state;
    static const char page[] =
        ".TH CAT 1 2020 pkg\n.SH NAME\ncat \\- concatenate files\n.SH DESCRIPTION\n.B "
        "Bold\nand\n.I italic\nwords.\n";
    static const char text[] =
        "NAME\n       cat - concatenate files\n\nDESCRIPTION\n       Bold and italic words.\n";
    static const char mdoc[] = ".Dd May 1, 2020\n.Dt LS 1\n.Os\n.Sh NAME\n.Nm ls\n.Nd list files\n";
    expect("cat.1", page, text, "cat - concatenate files");
    expect("ls.1", mdoc, "NAME\n     ls \xe2\x80\x93 list files\n", "ls - list files");
    char command[160];
    struct document_text d = {0};
    struct error e = {0};
    const char *path = put("cat.1", page, sizeof page - 1);
    snprintf(command, sizeof command, "gzip -f %s", path);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s.gz", path);
    if (document_extract(command, DOCUMENT_MAN, LIMIT, &d, &e)) fail_msg("%s", e.text);
    assert_string_equal(d.text.data, text);
    document_text_free(&d);
    unlink(command);
}

/* The place of the first `word` of a file, as "page line heading>heading". */
static void expect_place(const struct document_text *d, const char *word, const char *expected) {
    struct buffer found = {0};
    const char *at = strstr(d->text.data, word);
    assert_non_null(at);
    struct text_span text = {d->text.data, d->text.size};
    struct document_place place =
        place_find(marks_of(&d->marks), text, (uint64_t)(at - d->text.data));
    buffer_printf(&found, "%u %u ", place.page, place.line);
    for (int i = 0; i < place.n_headings; i++)
        buffer_printf(&found, "%s%.*s", i > 0 ? ">" : "", (int)place.headings[i].size,
                      place.headings[i].text);
    if (strcmp(found.data, expected) != 0)
        fail_msg("%s: %s, expected %s", word, found.data, expected);
    buffer_free(&found);
}

/* Lines are counted from their mark, wherever a place is among the bytes that are counted at once;
 * bytes near a line end's in value are none. */
static void test_lines_of_places(void **state) {
    (void)state;
    struct buffer marks = {0}, text = {0};
    uint32_t line = 3;
    for (int i = 0; i < 200; i++)
        buffer_append_string(&text, i % 7 == 0 ? "\n" : i % 3 ? "x" : "\x8a\x0b\t");
    for (size_t start = 0; start < 16; start++) {
        buffer_clear(&marks);
        marks_add(&marks, MARK_LINE, 0, start, line);
        uint32_t expected = line;
        for (size_t at = start; at < text.size; at++) {
            struct document_place place =
                place_find(marks_of(&marks), (struct text_span){text.data, text.size}, at);
            size_t here = at;
            uint32_t behind = expected;
            for (; here < text.size && strchr(" \t\r\n\f\v", text.data[here]); here++)
                behind += text.data[here] == '\n';
            assert_int_equal(place.line, behind);
            expected += text.data[at] == '\n';
        }
    }
    buffer_free(&marks);
    buffer_free(&text);
}

/* A passage that begins with the end of one section and is of the next. */
static void test_places_of_passages(void **state) {
    (void)state;
    struct document_text d = {0};
    extract_ok("p.md",
               "# Description\n\nLast words.\n\n# Return value\n\nIt gives what was asked for.\n",
               &d);
    struct text_span text = {d.text.data, d.text.size};
    size_t start = (size_t)(strstr(text.text, "Last") - text.text);
    struct document_place place = place_find_passage(marks_of(&d.marks), text, start, text.size);
    assert_int_equal(place.line, 3);
    assert_int_equal(place.n_headings, 1);
    assert_memory_equal(place.headings[0].text, "Return value", place.headings[0].size);
    place = place_find_passage(marks_of(&d.marks), text, start, start + 11);
    assert_memory_equal(place.headings[0].text, "Description", place.headings[0].size);
    document_text_free(&d);
}

static void test_places_markdown(void **state) {
    (void)state;
    struct document_text d = {0};
    extract_ok(
        "a.md",
        "---\ntitle: x\n---\n# One *two* ##\n\nalpha\n\n```sh\n# no heading\nbeta\n```\n"
        "Under\n-----\ngamma\n\n### Deep\n\ndelta\n\n- item\n---\n\n#hash\n    # code\nepsilon\n"
        "\nTop\n===\nzeta\n~~~~\n```\n# in\n~~~\neta\n~~~~\n## Last\r\ntheta",
        &d);
    expect_place(&d, "title", "0 2 ");
    expect_place(&d, "alpha", "0 6 One *two*");
    expect_place(&d, "beta", "0 10 One *two*");
    expect_place(&d, "gamma", "0 14 One *two*>Under");
    expect_place(&d, "delta", "0 18 One *two*>Under>Deep");
    expect_place(&d, "epsilon", "0 25 One *two*>Under>Deep");
    expect_place(&d, "zeta", "0 29 Top");
    expect_place(&d, "eta\n~~~~\n## L", "0 34 Top");
    expect_place(&d, "theta", "0 37 Top>Last");
    /* Blanks belong to what follows, so a chunk that begins before a heading is under it. */
    expect_place(&d, "\n\nTop\n", "0 27 Top");
    expect_place(&d, "### Deep", "0 16 One *two*>Under>Deep");
    document_text_free(&d);
}

static void test_places(void **state) {
    (void)state;
    struct document_text d = {0};
    extract_ok("a.rst", "=====\nTitle\n=====\n\nalpha\n\nPart\n----\nbeta\n\nNext\n----\n\ngamma\n",
               &d);
    expect_place(&d, "alpha", "0 5 Title");
    expect_place(&d, "beta", "0 9 Title>Part");
    expect_place(&d, "gamma", "0 14 Title>Next");
    extract_ok("a.html",
               "<title>t</title><body><p>zero<h1>One "
               "<b>two</b></h1><p>alpha<h3>Deep<br>er</h3>beta<ul><li><h2>Item</h2>"
               "gamma</ul><h1></h1><p>delta",
               &d);
    expect_place(&d, "zero", "0 0 ");
    expect_place(&d, "alpha", "0 0 One two");
    expect_place(&d, "beta", "0 0 One two>Deep\ner");
    expect_place(&d, "gamma", "0 0 One two>Item");
    expect_place(&d, "delta", "0 0 One two>Item");
    extract_ok("a.1",
               ".TH A 1\n.SH NAME\na \\- b\n.SH OPTIONS\n.SS Sub part\nalpha\n.SH END\nbeta\n", &d);
    expect_place(&d, "alpha", "0 0 OPTIONS>Sub part");
    expect_place(&d, "beta", "0 0 END");
    document_text_free(&d);
}

/* Line marks within a long text tell the same lines as its newlines. */
static void test_places_long(void **state) {
    (void)state;
    struct document_text d = {0};
    struct buffer b = {0};
    for (int i = 1; i <= 30000; i++)
        buffer_printf(&b, i % 100 == 1 ? "# Head %d\n" : "line %d.\n", i);
    extract_ok("a.md", b.data, &d);
    assert_true(d.marks.size / sizeof(struct mark) > 302);
    for (int i = 2; i <= 30000; i += 777) {
        char word[32], expected[48];
        snprintf(word, sizeof word, "line %d.", i);
        snprintf(expected, sizeof expected, "0 %d Head %d", i, (i - 1) / 100 * 100 + 1);
        if (i % 100 != 1) expect_place(&d, word, expected);
    }
    buffer_free(&b);
    document_text_free(&d);
}

static void test_marks_fault(void **state) {
    (void)state;
    static const struct mark bad[][2] = {
        {{.at = 5, .kind = MARK_PAGE, .value = 1}, {.at = 4, .kind = MARK_PAGE, .value = 2}},
        {{.at = 1, .kind = MARK_PAGE}, {.at = 4, .kind = MARK_PAGE, .value = 2}},
        {{.at = 1, .kind = MARK_LINE, .value = 1, .level = 1},
         {.at = 4, .kind = MARK_PAGE, .value = 2}},
        {{.at = 1, .kind = MARK_KIND_COUNT, .value = 1}, {.at = 4, .kind = MARK_PAGE, .value = 2}},
        {{.at = 1, .kind = MARK_PAGE, .value = 1}, {.at = 11, .kind = MARK_PAGE, .value = 2}},
        {{.at = 1, .kind = MARK_HEADING, .level = 1, .value = 10},
         {.at = 4, .kind = MARK_PAGE, .value = 2}},
        {{.at = 1, .kind = MARK_HEADING, .level = 7, .value = 1},
         {.at = 4, .kind = MARK_PAGE, .value = 2}},
        {{.at = 1, .kind = MARK_PAGE, .value = 1, .column = 1},
         {.at = 4, .kind = MARK_PAGE, .value = 2}}};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_non_null(marks_fault((struct mark_span){bad[i], 2}, 10));
    assert_null(marks_fault((struct mark_span){&bad[0][1], 1}, 10));
}

/* Two pages of lines of ten-byte words, each 8 bytes and two blanks, whose boxes are 10 points
 * wide a byte. */
/* The reason that a document with this mark is read again for. */
static enum reread_reason judge(uint32_t value, int level, uint16_t column,
                                struct reader_means means) {
    struct mark mark = {
        .kind = MARK_READER, .level = (uint8_t)level, .column = column, .value = value};
    return reader_judges((struct mark_span){&mark, 1}, &means);
}

static void test_rereading(void **state) {
    const struct reader_means none = {0}, three = {.n_languages = 3}, all = {3, true};
    const uint32_t by_ocr = 1U << 16;
    struct document_text d = {0};
    (void)state;
    assert_int_equal(judge(2, READER_PDF, 0, all), REREAD_NOT);
    assert_int_equal(judge(1, READER_PDF, 0, none), REREAD_NEWER);
    assert_int_equal(judge(1, READER_COUNT, 0, none), REREAD_UNKNOWN);
    assert_int_equal(judge(2 | by_ocr, READER_PDF, 2 << 8, three), REREAD_OCR);
    assert_int_equal(judge(2 | by_ocr, READER_PDF, 3 << 8, three), REREAD_NOT);
    assert_int_equal(judge(2 | by_ocr, READER_PDF, 0, none), REREAD_NOT);
    assert_int_equal(judge(1, READER_SHEET, 1, three), REREAD_NOT);
    assert_int_equal(judge(1, READER_SHEET, 1, all), REREAD_HIDDEN);
    assert_int_equal(reader_judges((struct mark_span){0}, &none), REREAD_UNKNOWN);

    extract_ok("a.md", "# Cats\n\nThey purr.\n", &d);
    assert_int_equal(reader_of(marks_of(&d.marks)), READER_TEXT);
    assert_int_equal(reader_judges(marks_of(&d.marks), &all), REREAD_NOT);
    document_text_free(&d);
    extract_ok("a.html", "<p>They purr.</p>", &d);
    assert_int_equal(reader_of(marks_of(&d.marks)), READER_HTML);
    assert_int_equal(mark_read(marks_of(&d.marks), 1).kind == MARK_READER, false);
    document_text_free(&d);
}

static void test_confidence(void **state) {
    struct buffer marks = {0};
    (void)state;
    marks_add(&marks, MARK_READER, READER_OCR, 0, 1);
    marks_add(&marks, MARK_PAGE, 0, 0, 1);
    marks_add(&marks, MARK_CONFIDENCE, 0, 0, 90);
    marks_add(&marks, MARK_PAGE, 0, 100, 2);
    marks_add(&marks, MARK_PAGE, 0, 200, 3);
    marks_add(&marks, MARK_CONFIDENCE, 0, 200, 60);
    struct mark_span span = marks_of(&marks);
    assert_null(marks_fault(span, 300));
    assert_int_equal(marks_confidence(span, 0, 50), 90);
    assert_int_equal(marks_confidence(span, 50, 100), 90);
    assert_int_equal(marks_confidence(span, 100, 200), 0);
    assert_int_equal(marks_confidence(span, 50, 201), 60);
    assert_int_equal(marks_confidence(span, 250, 300), 60);
    assert_int_equal(marks_confidence((struct mark_span){0}, 0, 10), 0);
    assert_true(marks_alike(span, (struct mark_span){(const char *)span.bytes + 12, span.n - 1}));
    assert_false(marks_alike(span, (struct mark_span){(const char *)span.bytes + 24, span.n - 2}));
    buffer_free(&marks);
}

static void test_boxes_of_lines(void **state) {
    (void)state;
    struct buffer marks = {0}, found = {0};
    size_t at = 0;
    for (size_t page = 1; page <= 2; page++) {
        marks_add(&marks, MARK_PAGE, 0, at, page);
        marks_add(&marks, MARK_PAGE_SIZE, 0, at, mark_point(595.25F, 842));
        for (int line = 0; line < 3; line++) {
            marks_add(&marks, MARK_BOX, 0, at, mark_point(100, 50 + 20 * (float)line));
            for (int word = 0; word < 4; word++) {
                float left = 100 + 100 * (float)word;
                marks_add(&marks, MARK_BOX_WORD, 0, at, mark_point(left, left + 80));
                at += 10;
            }
            marks_add(&marks, MARK_BOX_END, 0, at, mark_point(480, 60 + 20 * (float)line));
        }
    }
    struct mark_span span = marks_of(&marks);
    assert_null(marks_fault(span, at));

    /* From within the second word of the second line of page 1 to within the first of page 2. */
    place_find_boxes(span, 52, 121, &found);
    const struct page_box expected[] = {{1, 595.25F, 842, {200, 70, 480, 80}},
                                        {1, 595.25F, 842, {100, 90, 480, 100}},
                                        {2, 595.25F, 842, {100, 50, 180, 60}}};
    assert_int_equal(found.size, sizeof expected);
    assert_memory_equal(found.data, expected, sizeof expected);

    buffer_clear(&found);
    place_find_boxes(span, at, at + 5, &found);
    assert_int_equal(found.size, 0);
    place_find_boxes((struct mark_span){0}, 0, 5, &found);
    assert_int_equal(found.size, 0);
    buffer_free(&found);
    buffer_free(&marks);
}

static void test_man_errors(void **state) {
    (void)state;
    expect_error("a.1", ".so man1/other.1\n", 17, STATUS_INVALID, "another page");
    expect_error("a.1", "just text\n", 10, STATUS_INVALID, "not a man page");
    expect_error("a.1", "", 0, STATUS_INVALID, "empty");
    expect_error("a.1", "a\0b", 3, STATUS_INVALID, "binary");
    expect_error("a.1.gz", "no gzip\n", 8, STATUS_INVALID, "not a man page");
    /* A small page that prints much. */
    struct buffer b = {0};
    buffer_append_string(&b, ".TH A 1\n.SH NAME\na\n.ds X ");
    for (int i = 0; i < 1000; i++) buffer_append_string(&b, "a");
    for (int i = 0; i < 2000; i++) buffer_append_string(&b, "\n\\*X");
    expect_error("a.1", b.data, b.size, STATUS_TOO_LARGE, "limit of 1048576");
    buffer_free(&b);
}

/* A page asks for the file "in/secret" in every way that mandoc obeys or may come to obey; mandoc
 * would look for it in the directory of the test. */
static void test_man_includes(void **state) {
    (void)state;
    static const char *const pages[] = {".so in/secret",
                                        "'so in/secret",
                                        ". so in/secret",
                                        ".\tso in/secret",
                                        ".so      ./in/secret",
                                        ".cc !\n!so in/secret",
                                        ".c2 !\n!so in/secret",
                                        ".cc !\n! so in/secret",
                                        ".if 1 .so in/secret",
                                        ".if 1 \\{.so in/secret\n.\\}",
                                        ".if n \\{\\\n.so in/secret\n.\\}",
                                        ".ie 0 .B x\n.el .so in/secret",
                                        ".nop .so in/secret",
                                        ".de XX\n.so in/secret\n..\n.XX",
                                        ".de XX\n..\n.am XX\n.so in/secret\n..\n.XX",
                                        ".ds nm XX\n.dei nm\n.so in/secret\n..\n.XX",
                                        ".de XX\n.\\\\$1 in/secret\n..\n.XX so",
                                        ".rn so xx\n.xx in/secret",
                                        ".als xx so\n.xx in/secret",
                                        ".de so\n..\n.rm so\n.so in/secret",
                                        ".ds x .so in/secret\n\\*x",
                                        ".ds a s\n.\\*ao in/secret",
                                        ".ds x 1 .so in/secret\n.if \\*x",
                                        ".s\\\no in/secret",
                                        ".so\\\n in/secret",
                                        ".\\&so in/secret",
                                        "\\!.so in/secret",
                                        ".output .so in/secret",
                                        ".nr i 1\n.while \\ni \\{.nr i 0\n.so in/secret\n.\\}",
                                        ".ec @\n.ds x .so in/secret\n@*x",
                                        ".eo\n.so in/secret",
                                        ".TS\nl l.\n.so in/secret\n.TE",
                                        ".EQ\n.so in/secret\n.EN",
                                        ".mso in/secret",
                                        ".soquiet in/secret",
                                        ".msoquiet in/secret",
                                        ".pso cat in/secret",
                                        ".sy cat in/secret",
                                        ".lf 1 in/secret",
                                        ".open x in/secret",
                                        ".opena x in/secret",
                                        ".cf in/secret",
                                        ".trf in/secret",
                                        ".hpf in/secret",
                                        ".psbb in/secret",
                                        ".nx in/secret",
                                        "\\X'ps: import in/secret'",
                                        ".Bd -file in/secret",
                                        ".so in/secret.gz"};
    char folder[FOLDER_PATH_SIZE], here[FOLDER_PATH_SIZE];
    folder_path(folder, test_folder, "in");
    assert_int_equal(mkdir(folder, 0700), 0);
    put("in/secret", ".B TOPSECRET\n", 13);
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(test_folder), 0);
    for (size_t i = 0; i < ARRAY_COUNT(pages); i++) {
        struct buffer page = {0};
        struct document_text d = {0};
        struct error e = {0};
        buffer_printf(&page, ".TH A 1\n.SH NAME\na \\- b\n.SH MORE\n%s\n.PP\nThe end.\n", pages[i]);
        struct text_span bytes = {page.data, page.size};
        if (document_extract_bytes("a.1", bytes, LIMIT, &d, &e) == STATUS_OK &&
            strstr(d.text.data, "TOPSECRET"))
            fail_msg("%s", page.data);
        put("a.1", page.data, page.size);
        if (document_extract("a.1", DOCUMENT_MAN, LIMIT, &d, &e) == STATUS_OK &&
            strstr(d.text.data, "TOPSECRET"))
            fail_msg("%s, from a file", page.data);
        document_text_free(&d);
        buffer_free(&page);
    }
    assert_int_equal(chdir(here), 0);
    /* Text that begins so stays as it is; a plain request is shown. */
    expect("a.1", ".TH A 1\n.SH NAME\na \\- b\n.PP\n-so it goes\n",
           "NAME\n       a - b\n\n       -so it goes\n", "a - b");
    expect("a.1", ".TH A 1\n.SH NAME\na \\- b\n.PP\n.if n .so x/y\n",
           "NAME\n       a - b\n\n       .so x/y\n", "a - b");
}

static enum status take_nothing(void *context, const char *part, const struct document_text *d,
                                struct error *e) {
    (void)context, (void)part, (void)d, (void)e;
    return STATUS_OK;
}

/* The same through a process that begins the parsers' processes; bytes with a name are read as a
 * file is. */
static void test_keeper(void **state) {
    (void)state;
    static const char page[] = "<h1>Head</h1><p>text";
    struct document_text d = {0};
    struct error e = {0};
    assert_int_equal(sandbox_start(NULL, &e), STATUS_OK);
    for (int i = 0; i < 20; i++) extract_ok("a.html", page, &d);
    assert_string_equal(d.text.data, "Head\n\ntext\n");
    expect_place(&d, "text", "0 0 Head");
    assert_int_equal(document_extract_bytes("x/b.HTML", (struct text_span){page, 8}, LIMIT, &d, &e),
                     STATUS_OK);
    assert_string_equal(d.text.data, "Head\n");
    assert_int_equal(
        document_extract_bytes("b.csv", (struct text_span){"a\n1\n2\n", 6}, LIMIT, &d, &e),
        STATUS_INVALID);
    assert_non_null(strstr(e.text, "several documents"));
    assert_int_equal(document_extract_bytes("b.html", (struct text_span){NULL, 0}, LIMIT, &d, &e),
                     STATUS_INVALID);
    expect_error("a.html", "<p>a\0b", 6, STATUS_INVALID, "binary");
    expect_error("a.html", "<script>x</script>", 18, STATUS_INVALID, "no text");
    /* A parser that runs over its limits costs its file alone. */
    struct buffer large = {0};
    for (int i = 0; i < 100000; i++) buffer_append_string(&large, "<p>word");
    struct extract_limits none = {.bytes = LIMIT, .seconds = 60, .memory = 0};
    struct document_taker nobody = {.take = take_nothing};
    struct extract_source source = {
        .path = "a.html", .bytes = {large.data, large.size}, .kind = DOCUMENT_HTML};
    assert_int_not_equal(document_extract_all(&source, &none, &nobody, &e), STATUS_OK);
    buffer_free(&large);
    extract_ok("a.html", page, &d);
    document_text_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(test_page_of_kinds),
                                       cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_utf16),
                                       cmocka_unit_test(test_utf16_without_mark),
                                       cmocka_unit_test(test_text_errors),
                                       cmocka_unit_test(test_html),
                                       cmocka_unit_test(test_html_furniture),
                                       cmocka_unit_test(test_html_encodings),
                                       cmocka_unit_test(test_html_hostile),
                                       cmocka_unit_test(test_man),
                                       cmocka_unit_test(test_man_errors),
                                       cmocka_unit_test(test_man_includes),
                                       cmocka_unit_test(test_western),
                                       cmocka_unit_test(test_keeper),
                                       cmocka_unit_test(test_lines_of_places),
                                       cmocka_unit_test(test_places_of_passages),
                                       cmocka_unit_test(test_places_markdown),
                                       cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_places_long),
                                       cmocka_unit_test(test_marks_fault),
                                       cmocka_unit_test(test_rereading),
                                       cmocka_unit_test(test_confidence),
                                       cmocka_unit_test(test_boxes_of_lines)};
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
