/* retrieval/extract/extract.h: files to plain text with marks of their places (retrieval/marks.h).
 * docs/files.md lists the kinds and what is kept of each. Formats of others are parsed in a process
 * of their own, under limits. A file of no known kind is reported, not guessed. */
#pragma once

#include <stdatomic.h>

#include "config/base/buffer.h"
#include "retrieval/marks.h"

enum document_kind {
    DOCUMENT_UNKNOWN,
    DOCUMENT_TEXT,
    DOCUMENT_MARKDOWN,
    DOCUMENT_RST,
    DOCUMENT_HTML,
    DOCUMENT_MAN,
    DOCUMENT_PDF,
    DOCUMENT_DOCX,
    DOCUMENT_ODT,
    DOCUMENT_PPTX,
    DOCUMENT_XLSX,
    DOCUMENT_ODS,
    DOCUMENT_ODP,
    DOCUMENT_RTF,
    DOCUMENT_DOC, /* of Word before 2007; likewise XLS and PPT */
    DOCUMENT_XLS,
    DOCUMENT_PPT,
    DOCUMENT_NOTEBOOK,
    DOCUMENT_XML,
    DOCUMENT_EPUB,
    DOCUMENT_CSV,
    DOCUMENT_TSV,
    DOCUMENT_JSONL,
    DOCUMENT_EML,
    DOCUMENT_MBOX,
    DOCUMENT_ARCHIVE, /* of documents: zip, tar */
    DOCUMENT_PICTURE, /* JPEG, PNG, WebP, GIF (retrieval/picture_document.h) */
    DOCUMENT_SCAN,    /* TIFF, and pictures whose text is read by OCR */
    DOCUMENT_BARE,    /* of a name without an extension: its bytes tell */
    DOCUMENT_PACKED,  /* by gzip: of no name */
    DOCUMENT_PAGES,   /* pages that were read, to be laid out (page/page_record.h): of no file */
    DOCUMENT_KINDS
};

/* By file name; of one that is packed by gzip, as notes.md.gz, that of what is in it. */
enum document_kind document_kind(const char *path);
/* Of a file within another, where pictures are not read but for TIFF. */
enum document_kind document_kind_within(const char *path);
/* DOCUMENT_BARE's true kind, by the first bytes of the file: text, HTML, PDF, or DOCUMENT_UNKNOWN.
 */
enum document_kind document_kind_of_bytes(struct text_span head);
enum { KIND_HEAD_BYTES = 4096 }; /* that are enough for it */
/* Archives, tables, lines of JSON and mail: a file of this kind may be any number of documents. */
bool document_kind_holds_several(enum document_kind kind);
/* Its media type; NULL: none, or not the same for all files of the kind. */
const char *document_kind_type(enum document_kind kind);
/* Appends the kinds by name, for messages. */
void document_list_kinds(struct buffer *names);

/* Zero-initialise; free when done. */
struct document_text {
    struct buffer text, title;
    struct buffer marks;  /* struct mark, in order */
    struct buffer losses; /* what was not read of the document and why, a line each:
                             "page 7: a picture without text\n" */
    const char
        *note;      /* a guess that was made, to be told to people, of static storage; NULL: none */
    bool wants_ocr; /* a page of it was read by OCR, or would have been */
    bool has_hidden;     /* sheets, which are left out */
    uint8_t n_languages; /* that OCR had, where it was wanted; 0: there was none */
};
void document_text_clear(struct document_text *text);
void document_text_free(struct document_text *text);
/* Makes *out, which is clear, another copy. */
void document_text_copy(struct document_text *out, const struct document_text *text);
/* Adds a line to the losses. */
void document_text_lose(struct document_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* How pages that are pictures are read (docs/files.md). All zero: by OCR, in the languages that are
 * installed. */
struct extract_ocr {
    bool off;
    bool pictures;         /* JPEG, PNG, WebP and GIF too, which are kept as pictures else */
    const char *languages; /* "eng+deu", as ocr_languages_parse takes them; NULL or "": those that
                              are installed */
    int page_seconds;      /* that a page may take; 0: OCR_PAGE_SECONDS */
};
enum { OCR_PAGE_SECONDS = 30 };
/* Of the passwords that a process gets with a file. */
enum { EXTRACT_PASSWORD_BYTES = 2048 };

/* A model with pictures that reads pages in place of the readers of their kinds. */
struct extract_model {
    const char *url, *name; /* of an API as OpenAI's: "http://127.0.0.1:8080/v1"; of the model */
    const char *key;        /* NULL or "": none */
    const char *prompt;     /* that goes with each page; NULL or "": the one that is built in */
    const char *cache;      /* folder of pages that were read; NULL or "": none are kept */
    int seconds, tokens;    /* that a page may take; that its text may have */
};

/* Is told how far a file is whenever a page of it is done, by the thread that reads it: `read` of
 * `pages`, which both may grow. Files without pages tell nothing; each file within a file tells of
 * itself. A page that waits for OCR is not done. */
struct extract_listener {
    void *context;
    void (*show)(void *context, int read, int pages); /* NULL: nobody listens */
};

/* Of one file. */
struct extract_limits {
    size_t bytes;  /* of the file, and of the text of each document in it */
    int seconds;   /* that parsing it may take */
    size_t memory; /* bytes that parsing it may take */
    double until;  /* time_now() when reading ends, whatever is left of the file; 0: no such time */
    const atomic_bool
        *cancelled; /* true: nobody waits any more, STATUS_CANCELLED; NULL: somebody does */
    const atomic_bool *stopped; /* likewise: of the program */
    const char *passwords;      /* that files may be opened with, one a line; NULL: none */
    bool pictures;              /* the pages of a PDF are documents too, as pictures */
    bool hidden_sheets; /* of spreadsheets are read too, with their hidden rows and columns */
    struct extract_ocr ocr;
    const struct extract_model *model; /* NULL: pages are read without one */
    struct extract_listener listener;
};
static inline struct extract_limits extract_limits_of(size_t bytes) {
    return (struct extract_limits){.bytes = bytes, .seconds = 60, .memory = (size_t)1 << 30};
}

/* The documents of a file, as they are read. */
struct document_taker {
    void *context;
    /* `part` is "" for a file that is one document. A document within a file has what follows the
     * file's path in its own: "!/notes/a.md" of an archive, "#12" of the record on line 12,
     * "#page=3" of the picture of a page. A status that it returns ends the reading, but for
     * STATUS_OK. */
    enum status (*take)(void *context, const char *part, const struct document_text *text,
                        struct error *e);
    void (*skip)(void *context,
                 const struct error *why); /* a document within the file; NULL: nobody is told */
};

struct extract_source {
    const char *path;       /* of the file, which is read; with `bytes` only its name */
    struct text_span bytes; /* NULL: those of the file */
    enum document_kind kind;
};
/* Reads every document of a file. Fails with the reason where the file itself cannot be read:
 * empty, binary (NUL bytes in a text), an encoding that is not known, over a limit, damaged,
 * changing while it is read. */
enum status document_extract_all(const struct extract_source *source,
                                 const struct extract_limits *limits,
                                 const struct document_taker *taker, struct error *e);
/* The text of a file that is one document, its title ("" where there is none) and its marks into
 * *out, which is cleared first. STATUS_INVALID where the file holds several. */
enum status document_extract(const char *path, enum document_kind kind, size_t limit,
                             struct document_text *out, struct error *e);
/* The same of bytes that are no file's, as an upload's; the name tells their kind. */
enum status document_extract_bytes(const char *name, struct text_span bytes, size_t limit,
                                   struct document_text *out, struct error *e);
/* The same under limits of the caller's. */
enum status document_extract_upload(const char *name, struct text_span bytes,
                                    const struct extract_limits *limits, struct document_text *out,
                                    struct error *e);
/* The marks of a text that is at hand: its lines, and the headings of those kinds of text that have
 * any. */
void document_mark(enum document_kind kind, struct text_span text, struct buffer *marks);
