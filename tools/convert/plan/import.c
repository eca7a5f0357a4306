/* tools/convert/plan/import.c: an import from its beginning to its end. See import.h. */
#include "tools/convert/plan/import.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

/* Where there is room for weights: where the folder will lie. An inspection takes the system's place for large
 * temporary files. */
static char *find_scratch(const struct import_options *o) {
    const char *temporary = getenv("TMPDIR");
    if (o->to == NULL || o->inspect) return xstrdup(temporary && temporary[0] ? temporary : "/var/tmp");
    char *copy = xstrdup(o->to), *folder = xstrdup(dirname(copy));
    free(copy);
    return folder;
}

static enum status plan(struct import_plan *p, const struct import_options *o, struct error *e) {
    p->scratch = find_scratch(o);
    if (checkpoint_open(&p->checkpoint, o->from, p->scratch, e) || import_read_given(p, o, e) || import_rename(p, e))
        return e->status;
    if (!p->pictures && (import_find_layers(p, o, e) || import_configure(p, o, e))) return e->status;
    if (p->pictures && import_describe_language(p, o, e)) return e->status;
    if (p->missing.size > 0 && !o->inspect)
        return error_set(e, STATUS_INVALID, "%s does not say %s: a JSON file of these keys is given by --config",
                         p->checkpoint->folder, p->missing.data);
    enum status status = p->pictures ? import_match_pictures(p, e) : import_match(p, e);
    if (status == STATUS_OK || o->inspect) import_report(p);
    if (status && p->missing.size > 0) return STATUS_OK; /* shapes follow from what is missing, which was said */
    return status ? status : import_choose_types(p, o, e);
}

enum status import_open(struct import_plan *p, const struct import_options *o, struct error *e) {
    *p = (struct import_plan){0};
    enum status status = plan(p, o, e);
    if (status) import_close(p);
    return status;
}

void import_close(struct import_plan *p) {
    for (int i = 0; i < p->n; i++) free(p->targets[i].name);
    free(p->targets);
    free(p->cross);
    settings_free(&p->given);
    settings_free(&p->config);
    buffer_free(&p->missing);
    checkpoint_close(p->checkpoint);
    free(p->scratch);
    *p = (struct import_plan){0};
}
