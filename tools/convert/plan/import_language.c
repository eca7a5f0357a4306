/* tools/convert/plan/import_language.c: the language model of a LLaVA, which its checkpoint's
 * arguments and tensors describe as they do a GPT alone: where --config leaves it out, "language"
 * of config.json is made of them. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "tools/convert/plan/import_keys.h"

static const char prefix[] = "language_model.", part[] = "language.";

static bool has_part(const struct settings *given, const char *name) {
    for (int i = 0; i < given->n; i++)
        if (starts_with(given->list[i].name, name)) return true;
    return false;
}

/* Takes the keys of the language model that --config has. */
static void take_given(struct settings *to, const struct settings *given) {
    for (int i = 0; i < given->n; i++)
        if (starts_with(given->list[i].name, part))
            settings_copy(to, given->list[i].name + strlen(part), &given->list[i]);
}

/* The tensors of the language model by their names in it; names and pieces stay the checkpoint's.
 */
static struct checkpoint view_language(const struct checkpoint *checkpoint) {
    struct checkpoint view = *checkpoint;
    view.n = 0;
    view.tensors = xcalloc((size_t)checkpoint->n + 1, sizeof *view.tensors);
    for (int i = 0; i < checkpoint->n; i++) {
        if (!starts_with(checkpoint->tensors[i].name, prefix)) continue;
        view.tensors[view.n] = checkpoint->tensors[i];
        view.tensors[view.n].name += strlen(prefix);
        view.n++;
    }
    return view;
}

static void keep_description(struct import_plan *plan, const struct import_plan *language) {
    for (int i = 0; i < language->config.n; i++) {
        const struct setting *setting = &language->config.list[i];
        struct buffer name = {0};
        buffer_printf(&name, "%s%s", part, setting->name);
        settings_copy(&plan->config, name.data, setting);
        if (setting->origin) settings_say(&plan->config, name.data, setting->origin);
        settings_copy(&plan->given, name.data, setting);
        buffer_free(&name);
    }
    if (language->missing.size > 0)
        buffer_printf(&plan->missing, "%sof \"language\": %s", plan->missing.size ? ", " : "",
                      language->missing.data);
}

static enum status describe(struct import_plan *plan, const struct import_options *import_options,
                            struct error *e) {
    struct checkpoint view = view_language(plan->checkpoint);
    struct import_plan language = {.checkpoint = &view, .scratch = plan->scratch};
    struct import_options options = {.from = import_options->from,
                                     .tokenizer = import_options->tokenizer};
    take_given(&language.given, &plan->given);
    enum status status = import_check_given(&language, e);
    if (status == STATUS_OK) status = import_find_layers(&language, &options, e);
    if (status == STATUS_OK) status = import_configure(&language, &options, e);
    if (status == STATUS_OK) keep_description(plan, &language);
    free(language.cross);
    settings_free(&language.given);
    settings_free(&language.config);
    buffer_free(&language.missing);
    free(view.tensors);
    return status ? error_prefix(e, "the language model") : STATUS_OK;
}

enum status import_describe_language(struct import_plan *plan, const struct import_options *options,
                                     struct error *e) {
    const char *named = settings_text(&plan->given, "architecture");
    if (strcmp(named, "llava") != 0) return STATUS_OK;
    bool vision = has_part(&plan->given, "vision."),
         projector = has_part(&plan->given, "projector.");
    if (!vision || !projector)
        return error_set(
            e, STATUS_INVALID,
            "--config: a llava has the objects \"language\", \"vision\" and \"projector\"; %s%s%s "
            "missing. "
            "Only \"language\" may be left out, where the checkpoint's arguments say it",
            vision ? "" : "\"vision\"", vision || projector ? "" : " and ",
            projector ? " is"
            : vision  ? "\"projector\" is"
                      : "\"projector\" are");
    bool whole = settings_find(&plan->given, "language.num_layers") &&
                 settings_find(&plan->given, "language.hidden_size");
    return whole ? STATUS_OK : describe(plan, options, e);
}
