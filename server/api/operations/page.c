/* server/api/operations/page.c: GET /: the page for people, and the files that it loads. A browser
 * keeps them and asks whether they changed. They may load nothing from elsewhere, run no script of
 * another place and stand in no other page's frame. Pictures that a person adds, and those of
 * sources, are blobs that the page itself has made. */
#include <stdio.h>
#include <string.h>

#include "config/base/hash.h"
#include "server/api/api.h"
#include "server/page/page_files.h"

static const char content_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src "
    "'self'; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

static void add_security(struct answer *answer) {
    answer_add_header(answer, "Content-Security-Policy", "%s", content_policy);
    answer_add_header(answer, "X-Content-Type-Options", "nosniff");
    answer_add_header(answer, "Referrer-Policy", "no-referrer");
    answer_add_header(answer, "Cross-Origin-Opener-Policy", "same-origin");
    answer_add_header(answer, "Cross-Origin-Resource-Policy", "same-origin");
}

struct answer *page_open(struct api *api, const struct api_request *request, struct waker waker,
                         struct failure *failure) {
    const struct page_file *file = page_file_find(request->path);
    struct buffer body = {0};
    char tag[24];
    (void)api, (void)waker, (void)failure;
    CHECK(file != NULL); /* each route to here is a file's */
    size_t size = (size_t)(file->end - file->start);
    snprintf(tag, sizeof tag, "\"%016llx\"", (unsigned long long)hash_bytes(file->start, size, 0));

    bool known = request->if_none_match != NULL && strstr(request->if_none_match, tag) != NULL;
    if (!known) buffer_append(&body, file->start, size);
    struct answer *answer = answer_text(known ? 304 : 200, file->type, &body);
    answer_set_header(answer, "Cache-Control", "no-cache");
    answer_add_header(answer, "ETag", "%s", tag);
    add_security(answer);
    return answer;
}
