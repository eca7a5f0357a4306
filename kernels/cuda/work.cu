/* kernels/cuda/work.cu: the list of work, and how host arrays reach the device and results come back. See cuda.h. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/common.cuh"

/* The list. */

struct work_command {
    work_function *run;
    size_t bytes; /* of the arguments, which follow */
};

static_assert(sizeof(struct work_command) == 16, "commands are compared as bytes");

void work_add(struct backend *b, work_function *run, const void *arguments, size_t bytes) {
    struct work *w = &cuda_of(b)->work;
    if (b->error.status) return;
    CHECK(bytes % 8 == 0);
    struct work_command c = {run, bytes};
    size_t end = w->bytes + sizeof c + bytes;
    if (end > w->commands.bytes) host_list_reserve(&w->commands, 2 * end);
    char *at = (char *)w->commands.data + w->bytes;
    memcpy(at, &c, sizeof c);
    memcpy(at + sizeof c, arguments, bytes);
    w->latest = w->bytes;
    w->bytes = end;
    w->n++;
}

const void *work_latest(struct backend *b, work_function *run) {
    const struct work *w = &cuda_of(b)->work;
    if (w->latest >= w->bytes) return NULL;
    const char *at = (const char *)w->commands.data + w->latest;
    return ((const struct work_command *)(const void *)at)->run == run ? at + sizeof(struct work_command) : NULL;
}

void work_take_back(struct backend *b) {
    struct work *w = &cuda_of(b)->work;
    w->bytes = w->latest;
    w->n--;
}

void work_run(struct backend *b) {
    const struct work *w = &cuda_of(b)->work;
    size_t at = 0;
    while (at < w->bytes && b->error.status == STATUS_OK) {
        const char *data = (const char *)w->commands.data + at;
        const struct work_command *c = (const struct work_command *)data;
        c->run(b, data + sizeof *c);
        at += sizeof *c + c->bytes;
    }
}

/* Sends the device what the ring was given since the last time. */
static bool ring_send(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    struct ring *r = &cuda->ring;
    size_t from = (size_t)r->segment * RING_SEGMENT_BYTES + r->sent, bytes = r->filled - r->sent;
    r->sent = r->filled;
    return bytes == 0 ||
           cuda_ok(b, cudaMemcpyAsync(r->device + from, r->host + from, bytes, cudaMemcpyHostToDevice, cuda->stream),
                   "copying arguments");
}

/* After a failure what is listed is dropped with it. */
void work_flush(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    if (cuda_ok(b, cudaSetDevice(cuda->ordinal), "choosing the device") && cuda->work.n > 0 &&
        b->error.status == STATUS_OK && ring_send(b))
        graphs_run(b);
    cuda->work.bytes = 0;
    cuda->work.n = 0;
}

static void ring_forget(struct ring *r) {
    memset(r->latest, 0, sizeof r->latest);
    r->scattered = NULL;
}

/* Waits for the device. Whoever watches may find that it waits for a rank that is gone. */
static bool device_wait(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    double start = time_now(), looked = start, now = start;
    struct error e;
    while (cuda->watch.look && cudaStreamQuery(cuda->stream) == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* that was none */
        now = time_now();
        if (now - looked < 1e-3 * LOOK_MS) continue;
        looked = now;
        if (cuda->watch.look(cuda->watch.context, now - start, &e) == STATUS_OK) continue;
        if (b->error.status == STATUS_OK) b->error = e;
        break;
    }
    return cuda_ok(b, cudaStreamSynchronize(cuda->stream), "running the step") && b->error.status == STATUS_OK;
}

bool work_sync(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    struct inbox *in = &cuda->inbox;
    struct ring *r = &cuda->ring;
    work_flush(b);
    bool ok = device_wait(b);
    for (int i = 0; ok && i < in->n; i++) memcpy(in->items[i].to, in->host + in->items[i].at, in->items[i].bytes);
    in->n = 0;
    in->used = 0;
    r->segment = 0;
    r->filled = r->sent = 0;
    memset(r->used, 0, sizeof r->used);
    ring_forget(r);
    return ok;
}

/* The ring. */

bool work_open(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    struct ring *r = &cuda->ring;
    size_t bytes = (size_t)RING_SEGMENTS * RING_SEGMENT_BYTES;
    bool ok = cuda_ok(b, cudaMallocHost((void **)&r->host, bytes), "pinned memory for arguments") &&
              cuda_ok(b, cudaMallocHost((void **)&cuda->inbox.host, INBOX_BYTES), "pinned memory for results") &&
              cuda_ok(b, cudaMalloc((void **)&r->device, bytes), "memory for arguments");
    for (int i = 0; i < RING_SEGMENTS && ok; i++)
        ok = cuda_ok(b, cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming), "an event");
    return ok;
}

void work_close(struct cuda *cuda) {
    struct ring *r = &cuda->ring;
    for (int i = 0; i < RING_SEGMENTS; i++)
        if (r->done[i]) cudaEventDestroy(r->done[i]);
    cudaFree(r->device);
    cudaFreeHost(r->host);
    cudaFreeHost(cuda->inbox.host);
    free(cuda->work.commands.data);
}

/* A copy of the same array that was made a moment ago. Where it lay is compared too: two arrays that happen to hold the
 * same numbers in one step but not in the next must not make the lists of the two differ. */
static const void *ring_find(const struct ring *r, const void *host, size_t bytes) {
    for (int i = 0; i < RING_REMEMBERED; i++)
        if (r->latest[i].bytes == bytes && r->latest[i].array == host &&
            memcmp(r->host + r->latest[i].at, host, bytes) == 0)
            return r->device + r->latest[i].at;
    return NULL;
}

/* Launches what reads the segment in which the next array has no room, and waits until the device has read the one
 * after it. */
static bool ring_advance(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    struct ring *r = &cuda->ring;
    int next = (r->segment + 1) % RING_SEGMENTS;
    if (!ring_send(b)) return false;
    work_flush(b);
    if (b->error.status || !cuda_ok(b, cudaEventRecord(r->done[r->segment], cuda->stream), "an event")) return false;
    r->used[r->segment] = true;
    if (r->used[next] && !cuda_ok(b, cudaEventSynchronize(r->done[next]), "waiting for arguments")) return false;
    r->segment = next;
    r->filled = r->sent = 0;
    /* Only copies of this segment serve again: an op that takes several arrays may go through the others. */
    ring_forget(r);
    return true;
}

const void *cuda_stage(struct backend *b, const void *host, size_t bytes) {
    struct cuda *cuda = cuda_of(b);
    struct ring *r = &cuda->ring;
    if (b->error.status || bytes == 0) return NULL;
    if (bytes > RING_SEGMENT_BYTES) {
        error_set(&b->error, STATUS_TOO_LARGE, "%s: an argument of %zu bytes, the limit is %d; use smaller steps",
                  cuda->description, bytes, RING_SEGMENT_BYTES);
        return NULL;
    }
    const void *found = ring_find(r, host, bytes);
    if (found) return found;
    if (bytes > RING_SEGMENT_BYTES - r->filled && !ring_advance(b)) return NULL;
    size_t at = (size_t)r->segment * RING_SEGMENT_BYTES + r->filled;
    memcpy(r->host + at, host, bytes);
    r->latest[r->next].array = host;
    r->latest[r->next].at = at;
    r->latest[r->next].bytes = bytes;
    r->next = (r->next + 1) % RING_REMEMBERED;
    r->filled += (bytes + RING_ALIGNMENT - 1) / RING_ALIGNMENT * RING_ALIGNMENT;
    return r->device + at;
}

/* Results. */

void cuda_fetch(struct backend *b, void *host, const void *device, size_t bytes) {
    struct cuda *cuda = cuda_of(b);
    struct inbox *in = &cuda->inbox;
    if (b->error.status || bytes == 0) return;
    work_flush(b);
    bool fits = in->n < INBOX_ITEMS && bytes <= INBOX_BYTES - in->used;
    void *to = fits ? in->host + in->used : host;
    if (b->error.status ||
        !cuda_ok(b, cudaMemcpyAsync(to, device, bytes, cudaMemcpyDeviceToHost, cuda->stream), "copying from it") ||
        !fits)
        return;
    in->items[in->n].to = host;
    in->items[in->n].at = in->used;
    in->items[in->n].bytes = bytes;
    in->n++;
    in->used += bytes;
}

/* Memory that grows. */

void *workspace_reserve(struct backend *b, struct workspace *w, size_t bytes) {
    if (b->error.status) return NULL;
    if (bytes <= w->bytes) return w->data;
    work_flush(b);                                        /* it may use the old one */
    cuda_ok(b, cudaFree(w->data), "growing a workspace"); /* waits for the device */
    *w = {NULL, 0};
    if (b->error.status || !cuda_ok(b, cudaMalloc(&w->data, bytes), "growing a workspace")) return NULL;
    w->bytes = bytes;
    return w->data;
}

void *host_list_reserve(struct host_list *l, size_t bytes) {
    if (bytes > l->bytes) {
        l->data = xrealloc(l->data, bytes);
        l->bytes = bytes;
    }
    return l->data;
}
