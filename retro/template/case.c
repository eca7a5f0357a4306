/* retro/template/case.c: upper and lower case of strings, and the methods that ask for classes of
 * characters. */
#include <string.h>

#include "config/base/utf8.h"
#include "config/text/unicode.h"
#include "retro/template/template_private.h"

struct text_walk {
    const struct template_string *s;
    size_t at, next;
    int32_t c;
};

static bool walk_next(struct text_walk *walk) {
    walk->at = walk->next;
    if (walk->at >= walk->s->size) return false;
    walk->next =
        walk->at + (size_t)utf8_read(walk->s->text + walk->at, walk->s->size - walk->at, &walk->c);
    return true;
}

/* Whether a letter of either case stands before `end` or at and behind `from`, characters without
 * case passed over: what decides the form of a Greek sigma. */
static bool cased_before(const struct template_string *string, size_t end) {
    bool cased = false;
    for (struct text_walk walk = {.s = string}; walk_next(&walk) && walk.at < end;)
        if (!unicode_is_case_ignorable(walk.c)) cased = unicode_is_cased(walk.c);
    return cased;
}

static bool cased_behind(const struct template_string *string, size_t from) {
    struct text_walk walk = {.s = string, .next = from};
    while (walk_next(&walk))
        if (!unicode_is_case_ignorable(walk.c)) return unicode_is_cased(walk.c);
    return false;
}

static int32_t lower_of(const struct template_string *string, const struct text_walk *walk) {
    if (walk->c == 0x3A3 && cased_before(string, walk->at) && !cased_behind(string, walk->next))
        return 0x3C2;
    return unicode_lower(walk->c);
}

static void add_mapped(struct text_builder *builder, const struct text_walk *walk,
                       enum unicode_case form) {
    int32_t to[3];
    int n = unicode_map_case(walk->c, form, to);
    for (int i = 0; i < n; i++) builder_character(builder, to[i], walk->s, walk->at);
}

static void add_lower(struct text_builder *builder, const struct text_walk *walk) {
    if (walk->c == 0x130) {
        add_mapped(builder, walk, UNICODE_CASE_LOWER);
        return;
    }
    builder_character(builder, lower_of(walk->s, walk), walk->s, walk->at);
}

const struct template_string *string_case(struct template_run *run,
                                          const struct template_string *string,
                                          enum letter_case how) {
    struct text_builder builder = {.m = run->m};
    bool inside = false;
    run_step(run, 1 + (int64_t)string->size / 16);
    for (struct text_walk walk = {.s = string}; walk_next(&walk);) {
        bool first = how == CASE_CAPITAL ? walk.at == 0 : !inside;
        inside = unicode_is_cased(walk.c);
        if (how == CASE_UPPER)
            add_mapped(&builder, &walk, UNICODE_CASE_UPPER);
        else if (how == CASE_LOWER || (how != CASE_SWAP && !first))
            add_lower(&builder, &walk);
        else if (how != CASE_SWAP)
            add_mapped(&builder, &walk, UNICODE_CASE_TITLE);
        else if (unicode_is_upper(walk.c))
            add_lower(&builder, &walk);
        else if (unicode_is_lower(walk.c))
            add_mapped(&builder, &walk, UNICODE_CASE_UPPER);
        else
            builder_part(&builder, string, walk.at, walk.next);
    }
    return builder_string(&builder);
}

bool string_is_cased(const struct template_string *string, bool upper) {
    bool some = false;
    for (struct text_walk walk = {.s = string}; walk_next(&walk);) {
        bool is_upper = unicode_is_upper(walk.c), is_lower = unicode_is_lower(walk.c);
        if (upper ? is_lower : is_upper) return false;
        if (!is_upper && !is_lower && unicode_is_cased(walk.c)) return false;
        some = some || (upper ? is_upper : is_lower);
    }
    return some;
}

static struct value text_recase(struct template_run *run, const struct bound_call *call,
                                enum letter_case how) {
    if (call->self.string->safe)
        run_refuse(run, "the method %s of a text marked as safe", call->row->name);
    return value_string(string_case(run, call->self.string, how));
}
static struct value text_upper(struct template_run *run, const struct bound_call *call) {
    return text_recase(run, call, CASE_UPPER);
}
static struct value text_lower(struct template_run *run, const struct bound_call *call) {
    return text_recase(run, call, CASE_LOWER);
}
static struct value text_title(struct template_run *run, const struct bound_call *call) {
    return text_recase(run, call, CASE_TITLE);
}
static struct value text_capitalize(struct template_run *run, const struct bound_call *call) {
    return text_recase(run, call, CASE_CAPITAL);
}
static struct value text_swapcase(struct template_run *run, const struct bound_call *call) {
    return text_recase(run, call, CASE_SWAP);
}

static struct value all_are(const struct bound_call *call, bool (*is)(int32_t)) {
    for (struct text_walk walk = {.s = call->self.string}; walk_next(&walk);)
        if (!is(walk.c)) return value_bool(false);
    return value_bool(call->self.string->size > 0);
}

static bool is_ascii(int32_t c) { return c < 0x80; }
static bool is_alnum(int32_t c) { return unicode_is_letter(c) || unicode_is_numeric(c); }

#define ALL(name, is) \
    static struct value name(struct template_run *r, const struct bound_call *c) { \
        (void)r; \
        return all_are(c, is); \
    }
ALL(text_isalpha, unicode_is_letter)
ALL(text_isalnum, is_alnum)
ALL(text_isdecimal, unicode_is_decimal)
ALL(text_isdigit, unicode_is_digit)
ALL(text_isnumeric, unicode_is_numeric)
ALL(text_isspace, python_is_space)

static struct value text_isascii(struct template_run *run, const struct bound_call *call) {
    (void)run;
    return value_bool(call->self.string->size == 0 || all_are(call, is_ascii).truth);
}
static struct value text_isupper(struct template_run *run, const struct bound_call *call) {
    (void)run;
    return value_bool(string_is_cased(call->self.string, true));
}
static struct value text_islower(struct template_run *run, const struct bound_call *call) {
    (void)run;
    return value_bool(string_is_cased(call->self.string, false));
}

static const struct call_row rows[] = {
    {"upper", text_upper, "/", 0},       {"lower", text_lower, "/", 0},
    {"title", text_title, "/", 0},       {"capitalize", text_capitalize, "/", 0},
    {"swapcase", text_swapcase, "/", 0}, {"isalpha", text_isalpha, "/", 0},
    {"isalnum", text_isalnum, "/", 0},   {"isdecimal", text_isdecimal, "/", 0},
    {"isdigit", text_isdigit, "/", 0},   {"isnumeric", text_isnumeric, "/", 0},
    {"isspace", text_isspace, "/", 0},   {"isascii", text_isascii, "/", 0},
    {"isupper", text_isupper, "/", 0},   {"islower", text_islower, "/", 0},
};
const struct call_table text_class_methods = {rows, ARRAY_COUNT(rows)};
