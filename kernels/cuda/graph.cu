/* kernels/cuda/graph.cu: lists of work as CUDA graphs. A decode step is some hundred small kernels, each of which costs
 * the host about as much to launch as the GPU needs to run it; as a graph they are one launch.
 *
 * A list that comes for the second time is captured and becomes a graph, which runs then and whenever the list comes
 * again. Equal lists have equal bytes: the same functions, grids, pointers and numbers; what differs between two steps
 * lies in the ring, at the same place. Plain decode steps of one batch size are equal but for the number of parts that
 * attention cuts its keys into, which is padded for that reason; steps that close a chunk are equal where the same
 * number of chunks close. The graph that was not used for longest gives way. */
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
static struct graph *graphs_find(struct graphs *g, const char *commands, size_t bytes, uint64_t *hash) {
    struct graph *latest = g->kept;
    for (int i = 1; i < g->n; i++)
        if (g->kept[i].last_used > latest->last_used) latest = &g->kept[i];
    if (g->n > 0 && graph_holds(latest, commands, bytes)) return latest;
    *hash = hash_of(commands, bytes);
    for (int i = 0; i < g->n; i++)
        if (g->kept[i].hash == *hash && graph_holds(&g->kept[i], commands, bytes)) return &g->kept[i];
    return NULL;
}

/* Whether the list came before; remembers that it did. */
static bool graphs_saw(struct graphs *g, uint64_t hash) {
    uint64_t *place = &g->seen[hash % GRAPHS_SEEN];
    bool seen = *place == hash;
    *place = hash;
    return seen;
}

static void graph_free(struct graph *one) {
    if (one->exec) cudaGraphExecDestroy(one->exec);
    free(one->commands);
    *one = (struct graph){};
}

static struct graph *graphs_take_place(struct graphs *g) {
    if (g->n < GRAPHS) {
        g->n++;
        return &g->kept[g->n - 1];
    }
    struct graph *oldest = &g->kept[0];
    for (int i = 1; i < g->n; i++)
        if (g->kept[i].last_used < oldest->last_used) oldest = &g->kept[i];
    graph_free(oldest);
    return oldest;
}

/* The list as a graph that can be launched; NULL after a failure. Capture holds for this thread alone: others may
 * allocate meanwhile. */
static cudaGraphExec_t graph_capture(struct backend *b) {
    cudaStream_t stream = cuda_of(b)->stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (!cuda_ok(b, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a step")) return NULL;
    work_run(b);
    bool ok = cuda_ok(b, cudaStreamEndCapture(stream, &graph), "capturing a step") && b->error.status == STATUS_OK &&
              cuda_ok(b, cudaGraphInstantiate(&exec, graph, 0), "making a step's graph");
    if (graph) cudaGraphDestroy(graph);
    return ok ? exec : NULL;
}

static struct graph *graph_keep(struct backend *b, uint64_t hash) {
    struct cuda *cuda = cuda_of(b);
    cudaGraphExec_t exec = graph_capture(b);
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

void graphs_run(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    struct graphs *g = &cuda->graphs;
    uint64_t hash = 0;
    if (g->off || cuda->work.n < FEWEST_COMMANDS) {
        work_run(b);
        return;
    }
    struct graph *one = graphs_find(g, (const char *)cuda->work.commands.data, cuda->work.bytes, &hash);
    if (one == NULL && !graphs_saw(g, hash)) {
        work_run(b);
        return;
    }
    if (one == NULL) one = graph_keep(b, hash);
    if (one == NULL) return;
    one->last_used = ++g->clock;
    if (cuda_ok(b, cudaGraphLaunch(one->exec, cuda->stream), "launching a step")) g->launched++;
}

void graphs_close(struct graphs *g) {
    for (int i = 0; i < g->n; i++) graph_free(&g->kept[i]);
}

void cuda_graph_counts(const struct backend *b, uint64_t *captured, uint64_t *launched) {
    *captured = cuda_of(b)->graphs.captured;
    *launched = cuda_of(b)->graphs.launched;
}
