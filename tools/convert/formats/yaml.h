/* tools/convert/formats/yaml.h: the part of YAML that NeMo writes its configurations in: maps
 * within maps by indentation, of plain and quoted values. Lists and texts of several lines are
 * passed over, a reference is the text
 * "*name"; nothing is looked up or made. */
#pragma once

#include "tools/convert/formats/settings.h"

/* Puts every plain value: "outer.inner". STATUS_UNSUPPORTED, which names the line: a tag that makes
 * an object of Python's, and a reference within something that is referred to, by which a few lines
 * become gigabytes. */
enum status yaml_read(struct settings *settings, struct text_span text, const char *name,
                      struct error *e);
