/* tools/eval/eval_options.c: the options of retro-eval's sub-commands (eval.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/eval/eval.h"

/* Options of every sub-command. */
static const char config_option[] = "--config", set_option[] = "--set";

static const struct eval_option *find(const struct eval_option *options, const char *name) {
    for (; options->name; options++)
        if (strcmp(options->name, name) == 0) return options;
    return NULL;
}

static enum status read_number(const char *name, const char *text, float *value, struct error *e) {
    char *end;
    *value = strtof(text, &end);
    if (end != text && *end == '\0' && isfinite(*value) && *value >= 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s %s: must be a number >= 0", name, text);
}

static enum status read_value(const struct eval_option *option, const char *text, struct error *e) {
    long long number;
    switch (option->kind) {
        case EVAL_OPTION_TEXT: *(const char **)option->to = text; return STATUS_OK;
        case EVAL_OPTION_COUNT:
            if (usage_number(option->name, text, 2, 1 << 30, &number, e)) return e->status;
            *(int *)option->to = (int)number;
            return STATUS_OK;
        case EVAL_OPTION_SEED:
            if (usage_number(option->name, text, 0, INT64_MAX, &number, e)) return e->status;
            *(uint64_t *)option->to = (uint64_t)number;
            return STATUS_OK;
        case EVAL_OPTION_NUMBER: return read_number(option->name, text, option->to, e);
        case EVAL_OPTION_FLAG: *(bool *)option->to = true; return STATUS_OK;
    }
    return STATUS_OK;
}

static void print_help(const struct usage *self, const struct eval_option *options) {
    usage_print(stdout, "retro-eval", self);
    for (; options->name; options++)
        usage_option(stdout, options->name, options->value, options->help);
    usage_option(stdout, config_option, "FILE", "a configuration (docs/config.md)");
    usage_option(stdout, set_option, "KEY=VALUE", "sets one option; the last one wins");
}

int eval_parse(const struct usage *self, int argc, char **argv, const struct eval_option *options,
               struct config *config, struct error *e) {
    int i = 0;
    while (i < argc && strncmp(argv[i], "--", 2) == 0) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        const struct eval_option *option = find(options, name);
        bool is_config = strcmp(name, config_option) == 0, is_set = strcmp(name, set_option) == 0;
        bool flag = option && option->kind == EVAL_OPTION_FLAG;
        enum status status;
        if (strcmp(name, "--help") == 0) {
            print_help(self, options);
            return EVAL_HELPED;
        }
        if (!option && !is_config && !is_set)
            status = error_set(e, STATUS_INVALID, "%s: unknown option; --help lists them", name);
        else if (!flag && value == NULL)
            status = error_set(e, STATUS_INVALID, "%s needs a value", name);
        else if (option)
            status = read_value(option, value, e);
        else
            status = is_config ? config_read(config, value, e) : config_set(config, value, e);
        if (status) return EVAL_FAILED;
        i += flag ? 1 : 2;
    }
    return i;
}
