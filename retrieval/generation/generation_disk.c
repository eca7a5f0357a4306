/* retrieval/generation/generation_disk.c: the steps by which a builder changes the disk. Each is
 * announced to a hook, so that a test can end the process before any one of them and look at what a
 * reader finds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "retrieval/generation/generation_private.h"

void (*disk_step_hook)(const char *step);

static void step(const char *name) {
    if (disk_step_hook) disk_step_hook(name);
}

enum status disk_create(int *fd, const char *path, struct error *e) {
    step("create");
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *fd < 0 ? error_errno(e, "%s: create", path) : STATUS_OK;
}

enum status disk_write(int fd, const char *path, const void *bytes, size_t size, struct error *e) {
    step("write");
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(e, "%s: write", path);
        done += (size_t)n;
    }
    return STATUS_OK;
}

enum status disk_sync(const char *path, struct error *e) {
    step("sync");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_errno(e, "%s: open to sync", path);
    enum status status = fsync(fd) == 0 ? STATUS_OK : error_errno(e, "%s: fsync", path);
    close(fd);
    return status;
}

enum status disk_sync_open(int fd, const char *path, struct error *e) {
    step("sync");
    return fsync(fd) == 0 ? STATUS_OK : error_errno(e, "%s: fsync", path);
}

enum status disk_truncate(const char *path, uint64_t size, struct error *e) {
    step("truncate");
    return truncate(path, (off_t)size) == 0 ? STATUS_OK : error_errno(e, "%s: truncate", path);
}

enum status disk_write_whole(const char *path, const struct buffer *text, struct error *e) {
    int fd;
    enum status status = disk_create(&fd, path, e);
    if (status) return status;
    status = disk_write(fd, path, text->data, text->size, e);
    close(fd);
    return status ? status : disk_sync(path, e);
}

enum status disk_rename(const char *from, const char *to, struct error *e) {
    step("rename");
    return rename(from, to) == 0 ? STATUS_OK : error_errno(e, "%s: rename to %s", from, to);
}

enum status disk_remove(const char *path, struct error *e) {
    step("remove");
    return unlink(path) == 0 || errno == ENOENT ? STATUS_OK : error_errno(e, "%s: remove", path);
}

char *disk_path(const char *dir, const char *name) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", dir, name);
    return path.data;
}

char *disk_generation_path(const char *dir, int generation) {
    char name[GENERATION_NAME_SIZE];
    generation_name(name, generation);
    return disk_path(dir, name);
}

/* The files in it, then the folder; it holds no folders. */
static enum status remove_with_files(DIR *d, const char *folder, struct error *e) {
    enum status status = STATUS_OK;
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(d)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *path = disk_path(folder, entry->d_name);
        status = disk_remove(path, e);
        free(path);
    }
    if (status) return status;
    step("remove");
    return rmdir(folder) == 0 ? STATUS_OK : error_errno(e, "%s: remove", folder);
}

enum status disk_remove_folder(const char *folder, struct error *e) {
    DIR *d = opendir(folder);
    if (d == NULL) return errno == ENOENT ? STATUS_OK : error_errno(e, "%s", folder);
    enum status status = remove_with_files(d, folder, e);
    closedir(d);
    return status;
}

enum status disk_remove_generation(const char *dir, int generation, struct error *e) {
    char *folder = disk_generation_path(dir, generation);
    enum status status = disk_remove_folder(folder, e);
    free(folder);
    return status;
}

/* The folder that holds the name of a file or folder. */
static char *parent_of(const char *path) {
    char *parent = xstrdup(path);
    size_t size = strlen(parent);
    while (size > 1 && parent[size - 1] == '/') size--;
    while (size > 0 && parent[size - 1] != '/') size--;
    while (size > 1 && parent[size - 1] == '/') size--;
    if (size == 0) {
        free(parent);
        return xstrdup(".");
    }
    parent[size] = '\0';
    return parent;
}

enum status disk_sync_name(const char *path, struct error *e) {
    char *parent = parent_of(path);
    enum status status = disk_sync(parent, e);
    free(parent);
    return status;
}

/* One folder, whose name is on the disk when it is there. */
static enum status make_one_folder(const char *path, struct error *e) {
    step("mkdir");
    if (mkdir(path, 0700) != 0)
        return errno == EEXIST ? STATUS_OK : error_errno(e, "%s: make folder", path);
    return disk_sync_name(path, e);
}

enum status disk_make_folder(const char *path, struct error *e) {
    char *copy = xstrdup(path);
    enum status status = STATUS_OK;
    for (char *p = copy + 1; status == STATUS_OK && *copy != '\0'; p++) {
        char end = *p;
        if (end != '/' && end != '\0') continue;
        *p = '\0';
        status = make_one_folder(copy, e);
        *p = end;
        if (end == '\0') break;
    }
    free(copy);
    return status;
}

static int compare_ints(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int disk_list_generations(const char *dir, int **generations) {
    int n = 0, capacity = 0, found = 0;
    DIR *d = opendir(dir);
    *generations = NULL;
    for (struct dirent *entry; d && (entry = readdir(d)) != NULL;) {
        if (!generation_parse(entry->d_name, &found)) continue;
        *generations = xgrow(*generations, n, &capacity, sizeof **generations);
        (*generations)[n] = found;
        n++;
    }
    if (d) closedir(d);
    if (n > 0) qsort(*generations, (size_t)n, sizeof **generations, compare_ints);
    return n;
}
