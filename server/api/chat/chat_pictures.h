/* server/api/chat/chat_pictures.h: pictures in the messages of a chat: parts {"type": "image_url",
 * "image_url": {"url": "data:image/png;base64,..."}}, or URLs that the server fetches them from
 * (picture_part.h). */
#pragma once

#include "server/api/api.h"

/* Begins to read the pictures of all messages, in their order; *out stays NULL where there are
 * none. False, with *failure set, where one has a URL that is not read, or where they would not fit
 * the model's context. */
bool chat_pictures_start(const struct served_model *model, const struct json *messages,
                         const struct principal *who, struct waker waker, struct picture_job **out,
                         struct failure *failure);
/* Of a job that is over: false, with *failure set, where one is no picture. */
bool chat_pictures_check(const struct picture_job *job, struct failure *failure);
