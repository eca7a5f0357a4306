/* retro/template/tests.c: what stands behind `is`. */
#include <math.h>
#include <string.h>

#include "config/text/unicode.h"
#include "retro/template/template_private.h"

#define TEST(name, condition) \
    static struct value name(struct template_run *r, const struct bound_call *c) { \
        (void)r; \
        return value_bool(condition); \
    }

static bool has_kind(const struct bound_call *call, enum value_kind kind) {
    return call->self.kind == kind;
}

/* Whether the value has a length and is indexed. Undefined values of Jinja say that they are. */
static bool is_sequence(struct value value) {
    if (value.kind == VALUE_LIST) return value.list->type <= LIST_RANGE;
    return value.kind == VALUE_STRING || value.kind == VALUE_DICT || value.kind == VALUE_UNDEFINED;
}

static bool is_same(struct value left, struct value right) {
    if (left.kind != right.kind) return false;
    switch (left.kind) {
        case VALUE_NONE: return true;
        case VALUE_BOOL: return left.truth == right.truth;
        case VALUE_LIST: return left.list == right.list;
        case VALUE_DICT: return left.dict == right.dict;
        default: return false;
    }
}

static struct value remainder_of(struct template_run *run, const struct bound_call *call,
                                 struct value by) {
    return operator_apply(run, OPERATOR_MOD, call->self, by);
}

static bool is_remainder(struct template_run *run, const struct bound_call *call, int64_t by,
                         int64_t rest) {
    return value_equal(run, remainder_of(run, call, value_int(by)), value_int(rest));
}

static bool all_cased(struct template_run *run, const struct bound_call *call, bool upper) {
    return string_is_cased(value_text(run, call->self), upper);
}

static bool values_compare(struct template_run *run, const struct bound_call *call,
                           enum operator_kind operator) {
    return operator_compare(run, operator, call->self, call->args[0]);
}

static bool is_known(const struct bound_call *call, bool filter) {
    if (call->self.kind != VALUE_STRING) return false;
    return filter ? filter_find(call->self.string) != NULL : test_find(call->self.string) != NULL;
}

TEST(test_defined, !has_kind(c, VALUE_UNDEFINED))
TEST(test_undefined, has_kind(c, VALUE_UNDEFINED))
TEST(test_none, has_kind(c, VALUE_NONE))
TEST(test_boolean, has_kind(c, VALUE_BOOL))
TEST(test_true, has_kind(c, VALUE_BOOL) && c->self.truth)
TEST(test_false, has_kind(c, VALUE_BOOL) && !c->self.truth)
TEST(test_integer, has_kind(c, VALUE_INT))
TEST(test_float, has_kind(c, VALUE_FLOAT))
TEST(test_number, value_is_number(c->self))
TEST(test_string, has_kind(c, VALUE_STRING))
TEST(test_mapping, has_kind(c, VALUE_DICT))
TEST(test_iterable, value_is_iterable(c->self))
TEST(test_sequence, is_sequence(c->self))
TEST(test_callable, has_kind(c, VALUE_CALLABLE) || has_kind(c, VALUE_UNDEFINED))
TEST(test_escaped, has_kind(c, VALUE_STRING) && c->self.string->safe)
TEST(test_sameas, is_same(c->self, c->args[0]))
TEST(test_odd, is_remainder(r, c, 2, 1))
TEST(test_even, is_remainder(r, c, 2, 0))
TEST(test_divisibleby, value_equal(r, remainder_of(r, c, c->args[0]), value_int(0)))
TEST(test_lower, all_cased(r, c, false))
TEST(test_upper, all_cased(r, c, true))
TEST(test_in, values_compare(r, c, OPERATOR_IN))
TEST(test_eq, values_compare(r, c, OPERATOR_EQ))
TEST(test_ne, values_compare(r, c, OPERATOR_NE))
TEST(test_lt, values_compare(r, c, OPERATOR_LT))
TEST(test_le, values_compare(r, c, OPERATOR_LE))
TEST(test_gt, values_compare(r, c, OPERATOR_GT))
TEST(test_ge, values_compare(r, c, OPERATOR_GE))
TEST(test_filter, is_known(c, true))
TEST(test_test, is_known(c, false))

static const struct call_row rows[] = {
    {"defined", test_defined, "", 0},
    {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},
    {"boolean", test_boolean, "", 0},
    {"true", test_true, "", 0},
    {"false", test_false, "", 0},
    {"integer", test_integer, "", 0},
    {"float", test_float, "", 0},
    {"number", test_number, "", 0},
    {"string", test_string, "", 0},
    {"mapping", test_mapping, "", 0},
    {"iterable", test_iterable, "", 0},
    {"sequence", test_sequence, "", 0},
    {"callable", test_callable, "", 0},
    {"escaped", test_escaped, "", 0},
    {"sameas", test_sameas, "other", 1},
    {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},
    {"divisibleby", test_divisibleby, "num", 1},
    {"lower", test_lower, "", 0},
    {"upper", test_upper, "", 0},
    {"in", test_in, "seq", 1},
    {"eq", test_eq, "other /", 1},
    {"equalto", test_eq, "other /", 1},
    {"==", test_eq, "other /", 1},
    {"ne", test_ne, "other /", 1},
    {"!=", test_ne, "other /", 1},
    {"lt", test_lt, "other /", 1},
    {"lessthan", test_lt, "other /", 1},
    {"<", test_lt, "other /", 1},
    {"le", test_le, "other /", 1},
    {"<=", test_le, "other /", 1},
    {"gt", test_gt, "other /", 1},
    {"greaterthan", test_gt, "other /", 1},
    {">", test_gt, "other /", 1},
    {"ge", test_ge, "other /", 1},
    {">=", test_ge, "other /", 1},
    {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},
};
const struct call_table value_tests = {rows, ARRAY_COUNT(rows)};
