/* retrieval/extract/true_kind.c: office files whose bytes are of another kind than their name says,
 * and those that nobody can read without a password. */
#include <string.h>
#include <strings.h>

#include "config/base/text.h"
#include "retrieval/extract/extract_private.h"

static bool holds(struct text_span bytes, const char *what, size_t size) {
    return memmem(bytes.text, bytes.size, what, size) != NULL;
}
static bool holds_text(struct text_span bytes, const char *text) {
    return holds(bytes, text, strlen(text));
}

/* Names in OLE files are of UTF-16. */
static bool holds_stream(struct text_span bytes, const char *name) {
    char wide[80];
    size_t size = strlen(name);
    for (size_t i = 0; i < size; i++) {
        wide[2 * i] = name[i];
        wide[2 * i + 1] = '\0';
    }
    memset(wide + 2 * size, 0, 2);
    return holds(bytes, wide, 2 * size + 2);
}

static uint32_t read_short(struct text_span bytes, size_t at) {
    const unsigned char *b = (const unsigned char *)bytes.text + at;
    return at + 2 <= bytes.size ? (uint32_t)b[0] | (uint32_t)b[1] << 8 : 0;
}

/* The header of a DOC file says whether it is encrypted. It begins a sector. */
static bool doc_is_locked(struct text_span bytes) {
    for (size_t at = 512; at + 512 <= bytes.size; at += 512)
        if (read_short(bytes, at) == 0xa5ec) return read_short(bytes, at + 10) & 0x100;
    return false;
}

/* A record FILEPASS behind the first of an XLS file says so. */
static bool xls_is_locked(struct text_span bytes) {
    enum { BOF = 0x809, FILEPASS = 0x2f, LOOKED_AT = 8 };
    for (size_t sector = 512; sector + 512 <= bytes.size; sector += 512) {
        size_t at = sector;
        if (read_short(bytes, at) != BOF || read_short(bytes, at + 2) > 32) continue;
        for (int i = 0; i < LOOKED_AT && at + 4 <= bytes.size; i++) {
            if (read_short(bytes, at) == FILEPASS) return true;
            at += 4 + read_short(bytes, at + 2);
        }
        return false;
    }
    return false;
}

static enum status refuse_locked(const struct extract_file *file, struct error *e) {
    return error_set(e, STATUS_INVALID,
                     "%s: it is protected by a password; save it without one to have it read",
                     file->name);
}

static enum status find_ole_kind(struct extract_file *file, struct error *e) {
    struct text_span bytes = file->bytes;
    if (holds_stream(bytes, "EncryptedPackage") || holds_stream(bytes, "EncryptionInfo"))
        return refuse_locked(file, e);
    bool is_doc = holds_stream(bytes, "WordDocument");
    bool is_xls = holds_stream(bytes, "Workbook") || holds_stream(bytes, "Book");
    if ((is_doc && doc_is_locked(bytes)) || (is_xls && xls_is_locked(bytes)))
        return refuse_locked(file, e);
    file->kind = is_doc                                       ? DOCUMENT_DOC
                 : is_xls                                     ? DOCUMENT_XLS
                 : holds_stream(bytes, "PowerPoint Document") ? DOCUMENT_PPT
                                                              : DOCUMENT_UNKNOWN;
    if (file->kind != DOCUMENT_UNKNOWN) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "%s: an OLE file that holds no Word, Excel or PowerPoint document; save it as "
                     "DOCX, XLSX or PPTX",
                     file->name);
}

static enum status find_zip_kind(struct extract_file *file, struct error *e) {
    static const struct {
        const char *part;
        enum document_kind kind;
    } parts[] = {{"opendocument.text", DOCUMENT_ODT},
                 {"opendocument.spreadsheet", DOCUMENT_ODS},
                 {"opendocument.presentation", DOCUMENT_ODP},
                 {"application/epub+zip", DOCUMENT_EPUB},
                 {"word/document", DOCUMENT_DOCX},
                 {"xl/workbook", DOCUMENT_XLSX},
                 {"ppt/presentation", DOCUMENT_PPTX}};
    if (holds_text(file->bytes, "xl/workbook.bin"))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: an XLSB workbook, which is not read; save it as XLSX", file->name);
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
        /* OpenDocument's type is the first member, which is not packed. */
        struct text_span where = file->bytes;
        if (i < 4 && where.size > 200) where.size = 200;
        if (!holds_text(where, parts[i].part)) continue;
        file->kind = parts[i].kind;
        break;
    }
    return STATUS_OK;
}

static struct text_span skip_blanks(struct text_span text) {
    if (span_starts_with(text, "\xef\xbb\xbf"))
        text = (struct text_span){text.text + 3, text.size - 3};
    while (text.size > 0 && is_blank(text.text[0]))
        text = (struct text_span){text.text + 1, text.size - 1};
    return text;
}

static bool holds_word(struct text_span text, const char *word) {
    size_t size = strlen(word);
    for (size_t i = 0; i + size <= text.size; i++)
        if (strncasecmp(text.text + i, word, size) == 0) return true;
    return false;
}

/* Markup, of which only the beginning is looked at. */
static void find_markup_kind(struct extract_file *file) {
    struct text_span head = file->bytes;
    if (head.size > 4096) head.size = 4096;
    bool flat = holds_text(head, "office:document");
    if (flat && holds_text(head, "opendocument.spreadsheet"))
        file->kind = DOCUMENT_ODS;
    else if (flat && holds_text(head, "opendocument.presentation"))
        file->kind = DOCUMENT_ODP;
    else if (flat)
        file->kind = DOCUMENT_ODT;
    else if (holds_word(head, "<html") || holds_word(head, "<!doctype html") ||
             holds_word(head, "<table") || holds_word(head, "<body"))
        file->kind = DOCUMENT_HTML;
    else
        file->kind = DOCUMENT_XML;
}

static bool is_office(enum document_kind kind) {
    static const enum document_kind kinds[] = {
        DOCUMENT_DOCX, DOCUMENT_ODT, DOCUMENT_ODP, DOCUMENT_PPTX, DOCUMENT_XLSX,
        DOCUMENT_ODS,  DOCUMENT_RTF, DOCUMENT_DOC, DOCUMENT_XLS,  DOCUMENT_PPT};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (kind == kinds[i]) return true;
    return false;
}

/* No NUL, unless a byte order mark says why, and hardly any control characters. */
static bool is_text(struct text_span head) {
    size_t controls = 0;
    if (span_starts_with(head, "\xff\xfe") || span_starts_with(head, "\xfe\xff")) return true;
    if (head.size == 0 || memchr(head.text, '\0', head.size)) return false;
    for (size_t i = 0; i < head.size; i++)
        controls += (unsigned char)head.text[i] < ' ' && !strchr("\t\r\n\f\v\033", head.text[i]);
    return controls <= head.size / 100;
}

enum document_kind document_kind_of_bytes(struct text_span head) {
    if (head.size > KIND_HEAD_BYTES) head.size = KIND_HEAD_BYTES;
    if (span_starts_with(head, "%PDF-")) return DOCUMENT_PDF;
    if (!is_text(head)) return DOCUMENT_UNKNOWN;
    struct text_span markup = skip_blanks(head);
    bool is_html = span_starts_with(markup, "<") &&
                   (holds_word(markup, "<!doctype html") || holds_word(markup, "<html"));
    return is_html ? DOCUMENT_HTML : DOCUMENT_TEXT;
}

enum status extract_find_kind(struct extract_file *file, struct error *e) {
    struct text_span text = skip_blanks(file->bytes);
    if (file->kind == DOCUMENT_BARE) {
        file->kind = document_kind_of_bytes(file->bytes);
        return file->kind != DOCUMENT_UNKNOWN
                   ? STATUS_OK
                   : error_set(e, STATUS_UNSUPPORTED,
                               "%s: its name has no extension, and its bytes are no text; give it "
                               "the extension of its kind",
                               file->name);
    }
    if (!is_office(file->kind)) return STATUS_OK;
    if (span_starts_with(file->bytes, "\xd0\xcf\x11\xe0")) return find_ole_kind(file, e);
    if (span_starts_with(file->bytes, "PK\x03\x04")) return find_zip_kind(file, e);
    if (span_starts_with(file->bytes, "%PDF-")) file->kind = DOCUMENT_PDF;
    if (span_starts_with(text, "{\\rtf")) file->kind = DOCUMENT_RTF;
    if (span_starts_with(text, "<")) find_markup_kind(file);
    bool has_nul = memchr(file->bytes.text, '\0', file->bytes.size) != NULL;
    if (!has_nul && file->kind == DOCUMENT_XLS) file->kind = DOCUMENT_CSV;
    if (!has_nul && file->kind == DOCUMENT_DOC) file->kind = DOCUMENT_TEXT;
    return STATUS_OK;
}
