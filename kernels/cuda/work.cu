/* kernels/cuda/work.cu: the list of work, and how host arrays reach the device and results come
 * back. See cuda.h. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/common.cuh"

/* The list. */

struct work_command {
    work_function *run;
    size_t bytes; /* of the arguments, which follow */
};

static_assert(sizeof(struct work_command) == 16, "commands are compared as bytes");

void work_add(struct backend *backend, work_function *run, const void *arguments, size_t bytes) {
    struct work *work = &cuda_of(backend)->work;
    if (backend->error.status) return;
    CHECK(bytes % 8 == 0);
    struct work_command command = {run, bytes};
    size_t end = work->bytes + sizeof command + bytes;
    if (end > work->commands.bytes) host_list_reserve(&work->commands, 2 * end);
    char *at = (char *)work->commands.data + work->bytes;
    memcpy(at, &command, sizeof command);
    memcpy(at + sizeof command, arguments, bytes);
    work->latest = work->bytes;
    work->bytes = end;
    work->n++;
}

const void *work_latest(struct backend *backend, work_function *run) {
    const struct work *work = &cuda_of(backend)->work;
    if (work->latest >= work->bytes) return NULL;
    const char *at = (const char *)work->commands.data + work->latest;
    return ((const struct work_command *)(const void *)at)->run == run
               ? at + sizeof(struct work_command)
               : NULL;
}

void work_take_back(struct backend *backend) {
    struct work *work = &cuda_of(backend)->work;
    work->bytes = work->latest;
    work->n--;
}

void work_run(struct backend *backend) {
    const struct work *work = &cuda_of(backend)->work;
    size_t at = 0;
    while (at < work->bytes && backend->error.status == STATUS_OK) {
        const char *data = (const char *)work->commands.data + at;
        const struct work_command *command = (const struct work_command *)data;
        command->run(backend, data + sizeof *command);
        at += sizeof *command + command->bytes;
    }
}

/* Sends the device what the ring was given since the last time. */
static bool ring_send(struct backend *backend) {
    struct cuda *cuda = cuda_of(backend);
    struct ring *ring = &cuda->ring;
    size_t from = (size_t)ring->segment * RING_SEGMENT_BYTES + ring->sent,
           bytes = ring->filled - ring->sent;
    ring->sent = ring->filled;
    return bytes == 0 || cuda_ok(backend,
                                 cudaMemcpyAsync(ring->device + from, ring->host + from, bytes,
                                                 cudaMemcpyHostToDevice, cuda->stream),
                                 "copying arguments");
}

/* After a failure what is listed is dropped with it. */
void work_flush(struct backend *backend) {
    struct cuda *cuda = cuda_of(backend);
    if (cuda_ok(backend, cudaSetDevice(cuda->ordinal), "choosing the device") && cuda->work.n > 0 &&
        backend->error.status == STATUS_OK && ring_send(backend))
        graphs_run(backend);
    cuda->work.bytes = 0;
    cuda->work.n = 0;
}

static void ring_forget(struct ring *ring) {
    memset(ring->latest, 0, sizeof ring->latest);
    ring->scattered = NULL;
}

/* Waits for the device. Whoever watches may find that it waits for a rank that is gone. */
static bool device_wait(struct backend *backend) {
    struct cuda *cuda = cuda_of(backend);
    double start = time_now(), looked = start, now = start;
    struct error e;
    while (cuda->watch.look && cudaStreamQuery(cuda->stream) == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* that was none */
        now = time_now();
        if (now - looked < 1e-3 * LOOK_MS) continue;
        looked = now;
        if (cuda->watch.look(cuda->watch.context, now - start, &e) == STATUS_OK) continue;
        if (backend->error.status == STATUS_OK) backend->error = e;
        break;
    }
    return cuda_ok(backend, cudaStreamSynchronize(cuda->stream), "running the step") &&
           backend->error.status == STATUS_OK;
}

bool work_sync(struct backend *backend) {
    struct cuda *cuda = cuda_of(backend);
    struct inbox *in = &cuda->inbox;
    struct ring *ring = &cuda->ring;
    work_flush(backend);
    bool ok = device_wait(backend);
    for (int i = 0; ok && i < in->n; i++)
        memcpy(in->items[i].to, in->host + in->items[i].at, in->items[i].bytes);
    in->n = 0;
    in->used = 0;
    ring->segment = 0;
    ring->filled = ring->sent = 0;
    memset(ring->used, 0, sizeof ring->used);
    ring_forget(ring);
    return ok;
}

/* The ring. */

bool work_open(struct backend *backend) {
    struct cuda *cuda = cuda_of(backend);
    struct ring *ring = &cuda->ring;
    size_t bytes = (size_t)RING_SEGMENTS * RING_SEGMENT_BYTES;
    bool ok = cuda_ok(backend, cudaMallocHost((void **)&ring->host, bytes),
                      "pinned memory for arguments") &&
              cuda_ok(backend, cudaMallocHost((void **)&cuda->inbox.host, INBOX_BYTES),
                      "pinned memory for results") &&
              cuda_ok(backend, cudaMalloc((void **)&ring->device, bytes), "memory for arguments");
    for (int i = 0; i < RING_SEGMENTS && ok; i++)
        ok = cuda_ok(backend, cudaEventCreateWithFlags(&ring->done[i], cudaEventDisableTiming),
                     "an event");
    return ok;
}

void work_close(struct cuda *cuda) {
    struct ring *ring = &cuda->ring;
    for (int i = 0; i < RING_SEGMENTS; i++)
        if (ring->done[i]) cudaEventDestroy(ring->done[i]);
    cudaFree(ring->device);
    cudaFreeHost(ring->host);
    cudaFreeHost(cuda->inbox.host);
    free(cuda->work.commands.data);
}

/* A copy of the same array that was made a moment ago. Where it lay is compared too: two arrays
 * that happen to hold the same numbers in one step but not in the next must not make the lists of
 * the two differ. */
static const void *ring_find(const struct ring *ring, const void *host, size_t bytes) {
    for (int i = 0; i < RING_REMEMBERED; i++)
        if (ring->latest[i].bytes == bytes && ring->latest[i].array == host &&
            memcmp(ring->host + ring->latest[i].at, host, bytes) == 0)
            return ring->device + ring->latest[i].at;
    return NULL;
}

/* Launches what reads the segment in which the next array has no room, and waits until the device
 * has read the one after it. */
static bool ring_advance(struct backend *backend) {
    struct cuda *cuda = cuda_of(backend);
    struct ring *ring = &cuda->ring;
    int next = (ring->segment + 1) % RING_SEGMENTS;
    if (!ring_send(backend)) return false;
    work_flush(backend);
    if (backend->error.status ||
        !cuda_ok(backend, cudaEventRecord(ring->done[ring->segment], cuda->stream), "an event"))
        return false;
    ring->used[ring->segment] = true;
    if (ring->used[next] &&
        !cuda_ok(backend, cudaEventSynchronize(ring->done[next]), "waiting for arguments"))
        return false;
    ring->segment = next;
    ring->filled = ring->sent = 0;
    /* Only copies of this segment serve again: an op that takes several arrays may go through the
     * others. */
    ring_forget(ring);
    return true;
}

const void *cuda_stage(struct backend *backend, const void *host, size_t bytes) {
    struct cuda *cuda = cuda_of(backend);
    struct ring *ring = &cuda->ring;
    if (backend->error.status || bytes == 0) return NULL;
    if (bytes > RING_SEGMENT_BYTES) {
        error_set(&backend->error, STATUS_TOO_LARGE,
                  "%s: an argument of %zu bytes, the limit is %d; use smaller steps",
                  cuda->description, bytes, RING_SEGMENT_BYTES);
        return NULL;
    }
    const void *found = ring_find(ring, host, bytes);
    if (found) return found;
    if (bytes > RING_SEGMENT_BYTES - ring->filled && !ring_advance(backend)) return NULL;
    size_t at = (size_t)ring->segment * RING_SEGMENT_BYTES + ring->filled;
    memcpy(ring->host + at, host, bytes);
    ring->latest[ring->next].array = host;
    ring->latest[ring->next].at = at;
    ring->latest[ring->next].bytes = bytes;
    ring->next = (ring->next + 1) % RING_REMEMBERED;
    ring->filled += (bytes + RING_ALIGNMENT - 1) / RING_ALIGNMENT * RING_ALIGNMENT;
    return ring->device + at;
}

/* Results. */

void cuda_fetch(struct backend *backend, void *host, const void *device, size_t bytes) {
    struct cuda *cuda = cuda_of(backend);
    struct inbox *in = &cuda->inbox;
    if (backend->error.status || bytes == 0) return;
    work_flush(backend);
    bool fits = in->n < INBOX_ITEMS && bytes <= INBOX_BYTES - in->used;
    void *to = fits ? in->host + in->used : host;
    if (backend->error.status ||
        !cuda_ok(backend, cudaMemcpyAsync(to, device, bytes, cudaMemcpyDeviceToHost, cuda->stream),
                 "copying from it") ||
        !fits)
        return;
    in->items[in->n].to = host;
    in->items[in->n].at = in->used;
    in->items[in->n].bytes = bytes;
    in->n++;
    in->used += bytes;
}

/* Memory that grows. */

void *workspace_reserve(struct backend *backend, struct workspace *workspace, size_t bytes) {
    if (backend->error.status) return NULL;
    if (bytes <= workspace->bytes) return workspace->data;
    work_flush(backend);                                                /* it may use the old one */
    cuda_ok(backend, cudaFree(workspace->data), "growing a workspace"); /* waits for the device */
    *workspace = {NULL, 0};
    if (backend->error.status ||
        !cuda_ok(backend, cudaMalloc(&workspace->data, bytes), "growing a workspace"))
        return NULL;
    workspace->bytes = bytes;
    return workspace->data;
}

void *host_list_reserve(struct host_list *list, size_t bytes) {
    if (bytes > list->bytes) {
        list->data = xrealloc(list->data, bytes);
        list->bytes = bytes;
    }
    return list->data;
}
