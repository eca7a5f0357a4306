/* server/doors/mcp/call.h: one request of a client on its way to a result: what handlers of methods
 * see, and the envelope around what they write. */
#pragma once

#include "server/doors/mcp/mcp.h"
#include "server/doors/mcp/message.h"
#include "server/doors/mcp/sessions.h"

enum mcp_era { MCP_OLD = 1, MCP_MODERN = 2, MCP_BOTH = 3 };

struct mcp_call;

/* Handles a request. It writes the members of the result to call->w and returns NULL; or returns an
 * answer, with call->wrap set, that the result is made of once it is complete. NULL with *fault
 * set: there is no result. */
typedef struct answer *mcp_opener(struct mcp_call *call, struct mcp_fault *fault);
/* Writes the members of the result from the body of the answer that was waited for. */
typedef void mcp_wrapper(struct mcp_call *call, struct text_span body);
/* The same from why there was none. False: it is a fault. */
typedef bool mcp_excuse(struct mcp_call *call, const char *message);

struct mcp_method {
    const char *name;
    int eras; /* bits of enum mcp_era */
    mcp_opener *open;
    const char *scope; /* in which clients may keep the result: "public", "private"; NULL: not */
    int seconds;       /* for how long */
    bool looks;        /* at documents: they have to be open */
    bool streams;      /* what it returns is the answer itself */
    const char *names; /* the parameter that the header Mcp-Name repeats; NULL: none */
};
/* NULL: there is none of that name in the era. */
const struct mcp_method *mcp_method_find(const char *name, enum mcp_era era);

struct mcp_call {
    struct answer base; /* first: of JSON, while it waits for `inner` */
    struct mcp *mcp;
    struct api *api;
    struct principal who; /* held */
    enum mcp_era era;
    bool lines;   /* from standard input */
    bool batched; /* one of several */
    char *
        address; /* by which the client reaches the server, "http://host:port"; NULL: it has none */
    struct mcp_session *session; /* held; NULL: it has none */
    struct mcp_message message;
    const struct mcp_method *method;
    const char *tool;    /* that is called, "other" of an unknown one; NULL: none is */
    const char *outcome; /* how the call ended, for /metrics; NULL: its client left before */
    struct waker waker;
    struct json_writer w;
    struct answer *inner;
    mcp_wrapper *wrap;
    mcp_excuse *excuse; /* NULL: what goes wrong is a fault */
    struct buffer body; /* of inner */
    /* Tells how far `inner` is; NULL: that is not known. */
    void (*told)(struct answer *inner, int *done, int *total);
    int done;                   /* as it was told last */
    struct mcp_pending pending; /* with a session */
};

/* Outcomes of calls, and the name in /metrics of methods and tools that there are not. */
extern const char mcp_answered[], mcp_tool_failed[], mcp_faulty[], mcp_unknown[];

/* The answer to a request that was read; takes the call. */
struct answer *mcp_call_open(struct mcp_call *call);
void mcp_call_free(struct mcp_call *call);
/* An answer that is a fault, which is freed; `call` may be NULL where no message was read. */
struct answer *mcp_fault_answer(struct mcp_fault *fault, const struct mcp_call *call);

/* Puts the members of a JSON object into the object that is open. */
void mcp_put_members(struct json_writer *w, struct text_span object);
/* "io.modelcontextprotocol/serverInfo" of the object that is open. */
void mcp_put_server(struct json_writer *w);
/* The page of a list that "cursor" asks for begins behind *last, which is empty for the first. */
bool mcp_read_cursor(const struct mcp_call *call, const char *list, struct buffer *last,
                     struct mcp_fault *fault);
/* A string among the parameters; NULL with *fault set. */
const char *mcp_read_text(const struct json *object, const char *name, struct mcp_fault *fault);
/* A failure as the fault that it is; frees it. */
bool mcp_fault_from(struct mcp_fault *fault, struct failure *failure);

/* "initialize", "server/discover", ... */
mcp_opener mcp_initialize, mcp_discover, mcp_nothing;             /* handshake.c */
mcp_opener mcp_tools_list, mcp_tools_call;                        /* tools.c */
mcp_opener mcp_resources_list, mcp_resources_read;                /* listing.c, reading.c */
mcp_opener mcp_templates_list, mcp_prompts_list, mcp_prompts_get; /* templates.c, prompts.c */
mcp_opener mcp_complete;                                          /* listing.c */
mcp_opener mcp_listen, mcp_subscribe, mcp_unsubscribe;            /* listen.c */
