/* server/api/operations/metrics_server.c: see metrics_server.h. */
#include "server/api/operations/metrics_server.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/base/log.h"
#include "server/doors/mcp/mcp.h"

void metrics_print_head(struct buffer *out, const char *name, const char *type, const char *help) {
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The process. */

static void print_one(struct buffer *out, const char *name, const char *type, const char *help,
                      double value) {
    metrics_print_head(out, name, type, help);
    buffer_printf(out, "%s %.15g\n", name, value);
}

/* Pages of /proc/self/statm: all, and those in memory. */
static bool read_pages(long long *all, long long *resident) {
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) return false;
    bool read = fscanf(file, "%lld %lld", all, resident) == 2;
    fclose(file);
    return read;
}

/* Less the one that reading the folder takes; -1: nobody can tell. */
static int count_open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int n = -1;
    if (folder == NULL) return -1;
    while (readdir(folder)) n++;
    closedir(folder);
    return n - 2; /* "." and ".." */
}

static void print_memory(struct buffer *out) {
    long long all, resident, page = sysconf(_SC_PAGESIZE);
    if (!read_pages(&all, &resident)) return;
    print_one(out, "process_virtual_memory_bytes", "gauge", "Addresses in use.",
              (double)(all * page));
    print_one(out, "process_resident_memory_bytes", "gauge",
              "Memory in use, mapped files included.", (double)(resident * page));
}

static void print_cpu(struct buffer *out) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return;
    double seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    print_one(out, "process_cpu_seconds_total", "counter", "Time of all threads on processors.",
              seconds);
}

static void print_mcp(struct mcp *mcp, struct buffer *out) {
    struct mcp_counts counts = mcp_counts(mcp);
    print_one(out, "retro_mcp_sessions", "gauge",
              "Sessions of MCP clients of versions before 2026-07-28.", counts.sessions);
    print_one(out, "retro_mcp_listeners", "gauge", "MCP clients that wait for changes.",
              counts.listeners);
}

void metrics_print_process(const struct api *api, struct buffer *out) {
    struct rlimit limit;
    int files = count_open_files();
    print_cpu(out);
    print_memory(out);
    if (files >= 0)
        print_one(out, "process_open_fds", "gauge", "Open files and connections.", files);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        print_one(out, "process_max_fds", "gauge", "As many may be open.", (double)limit.rlim_cur);
    print_one(out, "process_start_time_seconds", "gauge",
              "When the server started, in seconds since 1970.", (double)api->created);
    print_one(out, "retro_http_connections", "gauge", "Connections of clients that are open.",
              atomic_load(&api->connections));
    print_mcp(api->mcp, out);
    print_one(out, "retro_log_dropped_lines_total", "counter",
              "Lines of the log that nobody read fast enough.", (double)log_dropped());
}

/* Keys. */

static int64_t count_requests(const struct key_counts *counts) { return counts->requests; }
static int64_t count_refused(const struct key_counts *counts) { return counts->refused; }
static int64_t count_tokens(const struct key_counts *counts) { return counts->tokens; }
static int64_t count_stored(const struct key_counts *counts) { return counts->stored; }
static int64_t count_concurrent(const struct key_counts *counts) { return counts->concurrent; }

struct key_metric {
    const char *name, *type, *help;
    int64_t (*count)(const struct key_counts *counts);
};
static const struct key_metric key_metrics[] = {
    {"retro_key_requests_total", "counter", "Requests that were let in, by the name of their key.",
     count_requests},
    {"retro_key_refused_requests_total", "counter", "Requests beyond a limit of their key.",
     count_refused},
    {"retro_key_tokens_total", "counter", "Tokens that were read and written for a key.",
     count_tokens},
    {"retro_key_stored_bytes", "gauge",
     "Texts and metadata of a key's documents at its latest put, where limited.", count_stored},
    {"retro_key_requests_running", "gauge", "Requests of a key that are in work.",
     count_concurrent},
};

void metrics_print_keys(const struct api *api, struct buffer *out) {
    if (api->keys == NULL) return;
    struct key_list keys = keyring_list(api->keys);
    for (size_t i = 0; i < ARRAY_COUNT(key_metrics); i++) {
        const struct key_metric *metric = &key_metrics[i];
        metrics_print_head(out, metric->name, metric->type, metric->help);
        for (int j = 0; j < keys.n; j++) {
            struct key_counts counts = key_counts(keys.items[j]);
            buffer_printf(out, "%s{key=\"%s\"} %lld\n", metric->name, keys.items[j]->name,
                          (long long)metric->count(&counts));
        }
    }
    key_list_free(&keys);
}
