/* retro/template/operators.c: operators, attributes, indices and slices, as Python and Jinja's
 * sandbox have them.
 */
#include <math.h>
#include <string.h>

#include "retro/template/template_private.h"

_Noreturn static void no_operator(struct template_run *run, enum operator_kind operator,
                                  struct value left, struct value right) {
    run_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", operator_words(operator),
             value_type(left), value_type(right));
}

_Noreturn static void too_large(struct template_run *run) {
    run_refuse(run, "a number beyond 64 bits");
}

/* Numbers. */

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static double float_mod(double a, double b) {
    double m = fmod(a, b);
    if (m == 0) return copysign(0.0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

static struct value int_pow(struct template_run *run, int64_t base, int64_t exponent) {
    int64_t v = 1;
    if (exponent < 0) {
        if (base == 0) run_fail(run, "0.0 cannot be raised to a negative power");
        return value_float(pow((double)base, (double)exponent));
    }
    for (int64_t i = 0; i < exponent && !(v == base && (v == 0 || v == 1)); i++) {
        run_step(run, 1);
        if (__builtin_mul_overflow(v, base, &v)) too_large(run);
    }
    return value_int(v);
}

static struct value int_apply(struct template_run *run, enum operator_kind operator, int64_t a,
                              int64_t b) {
    int64_t v = 0;
    bool over = false;
    switch (operator) {
        case OPERATOR_ADD: over = __builtin_add_overflow(a, b, &v); break;
        case OPERATOR_SUB: over = __builtin_sub_overflow(a, b, &v); break;
        case OPERATOR_MUL: over = __builtin_mul_overflow(a, b, &v); break;
        case OPERATOR_POW: return int_pow(run, a, b);
        case OPERATOR_DIV:
            if (b == 0) run_fail(run, "division by zero");
            return value_float((double)a / (double)b);
        default:
            if (b == 0) run_fail(run, "integer division or modulo by zero");
            if (b == -1) {
                over = operator== OPERATOR_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &v);
            } else {
                v = operator== OPERATOR_FLOORDIV ? floor_div(a, b) : a - floor_div(a, b) * b;
            }
    }
    if (over) too_large(run);
    return value_int(v);
}

static struct value float_apply(struct template_run *run, enum operator_kind operator, double a,
                                double b) {
    switch (operator) {
        case OPERATOR_ADD: return value_float(a + b);
        case OPERATOR_SUB: return value_float(a - b);
        case OPERATOR_MUL: return value_float(a * b);
        case OPERATOR_POW:
            if (a < 0 && b != floor(b)) run_refuse(run, "a complex number");
            if (a == 0 && b < 0) run_fail(run, "0.0 cannot be raised to a negative power");
            return value_float(pow(a, b));
        default: break;
    }
    if (b == 0)
        run_fail(run, operator== OPERATOR_DIV ? "float division by zero"
                                              : "float floor division by zero");
    if (operator== OPERATOR_DIV) return value_float(a / b);
    if (operator== OPERATOR_MOD) return value_float(float_mod(a, b));
    double m = float_mod(a, b), q = (a - m) / b;
    return value_float(q == 0                     ? copysign(0.0, a / b)
                       : floor(q + 0.5) - q < 0.5 ? floor(q + 0.5)
                                                  : floor(q));
}

static struct value value_repeat(struct template_run *run, struct value value, int64_t times) {
    if (times < 0) times = 0;
    if (value.kind == VALUE_STRING) {
        struct text_builder builder = {.m = run->m};
        for (int64_t i = 0; i < times && value.string->size > 0; i++) {
            run_step(run, 1);
            builder_add(&builder, value.string);
        }
        return value_string(builder_string(&builder));
    }
    struct value list = value_list(run, value.list->type);
    for (int64_t i = 0; i < times && value.list->n > 0; i++)
        for (int j = 0; j < value.list->n; j++) list_append(run, list, value.list->items[j]);
    return list;
}

static bool is_repeatable(struct value value) {
    return value.kind == VALUE_STRING ||
           (value.kind == VALUE_LIST &&
            (value.list->type == LIST_PLAIN || value.list->type == LIST_TUPLE));
}

static bool is_index(struct value value) {
    return value.kind == VALUE_INT || value.kind == VALUE_BOOL;
}

static struct value values_join(struct template_run *run, struct value left, struct value right) {
    if (left.kind == VALUE_STRING) {
        struct text_builder text = {.m = run->m};
        bool safe = left.string->safe || right.string->safe;
        builder_add(&text, safe ? string_escape(run->m, left.string) : left.string);
        builder_add(&text, safe ? string_escape(run->m, right.string) : right.string);
        const struct template_string *sum = builder_string(&text);
        return value_string(safe ? string_safe(run->m, sum) : sum);
    }
    struct value list = value_list(run, left.list->type);
    for (int i = 0; i < left.list->n; i++) list_append(run, list, left.list->items[i]);
    for (int i = 0; i < right.list->n; i++) list_append(run, list, right.list->items[i]);
    return list;
}

static bool can_join(struct value left, struct value right) {
    if (left.kind != right.kind) return false;
    if (left.kind == VALUE_STRING) return true;
    return is_repeatable(left) && is_repeatable(right) && left.list->type == right.list->type;
}

struct value operator_apply(struct template_run *run, enum operator_kind operator,
                            struct value left, struct value right) {
    run_step(run, 1);
    if (operator== OPERATOR_MOD && left.kind == VALUE_STRING)
        return value_string(format_percent(run, left.string, right));
    run_need_defined(run, left);
    run_need_defined(run, right);
    if (value_is_number(left) && value_is_number(right)) {
        if (left.kind == VALUE_FLOAT || right.kind == VALUE_FLOAT)
            return float_apply(run, operator, value_real(left), value_real(right));
        return int_apply(run, operator, value_index(left), value_index(right));
    }
    if (operator== OPERATOR_ADD && can_join(left, right)) return values_join(run, left, right);
    if (operator== OPERATOR_ADD && left.kind == VALUE_STRING)
        run_fail(run, "can only concatenate str (not \"%s\") to str", value_type(right));
    if (operator== OPERATOR_MUL && is_repeatable(left) && is_index(right))
        return value_repeat(run, left, value_index(right));
    if (operator== OPERATOR_MUL && is_index(left) && is_repeatable(right))
        return value_repeat(run, right, value_index(left));
    if (operator== OPERATOR_SUB && left.kind == VALUE_LIST && left.list->type >= LIST_KEYS)
        run_refuse(run, "- between views of dicts");
    no_operator(run, operator, left, right);
}

struct value operator_unary(struct template_run *run, enum operator_kind operator,
                            struct value value) {
    run_need_defined(run, value);
    if (!value_is_number(value))
        run_fail(run, "bad operand type for unary %s: '%s'", operator_words(operator),
                 value_type(value));
    if (operator== OPERATOR_ADD)
        return value.kind == VALUE_FLOAT ? value : value_int(value_index(value));
    if (value.kind == VALUE_FLOAT) return value_float(-value.real);
    return int_apply(run, OPERATOR_SUB, 0, value_index(value));
}

bool operator_compare(struct template_run *run, enum operator_kind operator, struct value left,
                      struct value right) {
    run_step(run, 1);
    switch (operator) {
        case OPERATOR_EQ: return value_equal(run, left, right);
        case OPERATOR_NE: return !value_equal(run, left, right);
        case OPERATOR_IN: return value_contains(run, right, left);
        case OPERATOR_NOT_IN: return !value_contains(run, right, left);
        case OPERATOR_LT: return value_compare(run, left, right, "<") < 0;
        case OPERATOR_LE: return value_compare(run, left, right, "<=") <= 0;
        case OPERATOR_GT: return value_compare(run, left, right, ">") > 0;
        default: return value_compare(run, left, right, ">=") >= 0;
    }
}

/* Attributes and items. */

/* Python's own attributes: what the sandbox hides. */
static void refuse_hidden(struct template_run *run, struct value value,
                          const struct template_string *name) {
    static const char *const mutating[] = {"append",     "clear",  "pop",    "reverse",
                                           "insert",     "sort",   "extend", "remove",
                                           "setdefault", "update", "popitem"};
    bool changes = false;
    for (size_t i = 0; i < ARRAY_COUNT(mutating); i++)
        changes = changes || string_is(name, mutating[i]);
    bool changeable =
        value.kind == VALUE_DICT || (value.kind == VALUE_LIST && value.list->type == LIST_PLAIN);
    if ((changes && changeable) || (name->size >= 2 && memcmp(name->text, "__", 2) == 0))
        run_fail(run, "access to attribute '%.*s' of '%s' object is unsafe.", (int)name->size,
                 name->text, value_type(value));
}

/* Methods that Python's strings have and this reader has not. */
static void refuse_python(struct template_run *run, struct value value,
                          const struct template_string *name) {
    static const char *const others[] = {"encode",      "translate",  "maketrans",
                                         "expandtabs",  "format_map", "isidentifier",
                                         "isprintable", "istitle",    "casefold"};
    for (size_t i = 0; value.kind == VALUE_STRING && i < ARRAY_COUNT(others); i++)
        if (string_is(name, others[i])) run_refuse(run, "the method %s of a string", others[i]);
}

static struct value member_missing(struct template_run *run, struct value value,
                                   const struct template_string *name) {
    return value_undefined(run, "'%s object' has no attribute '%.*s'", value_type(value),
                           (int)name->size, name->text);
}

/* An attribute of the Python object: a method, or NULL's worth of VALUE_ABSENT. */
static struct value own_attribute(struct template_run *run, struct value value,
                                  const struct template_string *name) {
    const struct call_row *row = method_find(value, name);
    if (row == NULL) return (struct value){.kind = VALUE_ABSENT};
    if (row->parameters == NULL)
        return row->call(run, &(struct bound_call){.self = value, .row = row});
    return value_callable(
        run, (struct template_callable){.kind = CALLABLE_METHOD, .row = row, .self = value});
}

static struct value key_of(struct template_run *run, struct value value, struct value key) {
    struct value *there = value.kind == VALUE_DICT ? dict_find(run, value.dict, key) : NULL;
    return there ? *there : (struct value){.kind = VALUE_ABSENT};
}

static bool is_dict_method_hidden(struct value value, const struct template_string *name) {
    static const char *const hidden[] = {"clear", "pop", "popitem", "setdefault", "update"};
    for (size_t i = 0; value.kind == VALUE_DICT && i < ARRAY_COUNT(hidden); i++)
        if (string_is(name, hidden[i])) return true;
    return false;
}

struct value value_attribute(struct template_run *run, struct value value,
                             const struct template_string *name) {
    run_need_defined(run, value);
    if (value.kind == VALUE_NAMESPACE) {
        struct value *there = dict_find(run, value.dict, value_string(name));
        return there ? *there : member_missing(run, value, name);
    }
    struct value own = own_attribute(run, value, name);
    if (own.kind != VALUE_ABSENT) return own;
    refuse_python(run, value, name);
    if (is_dict_method_hidden(value, name)) refuse_hidden(run, value, name);
    struct value item = key_of(run, value, value_string(name));
    if (item.kind != VALUE_ABSENT) return item;
    refuse_hidden(run, value, name);
    return member_missing(run, value, name);
}

static struct value list_index(struct template_run *run, struct value value, int64_t i) {
    int64_t n = value.list->n, at = i < 0 ? i + n : i;
    if (at >= 0 && at < n) return value.list->items[at];
    return value_undefined(run, "%s object has no element %lld", value_type(value), (long long)i);
}

static struct value string_index(struct template_run *run, struct value value, int64_t i) {
    int64_t n = string_length(value.string), at = i < 0 ? i + n : i;
    run_step(run, (int64_t)value.string->size / 64);
    if (at < 0 || at >= n)
        return value_undefined(run, "str object has no element %lld", (long long)i);
    size_t from = string_offset(value.string, at);
    struct template_string rest = {.text = value.string->text + from,
                                   .size = value.string->size - from};
    return value_string(string_part(run->m, value.string, from, from + string_offset(&rest, 1)));
}

static bool is_indexed(struct value value) {
    return value.kind == VALUE_LIST &&
           (value.list->type == LIST_PLAIN || value.list->type == LIST_TUPLE ||
            value.list->type == LIST_GROUP || value.list->type == LIST_RANGE);
}

struct value value_item(struct template_run *run, struct value value, struct value key) {
    run_need_defined(run, value);
    if (value.kind == VALUE_DICT && (key.kind != VALUE_LIST || key.list->type != LIST_PLAIN) &&
        key.kind != VALUE_DICT) {
        struct value item = key_of(run, value, key);
        if (item.kind != VALUE_ABSENT) return item;
    }
    if (is_index(key) && is_indexed(value)) return list_index(run, value, value_index(key));
    if (is_index(key) && value.kind == VALUE_STRING)
        return string_index(run, value, value_index(key));
    if (key.kind == VALUE_STRING) {
        struct value own = own_attribute(run, value, key.string);
        if (own.kind != VALUE_ABSENT) return own;
        refuse_python(run, value, key.string);
        refuse_hidden(run, value, key.string);
        return member_missing(run, value, key.string);
    }
    return value_undefined(run, "%s object has no element of a %s", value_type(value),
                           value_type(key));
}

/* Slices. */

struct slice_range {
    int64_t from, to, stride;
};

/* As Python's slice.indices. */
static struct slice_range slice_of(struct template_run *run, const struct value bounds[3],
                                   int64_t n) {
    struct slice_range range = {.stride = 1};
    if (bounds[2].kind != VALUE_NONE) {
        if (!is_index(bounds[2]))
            run_fail(run, "slice indices must be integers or None or have an __index__ method");
        range.stride = value_index(bounds[2]);
    }
    if (range.stride == 0) run_fail(run, "slice step cannot be zero");
    int64_t low = range.stride > 0 ? 0 : -1, high = range.stride > 0 ? n : n - 1;
    int64_t *to[2] = {&range.from, &range.to};
    for (int i = 0; i < 2; i++) {
        bool begins = (i == 0) == (range.stride > 0);
        if (bounds[i].kind == VALUE_NONE) {
            *to[i] = begins ? low : high;
            continue;
        }
        if (!is_index(bounds[i]))
            run_fail(run, "slice indices must be integers or None or have an __index__ method");
        int64_t at = value_index(bounds[i]);
        if (at < 0) at = at < -n ? low : at + n;
        *to[i] = at < low ? low : at > high ? high : at;
    }
    return range;
}

static struct value string_slice(struct template_run *run, const struct template_string *string,
                                 struct slice_range range) {
    struct text_builder builder = {.m = run->m};
    int64_t n = string_length(string);
    run_step(run, (int64_t)string->size / 64);
    if (range.stride == 1) {
        if (range.to <= range.from) return value_string(string_of(run->m, "", 0, false));
        size_t from = string_offset(string, range.from);
        struct template_string rest = {.text = string->text + from, .size = string->size - from};
        return value_string(
            string_part(run->m, string, from, from + string_offset(&rest, range.to - range.from)));
    }
    size_t *offsets = memory_take(run->m, (size_t)(n + 1) * sizeof *offsets);
    size_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        struct template_string rest = {.text = string->text + at, .size = string->size - at};
        offsets[i] = at;
        at += string_offset(&rest, 1);
    }
    offsets[n] = string->size;
    for (int64_t i = range.from; range.stride > 0 ? i < range.to : i > range.to; i += range.stride)
        builder_part(&builder, string, offsets[i], offsets[i + 1]);
    return value_string(builder_string(&builder));
}

static struct value list_slice(struct template_run *run, struct value value,
                               struct slice_range range) {
    if (value.list->type == LIST_RANGE) run_refuse(run, "a slice of a range; add |list");
    struct value list =
        value_list(run, value.list->type == LIST_GROUP ? LIST_TUPLE : value.list->type);
    for (int64_t i = range.from; range.stride > 0 ? i < range.to : i > range.to;) {
        list_append(run, list, value.list->items[i]);
        if (__builtin_add_overflow(i, range.stride, &i)) break;
    }
    return list;
}

struct value value_slice(struct template_run *run, struct value value,
                         const struct value bounds[3]) {
    run_need_defined(run, value);
    if (value.kind == VALUE_STRING)
        return string_slice(run, value.string, slice_of(run, bounds, string_length(value.string)));
    if (is_indexed(value)) return list_slice(run, value, slice_of(run, bounds, value.list->n));
    run_fail(run, "'%s' object is not subscriptable by a slice", value_type(value));
}
