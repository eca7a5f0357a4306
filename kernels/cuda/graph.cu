/* kernels/cuda/graph.cu: lists of work as CUDA graphs. A decode step is some hundred small kernels,
 * each of which costs the host about as much to launch as the GPU needs to run it; as a graph they
 * are one launch.
 *
 * A list that comes for the second time is captured and becomes a graph, which runs then and
 * whenever the list comes again. Equal lists have equal bytes: the same functions, grids, pointers
 * and numbers; what differs between two steps lies in the ring, at the same place. Plain decode
 * steps of one batch size are equal but for the number of parts that attention cuts its keys into,
 * which is padded for that reason; steps that close a chunk are equal where the same number of
 * chunks close. The graph that was not used for longest gives way. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/common.cuh"

enum { FEWEST_COMMANDS = 8 /* shorter lists are launched as they are */ };

static uint64_t hash_of(const char *bytes, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h;
}

static bool graph_holds(const struct graph *one, const char *commands, size_t bytes) {
    return one->bytes == bytes && memcmp(one->commands, commands, bytes) == 0;
}

/* The latest comes first: in most steps it is the one. *hash is set when there is none. */
static struct graph *graphs_find(struct graphs *graphs, const char *commands, size_t bytes,
                                 uint64_t *hash) {
    struct graph *latest = graphs->kept;
    for (int i = 1; i < graphs->n; i++)
        if (graphs->kept[i].last_used > latest->last_used) latest = &graphs->kept[i];
    if (graphs->n > 0 && graph_holds(latest, commands, bytes)) return latest;
    *hash = hash_of(commands, bytes);
    for (int i = 0; i < graphs->n; i++)
        if (graphs->kept[i].hash == *hash && graph_holds(&graphs->kept[i], commands, bytes))
            return &graphs->kept[i];
    return NULL;
}

/* Whether the list came before; remembers that it did. */
static bool graphs_saw(struct graphs *graphs, uint64_t hash) {
    uint64_t *place = &graphs->seen[hash % GRAPHS_SEEN];
    bool seen = *place == hash;
    *place = hash;
    return seen;
}

static void graph_free(struct graph *one) {
    if (one->exec) cudaGraphExecDestroy(one->exec);
    free(one->commands);
    *one = (struct graph){};
}

static struct graph *graphs_take_place(struct graphs *graphs) {
    if (graphs->n < GRAPHS) {
        graphs->n++;
        return &graphs->kept[graphs->n - 1];
    }
    struct graph *oldest = &graphs->kept[0];
    for (int i = 1; i < graphs->n; i++)
        if (graphs->kept[i].last_used < oldest->last_used) oldest = &graphs->kept[i];
    graph_free(oldest);
    return oldest;
}

/* The list as a graph that can be launched; NULL after a failure. Capture holds for this thread
 * alone: others may allocate meanwhile. */
static cudaGraphExec_t graph_capture(struct backend *backend) {
    cudaStream_t stream = cuda_of(backend)->stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (!cuda_ok(backend, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                 "capturing a step"))
        return NULL;
    work_run(backend);
    bool ok = cuda_ok(backend, cudaStreamEndCapture(stream, &graph), "capturing a step") &&
              backend->error.status == STATUS_OK &&
              cuda_ok(backend, cudaGraphInstantiate(&exec, graph, 0), "making a step's graph");
    if (graph) cudaGraphDestroy(graph);
    return ok ? exec : NULL;
}

static struct graph *graph_keep(struct backend *backend, uint64_t hash) {
    struct cuda *cuda = cuda_of(backend);
    cudaGraphExec_t exec = graph_capture(backend);
    if (exec == NULL) return NULL;
    struct graph *one = graphs_take_place(&cuda->graphs);
    one->commands = (char *)xmalloc(cuda->work.bytes);
    memcpy(one->commands, cuda->work.commands.data, cuda->work.bytes);
    one->bytes = cuda->work.bytes;
    one->hash = hash;
    one->exec = exec;
    cuda->graphs.captured++;
    return one;
}

void graphs_run(struct backend *backend) {
    struct cuda *cuda = cuda_of(backend);
    struct graphs *graphs = &cuda->graphs;
    uint64_t hash = 0;
    if (graphs->off || cuda->work.n < FEWEST_COMMANDS) {
        work_run(backend);
        return;
    }
    struct graph *one =
        graphs_find(graphs, (const char *)cuda->work.commands.data, cuda->work.bytes, &hash);
    if (one == NULL && !graphs_saw(graphs, hash)) {
        work_run(backend);
        return;
    }
    if (one == NULL) one = graph_keep(backend, hash);
    if (one == NULL) return;
    one->last_used = ++graphs->clock;
    if (cuda_ok(backend, cudaGraphLaunch(one->exec, cuda->stream), "launching a step"))
        graphs->launched++;
}

void graphs_close(struct graphs *graphs) {
    for (int i = 0; i < graphs->n; i++) graph_free(&graphs->kept[i]);
}

void cuda_graph_counts(const struct backend *backend, uint64_t *captured, uint64_t *launched) {
    *captured = cuda_of(backend)->graphs.captured;
    *launched = cuda_of(backend)->graphs.launched;
}
