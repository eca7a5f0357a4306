/* retro/template/methods_text.c: the methods of strings, as Python has them. */
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

static const struct template_string *self_text(const struct bound_call *c) { return c->self.string; }

/* A method of a text marked as safe would give another such text. */
static void need_plain(struct template_run *r, const struct bound_call *c) {
    if (c->self.string->safe) run_refuse(r, "the method %s of a text marked as safe", c->row->name);
}

static struct value self_strip(struct template_run *r, const struct bound_call *c, bool left, bool right) {
    need_plain(r, c);
    return value_string(string_strip(r->m, self_text(c), argument_text(r, c, 0), left, right));
}
static struct value text_strip(struct template_run *r, const struct bound_call *c) {
    return self_strip(r, c, true, true);
}
static struct value text_lstrip(struct template_run *r, const struct bound_call *c) {
    return self_strip(r, c, true, false);
}
static struct value text_rstrip(struct template_run *r, const struct bound_call *c) {
    return self_strip(r, c, false, true);
}

/* Splitting. */

static void append_part(struct template_run *r, struct value list, const struct template_string *s, size_t from,
                        size_t to) {
    list_append(r, list, value_string(string_part(r->m, s, from, to)));
}

static size_t next_space(const struct template_string *s, size_t at, bool space) {
    while (at < s->size) {
        int32_t c;
        int n = utf8_read(s->text + at, s->size - at, &c);
        if (python_is_space(c) == space) break;
        at += (size_t)n;
    }
    return at;
}

static struct value split_spaces(struct template_run *r, const struct template_string *s, int64_t most) {
    struct value list = value_list(r, LIST_PLAIN);
    for (size_t at = next_space(s, 0, false); at < s->size;) {
        size_t end = next_space(s, at, true);
        if (most == 0) {
            append_part(r, list, s, at, s->size);
            return list;
        }
        append_part(r, list, s, at, end);
        at = next_space(s, end, false);
        most--;
    }
    return list;
}

static size_t start_of_word(const struct template_string *s, size_t end, bool space) {
    while (end > 0) {
        size_t at = end - 1;
        int32_t c;
        while (at > 0 && (s->text[at] & 0xC0) == 0x80) at--;
        utf8_read(s->text + at, end - at, &c);
        if (python_is_space(c) != space) break;
        end = at;
    }
    return end;
}

static struct value list_reverse(struct value list) {
    for (int i = 0, j = list.list->n - 1; i < j; i++, j--) {
        struct value item = list.list->items[i];
        list.list->items[i] = list.list->items[j];
        list.list->items[j] = item;
    }
    return list;
}

static struct value rsplit_spaces(struct template_run *r, const struct template_string *s, int64_t most) {
    struct value list = value_list(r, LIST_PLAIN);
    for (size_t end = start_of_word(s, s->size, true); end > 0; most--) {
        if (most == 0) {
            append_part(r, list, s, 0, end);
            break;
        }
        size_t at = start_of_word(s, end, false);
        append_part(r, list, s, at, end);
        end = start_of_word(s, at, true);
    }
    return list_reverse(list);
}

static const struct template_string *separator_read(struct template_run *r, const struct bound_call *c) {
    const struct template_string *by = argument_text(r, c, 0);
    if (by && by->size == 0) run_fail(r, "empty separator");
    need_plain(r, c);
    return by;
}

static struct value text_split(struct template_run *r, const struct bound_call *c) {
    const struct template_string *s = self_text(c), *by = separator_read(r, c);
    int64_t most = argument_int(r, c, 1, -1);
    if (by == NULL) return split_spaces(r, s, most);
    struct value list = value_list(r, LIST_PLAIN);
    size_t at = 0;
    for (size_t end; most != 0 && (end = string_find(s, by, at)) != SIZE_MAX; most--) {
        append_part(r, list, s, at, end);
        at = end + by->size;
    }
    append_part(r, list, s, at, s->size);
    return list;
}

/* The last place that ends at or before `end`, or SIZE_MAX. */
static size_t find_last(const struct template_string *s, const struct template_string *what, size_t from, size_t end) {
    if (what->size > end) return SIZE_MAX;
    for (size_t at = end - what->size + 1; at-- > from;)
        if (memcmp(s->text + at, what->text, what->size) == 0) return at;
    return SIZE_MAX;
}

static struct value text_rsplit(struct template_run *r, const struct bound_call *c) {
    const struct template_string *s = self_text(c), *by = separator_read(r, c);
    int64_t most = argument_int(r, c, 1, -1);
    if (by == NULL) return rsplit_spaces(r, s, most);
    struct value list = value_list(r, LIST_PLAIN);
    size_t end = s->size;
    for (size_t at; most != 0 && (at = find_last(s, by, 0, end)) != SIZE_MAX; most--) {
        append_part(r, list, s, at + by->size, end);
        end = at;
        run_step(r, 1);
    }
    append_part(r, list, s, 0, end);
    return list_reverse(list);
}

static bool ends_line(int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static struct value text_splitlines(struct template_run *r, const struct bound_call *c) {
    const struct template_string *s = self_text(c);
    bool keep = argument_bool(r, c, 0, false);
    struct value list = value_list(r, LIST_PLAIN);
    size_t start = 0;
    need_plain(r, c);
    for (size_t at = 0, n; at < s->size; at += n) {
        int32_t character;
        n = (size_t)utf8_read(s->text + at, s->size - at, &character);
        if (!ends_line(character)) continue;
        if (character == '\r' && at + 1 < s->size && s->text[at + 1] == '\n') n = 2;
        append_part(r, list, s, start, keep ? at + n : at);
        start = at + n;
    }
    if (start < s->size) append_part(r, list, s, start, s->size);
    return list;
}

static struct value partition_make(struct template_run *r, const struct bound_call *c, bool last) {
    const struct template_string *s = self_text(c), *by = separator_read(r, c);
    struct value parts = value_list(r, LIST_TUPLE);
    if (by == NULL) run_fail(r, "%s needs a string", c->row->name);
    size_t at = last ? find_last(s, by, 0, s->size) : string_find(s, by, 0);
    bool found = at != SIZE_MAX;
    if (!found && last) {
        list_append(r, parts, value_words(r, ""));
        list_append(r, parts, value_words(r, ""));
    }
    append_part(r, parts, s, 0, found ? at : s->size);
    if (found) {
        append_part(r, parts, s, at, at + by->size);
        append_part(r, parts, s, at + by->size, s->size);
    } else if (!last) {
        list_append(r, parts, value_words(r, ""));
        list_append(r, parts, value_words(r, ""));
    }
    return parts;
}
static struct value text_partition(struct template_run *r, const struct bound_call *c) {
    return partition_make(r, c, false);
}
static struct value text_rpartition(struct template_run *r, const struct bound_call *c) {
    return partition_make(r, c, true);
}

/* Searching. */

/* s[start:end] in bytes, from the arguments behind the first. */
static struct template_string window_read(struct template_run *r, const struct bound_call *c, size_t *from) {
    const struct template_string *s = self_text(c);
    int64_t n = string_length(s), bounds[2] = {0, n};
    for (int i = 0; i < 2; i++) {
        if (c->args[i + 1].kind == VALUE_ABSENT || c->args[i + 1].kind == VALUE_NONE) continue;
        int64_t at = argument_int(r, c, i + 1, 0);
        if (at < 0) at = at < -n ? 0 : at + n;
        bounds[i] = at > n ? n + (i == 0 && at > n) : at;
    }
    size_t start = string_offset(s, bounds[0]), end = string_offset(s, bounds[1]);
    *from = start;
    if (bounds[0] > bounds[1]) return (struct template_string){.text = NULL};
    return (struct template_string){.text = s->text + start, .size = end - start};
}

static bool affix_matches(const struct template_string *s, const struct template_string *affix, bool end) {
    if (affix->size > s->size) return false;
    return memcmp(end ? s->text + s->size - affix->size : s->text, affix->text, affix->size) == 0;
}

static struct value has_affix(struct template_run *r, const struct bound_call *c, bool end) {
    size_t from;
    struct template_string s = window_read(r, c, &from);
    struct value affixes = c->args[0];
    if (affixes.kind == VALUE_STRING) return value_bool(s.text && affix_matches(&s, affixes.string, end));
    if (affixes.kind != VALUE_LIST || affixes.list->type != LIST_TUPLE)
        run_fail(r, "%s first arg must be str or a tuple of str, not %s", c->row->name, value_type(affixes));
    for (int i = 0; i < affixes.list->n; i++) {
        if (affixes.list->items[i].kind != VALUE_STRING)
            run_fail(r, "tuple for %s must only contain str", c->row->name);
        if (s.text && affix_matches(&s, affixes.list->items[i].string, end)) return value_bool(true);
    }
    return value_bool(false);
}
static struct value text_startswith(struct template_run *r, const struct bound_call *c) {
    return has_affix(r, c, false);
}
static struct value text_endswith(struct template_run *r, const struct bound_call *c) { return has_affix(r, c, true); }

static const struct template_string *needed_text(struct template_run *r, const struct bound_call *c, int i) {
    const struct template_string *s = argument_text(r, c, i);
    if (s == NULL) run_fail(r, "%s: argument %d must be str, not None", c->row->name, i + 1);
    return s;
}

static struct value remove_affix(struct template_run *r, const struct bound_call *c, bool end) {
    const struct template_string *s = self_text(c), *affix = needed_text(r, c, 0);
    need_plain(r, c);
    if (!affix_matches(s, affix, end)) return c->self;
    size_t from = end ? 0 : affix->size;
    return value_string(string_part(r->m, s, from, from + s->size - affix->size));
}
static struct value text_removeprefix(struct template_run *r, const struct bound_call *c) {
    return remove_affix(r, c, false);
}
static struct value text_removesuffix(struct template_run *r, const struct bound_call *c) {
    return remove_affix(r, c, true);
}

static int64_t place_find(struct template_run *r, const struct bound_call *c, bool last) {
    const struct template_string *what = needed_text(r, c, 0);
    size_t from;
    struct template_string s = window_read(r, c, &from);
    if (s.text == NULL) return -1;
    size_t at = last ? find_last(&s, what, 0, s.size) : string_find(&s, what, 0);
    if (at == SIZE_MAX) return -1;
    return string_length(&(struct template_string){.text = self_text(c)->text, .size = from + at});
}
static struct value text_find(struct template_run *r, const struct bound_call *c) {
    return value_int(place_find(r, c, false));
}
static struct value text_rfind(struct template_run *r, const struct bound_call *c) {
    return value_int(place_find(r, c, true));
}
static struct value found_place(struct template_run *r, int64_t at) {
    if (at < 0) run_fail(r, "substring not found");
    return value_int(at);
}
static struct value text_index(struct template_run *r, const struct bound_call *c) {
    return found_place(r, place_find(r, c, false));
}
static struct value text_rindex(struct template_run *r, const struct bound_call *c) {
    return found_place(r, place_find(r, c, true));
}

static struct value text_count(struct template_run *r, const struct bound_call *c) {
    const struct template_string *what = needed_text(r, c, 0);
    size_t from;
    struct template_string s = window_read(r, c, &from);
    int64_t n = 0;
    if (s.text == NULL) return value_int(0);
    if (what->size == 0) return value_int(string_length(&s) + 1);
    for (size_t at = 0; (at = string_find(&s, what, at)) != SIZE_MAX; at += what->size) n++;
    return value_int(n);
}

/* Making others. */

const struct template_string *string_replace(struct template_run *r, const struct template_string *s,
                                             const struct template_string *parts[2], int64_t count) {
    struct text_builder b = {.m = r->m};
    size_t at = 0;
    for (size_t found; count != 0 && (found = string_find(s, parts[0], at)) != SIZE_MAX; count--) {
        run_step(r, 1);
        builder_part(&b, s, at, found);
        builder_add(&b, parts[1]);
        at = found + parts[0]->size;
        if (parts[0]->size > 0) continue;
        if (at == s->size) return builder_string(&b);
        size_t n = (size_t)utf8_length(s->text + at, s->size - at);
        builder_part(&b, s, at, at + n);
        at += n;
    }
    builder_part(&b, s, at, s->size);
    return builder_string(&b);
}

static struct value text_replace(struct template_run *r, const struct bound_call *c) {
    const struct template_string *parts[2] = {needed_text(r, c, 0), needed_text(r, c, 1)};
    need_plain(r, c);
    return value_string(string_replace(r, self_text(c), parts, argument_int(r, c, 2, -1)));
}

static struct value text_join(struct template_run *r, const struct bound_call *c) {
    const struct template_list *items = value_items(r, c->args[0]);
    struct text_builder b = {.m = r->m};
    need_plain(r, c);
    for (int i = 0; i < items->n; i++) {
        if (items->items[i].kind != VALUE_STRING)
            run_fail(r, "sequence item %d: expected str instance, %s found", i, value_type(items->items[i]));
        if (i > 0) builder_add(&b, self_text(c));
        builder_add(&b, items->items[i].string);
    }
    return value_string(builder_string(&b));
}

static struct value text_format(struct template_run *r, const struct bound_call *c) {
    need_plain(r, c);
    return value_string(format_braces(r, self_text(c), c->all));
}

/* Fills up to a width: what goes left and what goes right of the text. */
static struct value text_pad(struct template_run *r, const struct bound_call *c, int left_share) {
    const struct template_string *fill = argument_text(r, c, 1), *s = self_text(c);
    int64_t width = argument_int(r, c, 0, 0), missing = width - string_length(s);
    struct text_builder b = {.m = r->m};
    need_plain(r, c);
    if (fill && string_length(fill) != 1) run_fail(r, "The fill character must be exactly one character long");
    if (fill == NULL) fill = value_words(r, " ").string;
    if (missing <= 0) return c->self;
    int64_t left = left_share == 0 ? 0 : left_share == 2 ? missing : missing / 2 + (missing & width & 1);
    for (int64_t i = 0; i < missing; i++) {
        run_step(r, 1);
        if (i == left) builder_add(&b, s);
        builder_add(&b, fill);
    }
    if (left == missing) builder_add(&b, s);
    return value_string(builder_string(&b));
}
static struct value text_ljust(struct template_run *r, const struct bound_call *c) { return text_pad(r, c, 0); }
static struct value text_rjust(struct template_run *r, const struct bound_call *c) { return text_pad(r, c, 2); }
static struct value text_center(struct template_run *r, const struct bound_call *c) { return text_pad(r, c, 1); }

static struct value text_zfill(struct template_run *r, const struct bound_call *c) {
    const struct template_string *s = self_text(c);
    int64_t missing = argument_int(r, c, 0, 0) - string_length(s);
    struct text_builder b = {.m = r->m};
    size_t sign = s->size > 0 && (s->text[0] == '+' || s->text[0] == '-') ? 1 : 0;
    need_plain(r, c);
    builder_part(&b, s, 0, sign);
    for (int64_t i = 0; i < missing; i++) {
        run_step(r, 1);
        builder_words(&b, "0");
    }
    builder_part(&b, s, sign, s->size);
    return value_string(builder_string(&b));
}

static const struct call_row rows[] = {
    {"strip", text_strip, "chars /", 0},
    {"lstrip", text_lstrip, "chars /", 0},
    {"rstrip", text_rstrip, "chars /", 0},
    {"split", text_split, "sep maxsplit", 0},
    {"rsplit", text_rsplit, "sep maxsplit", 0},
    {"splitlines", text_splitlines, "keepends", 0},
    {"partition", text_partition, "sep /", 1},
    {"rpartition", text_rpartition, "sep /", 1},
    {"startswith", text_startswith, "prefix start end /", 1},
    {"endswith", text_endswith, "suffix start end /", 1},
    {"removeprefix", text_removeprefix, "prefix /", 1},
    {"removesuffix", text_removesuffix, "suffix /", 1},
    {"find", text_find, "sub start end /", 1},
    {"rfind", text_rfind, "sub start end /", 1},
    {"index", text_index, "sub start end /", 1},
    {"rindex", text_rindex, "sub start end /", 1},
    {"count", text_count, "sub start end /", 1},
    {"replace", text_replace, "old new count /", 2},
    {"join", text_join, "iterable /", 1},
    {"format", text_format, "*", 0},
    {"ljust", text_ljust, "width fillchar /", 1},
    {"rjust", text_rjust, "width fillchar /", 1},
    {"center", text_center, "width fillchar /", 1},
    {"zfill", text_zfill, "width /", 1},
};
const struct call_table text_methods = {rows, ARRAY_COUNT(rows)};
