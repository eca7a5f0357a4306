/* tools/index/index_skipped.c: what was not read, by its reasons, for the end of a command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "tools/index/index.h"

enum { MOST_REASONS = 20, SHOWN_FILES = 3 };

struct skip_reason {
    char *key;  /* without numbers, in which reasons of one kind differ */
    char *text; /* the first */
    int n;
    struct buffer files; /* the first of them */
};

void walk_free_skipped(struct walk *walk) {
    for (int i = 0; i < walk->n_skipped; i++) {
        free(walk->skipped[i].source);
        free(walk->skipped[i].why);
    }
    free(walk->skipped);
    walk->skipped = NULL;
    walk->n_skipped = walk->skipped_capacity = 0;
    for (int i = 0; i < walk->n_reasons; i++) {
        free(walk->reasons[i].key);
        free(walk->reasons[i].text);
        buffer_free(&walk->reasons[i].files);
    }
    free(walk->reasons);
    walk->reasons = NULL;
    walk->n_reasons = walk->reason_capacity = 0;
}

static char *make_key(const char *text) {
    struct buffer key = {0};
    buffer_append(&key, "", 0);
    for (const char *at = text; *at; at++)
        if (!is_digit(*at)) buffer_append(&key, at, 1);
    return key.data ? key.data : xstrdup("");
}

/* Takes the key. */
static struct skip_reason *find_reason(struct walk *walk, char *key, const char *text) {
    int i = 0;
    while (i < walk->n_reasons && strcmp(walk->reasons[i].key, key) != 0) i++;
    if (i == walk->n_reasons && i == MOST_REASONS) i = MOST_REASONS - 1;
    if (i < walk->n_reasons) {
        free(key);
        return &walk->reasons[i];
    }
    walk->reasons =
        xgrow(walk->reasons, walk->n_reasons, &walk->reason_capacity, sizeof *walk->reasons);
    bool last = i == MOST_REASONS - 1;
    walk->reasons[i] = (struct skip_reason){
        .key = key, .text = xstrdup(last ? "other reasons, which are told above" : text)};
    walk->n_reasons++;
    return &walk->reasons[i];
}

static void keep(struct walk *walk, const char *source, const char *why, size_t path_size) {
    walk->skipped =
        xgrow(walk->skipped, walk->n_skipped, &walk->skipped_capacity, sizeof *walk->skipped);
    walk->skipped[walk->n_skipped] =
        (struct skipped_file){source ? xstrdup(source) : NULL, xstrdup(why), path_size};
    walk->n_skipped++;
}

void walk_carry_skipped(struct walk *walk, const struct skipped_file *skipped) {
    keep(walk, skipped->source, skipped->why, skipped->path_size);
}

/* A path may hold a colon and a blank; that of the file is known. */
static size_t measure_path(const struct found_file *file, const char *why) {
    bool own = file && starts_with(why, file->path);
    const char *colon = strstr(why + (own ? strlen(file->path) : 0), ": ");
    return colon ? (size_t)(colon - why) : 0;
}

void walk_count_skipped(struct walk *walk, const struct found_file *file, const char *why) {
    size_t size = measure_path(file, why);
    const char *text = size > 0 ? why + size + 2 : why;
    struct skip_reason *reason = find_reason(walk, make_key(text), text);
    keep(walk, file ? file->source : NULL, why, size);
    reason->n++;
    if (reason->n <= SHOWN_FILES && size > 0)
        buffer_printf(&reason->files, "%s%.*s", reason->n > 1 ? ", " : "", (int)size, why);
    if (reason->n == SHOWN_FILES + 1) buffer_append_string(&reason->files, ", ...");
}

void walk_report(const struct walk *walk) {
    for (int i = 0; i < (int)ARRAY_COUNT(walk->unknown); i++)
        if (walk->unknown[i].count > 0)
            line_print(stderr, "not read: %d file%s of kind \"%s\"", walk->unknown[i].count,
                       walk->unknown[i].count == 1 ? "" : "s",
                       walk->unknown[i].extension[0] ? walk->unknown[i].extension : "no extension");
    if (walk->n_dotted > 0)
        line_print(stderr, "not read: %d name%s that begin%s with a dot: %s", walk->n_dotted,
                   walk->n_dotted == 1 ? "" : "s", walk->n_dotted == 1 ? "s" : "",
                   walk->dotted.data);
    if (walk->n_unknown_files > 0)
        line_print(stderr,
                   "docs/files.md lists the kinds that are read; --verbose of retro-index names "
                   "the files");
    for (int i = 0; i < walk->n_reasons; i++) {
        const struct skip_reason *reason = &walk->reasons[i];
        line_print(stderr, "not read: %d file%s: %s (%s)", reason->n, reason->n == 1 ? "" : "s",
                   reason->text, reason->files.data ? reason->files.data : "");
    }
    if (walk->n_skipped > 0)
        line_print(stderr, "%d skipped in all; the exit code of retro-index is 2 then",
                   walk->n_skipped);
}
