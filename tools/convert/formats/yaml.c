/* tools/convert/formats/yaml.c: configurations in YAML. See yaml.h. */
#include "tools/convert/formats/yaml.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 16, LINE_LIMIT = 4096 };

/* Maps that are open. */
struct yaml_stack {
    int indents[DEPTH_LIMIT]; /* of their keys */
    size_t ends[DEPTH_LIMIT]; /* of their names in the path */
    int n;
    struct buffer path; /* "outer.inner." */
    int line;
    int anchored; /* indentation of what has an anchor and goes on, -1: nothing */
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

/* Found in a line outside quoted texts and comments. */
struct yaml_marks {
    bool anchor, alias, tag;
};

static bool starts_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

static struct yaml_marks find_marks(struct text_span line) {
    struct yaml_marks marks = {0};
    char quote = '\0', before = ' ';
    for (size_t i = 0; i < line.size; i++) {
        char c = line.text[i], next = i + 1 < line.size ? line.text[i + 1] : ' ';
        bool begins = strchr(" \t[,{", before) != NULL;
        if (quote) {
            if (c == quote) quote = '\0';
        } else if (begins && (c == '"' || c == '\'')) {
            quote = c;
        } else if (begins && c == '#') {
            break;
        } else if (begins) {
            marks.anchor = marks.anchor || (c == '&' && starts_word(next));
            marks.alias = marks.alias || (c == '*' && starts_word(next));
            marks.tag = marks.tag || (c == '!' && next != ' ');
        }
        before = c;
    }
    return marks;
}

/* "!!python/object/apply:os.system" and its like; "!!python/tuple" is a list. */
static bool makes_object(struct text_span line) {
    static const char *const makers[] = {"python/object", "python/name", "python/module"};
    for (size_t i = 0; i < ARRAY_COUNT(makers); i++)
        if (memmem(line.text, line.size, makers[i], strlen(makers[i]))) return true;
    return false;
}

static enum status check_line(struct yaml_stack *stack, struct text_span line, const char *name, struct error *e) {
    struct text_span rest = trim(line);
    struct yaml_marks marks = find_marks(line);
    int indent = (int)(rest.text - line.text);
    if (rest.size == 0) return STATUS_OK;
    bool item = rest.text[0] == '-' && indent == stack->anchored; /* a list lies as deep as its key */
    if (stack->anchored >= 0 && indent <= stack->anchored && !item) stack->anchored = -1;
    if (marks.tag && makes_object(line))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: line %d has a tag that makes an object of Python's: refused, nothing of it was run", name,
                         stack->line);
    if (marks.alias && (marks.anchor || stack->anchored >= 0))
        return error_set(e, STATUS_UNSUPPORTED,
                         "%s: line %d refers to something within what is referred to itself, by which such files grow "
                         "without bound: refused",
                         name, stack->line);
    if (marks.anchor && stack->anchored < 0) stack->anchored = indent;
    return STATUS_OK;
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
    bool passed = !opens && (strchr("[{|>&!", value.text[0]) != NULL || span_is(value, "{}"));
    if (!opens && !passed) put_value(s, stack->path.data, value);
    if (stack->n == DEPTH_LIMIT) return;
    buffer_append_string(&stack->path, ".");
    stack->indents[stack->n] = (int)indent;
    stack->ends[stack->n] = stack->path.size;
    stack->n++;
}

enum status yaml_read(struct settings *s, struct text_span text, const char *name, struct error *e) {
    struct yaml_stack stack = {.anchored = -1};
    const char *end = text.text + text.size;
    enum status status = STATUS_OK;
    for (const char *at = text.text; at < end && status == STATUS_OK;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline ? newline : end;
        struct text_span line = {at, (size_t)(line_end - at)};
        stack.line++;
        status = check_line(&stack, line, name, e);
        if (status == STATUS_OK) read_line(s, &stack, line);
        at = line_end + 1;
    }
    buffer_free(&stack.path);
    return status;
}
