/* tools/convert/formats/pickle.h: Python's pickles, read as data. A pickle is a program that can
 * name any function to call; this reader runs none: a call becomes a value that says what would
 * have been called with what. Functions that no checkpoint has a use for and a hostile file does
 * (os.system, builtins.eval, ...) are refused by name. */
#pragma once

#include "config/base/buffer.h"

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_REAL,
    PICKLE_TEXT,
    PICKLE_BYTES, /* integers of more than 64 bits, too */
    PICKLE_LIST,
    PICKLE_TUPLE,
    PICKLE_SET,
    PICKLE_DICT,   /* items: key, value, key, value ... */
    PICKLE_GLOBAL, /* text: "module.name" */
    PICKLE_OBJECT, /* class(arguments), then state and items, which are a dict's when `mapped` */
    PICKLE_STORED  /* arguments: the persistent id */
};

struct pickle_value {
    enum pickle_kind kind;
    bool mapped;
    int64_t number;        /* PICKLE_INT; PICKLE_BOOL: 0 or 1 */
    double real;           /* PICKLE_REAL, and the number of the two above */
    struct text_span text; /* borrowed from the pickle's bytes, but for globals */
    const struct pickle_value **items;
    size_t count, capacity;
    const struct pickle_value *class, *arguments, *state; /* NULL where there are none */
};

struct pickle;

/* Reads one pickle of protocol 2 to 5, whose bytes are borrowed until pickle_close. `name` is for
 * messages. STATUS_CORRUPT: no whole pickle; STATUS_UNSUPPORTED: an opcode or a function that is
 * refused; STATUS_TOO_LARGE. */
enum status pickle_open(struct pickle **out, struct text_span bytes, const char *name,
                        struct error *e);
/* The same of a file whose classes are known: those of other modules than Python's own, NumPy's,
 * torch's, Megatron's and NeMo's are refused, too. */
enum status pickle_open_known(struct pickle **out, struct text_span bytes, const char *name,
                              struct error *e);
void pickle_close(struct pickle *pickle);
const struct pickle_value *pickle_root(const struct pickle *pickle);

/* Every function below takes NULL, and values of any kind. */

bool pickle_is(const struct pickle_value *value, enum pickle_kind kind);
bool pickle_text_is(const struct pickle_value *value, const char *text); /* of a text or a global */
/* Item i of a list, tuple or set; NULL beyond the end. */
const struct pickle_value *pickle_item(const struct pickle_value *value, size_t i);
/* Pairs of a dict, or of an object that has items as a dict has. */
size_t pickle_pairs(const struct pickle_value *value);
const struct pickle_value *pickle_key(const struct pickle_value *value, size_t i);
const struct pickle_value *pickle_pair_value(const struct pickle_value *value, size_t i);
/* The value of a text key; NULL when it is not there. The last of equal keys counts, as in Python.
 */
const struct pickle_value *pickle_member(const struct pickle_value *value, const char *key);
/* The attribute of an object whose state is a dict, or a pair of None and a dict. */
const struct pickle_value *pickle_attributes(const struct pickle_value *object);
const struct pickle_value *pickle_attribute(const struct pickle_value *object, const char *name);
/* Whether an object is of a class whose name, with or without its module, is this. */
bool pickle_is_object(const struct pickle_value *value, const char *class_name);
