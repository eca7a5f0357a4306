/* tools/import/formats/yaml.c: configurations in YAML. See yaml.h. */
#include "tools/import/formats/yaml.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 16, LINE_LIMIT = 4096 };

/* Maps that are open. */
struct yaml_stack {
    int indents[DEPTH_LIMIT]; /* of their keys */
    size_t ends[DEPTH_LIMIT]; /* of their names in the path */
    int n;
    struct buffer path; /* "outer.inner." */
};

static struct text_span trim(struct text_span s) {
    while (s.size > 0 && (s.text[0] == ' ' || s.text[0] == '\t')) s = (struct text_span){s.text + 1, s.size - 1};
    while (s.size > 0 && strchr(" \t\r", s.text[s.size - 1])) s.size--;
    return s;
}

static bool span_is(struct text_span s, const char *text) {
    return s.size == strlen(text) && memcmp(s.text, text, s.size) == 0;
}

static struct text_span unquote(struct text_span s) {
    bool quoted = s.size >= 2 && (s.text[0] == '"' || s.text[0] == '\'') && s.text[s.size - 1] == s.text[0];
    return quoted ? (struct text_span){s.text + 1, s.size - 2} : s;
}

static void put_value(struct settings *s, const char *name, struct text_span value) {
    char text[64], *end;
    struct text_span plain = unquote(value);
    if (plain.size != value.size || value.size >= sizeof text) {
        settings_put_text(s, name, plain);
        return;
    }
    memcpy(text, value.text, value.size);
    text[value.size] = '\0';
    if (strcmp(text, "true") == 0 || strcmp(text, "True") == 0) return settings_put_bool(s, name, true);
    if (strcmp(text, "false") == 0 || strcmp(text, "False") == 0) return settings_put_bool(s, name, false);
    if (strcmp(text, "null") == 0 || strcmp(text, "~") == 0) return;
    long long number = strtoll(text, &end, 10);
    if (*end == '\0') return settings_put_int(s, name, number);
    double real = strtod(text, &end);
    if (*end == '\0') return settings_put_real(s, name, real);
    settings_put_text(s, name, value);
}

/* The colon behind a key; NULL: the line is no member of a map. */
static const char *find_colon(struct text_span line) {
    for (size_t i = 0; i < line.size; i++)
        if (line.text[i] == ':' && (i + 1 == line.size || line.text[i + 1] == ' ')) return line.text + i;
    return NULL;
}

static void read_line(struct settings *s, struct yaml_stack *stack, struct text_span line) {
    size_t indent = 0;
    while (indent < line.size && line.text[indent] == ' ') indent++;
    struct text_span rest = trim(line);
    if (rest.size == 0 || rest.text[0] == '#' || rest.text[0] == '-' || line.size > LINE_LIMIT) return;
    while (stack->n > 0 && stack->indents[stack->n - 1] >= (int)indent) stack->n--;
    stack->path.size = stack->n > 0 ? stack->ends[stack->n - 1] : 0;
    const char *colon = find_colon(rest);
    if (colon == NULL) return;

    struct text_span key = unquote(trim((struct text_span){rest.text, (size_t)(colon - rest.text)}));
    struct text_span value = trim((struct text_span){colon + 1, (size_t)(rest.text + rest.size - colon - 1)});
    const char *comment = memmem(value.text, value.size, " #", 2);
    if (comment) value = trim((struct text_span){value.text, (size_t)(comment - value.text)});
    if (memchr(key.text, '\0', key.size)) return;
    buffer_append(&stack->path, key.text, key.size);
    buffer_append(&stack->path, "", 0);
    stack->path.data[stack->path.size] = '\0';
    bool opens = value.size == 0;
    bool passed = !opens && (strchr("[{|>&*!", value.text[0]) != NULL || span_is(value, "{}"));
    if (!opens && !passed) put_value(s, stack->path.data, value);
    if (stack->n == DEPTH_LIMIT) return;
    buffer_append_string(&stack->path, ".");
    stack->indents[stack->n] = (int)indent;
    stack->ends[stack->n] = stack->path.size;
    stack->n++;
}

void yaml_read(struct settings *s, struct text_span text) {
    struct yaml_stack stack = {.n = 0};
    const char *end = text.text + text.size;
    for (const char *at = text.text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline ? newline : end;
        read_line(s, &stack, (struct text_span){at, (size_t)(line_end - at)});
        at = line_end + 1;
    }
    buffer_free(&stack.path);
}
