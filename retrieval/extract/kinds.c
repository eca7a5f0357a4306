/* retrieval/extract/kinds.c: the kinds of files, a row each: names, and how a file is read.
 * docs/files.md says what is kept of each. A new kind is a row here, and the file that reads it. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "retrieval/extract/extract_private.h"

/* Text is kept as it is, and so is source code. */
static const struct document_form forms[DOCUMENT_KINDS] = {
    [DOCUMENT_TEXT] =
        {.reader = READER_TEXT,
         .name = "text, source code",
         .suffixes =
             "txt text log c h cc cpp cxx hpp hh cu cs go java js mjs ts jsx tsx py rb rs sh sql "
             "pl pm php lua kt swift scala r jl hs ml el clj erl ex dart zig yaml yml toml ini "
             "cfg conf tex org adoc textile diff patch cmake mk proto vim",
         .type = "text/plain",
         .read = extract_text},
    [DOCUMENT_MARKDOWN] = {.reader = READER_TEXT,
                           .name = "Markdown",
                           .suffixes = "md markdown",
                           .type = "text/markdown",
                           .read = extract_text},
    [DOCUMENT_RST] = {.reader = READER_TEXT,
                      .name = "reStructuredText",
                      .suffixes = "rst",
                      .type = "text/x-rst",
                      .read = extract_text},
    [DOCUMENT_HTML] = {.reader = READER_HTML,
                       .name = "HTML",
                       .suffixes = "html htm xhtml",
                       .type = "text/html",
                       .in_child = true,
                       .prepare = extract_html_prepare,
                       .read = extract_html_file},
    [DOCUMENT_MAN] = {.reader = READER_MAN, .name = "man pages", .read = extract_man},
    [DOCUMENT_BARE] = {.reader = READER_TEXT,
                       .name = "text without an extension",
                       .read = extract_text},
    [DOCUMENT_PACKED] = {.parse = extract_packed},
    [DOCUMENT_PDF] = {.reader = READER_PDF,
                      .name = "PDF",
                      .suffixes = "pdf",
                      .type = "application/pdf",
                      .read = extract_pdf,
                      .read_pages = extract_pdf_pages},
    [DOCUMENT_DOCX] =
        {.reader = READER_OFFICE,
         .name = "DOCX",
         .suffixes = "docx docm dotx dotm",
         .type = "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
         .in_child = true,
         .read = extract_office},
    [DOCUMENT_ODT] = {.reader = READER_OFFICE,
                      .name = "ODT",
                      .suffixes = "odt ott fodt",
                      .type = "application/vnd.oasis.opendocument.text",
                      .in_child = true,
                      .read = extract_office},
    [DOCUMENT_PPTX] =
        {.reader = READER_OFFICE,
         .name = "PPTX",
         .suffixes = "pptx pptm ppsx potx",
         .type = "application/vnd.openxmlformats-officedocument.presentationml.presentation",
         .in_child = true,
         .read = extract_office},
    [DOCUMENT_XLSX] = {.reader = READER_SHEET,
                       .name = "XLSX",
                       .suffixes = "xlsx xlsm xltx xltm",
                       .type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
                       .in_child = true,
                       .read = extract_office},
    [DOCUMENT_ODS] = {.reader = READER_SHEET,
                      .name = "ODS",
                      .suffixes = "ods ots fods",
                      .type = "application/vnd.oasis.opendocument.spreadsheet",
                      .in_child = true,
                      .read = extract_office},
    [DOCUMENT_ODP] = {.reader = READER_OFFICE,
                      .name = "ODP",
                      .suffixes = "odp otp fodp",
                      .type = "application/vnd.oasis.opendocument.presentation",
                      .in_child = true,
                      .read = extract_office},
    [DOCUMENT_RTF] = {.reader = READER_OFFICE,
                      .name = "RTF",
                      .suffixes = "rtf",
                      .type = "application/rtf",
                      .in_child = true,
                      .prepare = extract_rtf_prepare,
                      .read = extract_rtf},
    [DOCUMENT_DOC] = {.reader = READER_LEGACY,
                      .name = "DOC",
                      .suffixes = "doc dot",
                      .type = "application/msword",
                      .read = extract_doc},
    [DOCUMENT_XLS] = {.reader = READER_LEGACY,
                      .name = "XLS",
                      .suffixes = "xls xlt",
                      .type = "application/vnd.ms-excel",
                      .read = extract_xls},
    [DOCUMENT_PPT] = {.reader = READER_LEGACY,
                      .name = "PPT",
                      .suffixes = "ppt pps",
                      .type = "application/vnd.ms-powerpoint",
                      .read = extract_doc},
    [DOCUMENT_NOTEBOOK] = {.reader = READER_NOTEBOOK,
                           .name = "notebooks",
                           .suffixes = "ipynb",
                           .type = "application/x-ipynb+json",
                           .in_child = true,
                           .read = extract_notebook},
    [DOCUMENT_XML] = {.reader = READER_XML,
                      .name = "XML",
                      .suffixes = "xml dita",
                      .type = "application/xml",
                      .in_child = true,
                      .read = extract_xml},
    [DOCUMENT_EPUB] = {.reader = READER_OFFICE,
                       .name = "EPUB",
                       .suffixes = "epub",
                       .type = "application/epub+zip",
                       .in_child = true,
                       .read = extract_office},
    [DOCUMENT_CSV] = {.reader = READER_RECORDS,
                      .name = "CSV",
                      .suffixes = "csv",
                      .type = "text/csv",
                      .parse = extract_records},
    [DOCUMENT_TSV] = {.reader = READER_RECORDS,
                      .suffixes = "tsv",
                      .type = "text/tab-separated-values",
                      .parse = extract_records},
    [DOCUMENT_JSONL] = {.reader = READER_RECORDS,
                        .name = "JSONL",
                        .suffixes = "jsonl ndjson",
                        .type = "application/jsonl",
                        .parse = extract_records},
    [DOCUMENT_EML] = {.reader = READER_MAIL,
                      .name = "e-mail",
                      .suffixes = "eml",
                      .type = "message/rfc822",
                      .holds_files = true,
                      .prepare = extract_mail_prepare,
                      .parse = extract_mail},
    [DOCUMENT_MBOX] = {.reader = READER_MAIL,
                       .suffixes = "mbox",
                       .type = "application/mbox",
                       .holds_files = true,
                       .prepare = extract_mail_prepare,
                       .parse = extract_mail},
    [DOCUMENT_ARCHIVE] = {.name = "zip and tar",
                          .suffixes = "zip tar tgz tar.gz tar.xz tar.bz2",
                          .type = "application/zip",
                          .holds_files = true,
                          .parse = extract_members},
    [DOCUMENT_PICTURE] = {.reader = READER_PICTURE,
                          .suffixes = "jpg jpeg png webp gif",
                          .read = extract_picture},
    [DOCUMENT_SCAN] = {.reader = READER_OCR,
                       .name = "TIFF",
                       .suffixes = "tif tiff",
                       .type = "image/tiff",
                       .read = extract_scan},
    [DOCUMENT_PAGES] = {.in_child = true, .read = extract_pages},
};

const struct document_form *document_form_of(enum document_kind kind) { return &forms[kind]; }

/* name.1 .. name.9, with a section suffix like .3ssl or .1p, optionally .gz. */
static bool is_man_name(const char *name) {
    char copy[256];
    size_t size = strlen(name);
    if (size >= sizeof copy) return false;
    memcpy(copy, name, size + 1);
    if (size > 3 && strcmp(copy + size - 3, ".gz") == 0) copy[size - 3] = '\0';
    const char *dot = strrchr(copy, '.');
    if (dot == NULL || dot == copy || dot[1] < '1' || dot[1] > '9') return false;
    const char *suffix = dot + 2;
    size_t letters = strspn(suffix, "abcdefghijklmnopqrstuvwxyz0123456789");
    bool letter_first = *suffix == '\0' || (*suffix >= 'a' && *suffix <= 'z');
    return suffix[letters] == '\0' && letters <= 8 && letter_first;
}

/* Whether a name ends with a dot and one of these words. */
static bool has_suffix(const char *name, const char *suffixes) {
    size_t size = strlen(name);
    for (const char *at = suffixes; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (size > n && name[size - n - 1] == '.' && strncasecmp(name + size - n, at, n) == 0)
            return true;
        at += n;
    }
    return false;
}

static enum document_kind kind_of_name(const char *name) {
    for (int kind = 0; kind < DOCUMENT_KINDS; kind++)
        if (forms[kind].suffixes && has_suffix(name, forms[kind].suffixes))
            return (enum document_kind)kind;
    if (is_man_name(name)) return DOCUMENT_MAN;
    return name[0] && strchr(name, '.') == NULL ? DOCUMENT_BARE : DOCUMENT_UNKNOWN;
}

/* "notes.md" of "notes.md.gz". */
static enum document_kind kind_in_packed(const char *name) {
    char *inner = xstrndup(name, strlen(name) - strlen(".gz"));
    enum document_kind kind = inner[0] == '.' ? DOCUMENT_UNKNOWN : kind_of_name(inner);
    free(inner);
    return kind;
}

enum document_kind document_kind(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    enum document_kind kind = kind_of_name(name);
    return kind == DOCUMENT_UNKNOWN && has_suffix(name, "gz") ? kind_in_packed(name) : kind;
}

enum document_kind document_kind_within(const char *path) {
    enum document_kind kind = document_kind(path);
    return kind == DOCUMENT_PICTURE || kind == DOCUMENT_BARE ? DOCUMENT_UNKNOWN : kind;
}

bool document_kind_holds_several(enum document_kind kind) {
    return forms[kind].parse && forms[kind].read == NULL;
}

const char *document_kind_type(enum document_kind kind) { return forms[kind].type; }

void document_list_kinds(struct buffer *names) {
    for (int kind = 0; kind < DOCUMENT_KINDS; kind++)
        if (forms[kind].name)
            buffer_printf(names, "%s%s", names->size > 0 ? ", " : "", forms[kind].name);
}

void document_add_suffix(struct buffer *name, const char *type) {
    for (int kind = 0; kind < DOCUMENT_KINDS; kind++) {
        const struct document_form *form = &forms[kind];
        if (form->suffixes == NULL || form->type == NULL || strcasecmp(form->type, type) != 0)
            continue;
        buffer_printf(name, ".%.*s", (int)strcspn(form->suffixes, " "), form->suffixes);
    }
}
