/* tools/import/formats/yaml.h: the part of YAML that NeMo writes its configurations in: maps within maps by
 * indentation, of plain and quoted values. Lists, texts of several lines and references are passed over; nothing is
 * looked up or made.
 */
#pragma once

#include "tools/import/settings.h"

/* Puts every plain value: "outer.inner". */
void yaml_read(struct settings *s, struct text_span text);
