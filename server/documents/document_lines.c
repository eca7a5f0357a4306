/* server/documents/document_lines.c: see document_lines.h. */
#include "server/documents/document_lines.h"

#include <stdlib.h>

struct document_line {
    uint64_t client;
    struct document_turn *first, **end;
    int n_reading;
    uint64_t read, since; /* serial of its latest turn to be read, and to be carried on */
    struct document_line *next;
};

static struct document_line *find_line(struct document_lines *lines, uint64_t client) {
    struct document_line *line = lines->first;
    while (line && line->client != client) line = line->next;
    if (line) return line;
    line = xcalloc(1, sizeof *line);
    *line = (struct document_line){
        .client = client, .read = lines->serial, .since = lines->serial, .next = lines->first};
    line->end = &line->first;
    lines->first = line;
    return line;
}

void lines_add(struct document_lines *lines, uint64_t client, struct document_turn *job) {
    struct document_line *line = find_line(lines, client);
    job->next = NULL;
    job->line = line;
    *line->end = job;
    line->end = &job->next;
    lines->n++;
}

static struct document_turn *first_unread(const struct document_line *line) {
    struct document_turn *job = line->first;
    while (job && job->stage != STAGE_UNREAD) job = job->next;
    return job;
}

struct document_turn *lines_take_unread(struct document_lines *lines, int most) {
    struct document_line *best = NULL;
    for (struct document_line *line = lines->first; line; line = line->next) {
        bool may = line->n_reading < most && first_unread(line);
        if (may && (best == NULL || line->read < best->read)) best = line;
    }
    if (best == NULL) return NULL;
    struct document_turn *job = first_unread(best);
    lines->serial++;
    best->read = lines->serial;
    best->n_reading++;
    job->stage = STAGE_READING;
    return job;
}

void lines_end_reading(struct document_turn *job) {
    job->stage = STAGE_READY;
    job->line->n_reading--;
}

struct document_turn *lines_choose(struct document_lines *lines, bool unread) {
    struct document_line *best = NULL;
    for (struct document_line *line = lines->first; line; line = line->next) {
        enum document_stage stage = line->first->stage;
        bool may = stage == STAGE_READY || (unread && stage == STAGE_UNREAD);
        if (may && (best == NULL || line->since < best->since)) best = line;
    }
    if (best == NULL) return NULL;
    lines->serial++;
    best->since = lines->serial;
    return best->first;
}

void lines_leave(struct document_lines *lines, struct document_turn *job) {
    struct document_line *line = job->line, **at = &lines->first;
    CHECK(line->first == job && job->stage != STAGE_READING);
    line->first = job->next;
    lines->n--;
    if (line->first) return;
    while (*at != line) at = &(*at)->next;
    *at = line->next;
    free(line);
}
