/* retrieval/extract/extract_private.h: one function per kind of document behind extract.h. */
#pragma once

#include "retrieval/extract/extract.h"
#include "retrieval/extract/extract_child.h"
#include "retrieval/extract/reader.h"

/* A file that was read. */
struct extract_file {
    const char *name; /* for errors */
    struct text_span bytes;
    enum document_kind kind;
    struct extract_limits limits;
    const bool *wanted; /* of each page of a PDF: it is read; NULL: all are */
};

/* How files of a kind are called and read: a row of kinds.c. */
struct document_form {
    const char *name;            /* for messages; NULL: the row before says it, or nobody asks */
    const char *suffixes;        /* of names, without the first dot, a blank between them */
    const char *type;            /* its media type */
    enum document_reader reader; /* of it, or of its documents that are no files */
    bool in_child;               /* `read` runs in a process of its own */
    bool holds_files;            /* its documents are files in turn, or may be */
    /* In the child, before files are out of reach. */
    void (*prepare)(const struct extract_file *file);
    /* A file that is one document. */
    enum status (*read)(const struct extract_file *file, struct document_text *out,
                        struct error *e);
    /* Its pages as pictures, where they are asked for. */
    enum status (*read_pages)(const struct extract_file *file, const struct document_taker *taker,
                              struct error *e);
    /* In the child: documents, and files within the file. Where there is `read` too, it reads a
     * file that is unpacked.
     */
    enum status (*parse)(const struct extract_file *file, struct child_writer *writer,
                         struct error *e);
};
const struct document_form *document_form_of(enum document_kind kind);
/* Appends ".md" for "text/markdown"; nothing for a type of no kind. */
void document_add_suffix(struct buffer *name, const char *type);

/* Tells the file's listener that so many of its pages are done. */
static inline void extract_tell(const struct extract_file *file, int read, int pages) {
    const struct extract_listener *listener = &file->limits.listener;
    if (listener->show) listener->show(listener->context, read, pages);
}

/* Sets the kind of an office file to what its bytes are, as many are called by another. Fails where
 * it is protected by a password, or of a kind that is not read. */
enum status extract_find_kind(struct extract_file *file, struct error *e);

/* Notes for people (document_text.note), by number, as a parser's process hands them over. */
enum extract_note {
    NOTE_NONE,
    NOTE_WESTERN,
    NOTE_UTF16_LITTLE,
    NOTE_UTF16_BIG,
    NOTE_REPAIRED,
    NOTE_COUNT
};
extern const char *const extract_notes[NOTE_COUNT];

/* Text as it is. */
enum status extract_text(const struct extract_file *file, struct document_text *out,
                         struct error *e);
/* Refuses a text of blanks. */
enum status extract_check_blank(const char *name, const struct buffer *text, struct error *e);
/* The bytes of a text, as they were found. */
struct text_reading {
    size_t characters, damaged; /* of them: those that are none */
    size_t beyond;              /* of them: those beyond ASCII that are whole */
    bool decoded;               /* from UTF-16 or UTF-32 */
    enum extract_note note;
};
/* Bytes to UTF-8, in a buffer: of byte order marks, and else of what the bytes look like.
 * STATUS_INVALID for a binary file. */
enum status extract_read_text(const struct extract_file *file, struct buffer *text,
                              struct text_reading *reading, struct error *e);
/* One character in a hundred may be damaged in a text that is UTF-8. */
static inline bool text_is_utf8(const struct text_reading *reading) {
    return reading->damaged <= reading->characters / 100;
}
/* In place; each damaged byte becomes U+FFFD. */
void extract_repair(struct buffer *text);
void extract_drop_bom(struct buffer *text);

/* Bytes that begin with the byte order mark of UTF-16 or UTF-32, or look like UTF-16 without one,
 * become UTF-8, in place; *damaged counts the characters that were none, each U+FFFD now, and *note
 * tells a guess. False: they stay as they are. */
bool extract_decode(struct buffer *buffer, size_t *damaged, enum extract_note *note);
/* Bytes that look like a text of a Western European language in Windows-1252, which holds Latin-1,
 * become UTF-8, in place. False: they do not look so, and stay as they are. */
bool extract_decode_western(struct buffer *buffer);

/* "harbour_at-dusk.jpg" as "harbour at dusk". */
void extract_caption(struct buffer *caption, const char *name);
enum status extract_picture(const struct extract_file *file, struct document_text *out,
                            struct error *e);

/* Programs of others. */
enum status extract_man(const struct extract_file *file, struct document_text *out,
                        struct error *e);
enum status extract_pdf(const struct extract_file *file, struct document_text *out,
                        struct error *e);
/* Pages of a PDF, and pictures of text, by the model of the limits; those that it fails at by the
 * reader of their kind. */
enum status extract_by_model(const struct extract_file *file, struct document_text *out,
                             struct error *e);
/* Each page of a PDF as a picture. */
enum status extract_pdf_pages(const struct extract_file *file, const struct document_taker *taker,
                              struct error *e);

/* Word's and PowerPoint's files of before 2007, and Excel's. */
enum status extract_doc(const struct extract_file *file, struct document_text *out,
                        struct error *e);
enum status extract_xls(const struct extract_file *file, struct document_text *out,
                        struct error *e);
/* TIFF, and pictures of text, by OCR. */
enum status extract_scan(const struct extract_file *file, struct document_text *out,
                         struct error *e);

/* Parsers that run in a child process. */

/* Pages that were read, as records (page/page_record.h), laid out. */
enum status extract_pages(const struct extract_file *file, struct document_text *out,
                          struct error *e);

/* html: valid UTF-8, or bytes in the encoding that the document declares (windows-1252 when it
 * declares none). */
enum status extract_html(const char *path, struct text_span html, bool is_utf8,
                         struct document_text *out, struct error *e);
enum status extract_html_file(const struct extract_file *file, struct document_text *out,
                              struct error *e);
enum status extract_office(const struct extract_file *file, struct document_text *out,
                           struct error *e);
enum status extract_rtf(const struct extract_file *file, struct document_text *out,
                        struct error *e);
/* Before files are out of reach: the tables of the code pages that it names. */
void extract_rtf_prepare(const struct extract_file *file);
enum status extract_notebook(const struct extract_file *file, struct document_text *out,
                             struct error *e);
enum status extract_xml(const struct extract_file *file, struct document_text *out,
                        struct error *e);
/* Tables and lines of JSON: a document for each record. */
enum status extract_records(const struct extract_file *file, struct child_writer *writer,
                            struct error *e);
/* E-mail: one message, or a document for each of a mailbox. */
enum status extract_mail(const struct extract_file *file, struct child_writer *writer,
                         struct error *e);
/* Before the files are out of reach: GMime, and the tables of the character sets that it names. */
void extract_mail_prepare(const struct extract_file *file);
/* A file that is packed by gzip, unpacked as the one member. */
enum status extract_packed(const struct extract_file *file, struct child_writer *writer,
                           struct error *e);
/* The members of an archive, as they are. */
enum status extract_members(const struct extract_file *file, struct child_writer *writer,
                            struct error *e);
/* Before the files are out of reach: the tables of the encoding that a page declares. */
void extract_html_prepare(const struct extract_file *file);
