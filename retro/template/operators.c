/* retro/template/operators.c: operators, attributes, indices and slices, as Python and Jinja's sandbox have them.
 */
#include <math.h>
#include <string.h>

#include "retro/template/template_private.h"

_Noreturn static void no_operator(struct template_run *r, enum operator_kind operator, struct value a, struct value b) {
    run_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", operator_words(operator), value_type(a),
             value_type(b));
}

_Noreturn static void too_large(struct template_run *r) { run_refuse(r, "a number beyond 64 bits"); }

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

static struct value int_pow(struct template_run *r, int64_t base, int64_t exponent) {
    int64_t v = 1;
    if (exponent < 0) {
        if (base == 0) run_fail(r, "0.0 cannot be raised to a negative power");
        return value_float(pow((double)base, (double)exponent));
    }
    for (int64_t i = 0; i < exponent && !(v == base && (v == 0 || v == 1)); i++) {
        run_step(r, 1);
        if (__builtin_mul_overflow(v, base, &v)) too_large(r);
    }
    return value_int(v);
}

static struct value int_apply(struct template_run *r, enum operator_kind operator, int64_t a, int64_t b) {
    int64_t v = 0;
    bool over = false;
    switch (operator) {
        case OPERATOR_ADD: over = __builtin_add_overflow(a, b, &v); break;
        case OPERATOR_SUB: over = __builtin_sub_overflow(a, b, &v); break;
        case OPERATOR_MUL: over = __builtin_mul_overflow(a, b, &v); break;
        case OPERATOR_POW: return int_pow(r, a, b);
        case OPERATOR_DIV:
            if (b == 0) run_fail(r, "division by zero");
            return value_float((double)a / (double)b);
        default:
            if (b == 0) run_fail(r, "integer division or modulo by zero");
            if (b == -1) {
                over = operator== OPERATOR_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &v);
            } else {
                v = operator== OPERATOR_FLOORDIV ? floor_div(a, b) : a - floor_div(a, b) * b;
            }
    }
    if (over) too_large(r);
    return value_int(v);
}

static struct value float_apply(struct template_run *r, enum operator_kind operator, double a, double b) {
    switch (operator) {
        case OPERATOR_ADD: return value_float(a + b);
        case OPERATOR_SUB: return value_float(a - b);
        case OPERATOR_MUL: return value_float(a * b);
        case OPERATOR_POW:
            if (a < 0 && b != floor(b)) run_refuse(r, "a complex number");
            if (a == 0 && b < 0) run_fail(r, "0.0 cannot be raised to a negative power");
            return value_float(pow(a, b));
        default: break;
    }
    if (b == 0) run_fail(r, operator== OPERATOR_DIV ? "float division by zero" : "float floor division by zero");
    if (operator== OPERATOR_DIV) return value_float(a / b);
    if (operator== OPERATOR_MOD) return value_float(float_mod(a, b));
    double m = float_mod(a, b), q = (a - m) / b;
    return value_float(q == 0 ? copysign(0.0, a / b) : floor(q + 0.5) - q < 0.5 ? floor(q + 0.5) : floor(q));
}

static struct value value_repeat(struct template_run *r, struct value v, int64_t times) {
    if (times < 0) times = 0;
    if (v.kind == VALUE_STRING) {
        struct text_builder b = {.m = r->m};
        for (int64_t i = 0; i < times && v.string->size > 0; i++) {
            run_step(r, 1);
            builder_add(&b, v.string);
        }
        return value_string(builder_string(&b));
    }
    struct value list = value_list(r, v.list->type);
    for (int64_t i = 0; i < times && v.list->n > 0; i++)
        for (int j = 0; j < v.list->n; j++) list_append(r, list, v.list->items[j]);
    return list;
}

static bool is_repeatable(struct value v) {
    return v.kind == VALUE_STRING ||
           (v.kind == VALUE_LIST && (v.list->type == LIST_PLAIN || v.list->type == LIST_TUPLE));
}

static bool is_index(struct value v) { return v.kind == VALUE_INT || v.kind == VALUE_BOOL; }

static struct value values_join(struct template_run *r, struct value a, struct value b) {
    if (a.kind == VALUE_STRING) {
        struct text_builder text = {.m = r->m};
        bool safe = a.string->safe || b.string->safe;
        builder_add(&text, safe ? string_escape(r->m, a.string) : a.string);
        builder_add(&text, safe ? string_escape(r->m, b.string) : b.string);
        const struct template_string *sum = builder_string(&text);
        return value_string(safe ? string_safe(r->m, sum) : sum);
    }
    struct value list = value_list(r, a.list->type);
    for (int i = 0; i < a.list->n; i++) list_append(r, list, a.list->items[i]);
    for (int i = 0; i < b.list->n; i++) list_append(r, list, b.list->items[i]);
    return list;
}

static bool can_join(struct value a, struct value b) {
    if (a.kind != b.kind) return false;
    if (a.kind == VALUE_STRING) return true;
    return is_repeatable(a) && is_repeatable(b) && a.list->type == b.list->type;
}

struct value operator_apply(struct template_run *r, enum operator_kind operator, struct value a, struct value b) {
    run_step(r, 1);
    if (operator== OPERATOR_MOD && a.kind == VALUE_STRING) return value_string(format_percent(r, a.string, b));
    run_need_defined(r, a);
    run_need_defined(r, b);
    if (value_is_number(a) && value_is_number(b)) {
        if (a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT)
            return float_apply(r, operator, value_real(a), value_real(b));
        return int_apply(r, operator, value_index(a), value_index(b));
    }
    if (operator== OPERATOR_ADD && can_join(a, b)) return values_join(r, a, b);
    if (operator== OPERATOR_ADD && a.kind == VALUE_STRING)
        run_fail(r, "can only concatenate str (not \"%s\") to str", value_type(b));
    if (operator== OPERATOR_MUL && is_repeatable(a) && is_index(b)) return value_repeat(r, a, value_index(b));
    if (operator== OPERATOR_MUL && is_index(a) && is_repeatable(b)) return value_repeat(r, b, value_index(a));
    if (operator== OPERATOR_SUB && a.kind == VALUE_LIST && a.list->type >= LIST_KEYS)
        run_refuse(r, "- between views of dicts");
    no_operator(r, operator, a, b);
}

struct value operator_unary(struct template_run *r, enum operator_kind operator, struct value a) {
    run_need_defined(r, a);
    if (!value_is_number(a))
        run_fail(r, "bad operand type for unary %s: '%s'", operator_words(operator), value_type(a));
    if (operator== OPERATOR_ADD) return a.kind == VALUE_FLOAT ? a : value_int(value_index(a));
    if (a.kind == VALUE_FLOAT) return value_float(-a.real);
    return int_apply(r, OPERATOR_SUB, 0, value_index(a));
}

bool operator_compare(struct template_run *r, enum operator_kind operator, struct value a, struct value b) {
    run_step(r, 1);
    switch (operator) {
        case OPERATOR_EQ: return value_equal(r, a, b);
        case OPERATOR_NE: return !value_equal(r, a, b);
        case OPERATOR_IN: return value_contains(r, b, a);
        case OPERATOR_NOT_IN: return !value_contains(r, b, a);
        case OPERATOR_LT: return value_compare(r, a, b, "<") < 0;
        case OPERATOR_LE: return value_compare(r, a, b, "<=") <= 0;
        case OPERATOR_GT: return value_compare(r, a, b, ">") > 0;
        default: return value_compare(r, a, b, ">=") >= 0;
    }
}

/* Attributes and items. */

/* Python's own attributes: what the sandbox hides. */
static void refuse_hidden(struct template_run *r, struct value v, const struct template_string *name) {
    static const char *const mutating[] = {"append", "clear",  "pop",        "reverse", "insert", "sort",
                                           "extend", "remove", "setdefault", "update",  "popitem"};
    bool changes = false;
    for (size_t i = 0; i < ARRAY_COUNT(mutating); i++) changes = changes || string_is(name, mutating[i]);
    bool changeable = v.kind == VALUE_DICT || (v.kind == VALUE_LIST && v.list->type == LIST_PLAIN);
    if ((changes && changeable) || (name->size >= 2 && memcmp(name->text, "__", 2) == 0))
        run_fail(r, "access to attribute '%.*s' of '%s' object is unsafe.", (int)name->size, name->text, value_type(v));
}

/* Methods that Python's strings have and this reader has not. */
static void refuse_python(struct template_run *r, struct value v, const struct template_string *name) {
    static const char *const others[] = {"encode",       "translate",   "maketrans", "expandtabs", "format_map",
                                         "isidentifier", "isprintable", "istitle",   "casefold"};
    for (size_t i = 0; v.kind == VALUE_STRING && i < ARRAY_COUNT(others); i++)
        if (string_is(name, others[i])) run_refuse(r, "the method %s of a string", others[i]);
}

static struct value member_missing(struct template_run *r, struct value v, const struct template_string *name) {
    return value_undefined(r, "'%s object' has no attribute '%.*s'", value_type(v), (int)name->size, name->text);
}

/* An attribute of the Python object: a method, or NULL's worth of VALUE_ABSENT. */
static struct value own_attribute(struct template_run *r, struct value v, const struct template_string *name) {
    const struct call_row *row = method_find(v, name);
    if (row == NULL) return (struct value){.kind = VALUE_ABSENT};
    if (row->parameters == NULL) return row->call(r, &(struct bound_call){.self = v, .row = row});
    return value_callable(r, (struct template_callable){.kind = CALLABLE_METHOD, .row = row, .self = v});
}

static struct value key_of(struct template_run *r, struct value v, struct value key) {
    struct value *there = v.kind == VALUE_DICT ? dict_find(r, v.dict, key) : NULL;
    return there ? *there : (struct value){.kind = VALUE_ABSENT};
}

static bool is_dict_method_hidden(struct value v, const struct template_string *name) {
    static const char *const hidden[] = {"clear", "pop", "popitem", "setdefault", "update"};
    for (size_t i = 0; v.kind == VALUE_DICT && i < ARRAY_COUNT(hidden); i++)
        if (string_is(name, hidden[i])) return true;
    return false;
}

struct value value_attribute(struct template_run *r, struct value v, const struct template_string *name) {
    run_need_defined(r, v);
    if (v.kind == VALUE_NAMESPACE) {
        struct value *there = dict_find(r, v.dict, value_string(name));
        return there ? *there : member_missing(r, v, name);
    }
    struct value own = own_attribute(r, v, name);
    if (own.kind != VALUE_ABSENT) return own;
    refuse_python(r, v, name);
    if (is_dict_method_hidden(v, name)) refuse_hidden(r, v, name);
    struct value item = key_of(r, v, value_string(name));
    if (item.kind != VALUE_ABSENT) return item;
    refuse_hidden(r, v, name);
    return member_missing(r, v, name);
}

static struct value list_index(struct template_run *r, struct value v, int64_t i) {
    int64_t n = v.list->n, at = i < 0 ? i + n : i;
    if (at >= 0 && at < n) return v.list->items[at];
    return value_undefined(r, "%s object has no element %lld", value_type(v), (long long)i);
}

static struct value string_index(struct template_run *r, struct value v, int64_t i) {
    int64_t n = string_length(v.string), at = i < 0 ? i + n : i;
    run_step(r, (int64_t)v.string->size / 64);
    if (at < 0 || at >= n) return value_undefined(r, "str object has no element %lld", (long long)i);
    size_t from = string_offset(v.string, at);
    struct template_string rest = {.text = v.string->text + from, .size = v.string->size - from};
    return value_string(string_part(r->m, v.string, from, from + string_offset(&rest, 1)));
}

static bool is_indexed(struct value v) {
    return v.kind == VALUE_LIST && (v.list->type == LIST_PLAIN || v.list->type == LIST_TUPLE ||
                                    v.list->type == LIST_GROUP || v.list->type == LIST_RANGE);
}

struct value value_item(struct template_run *r, struct value v, struct value key) {
    run_need_defined(r, v);
    if (v.kind == VALUE_DICT && (key.kind != VALUE_LIST || key.list->type != LIST_PLAIN) && key.kind != VALUE_DICT) {
        struct value item = key_of(r, v, key);
        if (item.kind != VALUE_ABSENT) return item;
    }
    if (is_index(key) && is_indexed(v)) return list_index(r, v, value_index(key));
    if (is_index(key) && v.kind == VALUE_STRING) return string_index(r, v, value_index(key));
    if (key.kind == VALUE_STRING) {
        struct value own = own_attribute(r, v, key.string);
        if (own.kind != VALUE_ABSENT) return own;
        refuse_python(r, v, key.string);
        refuse_hidden(r, v, key.string);
        return member_missing(r, v, key.string);
    }
    return value_undefined(r, "%s object has no element of a %s", value_type(v), value_type(key));
}

/* Slices. */

struct slice_range {
    int64_t from, to, stride;
};

/* As Python's slice.indices. */
static struct slice_range slice_of(struct template_run *r, const struct value bounds[3], int64_t n) {
    struct slice_range s = {.stride = 1};
    if (bounds[2].kind != VALUE_NONE) {
        if (!is_index(bounds[2])) run_fail(r, "slice indices must be integers or None or have an __index__ method");
        s.stride = value_index(bounds[2]);
    }
    if (s.stride == 0) run_fail(r, "slice step cannot be zero");
    int64_t low = s.stride > 0 ? 0 : -1, high = s.stride > 0 ? n : n - 1;
    int64_t *to[2] = {&s.from, &s.to};
    for (int i = 0; i < 2; i++) {
        bool begins = (i == 0) == (s.stride > 0);
        if (bounds[i].kind == VALUE_NONE) {
            *to[i] = begins ? low : high;
            continue;
        }
        if (!is_index(bounds[i])) run_fail(r, "slice indices must be integers or None or have an __index__ method");
        int64_t at = value_index(bounds[i]);
        if (at < 0) at = at < -n ? low : at + n;
        *to[i] = at < low ? low : at > high ? high : at;
    }
    return s;
}

static struct value string_slice(struct template_run *r, const struct template_string *s, struct slice_range range) {
    struct text_builder b = {.m = r->m};
    int64_t n = string_length(s);
    run_step(r, (int64_t)s->size / 64);
    if (range.stride == 1) {
        if (range.to <= range.from) return value_string(string_of(r->m, "", 0, false));
        size_t from = string_offset(s, range.from);
        struct template_string rest = {.text = s->text + from, .size = s->size - from};
        return value_string(string_part(r->m, s, from, from + string_offset(&rest, range.to - range.from)));
    }
    size_t *offsets = memory_take(r->m, (size_t)(n + 1) * sizeof *offsets);
    size_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        struct template_string rest = {.text = s->text + at, .size = s->size - at};
        offsets[i] = at;
        at += string_offset(&rest, 1);
    }
    offsets[n] = s->size;
    for (int64_t i = range.from; range.stride > 0 ? i < range.to : i > range.to; i += range.stride)
        builder_part(&b, s, offsets[i], offsets[i + 1]);
    return value_string(builder_string(&b));
}

static struct value list_slice(struct template_run *r, struct value v, struct slice_range range) {
    if (v.list->type == LIST_RANGE) run_refuse(r, "a slice of a range; add |list");
    struct value list = value_list(r, v.list->type == LIST_GROUP ? LIST_TUPLE : v.list->type);
    for (int64_t i = range.from; range.stride > 0 ? i < range.to : i > range.to;) {
        list_append(r, list, v.list->items[i]);
        if (__builtin_add_overflow(i, range.stride, &i)) break;
    }
    return list;
}

struct value value_slice(struct template_run *r, struct value v, const struct value bounds[3]) {
    run_need_defined(r, v);
    if (v.kind == VALUE_STRING) return string_slice(r, v.string, slice_of(r, bounds, string_length(v.string)));
    if (is_indexed(v)) return list_slice(r, v, slice_of(r, bounds, v.list->n));
    run_fail(r, "'%s' object is not subscriptable by a slice", value_type(v));
}
