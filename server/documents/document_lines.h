/* server/documents/document_lines.h: changes of documents that wait, in a line for each client: a
 * client's are carried out in the order in which they came, and clients take turns. Files are read
 * ahead of that, from every line at once. One thread at a time. */
#pragma once

#include "config/base/base.h"

enum document_stage { STAGE_UNREAD, STAGE_READING, STAGE_READY };

/* Embedded in a job, at its beginning. */
struct document_turn {
    struct document_turn *next;
    struct document_line *line;
    enum document_stage stage;
};

struct document_lines {
    struct document_line *first;
    uint64_t serial; /* of turns */
    int n;           /* jobs */
};

/* `stage` is set: STAGE_UNREAD where files are to be read first. */
void lines_add(struct document_lines *lines, uint64_t client, struct document_turn *job);
/* A job whose files are to be read now, of a client that has fewer than `most` read; NULL: there is
 * none. */
struct document_turn *lines_take_unread(struct document_lines *lines, int most);
void lines_end_reading(struct document_turn *job);
/* The job that is to be carried on, which stays the first of its line; `unread`: also one whose
 * files were not read. NULL: there is none. */
struct document_turn *lines_choose(struct document_lines *lines, bool unread);
/* The first job of a line is over. */
void lines_leave(struct document_lines *lines, struct document_turn *job);
