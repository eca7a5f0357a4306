/* retro/grammar/json_rules.h: the parts of JSON as expressions of a draft: white space, strings,
 * numbers, any value; or the same values in the notation of a model's calls (Gemma 4), in which
 * strings stand as they are between marks, names of members stand bare where they are words, and
 * there is no white space. */
#pragma once

#include "config/json/json_value.h"
#include "retro/grammar/char_ranges.h"

/* Objects and arrays within each other of a shallow value: its readers have a limit. */
enum { JSON_SHALLOW = 32 };

/* Rules + 1 of any value, any object and any array of so many levels; 0: not made. */
struct any_rules {
    int value, object, array;
};

/* Rules that are made when they are first asked for; zero-initialise. */
struct json_rules {
    struct grammar_draft *draft;
    bool raw; /* the notation with marks */
    int mark; /* of it: the expression before and behind a string. Its text ends in "|>", which no
                 string has */
    bool shallow; /* values have at most JSON_SHALLOW levels, whatever a schema says of them */
    int around;   /* levels around the value of which an expression is made now */
    int blanks, character, string, number, integer; /* rules + 1, 0: not made */
    struct any_rules any[JSON_SHALLOW + 2];         /* by levels; the last: of any number of them */
};

/* White space between tokens: none, a blank, or at most two line ends and 64 blanks or tabs. */
int json_blanks(struct json_rules *rules);
/* One character within a string, escaped or not. */
int json_character(struct json_rules *rules);
int json_string_rule(struct json_rules *rules);
int json_number(struct json_rules *rules);
int json_integer_rule(struct json_rules *rules);
/* Whether a value has room for an object or an array with all that is around it: where it has none,
 * the expressions of these are EXPR_NOTHING. */
bool json_may_nest(const struct json_rules *rules);
int json_any(struct json_rules *rules);
int json_any_object(struct json_rules *rules);
int json_any_array(struct json_rules *rules);

/* Characters of the ranges, each as itself where JSON allows it, else by an escape. */
int json_written_chars(struct json_rules *rules, const struct char_range *ranges, int n);
/* The same within quotation marks, or between marks. */
int json_between_marks(struct json_rules *rules, int inside);
/* A text between quotation marks, written in that way. */
int json_written_text(struct json_rules *rules, struct text_span text);
/* The name of a member. */
int json_written_name(struct json_rules *rules, struct text_span name);
/* One character of a name that is not given, and the name of such characters. */
int json_name_chars(struct json_rules *rules, const struct char_range *ranges, int n);
int json_name_of(struct json_rules *rules, int inside);
/* "name" : and what follows. */
int json_member_of(struct json_rules *rules, int name, int value);
/* An object of these members; the parts between them are set here. */
int json_object_of(struct json_rules *rules, struct expr_object *object);
/* first? then more, with commas between; both may be EXPR_NOTHING. */
int json_list_of(struct json_rules *rules, const int *prefix, int n_prefix, int rest, int min,
                 int max);
