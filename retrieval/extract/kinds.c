/* retrieval/extract/kinds.c: the kinds of files, a row each: names, and how a file is read.
 * docs/files.md says what is kept of each. A new kind is a row here, and the file that reads it. */
#include <string.h>
#include <strings.h>

#include "retrieval/extract/extract_private.h"

/* Text is kept as it is, and so is source code. */
static const struct document_form forms[DOCUMENT_KINDS] = {
    [DOCUMENT_TEXT] =
        {.name = "text, source code",
         .suffixes =
             "txt text log c h cc cpp cxx hpp hh cu cs go java js mjs ts jsx tsx py rb rs sh sql "
             "pl pm php lua kt swift scala r jl hs ml el clj erl ex dart zig yaml yml toml ini "
             "cfg conf tex org adoc textile diff patch cmake mk proto vim",
         .type = "text/plain",
         .read = extract_text},
    [DOCUMENT_MARKDOWN] = {.name = "Markdown",
                           .suffixes = "md markdown",
                           .type = "text/markdown",
                           .read = extract_text},
    [DOCUMENT_RST] = {.name = "reStructuredText",
                      .suffixes = "rst",
                      .type = "text/x-rst",
                      .read = extract_text},
    [DOCUMENT_HTML] = {.name = "HTML",
                       .suffixes = "html htm xhtml",
                       .type = "text/html",
                       .in_child = true,
                       .prepare = extract_html_prepare,
                       .read = extract_html_file},
    [DOCUMENT_MAN] = {.name = "man pages", .read = extract_man, .parse = extract_packed},
    [DOCUMENT_PDF] = {.name = "PDF",
                      .suffixes = "pdf",
                      .type = "application/pdf",
                      .read = extract_pdf,
                      .read_pages = extract_pdf_pages},
    [DOCUMENT_DOCX] =
        {.name = "DOCX",
         .suffixes = "docx docm dotx dotm",
         .type = "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
         .in_child = true,
         .read = extract_office},
    [DOCUMENT_ODT] = {.name = "ODT",
                      .suffixes = "odt ott fodt",
                      .type = "application/vnd.oasis.opendocument.text",
                      .in_child = true,
                      .read = extract_office},
    [DOCUMENT_PPTX] =
        {.name = "PPTX",
         .suffixes = "pptx pptm ppsx potx",
         .type = "application/vnd.openxmlformats-officedocument.presentationml.presentation",
         .in_child = true,
         .read = extract_office},
    [DOCUMENT_XLSX] = {.name = "XLSX",
                       .suffixes = "xlsx xlsm xltx xltm",
                       .type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
                       .in_child = true,
                       .read = extract_office},
    [DOCUMENT_ODS] = {.name = "ODS",
                      .suffixes = "ods ots fods",
                      .type = "application/vnd.oasis.opendocument.spreadsheet",
                      .in_child = true,
                      .read = extract_office},
    [DOCUMENT_ODP] = {.name = "ODP",
                      .suffixes = "odp otp fodp",
                      .type = "application/vnd.oasis.opendocument.presentation",
                      .in_child = true,
                      .read = extract_office},
    [DOCUMENT_RTF] = {.name = "RTF",
                      .suffixes = "rtf",
                      .type = "application/rtf",
                      .in_child = true,
                      .prepare = extract_rtf_prepare,
                      .read = extract_rtf},
    [DOCUMENT_DOC] = {.name = "DOC",
                      .suffixes = "doc dot",
                      .type = "application/msword",
                      .read = extract_doc},
    [DOCUMENT_XLS] = {.name = "XLS",
                      .suffixes = "xls xlt",
                      .type = "application/vnd.ms-excel",
                      .read = extract_xls},
    [DOCUMENT_PPT] = {.name = "PPT",
                      .suffixes = "ppt pps",
                      .type = "application/vnd.ms-powerpoint",
                      .read = extract_doc},
    [DOCUMENT_NOTEBOOK] = {.name = "notebooks",
                           .suffixes = "ipynb",
                           .type = "application/x-ipynb+json",
                           .in_child = true,
                           .read = extract_notebook},
    [DOCUMENT_XML] = {.name = "XML",
                      .suffixes = "xml dita",
                      .type = "application/xml",
                      .in_child = true,
                      .read = extract_xml},
    [DOCUMENT_EPUB] = {.name = "EPUB",
                       .suffixes = "epub",
                       .type = "application/epub+zip",
                       .in_child = true,
                       .read = extract_office},
    [DOCUMENT_CSV] = {.name = "CSV",
                      .suffixes = "csv",
                      .type = "text/csv",
                      .parse = extract_records},
    [DOCUMENT_TSV] = {.suffixes = "tsv",
                      .type = "text/tab-separated-values",
                      .parse = extract_records},
    [DOCUMENT_JSONL] = {.name = "JSONL",
                        .suffixes = "jsonl ndjson",
                        .type = "application/jsonl",
                        .parse = extract_records},
    [DOCUMENT_EML] = {.name = "e-mail",
                      .suffixes = "eml",
                      .type = "message/rfc822",
                      .holds_files = true,
                      .prepare = extract_mail_prepare,
                      .parse = extract_mail},
    [DOCUMENT_MBOX] = {.suffixes = "mbox",
                       .type = "application/mbox",
                       .holds_files = true,
                       .prepare = extract_mail_prepare,
                       .parse = extract_mail},
    [DOCUMENT_ARCHIVE] = {.name = "zip and tar",
                          .suffixes = "zip tar tgz tar.gz tar.xz tar.bz2",
                          .type = "application/zip",
                          .holds_files = true,
                          .parse = extract_members},
    [DOCUMENT_PICTURE] = {.suffixes = "jpg jpeg png webp gif", .read = extract_picture},
    [DOCUMENT_SCAN] = {.name = "TIFF",
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

enum document_kind document_kind(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (int kind = 0; kind < DOCUMENT_KINDS; kind++)
        if (forms[kind].suffixes && has_suffix(name, forms[kind].suffixes))
            return (enum document_kind)kind;
    return is_man_name(name) ? DOCUMENT_MAN : DOCUMENT_UNKNOWN;
}

enum document_kind document_kind_within(const char *path) {
    enum document_kind kind = document_kind(path);
    return kind == DOCUMENT_PICTURE ? DOCUMENT_UNKNOWN : kind;
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
