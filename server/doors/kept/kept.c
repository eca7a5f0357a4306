/* server/doors/kept/kept.c: see kept.h. */
#include "server/doors/kept/kept.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ID_BYTES = 64 };

struct kept_item {
    char id[ID_BYTES];
    double until; /* time_now() */
    struct buffer text;
};

/* Its items, the oldest first. */
struct kept_room {
    uint64_t owner;
    struct kept_item *items; /* [n] */
    int n, capacity;
    size_t bytes;
};

struct kept {
    struct kept_limits limits;
    pthread_mutex_t lock; /* guards the rest */
    struct kept_room *rooms;
    int n, capacity;
};

struct kept *kept_open(struct kept_limits limits) {
    struct kept *kept = xcalloc(1, sizeof *kept);
    kept->limits = limits;
    pthread_mutex_init(&kept->lock, NULL);
    return kept;
}

static void drop(struct kept_room *room, int i) {
    room->bytes -= room->items[i].text.size;
    buffer_free(&room->items[i].text);
    memmove(&room->items[i], &room->items[i + 1], (size_t)(room->n - i - 1) * sizeof *room->items);
    room->n--;
}

void kept_close(struct kept *kept) {
    if (kept == NULL) return;
    for (int i = 0; i < kept->n; i++) {
        while (kept->rooms[i].n > 0) drop(&kept->rooms[i], kept->rooms[i].n - 1);
        free(kept->rooms[i].items);
    }
    free(kept->rooms);
    pthread_mutex_destroy(&kept->lock);
    free(kept);
}

uint64_t kept_owner(const struct principal *principal) {
    return principal->key ? principal->client : 0;
}

/* While the lock is held. Keys are few, and those that keep nothing have no room. */
static struct kept_room *find_room(struct kept *kept, uint64_t owner) {
    double now = time_now();
    for (int i = 0; i < kept->n; i++) {
        struct kept_room *room = &kept->rooms[i];
        if (room->owner != owner) continue;
        while (room->n > 0 && room->items[0].until < now) drop(room, 0);
        return room;
    }
    return NULL;
}

static struct kept_room *open_room(struct kept *kept, uint64_t owner) {
    struct kept_room *room = find_room(kept, owner);
    if (room) return room;
    kept->rooms = xgrow(kept->rooms, kept->n, &kept->capacity, sizeof *kept->rooms);
    kept->rooms[kept->n] = (struct kept_room){.owner = owner};
    kept->n++;
    return &kept->rooms[kept->n - 1];
}

static int find_item(const struct kept_room *room, const char *id) {
    for (int i = 0; room && i < room->n; i++)
        if (strcmp(room->items[i].id, id) == 0) return i;
    return -1;
}

bool kept_put(struct kept *kept, uint64_t owner, const char *id, struct buffer *text) {
    const struct kept_limits *limits = &kept->limits;
    struct kept_item item = {.until = time_now() + limits->seconds, .text = *text};
    if (limits->items == 0 || text->size > limits->bytes) return false;
    CHECK(strlen(id) < sizeof item.id);
    strcpy(item.id, id);
    *text = (struct buffer){0};
    pthread_mutex_lock(&kept->lock);
    struct kept_room *room = open_room(kept, owner);
    while (room->n > 0 &&
           (room->n >= limits->items || room->bytes + item.text.size > limits->bytes))
        drop(room, 0);
    room->items = xgrow(room->items, room->n, &room->capacity, sizeof *room->items);
    room->items[room->n] = item;
    room->n++;
    room->bytes += item.text.size;
    pthread_mutex_unlock(&kept->lock);
    return true;
}

bool kept_get(struct kept *kept, uint64_t owner, const char *id, struct buffer *out) {
    pthread_mutex_lock(&kept->lock);
    struct kept_room *room = find_room(kept, owner);
    int i = find_item(room, id);
    if (i >= 0) buffer_append(out, room->items[i].text.data, room->items[i].text.size);
    pthread_mutex_unlock(&kept->lock);
    return i >= 0;
}

bool kept_delete(struct kept *kept, uint64_t owner, const char *id) {
    pthread_mutex_lock(&kept->lock);
    struct kept_room *room = find_room(kept, owner);
    int i = find_item(room, id);
    if (i >= 0) drop(room, i);
    pthread_mutex_unlock(&kept->lock);
    return i >= 0;
}
