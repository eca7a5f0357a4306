/* tools/convert/plan/import_keys.h: how keys of config.json are filled in: from --config, from the
 * checkpoint's settings
 * ("a|b": the first that is there), from tensors; and noted as missing. */
#pragma once

#include "tools/convert/plan/import.h"

enum { KEY_SIZE = 64 };

/* NULL: there is none. */
const struct checkpoint_tensor *import_tensor(const struct import_plan *plan, const char *name);
/* The same of the stack that all families have, "layers.0.mlp.linear_fc1.weight" in it. */
const struct checkpoint_tensor *import_stack_tensor(const struct import_plan *plan,
                                                    const char *name);
/* Of the whole tensor, where ranks split rows or columns. */
int64_t import_rows(const struct import_plan *plan, const struct checkpoint_tensor *tensor);
int64_t import_columns(const struct import_plan *plan, const struct checkpoint_tensor *tensor);

/* Notes that nothing says a key. */
void import_lack(struct import_plan *plan, const char *key, const char *advice);
/* From --config; false: it does not say. */
bool import_take_given(struct import_plan *plan, const char *key);
/* False: nothing says it. */
bool import_take_int(struct import_plan *plan, const char *key, const char *names, int64_t *out);
bool import_take_text(struct import_plan *plan, const char *key, const char *names);
void import_take_real(struct import_plan *plan, const char *key, const char *names,
                      double fallback);
void import_take_bool(struct import_plan *plan, const char *key,
                      const char *names); /* false where nothing says it */
void import_put_int(struct import_plan *plan, const char *key, int64_t value, const char *origin);
void import_put_bool(struct import_plan *plan, const char *key, bool value, const char *origin);
void import_put_text(struct import_plan *plan, const char *key, const char *value,
                     const char *origin);
enum status import_disagree(const struct import_plan *plan, const char *what, int64_t tensors,
                            int64_t said, struct error *e);

/* import_positions.c: the keys of positions. */
enum status import_configure_positions(struct import_plan *plan, struct error *e);
/* import_families.c: keys of one family. */
enum status import_check_given(const struct import_plan *plan, struct error *e);
enum status import_configure_retro(struct import_plan *plan, const struct import_options *options,
                                   struct error *e);
enum status import_configure_t5(struct import_plan *plan, struct error *e);
enum status import_configure_bert(struct import_plan *plan, struct error *e);
