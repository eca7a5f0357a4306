/* tools/convert/plan/import.c: an import from its beginning to its end. See import.h. */
#include "tools/convert/plan/import.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

/* Where there is room for weights: where the folder will lie. An inspection takes the system's
 * place for large temporary files. */
static char *find_scratch(const struct import_options *options) {
    const char *temporary = getenv("TMPDIR");
    if (options->to == NULL || options->inspect)
        return xstrdup(temporary && temporary[0] ? temporary : "/var/tmp");
    char *copy = xstrdup(options->to), *folder = xstrdup(dirname(copy));
    free(copy);
    return folder;
}

static enum status plan(struct import_plan *import_plan, const struct import_options *options,
                        struct error *e) {
    import_plan->scratch = find_scratch(options);
    if (checkpoint_open(&import_plan->checkpoint, options->from, import_plan->scratch, e) ||
        import_read_given(import_plan, options, e) || import_rename(import_plan, e))
        return e->status;
    if (!import_plan->pictures &&
        (import_find_layers(import_plan, options, e) || import_configure(import_plan, options, e)))
        return e->status;
    if (import_plan->pictures && import_describe_language(import_plan, options, e))
        return e->status;
    if (import_plan->missing.size > 0 && !options->inspect)
        return error_set(e, STATUS_INVALID,
                         "%s does not say %s: a JSON file of these keys is given by --config",
                         import_plan->checkpoint->folder, import_plan->missing.data);
    enum status status = import_plan->pictures ? import_match_pictures(import_plan, e)
                                               : import_match(import_plan, e);
    if (status == STATUS_OK || options->inspect) import_report(import_plan);
    if (status && import_plan->missing.size > 0)
        return STATUS_OK; /* shapes follow from what is missing, which was said */
    return status ? status : import_choose_types(import_plan, options, e);
}

enum status import_open(struct import_plan *import_plan, const struct import_options *options,
                        struct error *e) {
    *import_plan = (struct import_plan){0};
    enum status status = plan(import_plan, options, e);
    if (status) import_close(import_plan);
    return status;
}

void import_close(struct import_plan *plan) {
    for (int i = 0; i < plan->n; i++) free(plan->targets[i].name);
    free(plan->targets);
    free(plan->cross);
    settings_free(&plan->given);
    settings_free(&plan->config);
    buffer_free(&plan->missing);
    checkpoint_close(plan->checkpoint);
    free(plan->scratch);
    *plan = (struct import_plan){0};
}
