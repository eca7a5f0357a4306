/* config/base/memory.c: reads /proc and the file systems of control groups. See memory.h.
 *
 * Where a group's files lie is told by two files: /proc/self/cgroup has the path of the process's
 * group in a hierarchy, /proc/self/mountinfo where the hierarchy is mounted, and from which path
 * on: in a container that is often its own group, so that the path does not exist below. */
#include "config/base/memory.h"

#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/buffer.h"

/* The file names of each version of control groups. */
static const struct version {
    const char *limits[2], *usage, *pages[3];
} versions[] = {
    {{"memory.limit_in_bytes"},
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
    {{"memory.max", "memory.high"},
     "memory.current",
     {"inactive_file", "active_file", "slab_reclaimable"}},
};

/* A mounted hierarchy that limits memory, and the group in it. */
struct hierarchy {
    bool found;
    char mount[PATH_MAX]; /* without `root` of memory_read */
    char top[PATH_MAX];   /* the group that is mounted there */
    char group[PATH_MAX];
};

/* root + folder + "/" + name */
static FILE *open_at(const char *root, const char *folder, const char *name) {
    struct buffer path = {0};
    buffer_printf(&path, "%s%s/%s", root, folder, name);
    FILE *f = fopen(path.data, "re");
    buffer_free(&path);
    return f;
}

/* The number behind `key` and a space or colon in a file, which is closed; the first number where
 * key is "". False for anything else, such as "max", and without a file. */
static bool find_number(FILE *f, const char *key, size_t *value) {
    char *line = NULL;
    size_t capacity = 0, n = strlen(key);
    bool found = false;
    while (f && !found && getline(&line, &capacity, f) > 0)
        if (strncmp(line, key, n) == 0 && (n == 0 || line[n] == ' ' || line[n] == ':'))
            found = sscanf(line + n + (n > 0), " %zu", value) == 1;
    free(line);
    if (f) fclose(f);
    return found;
}

/* Whether a list with commas has an entry. */
static bool has_entry(const char *list, const char *entry) {
    size_t n = strlen(entry);
    for (const char *at = list; (at = strstr(at, entry)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == '\0' || at[n] == ',' || at[n] == '\n'))
            return true;
    return false;
}

/* "31 23 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory" */
static void find_mounts(const char *root, struct hierarchy hierarchy[2]) {
    FILE *f = open_at(root, "/proc/self", "mountinfo");
    char *line = NULL, top[PATH_MAX], mount[PATH_MAX], type[64], options[512];
    size_t capacity = 0;
    while (f && getline(&line, &capacity, f) > 0) {
        const char *rest = strstr(line, " - ");
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount) != 2 || rest == NULL ||
            sscanf(rest, " - %63s %*s %511s", type, options) != 2)
            continue;
        bool second = strcmp(type, "cgroup2") == 0;
        if (!second && (strcmp(type, "cgroup") != 0 || !has_entry(options, "memory"))) continue;
        hierarchy[second].found = true;
        snprintf(hierarchy[second].mount, sizeof hierarchy[second].mount, "%s", mount);
        snprintf(hierarchy[second].top, sizeof hierarchy[second].top, "%s", top);
    }
    free(line);
    if (f) fclose(f);
}

/* "5:memory:/docker/0123" and "0::/user.slice". */
static void find_groups(const char *root, struct hierarchy hierarchy[2]) {
    FILE *f = open_at(root, "/proc/self", "cgroup");
    char *line = NULL;
    size_t capacity = 0;
    while (f && getline(&line, &capacity, f) > 0) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (path == NULL) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        bool second = names[1] == '\0';
        if (second || has_entry(names + 1, "memory"))
            snprintf(hierarchy[second].group, sizeof hierarchy[second].group, "%s", path);
    }
    free(line);
    if (f) fclose(f);
}

/* The group's path below the mount: "" for the mounted group itself, and for a group that lies
 * elsewhere. */
static const char *path_below(const struct hierarchy *hierarchy) {
    size_t n = strlen(hierarchy->top);
    const char *rest = hierarchy->group;
    if (strcmp(hierarchy->top, "/") != 0)
        rest = strncmp(rest, hierarchy->top, n) == 0 ? rest + n : "";
    return rest[0] != '/' || rest[1] == '\0' || strstr(rest, "/..") ? "" : rest;
}

/* One group: what it may still take becomes *memory where that is less. */
static void apply_group(struct memory *memory, const char *root, const char *folder,
                        const struct version *version) {
    size_t used = 0, pages = 0, value;
    if (!find_number(open_at(root, folder, version->usage), "", &used)) return;
    for (size_t i = 0; i < ARRAY_COUNT(version->pages) && version->pages[i]; i++)
        if (find_number(open_at(root, folder, "memory.stat"), version->pages[i], &value))
            pages += value;
    used -= pages < used ? pages : used;
    for (size_t i = 0; i < ARRAY_COUNT(version->limits) && version->limits[i]; i++) {
        if (!find_number(open_at(root, folder, version->limits[i]), "", &value)) continue;
        size_t left = value > used ? value - used : 0;
        if (left >= memory->available) continue;
        memory->available = left;
        snprintf(memory->limit, sizeof memory->limit, "%.150s/%s", folder, version->limits[i]);
    }
}

static void apply_hierarchy(struct memory *memory, const char *root,
                            const struct hierarchy *hierarchy, const struct version *version) {
    struct buffer folder = {0};
    size_t top = strlen(hierarchy->mount);
    if (!hierarchy->found) return;
    buffer_printf(&folder, "%s%s", hierarchy->mount, path_below(hierarchy));
    for (char *slash; folder.data != NULL; *slash = '\0') {
        apply_group(memory, root, folder.data, version);
        slash = strrchr(folder.data, '/');
        if (slash == NULL || (size_t)(slash - folder.data) < top) break;
    }
    buffer_free(&folder);
}

void memory_read(struct memory *memory, const char *root) {
    struct hierarchy *hierarchy = xcalloc(2, sizeof *hierarchy);
    size_t kilobytes;
    *memory = (struct memory){.available = SIZE_MAX};
    if (find_number(open_at(root, "/proc", "meminfo"), "MemAvailable", &kilobytes))
        memory->available = kilobytes * 1024;
    find_mounts(root, hierarchy);
    find_groups(root, hierarchy);
    for (int i = 0; i < 2; i++) apply_hierarchy(memory, root, &hierarchy[i], &versions[i]);
    free(hierarchy);
}

size_t memory_own(void) {
    unsigned long all = 0, resident = 0, shared = 0;
    malloc_trim(0); /* what is free already is nobody's */
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lu %lu %lu", &all, &resident, &shared) != 3) resident = shared = 0;
    if (f) fclose(f);
    return (resident - shared) * (size_t)sysconf(_SC_PAGESIZE);
}
