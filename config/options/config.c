/* config/options/config.c: fills struct config from a JSON file and from key=value pairs, by the option table. See
 * config.h. */
#include "config/options/config.h"

#include <stdlib.h>
#include <string.h>

#include "config/json/json.h"
#include "config/options/config_lines.h"
#include "config/options/config_table.h"

enum { CONFIG_FILE_LIMIT = 1 << 20, WHERE_SIZE = 160, FOUND_SIZE = 64 };

/* Where values come from, for messages and for relative paths. */
struct source {
    const char *text; /* the JSON text, NULL for --set */
    size_t size;
    const char *name, *base;
};

static bool *bool_field(struct config *c, const struct option *o) { return (bool *)((char *)c + o->offset); }
static int *int_field(struct config *c, const struct option *o) { return (int *)((char *)c + o->offset); }
static double *double_field(struct config *c, const struct option *o) { return (double *)((char *)c + o->offset); }
static char **string_field(struct config *c, const struct option *o) { return (char **)((char *)c + o->offset); }

static bool is_string(const struct option *o) { return o->type == OPTION_STRING || o->type == OPTION_PATH; }

static void set_string(struct config *c, const struct option *o, const char *text) {
    char **field = string_field(c, o);
    free(*field);
    *field = xstrdup(text);
}

/* The value has been checked against the option's range. */
static void set_number(struct config *c, const struct option *o, double number) {
    if (o->type == OPTION_BOOL)
        *bool_field(c, o) = number != 0;
    else if (o->type == OPTION_DOUBLE)
        *double_field(c, o) = number;
    else
        *int_field(c, o) = (int)number;
}

void config_init(struct config *c) {
    memset(c, 0, sizeof *c);
    for (int i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        if (is_string(o))
            set_string(c, o, o->text);
        else
            set_number(c, o, o->number);
    }
}

void config_free(struct config *c) {
    for (int i = 0; i < option_count; i++)
        if (is_string(&option_table[i])) free(*string_field(c, &option_table[i]));
    memset(c, 0, sizeof *c);
}

/* "retro.json:12: ", or "--set: ". */
static const char *where(const struct source *s, const char *section, const char *name, char *text) {
    int line = s->text ? config_key_line(s->text, s->size, section, name) : 0;
    if (line > 0)
        snprintf(text, WHERE_SIZE, "%.120s:%d: ", s->name, line);
    else
        snprintf(text, WHERE_SIZE, "%.120s: ", s->name);
    return text;
}

static const char *where_option(const struct source *s, const struct option *o, char *text) {
    char section[32];
    size_t size = option_section_length(o);
    snprintf(section, sizeof section, "%.*s", (int)size, o->key);
    return where(s, section, o->key + size + 1, text);
}

/* retro.json:7: server.port is 99999, allowed is 0 .. 65535 */
static enum status out_of_range(const struct source *s, const struct option *o, const char *found, struct error *e) {
    char place[WHERE_SIZE], range[128];
    return error_set(e, STATUS_INVALID, "%s%s is %s, allowed is %s", where_option(s, o, place), o->key, found,
                     option_range_text(o, range, sizeof range));
}

static enum status wrong_type(const struct source *s, const struct option *o, const char *found, struct error *e) {
    char place[WHERE_SIZE], range[128];
    bool choice = o->type == OPTION_ENUM;
    return error_set(e, STATUS_INVALID, "%s%s is %s, expected %s%s%s", where_option(s, o, place), o->key, found,
                     option_type_name(o->type), choice ? " " : "",
                     choice ? option_range_text(o, range, sizeof range) : "");
}

/* A relative path is put below `base`, unless that is empty. */
static void set_path(struct config *c, const struct option *o, const char *path, const char *base) {
    struct buffer joined = {0};
    bool relative = path[0] != '\0' && path[0] != '/' && base != NULL && base[0] != '\0';
    if (relative) buffer_printf(&joined, "%s%s", base, base[strlen(base) - 1] == '/' ? "" : "/");
    buffer_append_string(&joined, path);
    set_string(c, o, joined.data);
    buffer_free(&joined);
}

/* The value is a JSON string. A NUL would end the C string early, so that something else would be used than was said.
 */
static enum status assign_string(struct config *c, const struct option *o, const json_t *value, const struct source *s,
                                 struct error *e) {
    char place[WHERE_SIZE];
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value))
        return error_set(e, STATUS_INVALID, "%s%s holds a NUL character", where_option(s, o, place), o->key);
    if (o->type == OPTION_PATH)
        set_path(c, o, text, s->base);
    else
        set_string(c, o, text);
    return STATUS_OK;
}

/* The value is a JSON string; -1 when it is none of the option's names. */
static int name_index(const struct option *o, const json_t *value) {
    for (int i = 0; o->names[i] != NULL; i++)
        if (strlen(o->names[i]) == json_string_length(value) && strcmp(o->names[i], json_string_value(value)) == 0)
            return i;
    return -1;
}

/* One value onto one option; `found` is how a message shows the value. */
static enum status assign(struct config *c, const struct option *o, const json_t *value, const char *found,
                          const struct source *s, struct error *e) {
    double number = 0;
    switch (o->type) {
        case OPTION_BOOL:
            if (!json_is_boolean(value)) return wrong_type(s, o, found, e);
            number = json_is_true(value);
            break;
        case OPTION_INT:
            if (!json_is_integer(value)) return wrong_type(s, o, found, e);
            number = (double)json_integer_value(value);
            break;
        case OPTION_DOUBLE:
            if (!json_is_number(value)) return wrong_type(s, o, found, e);
            number = json_number_value(value);
            break;
        case OPTION_ENUM:
            if (!json_is_string(value)) return wrong_type(s, o, found, e);
            number = name_index(o, value);
            if (number < 0) return out_of_range(s, o, found, e);
            break;
        case OPTION_STRING:
        case OPTION_PATH:
            if (!json_is_string(value)) return wrong_type(s, o, found, e);
            return assign_string(c, o, value, s, e);
    }
    bool ranged = o->type == OPTION_INT || o->type == OPTION_DOUBLE;
    if (ranged && !(number >= o->min && number <= o->max)) return out_of_range(s, o, found, e);
    set_number(c, o, number);
    return STATUS_OK;
}

/* How a message shows a JSON value: short. */
static const char *found_text(const json_t *value, char *text) {
    switch (json_typeof(value)) {
        case JSON_OBJECT: return "an object";
        case JSON_ARRAY: return "a list";
        case JSON_STRING: snprintf(text, FOUND_SIZE, "\"%.*s\"", FOUND_SIZE - 3, json_string_value(value)); break;
        case JSON_INTEGER: snprintf(text, FOUND_SIZE, "%lld", (long long)json_integer_value(value)); break;
        case JSON_REAL: snprintf(text, FOUND_SIZE, "%.15g", json_real_value(value)); break;
        case JSON_TRUE: return "true";
        case JSON_FALSE: return "false";
        case JSON_NULL: return "null";
    }
    return text;
}

static enum status unknown_option(const char *place, const char *key, struct error *e) {
    const struct option *near = option_nearest(key);
    if (near == NULL) return error_set(e, STATUS_INVALID, "%sunknown option \"%.100s\"; --help lists all", place, key);
    return error_set(e, STATUS_INVALID, "%sunknown option \"%.100s\"; did you mean \"%s\"?", place, key, near->key);
}

static enum status unknown_section(const struct source *s, const char *section, struct error *e) {
    char place[WHERE_SIZE], near[32];
    where(s, section, NULL, place);
    const struct option *flat = option_find(section);
    if (flat != NULL)
        return error_set(e, STATUS_INVALID, "%s\"%s\" is written nested in a file: {\"%.*s\": {\"%s\": ...}}", place,
                         section, (int)option_section_length(flat), section, section + option_section_length(flat) + 1);
    if (section_nearest(section, near, sizeof near))
        return error_set(e, STATUS_INVALID, "%sunknown section \"%.100s\"; did you mean \"%s\"?", place, section, near);
    return error_set(e, STATUS_INVALID, "%sunknown section \"%.100s\"; --help lists all options", place, section);
}

static enum status parse_section(struct config *c, const char *section, json_t *object, const struct source *s,
                                 struct error *e) {
    char place[WHERE_SIZE], found[FOUND_SIZE];
    if (!json_is_object(object))
        return error_set(e, STATUS_INVALID, "%s%s is %s, expected an object of options", where(s, section, NULL, place),
                         section, found_text(object, found));
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        struct buffer key = {0};
        buffer_printf(&key, "%s.%s", section, name);
        const struct option *o = option_find(key.data);
        enum status status = o ? assign(c, o, value, found_text(value, found), s, e)
                               : unknown_option(where(s, section, name, place), key.data, e);
        buffer_free(&key);
        if (status) return status;
    }
    return STATUS_OK;
}

enum status config_parse(struct config *c, const char *text, size_t size, const char *name, const char *base,
                         struct error *e) {
    struct source s = {.text = text, .size = size, .name = name, .base = base};
    json_t *root = NULL;
    enum status status = json_load_text(&root, text, size, name, e);
    if (status) return status;
    if (!json_is_object(root)) status = error_set(e, STATUS_INVALID, "%s: expected an object of sections", name);
    const char *section;
    json_t *value;
    json_object_foreach(root, section, value) {
        if (status) break;
        status = section_known(section) ? parse_section(c, section, value, &s, e) : unknown_section(&s, section, e);
    }
    json_decref(root);
    return status;
}

enum status config_read(struct config *c, const char *path, struct error *e) {
    struct buffer text = {0};
    enum status status = file_read(path, CONFIG_FILE_LIMIT, &text, e);
    if (status == STATUS_OK) {
        const char *slash = strrchr(path, '/');
        char *base = xstrndup(path, slash ? (size_t)(slash - path) + 1 : 0);
        status = config_parse(c, text.data, text.size, path, base, e);
        free(base);
    }
    buffer_free(&text);
    return status;
}

/* The JSON value that the text of --set means for this option; NULL when it cannot be one. */
static json_t *value_of_text(const struct option *o, const char *text) {
    if (is_string(o) || o->type == OPTION_ENUM) return json_string(text);
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(text);
}

enum status config_set(struct config *c, const char *assignment, struct error *e) {
    const struct source s = {.name = "--set", .base = ""};
    const char *equals = strchr(assignment, '=');
    if (equals == NULL)
        return error_set(e, STATUS_INVALID, "--set: \"%.100s\" has no \"=\"; write --set retrieval.k=4", assignment);
    char *key = xstrndup(assignment, (size_t)(equals - assignment));
    const struct option *o = option_find(key);
    enum status status;
    if (o == NULL) {
        status = unknown_option("--set: ", key, e);
    } else {
        char found[FOUND_SIZE];
        json_t *value = value_of_text(o, equals + 1);
        if (value)
            status = assign(c, o, value, found_text(value, found), &s, e);
        else
            status = error_set(e, STATUS_INVALID, "--set: %s is not valid UTF-8", o->key);
        json_decref(value);
    }
    free(key);
    return status;
}

static enum status check_rendezvous(const struct config *c, struct error *e) {
    bool sockets = c->parallel.comm == CONFIG_COMM_SOCKETS, given = c->parallel.rendezvous[0] != '\0';
    int ranks = c->parallel.tensor * c->parallel.pipeline;
    if (!given && (sockets || c->parallel.rank > 0))
        return error_set(e, STATUS_INVALID, "%s needs parallel.rendezvous, a file that all ranks can read",
                         sockets ? "parallel.comm sockets" : "parallel.rank");
    if (given && !sockets && c->parallel.comm != CONFIG_COMM_AUTO && c->parallel.comm != CONFIG_COMM_NCCL)
        return error_set(e, STATUS_INVALID, "parallel.rendezvous is for parallel.comm sockets, nccl or auto");
    if (given && c->parallel.rank >= ranks)
        return error_set(e, STATUS_INVALID, "parallel.rank is %d; parallel.tensor times parallel.pipeline is %d",
                         c->parallel.rank, ranks);
    if (c->parallel.host[0] == '\0')
        return error_set(e, STATUS_INVALID, "parallel.host is empty; \"127.0.0.1\" is this machine for itself");
    return STATUS_OK;
}

enum status config_check(const struct config *c, struct error *e) {
    if (c->retrieval.k > c->retrieval.max_k)
        return error_set(e, STATUS_INVALID, "retrieval.k is %d, more than retrieval.max_k, which is %d", c->retrieval.k,
                         c->retrieval.max_k);
    if (c->model.device[0] == '\0')
        return error_set(e, STATUS_INVALID, "model.device is empty; \"cpu\" is the default");
    if (c->server.host[0] == '\0')
        return error_set(e, STATUS_INVALID, "server.host is empty; \"0.0.0.0\" listens on every address");
    return check_rendezvous(c, e);
}
