/* retro/chat/tagged_calls.h: calls of tools between tags, as the templates of these families write
 * them:
 *
 *     CALLS_FUNCTION  <tool_call> <function=NAME> <parameter=KEY> VALUE </parameter> ...
 * </function>
 *                     </tool_call>
 *     CALLS_GLM       <tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> ...
 *                     </tool_call>
 *     CALLS_MINIMAX   <minimax:tool_call> <invoke name="NAME"> <parameter name="KEY">VALUE
 *                     </parameter> ... </invoke> ... </minimax:tool_call>
 *     CALLS_DEEPSEEK  begin of calls, each of them NAME, a separator and its arguments as JSON
 *     CALLS_DEEPSEEK_BLOCK  likewise: "function", a separator, NAME and a block of JSON
 *     CALLS_PYTHON    <|tool_call_start|>[NAME(KEY=VALUE, ...), ...]<|tool_call_end|>, in Python
 *     CALLS_GEMMA     <|tool_call>call:NAME{KEY:VALUE,...}<tool_call|>, with texts between
 * GEMMA_QUOTE
 *     CALLS_GRANITE   <|tool_call|>[{"name": ..., "arguments": {...}}, ...], in JSON
 *     CALLS_APERTUS   <|tools_prefix|>[{NAME: {...}}, ...]<|tools_suffix|>, in JSON
 *     CALLS_OLMO      <function_calls>NAME(KEY=VALUE, ...)</function_calls>, each call on a line,
 *                     in Python
 *
 * A value between tags is text. It becomes what the tool's parameters say of its key: text where
 * they say so or say nothing, else the JSON value that it spells, and text where it spells none or
 * one that is none of their alternatives. */
#pragma once

#include "retro/chat/chat_reply_private.h"

/* The tag that a call begins with; NULL: the format has none of these. */
const char *tagged_calls_begin(enum call_format format);
/* The tag that it ends with; NULL: there is none. */
const char *tagged_calls_end(enum call_format format);
/* Whether a value of this schema between tags is text, and not JSON. */
bool tagged_value_is_text(const struct json *parameter);
/* Whether a text between tags is read as null and not as itself: where null is among the values of
 * the schema, a text is too, and it spells null as JSON or Python does. */
bool tagged_text_is_null(const struct json *parameter, struct text_span text);
/* Whether a text between tags is read back as it was written: it has no tag that would end it
 * earlier, and no blanks or line ends around it that are dropped. Of DeepSeek's formats names. */
enum tagged_part { TAGGED_NAME, TAGGED_KEY, TAGGED_VALUE };
bool tagged_text_fits(enum call_format format, enum tagged_part part, struct text_span text);
/* Reads the calls that the span begins with: all of them, or none. *used: their bytes. */
enum call_found tagged_calls_read(struct chat_reply *reply, struct text_span span, bool last,
                                  size_t *used);
/* Whether a tool or a parameter can have the name in a list of Python's. */
bool python_name_fits(struct text_span name);
/* Reads the list that the span begins with, as it stands between CALLS_PYTHON's tags
 * (python_calls.c), and moves the span behind it and the blanks there. false: it begins with none,
 * or, where nothing of the span is left, with one that is not complete. */
bool python_calls_read(struct chat_reply *reply, struct text_span *span);
/* The same of the calls one under the other between CALLS_OLMO's tags. */
bool python_lines_read(struct chat_reply *reply, struct text_span *span);
/* The same of a call between CALLS_GEMMA's tags (gemma_calls.c). */
#define GEMMA_QUOTE "<|\"|>"
bool gemma_call_read(struct chat_reply *reply, struct text_span *span);
