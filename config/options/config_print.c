/* config/options/config_print.c: the option table as JSON (--print-config), as text (--help) and as docs/config.md. */
#include <stdlib.h>
#include <string.h>

#include "config/options/config_table.h"

/* Fewest digits that read back as the same number, always with a point or exponent: JSON real, not integer. */
static void print_double(FILE *out, double number) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    fprintf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

/* Strings in a config are valid UTF-8: they came through the JSON library. */
static void print_string(FILE *out, const char *text) {
    fputc('"', out);
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if ((unsigned char)*p < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*p);
        else
            fputc(*p, out);
    }
    fputc('"', out);
}

static void print_value(FILE *out, const struct option *o, const struct config *c) {
    const void *field = (const char *)c + o->offset;
    switch (o->type) {
        case OPTION_BOOL: fputs(*(const bool *)field ? "true" : "false", out); break;
        case OPTION_INT: fprintf(out, "%d", *(const int *)field); break;
        case OPTION_DOUBLE: print_double(out, *(const double *)field); break;
        case OPTION_STRING:
        case OPTION_PATH: print_string(out, *(char *const *)field); break;
        case OPTION_ENUM: print_string(out, o->names[*(const int *)field]); break;
    }
}

static bool starts_section(int i) {
    if (i == 0) return true;
    size_t size = option_section_length(&option_table[i]);
    return option_section_length(&option_table[i - 1]) != size ||
           memcmp(option_table[i - 1].key, option_table[i].key, size) != 0;
}

void config_print_json(const struct config *c, FILE *out) {
    for (int i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        int size = (int)option_section_length(o);
        if (starts_section(i)) fprintf(out, "%s    \"%.*s\": {\n", i == 0 ? "{\n" : "\n    },\n", size, o->key);
        fprintf(out, "%s        \"%s\": ", starts_section(i) ? "" : ",\n", o->key + size + 1);
        print_value(out, o, c);
    }
    fputs("\n    }\n}\n", out);
}

/* "default 8080; 0 .. 65535", the right column of --help and the middle ones of the document. */
static void print_default(FILE *out, const struct option *o, const struct config *defaults) {
    if ((o->type == OPTION_STRING || o->type == OPTION_PATH) && o->text[0] == '\0')
        fputs("empty", out);
    else
        print_value(out, o, defaults);
}

void config_print_help(FILE *out) {
    struct config defaults;
    char range[128];
    config_init(&defaults);
    for (int i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        option_range_text(o, range, sizeof range);
        fprintf(out, "  %-28s %s (%s%s%s; default ", o->key, o->help, option_type_name(o->type), range[0] ? ", " : "",
                range);
        print_default(out, o, &defaults);
        fputs(")\n", out);
    }
    config_free(&defaults);
}

void config_print_markdown(FILE *out) {
    struct config defaults;
    char range[128];
    config_init(&defaults);
    fputs(
        "# Configuration\n\n"
        "Generated from the option table (`config/options/config_table.c`) by `make docs/config.md`; do not edit.\n\n"
        "Options come from a JSON file (`--config retro.json`), then from `--set section.name=value`, the last one\n"
        "wins. In the file they nest: `{\"retrieval\": {\"k\": 2}}`. `--check-config` checks them, and that the\n"
        "folders they name are what they should be, and exits; `--print-config` shows the values in effect. A\n"
        "relative path in a file is relative to the file's folder, one in `--set` to the working directory.\n",
        out);
    for (int i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        int size = (int)option_section_length(o);
        if (starts_section(i))
            fprintf(out, "\n## %.*s\n\n| option | type | default | allowed | meaning |\n|---|---|---|---|---|\n", size,
                    o->key);
        option_range_text(o, range, sizeof range);
        fprintf(out, "| `%s` | %s | `", o->key, option_type_name(o->type));
        print_default(out, o, &defaults);
        fprintf(out, "` | %s | %s |\n", range, o->help);
    }
    config_free(&defaults);
}
