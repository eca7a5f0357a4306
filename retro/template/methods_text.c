/* retro/template/methods_text.c: the methods of strings, as Python has them. */
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

static const struct template_string *self_text(const struct bound_call *call) {
    return call->self.string;
}

/* A method of a text marked as safe would give another such text. */
static void need_plain(struct template_run *run, const struct bound_call *call) {
    if (call->self.string->safe)
        run_refuse(run, "the method %s of a text marked as safe", call->row->name);
}

static struct value self_strip(struct template_run *run, const struct bound_call *call, bool left,
                               bool right) {
    need_plain(run, call);
    return value_string(
        string_strip(run->m, self_text(call), argument_text(run, call, 0), left, right));
}
static struct value text_strip(struct template_run *run, const struct bound_call *call) {
    return self_strip(run, call, true, true);
}
static struct value text_lstrip(struct template_run *run, const struct bound_call *call) {
    return self_strip(run, call, true, false);
}
static struct value text_rstrip(struct template_run *run, const struct bound_call *call) {
    return self_strip(run, call, false, true);
}

/* Splitting. */

static void append_part(struct template_run *run, struct value list,
                        const struct template_string *string, size_t from, size_t to) {
    list_append(run, list, value_string(string_part(run->m, string, from, to)));
}

static size_t next_space(const struct template_string *string, size_t at, bool space) {
    while (at < string->size) {
        int32_t c;
        int n = utf8_read(string->text + at, string->size - at, &c);
        if (python_is_space(c) == space) break;
        at += (size_t)n;
    }
    return at;
}

static struct value split_spaces(struct template_run *run, const struct template_string *string,
                                 int64_t most) {
    struct value list = value_list(run, LIST_PLAIN);
    for (size_t at = next_space(string, 0, false); at < string->size;) {
        size_t end = next_space(string, at, true);
        if (most == 0) {
            append_part(run, list, string, at, string->size);
            return list;
        }
        append_part(run, list, string, at, end);
        at = next_space(string, end, false);
        most--;
    }
    return list;
}

static size_t start_of_word(const struct template_string *string, size_t end, bool space) {
    while (end > 0) {
        size_t at = end - 1;
        int32_t c;
        while (at > 0 && (string->text[at] & 0xC0) == 0x80) at--;
        utf8_read(string->text + at, end - at, &c);
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

static struct value rsplit_spaces(struct template_run *run, const struct template_string *string,
                                  int64_t most) {
    struct value list = value_list(run, LIST_PLAIN);
    for (size_t end = start_of_word(string, string->size, true); end > 0; most--) {
        if (most == 0) {
            append_part(run, list, string, 0, end);
            break;
        }
        size_t at = start_of_word(string, end, false);
        append_part(run, list, string, at, end);
        end = start_of_word(string, at, true);
    }
    return list_reverse(list);
}

static const struct template_string *separator_read(struct template_run *run,
                                                    const struct bound_call *call) {
    const struct template_string *by = argument_text(run, call, 0);
    if (by && by->size == 0) run_fail(run, "empty separator");
    need_plain(run, call);
    return by;
}

static struct value text_split(struct template_run *run, const struct bound_call *call) {
    const struct template_string *string = self_text(call), *by = separator_read(run, call);
    int64_t most = argument_int(run, call, 1, -1);
    if (by == NULL) return split_spaces(run, string, most);
    struct value list = value_list(run, LIST_PLAIN);
    size_t at = 0;
    for (size_t end; most != 0 && (end = string_find(string, by, at)) != SIZE_MAX; most--) {
        append_part(run, list, string, at, end);
        at = end + by->size;
    }
    append_part(run, list, string, at, string->size);
    return list;
}

/* The last place that ends at or before `end`, or SIZE_MAX. */
static size_t find_last(const struct template_string *string, const struct template_string *what,
                        size_t from, size_t end) {
    if (what->size > end) return SIZE_MAX;
    for (size_t at = end - what->size + 1; at-- > from;)
        if (memcmp(string->text + at, what->text, what->size) == 0) return at;
    return SIZE_MAX;
}

static struct value text_rsplit(struct template_run *run, const struct bound_call *call) {
    const struct template_string *string = self_text(call), *by = separator_read(run, call);
    int64_t most = argument_int(run, call, 1, -1);
    if (by == NULL) return rsplit_spaces(run, string, most);
    struct value list = value_list(run, LIST_PLAIN);
    size_t end = string->size;
    for (size_t at; most != 0 && (at = find_last(string, by, 0, end)) != SIZE_MAX; most--) {
        append_part(run, list, string, at + by->size, end);
        end = at;
        run_step(run, 1);
    }
    append_part(run, list, string, 0, end);
    return list_reverse(list);
}

static bool ends_line(int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static struct value text_splitlines(struct template_run *run, const struct bound_call *call) {
    const struct template_string *string = self_text(call);
    bool keep = argument_bool(run, call, 0, false);
    struct value list = value_list(run, LIST_PLAIN);
    size_t start = 0;
    need_plain(run, call);
    for (size_t at = 0, n; at < string->size; at += n) {
        int32_t character;
        n = (size_t)utf8_read(string->text + at, string->size - at, &character);
        if (!ends_line(character)) continue;
        if (character == '\r' && at + 1 < string->size && string->text[at + 1] == '\n') n = 2;
        append_part(run, list, string, start, keep ? at + n : at);
        start = at + n;
    }
    if (start < string->size) append_part(run, list, string, start, string->size);
    return list;
}

static struct value partition_make(struct template_run *run, const struct bound_call *call,
                                   bool last) {
    const struct template_string *string = self_text(call), *by = separator_read(run, call);
    struct value parts = value_list(run, LIST_TUPLE);
    if (by == NULL) run_fail(run, "%s needs a string", call->row->name);
    size_t at = last ? find_last(string, by, 0, string->size) : string_find(string, by, 0);
    bool found = at != SIZE_MAX;
    if (!found && last) {
        list_append(run, parts, value_words(run, ""));
        list_append(run, parts, value_words(run, ""));
    }
    append_part(run, parts, string, 0, found ? at : string->size);
    if (found) {
        append_part(run, parts, string, at, at + by->size);
        append_part(run, parts, string, at + by->size, string->size);
    } else if (!last) {
        list_append(run, parts, value_words(run, ""));
        list_append(run, parts, value_words(run, ""));
    }
    return parts;
}
static struct value text_partition(struct template_run *run, const struct bound_call *call) {
    return partition_make(run, call, false);
}
static struct value text_rpartition(struct template_run *run, const struct bound_call *call) {
    return partition_make(run, call, true);
}

/* Searching. */

/* s[start:end] in bytes, from the arguments behind the first. */
static struct template_string window_read(struct template_run *run, const struct bound_call *call,
                                          size_t *from) {
    const struct template_string *string = self_text(call);
    int64_t n = string_length(string), bounds[2] = {0, n};
    for (int i = 0; i < 2; i++) {
        if (call->args[i + 1].kind == VALUE_ABSENT || call->args[i + 1].kind == VALUE_NONE)
            continue;
        int64_t at = argument_int(run, call, i + 1, 0);
        if (at < 0) at = at < -n ? 0 : at + n;
        bounds[i] = at > n ? n + (i == 0 && at > n) : at;
    }
    size_t start = string_offset(string, bounds[0]), end = string_offset(string, bounds[1]);
    *from = start;
    if (bounds[0] > bounds[1]) return (struct template_string){.text = NULL};
    return (struct template_string){.text = string->text + start, .size = end - start};
}

static bool affix_matches(const struct template_string *string, const struct template_string *affix,
                          bool end) {
    if (affix->size > string->size) return false;
    return memcmp(end ? string->text + string->size - affix->size : string->text, affix->text,
                  affix->size) == 0;
}

static struct value has_affix(struct template_run *run, const struct bound_call *call, bool end) {
    size_t from;
    struct template_string string = window_read(run, call, &from);
    struct value affixes = call->args[0];
    if (affixes.kind == VALUE_STRING)
        return value_bool(string.text && affix_matches(&string, affixes.string, end));
    if (affixes.kind != VALUE_LIST || affixes.list->type != LIST_TUPLE)
        run_fail(run, "%s first arg must be str or a tuple of str, not %s", call->row->name,
                 value_type(affixes));
    for (int i = 0; i < affixes.list->n; i++) {
        if (affixes.list->items[i].kind != VALUE_STRING)
            run_fail(run, "tuple for %s must only contain str", call->row->name);
        if (string.text && affix_matches(&string, affixes.list->items[i].string, end))
            return value_bool(true);
    }
    return value_bool(false);
}
static struct value text_startswith(struct template_run *run, const struct bound_call *call) {
    return has_affix(run, call, false);
}
static struct value text_endswith(struct template_run *run, const struct bound_call *call) {
    return has_affix(run, call, true);
}

static const struct template_string *needed_text(struct template_run *run,
                                                 const struct bound_call *call, int i) {
    const struct template_string *string = argument_text(run, call, i);
    if (string == NULL)
        run_fail(run, "%s: argument %d must be str, not None", call->row->name, i + 1);
    return string;
}

static struct value remove_affix(struct template_run *run, const struct bound_call *call,
                                 bool end) {
    const struct template_string *string = self_text(call), *affix = needed_text(run, call, 0);
    need_plain(run, call);
    if (!affix_matches(string, affix, end)) return call->self;
    size_t from = end ? 0 : affix->size;
    return value_string(string_part(run->m, string, from, from + string->size - affix->size));
}
static struct value text_removeprefix(struct template_run *run, const struct bound_call *call) {
    return remove_affix(run, call, false);
}
static struct value text_removesuffix(struct template_run *run, const struct bound_call *call) {
    return remove_affix(run, call, true);
}

static int64_t place_find(struct template_run *run, const struct bound_call *call, bool last) {
    const struct template_string *what = needed_text(run, call, 0);
    size_t from;
    struct template_string string = window_read(run, call, &from);
    if (string.text == NULL) return -1;
    size_t at = last ? find_last(&string, what, 0, string.size) : string_find(&string, what, 0);
    if (at == SIZE_MAX) return -1;
    return string_length(
        &(struct template_string){.text = self_text(call)->text, .size = from + at});
}
static struct value text_find(struct template_run *run, const struct bound_call *call) {
    return value_int(place_find(run, call, false));
}
static struct value text_rfind(struct template_run *run, const struct bound_call *call) {
    return value_int(place_find(run, call, true));
}
static struct value found_place(struct template_run *run, int64_t at) {
    if (at < 0) run_fail(run, "substring not found");
    return value_int(at);
}
static struct value text_index(struct template_run *run, const struct bound_call *call) {
    return found_place(run, place_find(run, call, false));
}
static struct value text_rindex(struct template_run *run, const struct bound_call *call) {
    return found_place(run, place_find(run, call, true));
}

static struct value text_count(struct template_run *run, const struct bound_call *call) {
    const struct template_string *what = needed_text(run, call, 0);
    size_t from;
    struct template_string string = window_read(run, call, &from);
    int64_t n = 0;
    if (string.text == NULL) return value_int(0);
    if (what->size == 0) return value_int(string_length(&string) + 1);
    for (size_t at = 0; (at = string_find(&string, what, at)) != SIZE_MAX; at += what->size) n++;
    return value_int(n);
}

/* Making others. */

const struct template_string *string_replace(struct template_run *run,
                                             const struct template_string *string,
                                             const struct template_string *parts[2],
                                             int64_t count) {
    struct text_builder builder = {.m = run->m};
    size_t at = 0;
    for (size_t found; count != 0 && (found = string_find(string, parts[0], at)) != SIZE_MAX;
         count--) {
        run_step(run, 1);
        builder_part(&builder, string, at, found);
        builder_add(&builder, parts[1]);
        at = found + parts[0]->size;
        if (parts[0]->size > 0) continue;
        if (at == string->size) return builder_string(&builder);
        size_t n = (size_t)utf8_length(string->text + at, string->size - at);
        builder_part(&builder, string, at, at + n);
        at += n;
    }
    builder_part(&builder, string, at, string->size);
    return builder_string(&builder);
}

static struct value text_replace(struct template_run *run, const struct bound_call *call) {
    const struct template_string *parts[2] = {needed_text(run, call, 0), needed_text(run, call, 1)};
    need_plain(run, call);
    return value_string(
        string_replace(run, self_text(call), parts, argument_int(run, call, 2, -1)));
}

static struct value text_join(struct template_run *run, const struct bound_call *call) {
    const struct template_list *items = value_items(run, call->args[0]);
    struct text_builder builder = {.m = run->m};
    need_plain(run, call);
    for (int i = 0; i < items->n; i++) {
        if (items->items[i].kind != VALUE_STRING)
            run_fail(run, "sequence item %d: expected str instance, %s found", i,
                     value_type(items->items[i]));
        if (i > 0) builder_add(&builder, self_text(call));
        builder_add(&builder, items->items[i].string);
    }
    return value_string(builder_string(&builder));
}

static struct value text_format(struct template_run *run, const struct bound_call *call) {
    need_plain(run, call);
    return value_string(format_braces(run, self_text(call), call->all));
}

/* Fills up to a width: what goes left and what goes right of the text. */
static struct value text_pad(struct template_run *run, const struct bound_call *call,
                             int left_share) {
    const struct template_string *fill = argument_text(run, call, 1), *string = self_text(call);
    int64_t width = argument_int(run, call, 0, 0), missing = width - string_length(string);
    struct text_builder builder = {.m = run->m};
    need_plain(run, call);
    if (fill && string_length(fill) != 1)
        run_fail(run, "The fill character must be exactly one character long");
    if (fill == NULL) fill = value_words(run, " ").string;
    if (missing <= 0) return call->self;
    int64_t left = left_share == 0   ? 0
                   : left_share == 2 ? missing
                                     : missing / 2 + (missing & width & 1);
    for (int64_t i = 0; i < missing; i++) {
        run_step(run, 1);
        if (i == left) builder_add(&builder, string);
        builder_add(&builder, fill);
    }
    if (left == missing) builder_add(&builder, string);
    return value_string(builder_string(&builder));
}
static struct value text_ljust(struct template_run *run, const struct bound_call *call) {
    return text_pad(run, call, 0);
}
static struct value text_rjust(struct template_run *run, const struct bound_call *call) {
    return text_pad(run, call, 2);
}
static struct value text_center(struct template_run *run, const struct bound_call *call) {
    return text_pad(run, call, 1);
}

static struct value text_zfill(struct template_run *run, const struct bound_call *call) {
    const struct template_string *string = self_text(call);
    int64_t missing = argument_int(run, call, 0, 0) - string_length(string);
    struct text_builder builder = {.m = run->m};
    size_t sign = string->size > 0 && (string->text[0] == '+' || string->text[0] == '-') ? 1 : 0;
    need_plain(run, call);
    builder_part(&builder, string, 0, sign);
    for (int64_t i = 0; i < missing; i++) {
        run_step(run, 1);
        builder_words(&builder, "0");
    }
    builder_part(&builder, string, sign, string->size);
    return value_string(builder_string(&builder));
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
