/* server/api/chat_pictures.h: pictures in the messages of a chat: parts {"type": "image_url", "image_url": {"url":
 * "data:image/png;base64,..."}}. Other URLs are refused: the server fetches nothing. */
#pragma once

#include "server/api/api.h"

/* The pictures of all messages in their order, ready for the model's tower; *out stays NULL where there are none.
 * False, with *f set, where one is no data: URL, no picture, or where they would not fit the model's context. */
bool chat_pictures_read(const struct served_model *model, const struct json *messages, struct picture_set **out,
                        struct failure *f);
