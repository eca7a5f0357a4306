/* server/api/chat/chat_pictures.c: see chat_pictures.h. */
#include "server/api/chat/chat_pictures.h"

#include <stdio.h>

#include "server/api/core/picture_part.h"
#include "server/host/prompt/picture_input.h"

static size_t count_pictures(const struct json *messages) {
    size_t n = 0;
    for (size_t i = 0; i < json_count(messages); i++) {
        const struct json *content = json_member(json_item(messages, i), "content");
        for (size_t j = 0; json_is_list(content) && j < json_count(content); j++)
            n += picture_part_is(json_item(content, j));
    }
    return n;
}

static bool take_files(struct picture_job *job, const struct json *messages,
                       const struct host_rules *hosts, struct failure *failure) {
    int n = 0;
    for (size_t i = 0; i < json_count(messages); i++) {
        const struct json *content = json_member(json_item(messages, i), "content");
        for (size_t k = 0; json_is_list(content) && k < json_count(content); k++) {
            const struct json *part = json_item(content, k);
            char of[40];
            const struct picture_place place = {"messages", of, hosts};
            struct picture_source source;
            if (!picture_part_is(part)) continue;
            snprintf(of, sizeof of, "message %zu", i);
            job->files[n].of = "message";
            job->files[n].number = i;
            if (!picture_part_read(part, &place, &source, failure)) return false;
            job->files[n].bytes = source.bytes;
            job->files[n].web = source.web;
            n++;
        }
    }
    return true;
}

static bool ask_thread(const struct served_model *model, struct picture_job *job,
                       struct failure *failure) {
    struct error e;
    if (picture_thread_ask(model->picture_thread, job, &e) == STATUS_OK) return true;
    failure_from_error(failure, &e);
    failure->retry_after = 1;
    return false;
}

bool chat_pictures_start(const struct served_model *model, const struct json *messages,
                         const struct principal *who, struct waker waker, struct picture_job **out,
                         struct failure *failure) {
    size_t n = count_pictures(messages);
    if (n == 0) return true;
    if (model->picture_input == NULL)
        return failure_set(failure, 400, "unsupported_content", "messages",
                           "the model %s reads no pictures", model->id);
    size_t most = (size_t)(model->limits.context / picture_input_least_rows(model->picture_input));
    if (n > most)
        return failure_set(failure, 400, "context_length_exceeded", "messages",
                           "the conversation has %zu pictures of at least %d tokens each; the "
                           "limit is %d tokens (the "
                           "model's, or option server.max_context)",
                           n, picture_input_least_rows(model->picture_input),
                           model->limits.context);
    struct picture_job *job = picture_job_open(
        &(struct picture_reader){.picture_input = model->picture_input}, (int)n, *who, waker);
    if (take_files(job, messages, model->limits.image_hosts, failure) &&
        ask_thread(model, job, failure)) {
        *out = job;
        return true;
    }
    picture_job_release(job);
    return false;
}

bool chat_pictures_check(const struct picture_job *job, struct failure *failure) {
    if (job->error.status == STATUS_OK) return true;
    if (job->error.status == STATUS_CANCELLED || job->error.status == STATUS_NO_MEMORY)
        return failure_from_error(failure, &job->error);
    return failure_set(failure, 400, "invalid_image", "messages", "%s", job->error.text);
}
