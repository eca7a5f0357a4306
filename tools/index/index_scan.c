/* tools/index/index_scan.c: what a walk has skipped, and what helps, into a record beside the
 * collection. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/base/line.h"
#include "retrieval/kept/scan_record.h"
#include "tools/index/index_roots.h"

/* By words of a reason. Reasons that are not here say themselves what helps, or nothing does. */
static const struct {
    const char *words, *remedy;
} remedies[] = {
    {"none of those given fits", "add its password to the file that --password-file names"},
    {"bytes, the limit is", "read larger files: --max-file-bytes N"},
    {"more text than the limit", "read larger files: --max-file-bytes N"},
    {"takes over", "give it more time: --max-file-seconds N"},
    {"time for all of the files", "give it more time: --max-file-seconds N"},
    {"a link that leads out of the folder", "follow links that lead out: --follow"},
    {"OCR is off", "let pictures be read: leave --no-ocr out"},
    {"Permission denied", "let the user that retro-index runs as read it"},
    {"not a known kind of document", "save it as one of the kinds that docs/files.md lists"},
    {"changes while it is read", "leave it alone for a moment: watch reads it again"},
    {"damaged", "open it with the program that wrote it, and save it again"},
};

static const char *find_remedy(const char *reason) {
    for (size_t i = 0; i < ARRAY_COUNT(remedies); i++)
        if (strstr(reason, remedies[i].words)) return remedies[i].remedy;
    return NULL;
}

static struct scan_skip describe(const struct skipped_file *skipped) {
    size_t size = skipped->path_size;
    const char *reason = size > 0 ? skipped->why + size + 2 : skipped->why;
    return (struct scan_skip){{skipped->why, size}, reason, find_remedy(reason)};
}

void walk_record(const struct walk *walk, const char *collection, const struct given_roots *given) {
    int n_listed = walk->n_skipped < SCAN_LISTED ? walk->n_skipped : SCAN_LISTED;
    struct scan_skip *skips = xcalloc((size_t)n_listed + 1, sizeof *skips);
    int64_t *systems = xcalloc((size_t)given->n + 1, sizeof *systems);
    struct error e;
    for (int i = 0; i < given->n; i++) systems[i] = given->roots[i].system;
    for (int i = 0; i < n_listed; i++) skips[i] = describe(&walk->skipped[i]);
    struct scan_record record = {.paths = given->paths,
                                 .systems = systems,
                                 .n_paths = given->n,
                                 .time = (int64_t)time(NULL),
                                 .n_files = walk->n,
                                 .n_other = walk->n_unknown_files + walk->n_dotted,
                                 .n_skipped = walk->n_skipped,
                                 .skips = skips,
                                 .n_listed = n_listed};
    if (scan_write(collection, &record, &e))
        line_print(stderr, "what was skipped is not kept for the server: %s", e.text);
    free(systems);
    free(skips);
}
