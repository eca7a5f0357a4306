/* retrieval/extract/front_matter_toml.c: see front_matter_toml.h. A subset that is read leniently:
 * what is no TOML is a text, as it stands. */
#include "retrieval/extract/front_matter_toml.h"

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "config/json/json_value.h"

struct toml_reader {
    struct text_span text;
    size_t at;
    struct json_writer *w;
};

static char peek(const struct toml_reader *reader) {
    return reader->at < reader->text.size ? reader->text.text[reader->at] : '\0';
}

static bool has_more(const struct toml_reader *reader) { return reader->at < reader->text.size; }

static void skip_blanks(struct toml_reader *reader) {
    while (has_more(reader) && (peek(reader) == ' ' || peek(reader) == '\t')) reader->at++;
}

static void skip_line(struct toml_reader *reader) {
    while (has_more(reader) && peek(reader) != '\n') reader->at++;
    if (has_more(reader)) reader->at++;
}

/* Blanks, ends of lines and comments, as they stand between the items of a list. */
static void skip_space(struct toml_reader *reader) {
    while (has_more(reader) && (is_blank(peek(reader)) || peek(reader) == '#')) {
        if (peek(reader) == '#')
            skip_line(reader);
        else
            reader->at++;
    }
}

static bool starts_here(const struct toml_reader *reader, const char *what) {
    struct text_span rest = {reader->text.text + reader->at, reader->text.size - reader->at};
    return span_starts_with(rest, what);
}

/* A text between quotes of three, which may have several lines. */
static struct text_span read_long(struct toml_reader *reader, char quote) {
    const char three[] = {quote, quote, quote, '\0'};
    reader->at += 3;
    if (peek(reader) == '\n') reader->at++;
    size_t start = reader->at;
    while (has_more(reader) && !starts_here(reader, three)) reader->at++;
    struct text_span text = {reader->text.text + start, reader->at - start};
    if (has_more(reader)) reader->at += 3;
    return text;
}

/* Up to the quote that ends it, or the end of the line. */
static struct text_span read_short(struct toml_reader *reader, char quote) {
    reader->at++;
    size_t start = reader->at;
    while (has_more(reader) && peek(reader) != quote && peek(reader) != '\n') {
        bool escaped = quote == '"' && peek(reader) == '\\';
        reader->at += escaped && reader->at + 1 < reader->text.size ? 2 : 1;
    }
    struct text_span text = {reader->text.text + start, reader->at - start};
    if (peek(reader) == quote) reader->at++;
    return text;
}

/* Escapes are JSON's; a text with others stays as it stands. */
static void put_escaped(struct json_writer *w, struct text_span text) {
    struct buffer quoted = {0};
    struct error ignored;
    struct json *value;
    buffer_printf(&quoted, "\"");
    buffer_append(&quoted, text.text, text.size);
    buffer_printf(&quoted, "\"");
    if (memchr(text.text, '\\', text.size) &&
        json_parse_any(&value, (struct text_span){quoted.data, quoted.size}, "value", &ignored) ==
            STATUS_OK) {
        if (json_is_text(value))
            put_json(w, value);
        else
            put_string_n(w, text.text, text.size);
        json_close(value);
    } else {
        put_string_n(w, text.text, text.size);
    }
    buffer_free(&quoted);
}

static void put_quoted(struct toml_reader *reader) {
    char quote = peek(reader);
    const char three[] = {quote, quote, quote, '\0'};
    bool is_long = starts_here(reader, three);
    struct text_span text = is_long ? read_long(reader, quote) : read_short(reader, quote);
    if (quote == '"')
        put_escaped(reader->w, text);
    else
        put_string_n(reader->w, text.text, text.size);
}

/* Up to a comment, the end of the line or one of these. */
static void put_bare(struct toml_reader *reader, const char *ends) {
    size_t start = reader->at;
    while (has_more(reader) && peek(reader) != '\n' && peek(reader) != '#' &&
           !strchr(ends, peek(reader)))
        reader->at++;
    struct text_span text = {reader->text.text + start, reader->at - start};
    while (text.size > 0 && is_blank(text.text[text.size - 1])) text.size--;
    front_matter_put(reader->w, text, text.size > 0);
}

/* A list within a list, or a table: passed over, brackets and quotes counted. */
static void skip_nested(struct toml_reader *reader) {
    int depth = 0;
    do {
        char c = peek(reader);
        if (c == '"' || c == '\'') {
            read_short(reader, c);
            continue;
        }
        depth += c == '[' || c == '{';
        depth -= c == ']' || c == '}';
        reader->at++;
    } while (depth > 0 && has_more(reader));
}

static void put_list(struct toml_reader *reader) {
    put_array(reader->w);
    reader->at++;
    skip_space(reader);
    while (has_more(reader) && peek(reader) != ']') {
        size_t before = reader->at;
        if (peek(reader) == '"' || peek(reader) == '\'')
            put_quoted(reader);
        else if (peek(reader) == '[' || peek(reader) == '{')
            skip_nested(reader);
        else if (peek(reader) != ',')
            put_bare(reader, ",]");
        skip_space(reader);
        if (peek(reader) == ',' || reader->at == before) reader->at++;
        skip_space(reader);
    }
    if (has_more(reader)) reader->at++;
    put_array_end(reader->w);
}

static void put_value(struct toml_reader *reader) {
    char c = peek(reader);
    if (c == '"' || c == '\'') {
        put_quoted(reader);
    } else if (c == '[') {
        put_list(reader);
    } else if (c == '{') {
        skip_nested(reader);
        put_array(reader->w);
        put_array_end(reader->w);
    } else {
        put_bare(reader, "");
    }
}

/* A name that no filter could say is none. */
static bool is_name(struct text_span name) {
    return name.size > 0 && utf8_is_valid(name.text, name.size) &&
           memmem(name.text, name.size, "\xef\xbf\xbd", 3) == NULL;
}

/* Bare, or in quotes; up to "=" on this line. */
static struct text_span read_name(struct toml_reader *reader) {
    struct text_span name;
    if (peek(reader) == '"' || peek(reader) == '\'') {
        name = read_short(reader, peek(reader));
    } else {
        size_t start = reader->at;
        while (has_more(reader) && peek(reader) != '=' && peek(reader) != '\n') reader->at++;
        name = (struct text_span){reader->text.text + start, reader->at - start};
        while (name.size > 0 && is_blank(name.text[name.size - 1])) name.size--;
    }
    skip_blanks(reader);
    return name;
}

/* A value that nobody wants is read all the same, to find its end. */
static void skip_value(struct toml_reader *reader) {
    struct buffer unwanted = {0};
    struct json_writer w, *wanted = reader->w;
    put_begin(&w, &unwanted);
    reader->w = &w;
    put_value(reader);
    reader->w = wanted;
    buffer_free(&unwanted);
}

void front_matter_read_toml(struct text_span text, struct json_writer *w, front_matter_begin *begin,
                            void *context) {
    struct toml_reader reader = {.text = text, .w = w};
    skip_space(&reader);
    while (has_more(&reader) && peek(&reader) != '[') {
        struct text_span name = read_name(&reader);
        if (peek(&reader) == '=') {
            reader.at++;
            skip_blanks(&reader);
            if (is_name(name) && begin(context, name))
                put_value(&reader);
            else
                skip_value(&reader);
        }
        skip_line(&reader);
        skip_space(&reader);
    }
}
