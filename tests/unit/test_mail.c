/* tests/unit/test_mail.c: messages as mail programs write them, and as nobody should. */
#include <dlfcn.h>
#include <string.h>

#include "retrieval/extract/extract_private.h"
#include "tests/folder.h"

enum { LIMIT = 1 << 22 };

/* All documents of a file, each behind its name within it, as in "==> #1 <==". */
static enum status take(void *context, const char *part, const struct document_text *d,
                        struct error *e) {
    struct buffer *all = context;
    (void)e;
    if (part[0]) buffer_printf(all, "==> %s <==\n", part);
    buffer_append(all, d->text.data, d->text.size);
    return STATUS_OK;
}

static void note_skipped(void *context, const struct error *why) {
    buffer_printf(context, "skipped: %s\n", why->text);
}

static enum status read_mail(const char *name, const char *mail, struct buffer *all,
                             struct error *e) {
    struct extract_limits limits = extract_limits_of(LIMIT);
    struct document_taker taker = {.context = all, .take = take, .skip = note_skipped};
    struct extract_source source = {.path = name,
                                    .bytes = {mail, strlen(mail)},
                                    .kind = strstr(name, ".mbox") ? DOCUMENT_MBOX : DOCUMENT_EML};
    buffer_append(all, "", 0);
    return document_extract_all(&source, &limits, &taker, e);
}

static void expect_in(const char *name, const char *mail, const char *text) {
    struct buffer all = {0};
    struct error e = {0};
    if (read_mail(name, mail, &all, &e)) fail_msg("%s", e.text);
    assert_string_equal(all.data, text);
    buffer_free(&all);
}

static void expect(const char *mail, const char *text) { expect_in("a.eml", mail, text); }

/* An attachment whose parameters say its name. */
static void expect_name(const char *parameters, const char *name) {
    struct buffer mail = {0}, text = {0};
    buffer_printf(
        &mail,
        "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Disposition: attachment; %s\n\n"
        "attached\n--b--\n",
        parameters);
    buffer_printf(&text, "==> !/%s <==\nattached", name);
    expect(mail.data, text.data);
    buffer_free(&mail);
    buffer_free(&text);
}

static void test_parameters(void **state) {
    (void)state;
    /* A semicolon within quotation marks. */
    expect(
        "Content-Type: multipart/mixed; x=\"a; boundary=no\"; "
        "boundary=\"b;c\"\n\n--b;c\n\ntext\n--b;c--\n",
        "text");
    expect(
        "Content-Type: text/plain; name=\"a;b.txt\"; charset=koi8-r\n\n\xf0\xd2\xc9\xd7\xc5\xd4\n",
        "Привет\n");
    expect(
        "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Disposition: attachment; "
        "filename=\"a; b.txt\"\n\n"
        "attached\n--b--\n",
        "==> !/a; b.txt <==\nattached");
    /* Blanks and comments around the sign. */
    expect("Content-Type: text/plain; charset = koi8-r\n\n\xf0\xd2\xc9\xd7\xc5\xd4\n", "Привет\n");
    expect("Content-Type: text/plain;\n\tCHARSET =\n \"KOI8-R\"\n\n\xf0\xd2\xc9\xd7\xc5\xd4\n",
           "Привет\n");
    /* Sections, of which some have a character set (RFC 2231), and words in base64 as a name. */
    expect_name("filename*0*=koi8-r''%F0%D2%C9; filename*1=d.txt", "Приd.txt");
    expect_name("filename*1=d.txt; filename*0=ab", "abd.txt");
    expect_name("filename*0*=utf-8''na%C3;\n filename*1*=%AFve.txt", "naïve.txt");
    expect_name("filename=\"=?utf-8?B?xYE=?= =?utf-8?B?w7M=?=.txt\"", "Łó.txt");
    expect(
        "Content-Type: multipart/mixed; boundary*0=\"one \"; boundary*1=two\n\n--one "
        "two\n\ntext\n--one two--\n",
        "text");
}

static void test_words(void **state) {
    (void)state;
    /* One character lies in two words. */
    expect("Subject: =?utf-8?B?xYHDs2TF?= =?utf-8?B?ug==?=\n\ntext\n", "Subject: Łódź\n\ntext\n");
    expect("Subject: =?utf-8?Q?=C5=81=C3?=\n =?utf-8?Q?=B3d=C5=BA?=\n\ntext\n",
           "Subject: Łódź\n\ntext\n");
    expect("Subject: =?koi8-r?Q?=F0=D2?= =?koi8-r*ru?Q?=C9?= and =?utf-8?Q?a_b?=\n\ntext\n",
           "Subject: При and a b\n\ntext\n");
    expect(
        "Subject: =?utf-8?B?YQ==?= =?utf-8?B?YmI=?= =?utf-8?b?Y2Nj?= =?UTF-8?B?ZA==?= "
        "=?utf-8?B?ZQ\n\ntext\n",
        "Subject: abbcccd =?utf-8?B?ZQ\n\ntext\n");
    expect("Subject: =?no-such-set?Q?a?= =?utf-8?X?b?=\n\ntext\n",
           "Subject: a =?utf-8?X?b?=\n\ntext\n");
    /* Bytes that declare nothing. */
    expect("Subject: caf\xc3\xa9\n\ntext\n", "Subject: café\n\ntext\n");
    expect("Subject: caf\xe9\n\ntext\n", "Subject: café\n\ntext\n");
}

/* Tables of character sets are opened before the files are out of reach: each once, not the first
 * eight places. */
static void test_charsets(void **state) {
    struct buffer mail = {0}, text = {0};
    (void)state;
    for (int i = 1; i <= 20; i++) {
        buffer_printf(&mail,
                      "From a Mon Jan  1 10:00:00 2024\nSubject: =?iso-8859-2?Q?=A3?=\n\ntext\n\n");
        buffer_printf(&text, "==> #%d <==\nSubject: Ł\n\ntext\n\n", 5 * i - 4);
    }
    buffer_append_string(
        &mail, "From a Mon Jan  1 10:00:00 2024\nSubject: =?shift_jis?B?g0w=?=\n\ntext\n");
    buffer_append_string(&text, "==> #101 <==\nSubject: キ\n\ntext\n");
    expect_in("a.mbox", mail.data, text.data);
    buffer_free(&mail);
    buffer_free(&text);
}

static void test_parts(void **state) {
    (void)state;
    expect(
        "Content-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: multipart/alternative; "
        "boundary=ab\n\n--ab\n"
        "Content-Type: text/html\n\n<p>page\n--ab\n\nplain\n--ab--\nbetween\n--a\n"
        "Content-Type: text/plain; name=b.txt\n\nsecond\n--a--\nbehind\n",
        "plain==> !/b.txt <==\nsecond");
    /* No end, no boundary, a boundary that is not there, a part without an empty line, a boundary
     * within a line. */
    expect("Subject: s\nContent-Type: multipart/mixed; boundary=a\n\n--a\n\ntext\n",
           "Subject: s\n\ntext\n");
    expect("Subject: s\nContent-Type: multipart/mixed\n\n--a\n\ntext\n", "Subject: s\n\n");
    expect("Subject: s\nContent-Type: multipart/mixed; boundary=b\n\n--a\n\ntext\n--a--\n",
           "Subject: s\n\n");
    expect(
        "Subject: s\nContent-Type: multipart/mixed; boundary=a\n\n--a\ntext\n--a\n\nx --a "
        "y\n--a--\n",
        "Subject: s\n\nx --a y");
    expect("Subject: s\nContent-Type: multipart/mixed; boundary=\"\"\n\n--\n\ntext\n",
           "Subject: s\n\ntext\n");
    expect("Content-Transfer-Encoding: base64\n\ndGV4d*A==", "text");
    expect("Content-Transfer-Encoding: quoted-printable\n\na=\nb=3Dc=zz=", "ab=c=zz");
    expect("no header at all\n\ntext\n", "text\n");
    expect("no header\nSubject : s\nnor this\nTo: a\n\ntext\n", "Subject: s\nTo: a\n\ntext\n");
}

static struct buffer nest(int n) {
    struct buffer mail = {0};
    buffer_append_string(&mail, "Subject: deep\n");
    for (int i = 0; i < n; i++)
        buffer_printf(&mail, "Content-Type: multipart/mixed; boundary=b%d-\n\n--b%d-\n", i, i);
    buffer_append_string(&mail, "\ntext\n");
    return mail;
}

static void test_depth(void **state) {
    struct buffer few = nest(8), many = nest(9), hostile = nest(30000), messages = {0}, all = {0};
    struct error e = {0};
    (void)state;
    expect(few.data, "Subject: deep\n\ntext\n");
    expect(many.data, "Subject: deep\n\n");
    expect(hostile.data, "Subject: deep\n\n");
    for (int i = 0; i < 30000; i++)
        buffer_append_string(&messages, "Content-Type: message/rfc822\n\n");
    if (read_mail("a.eml", messages.data, &all, &e)) fail_msg("%s", e.text);
    assert_non_null(strstr(all.data, "files lie within files more than 3 deep"));
    buffer_free(&few);
    buffer_free(&many);
    buffer_free(&hostile);
    buffer_free(&messages);
    buffer_free(&all);
}

/* The library. */

static bool is_missing;

void *dlopen(const char *file, int mode) {
    void *(*open)(const char *, int);
    *(void **)&open = dlsym(RTLD_NEXT, "dlopen");
    return is_missing && file && strstr(file, "gmime") ? open("libnot-there.so", mode)
                                                       : open(file, mode);
}

static void test_missing(void **state) {
    struct extract_file f = {.name = "a.eml", .bytes = {"\ntext", 5}, .kind = DOCUMENT_EML};
    struct child_writer writer = {.fd = -1};
    struct error e = {0};
    (void)state;
    is_missing = true;
    extract_mail_prepare(&f);
    assert_int_equal(extract_mail(&f, &writer, &e), STATUS_UNSUPPORTED);
    assert_non_null(
        strstr(e.text, "a.eml: it needs the library GMime; install the package libgmime-3.0-0"));
    is_missing = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_words),
        cmocka_unit_test(test_charsets),   cmocka_unit_test(test_parts),
        cmocka_unit_test(test_depth),      cmocka_unit_test(test_missing)};
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
