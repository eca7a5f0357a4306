/* retrieval/words/words.h: which chunks hold which words and where, for ranking by words (BM25) and
 * for phrases. The words of a generation are its file chunks.words, mapped; those of a document of
 * the log have the same bytes in memory (words_writer.h makes both).
 *
 * A word is a run of letters, marks and digits, folded by Unicode (NFKC, case folding), without an
 * English plural's ending. Parts of an identifier like pthread_create are words, and so is the
 * whole. A character of Chinese, Japanese or Korean is a word.
 *
 * The bytes, little endian, without gaps:
 *
 *   postings    of each word in the order of words: where it has more than WORDS_BLOCK chunks, a
 *               struct words_block for each block of these; then the blocks. A block is u16, five
 *               bits each for the bits of a gap, of a count and of a step, and such numbers, packed
 *               from the lowest bit on: gaps to the chunk before, less one (of the first of a list,
 *               its number); counts, less one; for each occurrence in a chunk the step from the
 *               position before (of the first, its position)
 *   8 zeros
 *   lengths     words of each chunk: u8, u16 or u32 each
 *   dictionary  for each word u8 bytes that it shares with the word before, u8 further bytes,
 * these, and as LEB128 its chunks and the bytes of its postings. Words rise by their bytes index of
 * every WORDS_STRIDE-th word, which shares nothing: u64 where it begins in the dictionary, u64
 * where its postings begin foot        struct words_foot
 *
 * The bytes of a file are foreign: nothing in them is believed before it is looked at, and what
 * cannot be is STATUS_CORRUPT. */
#pragma once

#include "config/base/buffer.h"
#include "retrieval/words/word_reader.h"

enum { WORDS_BLOCK = 128, WORDS_STRIDE = 16, WORDS_FORMAT = 1, WORDS_PAD = 8 };

struct words_block {
    uint32_t last;   /* chunk */
    uint32_t end;    /* bytes of the blocks up to here */
    uint32_t count;  /* the largest of its chunks */
    uint32_t length; /* of the shortest of its chunks */
};
_Static_assert(sizeof(struct words_block) == 16, "read straight from the file");

struct words_foot {
    char magic[8]; /* "RETROWRD" */
    uint32_t format, length_width;
    uint64_t n_chunks, n_words, total;   /* total: words of all chunks */
    uint64_t lengths, dictionary, index; /* where they begin */
};
_Static_assert(sizeof(struct words_foot) == 64, "read straight from the file");

struct words;

/* Reads the foot of `bytes`, which are borrowed; `name` is what errors call them. Takes no time.
 * STATUS_CORRUPT where they are not the words of n_chunks chunks. */
enum status words_open(struct words **out, struct text_span bytes, int64_t n_chunks,
                       const char *name, struct error *e);
/* The text of a chunk, until the next is asked for. */
typedef struct text_span words_source(void *context, int64_t chunk);
/* The words of chunks [0, n), asked for in this order, in memory, n below 2^31. STATUS_NO_MEMORY.
 */
enum status words_make(struct words **out, words_source *source, void *context, int64_t n,
                       struct error *e);
void words_free(struct words *words); /* NULL: nothing */
/* Looks at every byte that a search may read: STATUS_CORRUPT says what is wrong. For `verify`. */
enum status words_check(const struct words *words, struct error *e);

/* How many words a chunk has, and all chunks have. */
uint32_t words_length(const struct words *words, int64_t chunk);
int64_t words_total(const struct words *words);
int64_t words_count(const struct words *words); /* different words */
size_t words_size(const struct words *words);   /* bytes */
/* Words were damaged: the error of whoever has met it. */
enum status words_fail(const struct words *words, const char *what, struct error *e);

/* The chunks of a word. */
struct word_list {
    struct text_span bytes; /* its postings */
    int64_t n;              /* chunks; 0: no chunk has the word */
};
enum status words_find(const struct words *words, struct text_span word, struct word_list *list,
                       struct error *e);

/* The words from one on, in their order. */
struct words_walk {
    const struct words *words;
    char bytes[UINT8_MAX + 1];
    size_t size;
    struct word_list list;
    int64_t number;     /* of the next word */
    size_t at;          /* in the dictionary */
    uint64_t postings;  /* where the next word's begin */
    const char *damage; /* NULL: none was met */
};
/* Before the first word that is not below `from`. */
void words_walk_open(struct words_walk *walk, const struct words *words, struct text_span from);
/* False at the end, and where damage was met. */
bool words_walk_next(struct words_walk *walk);

/* The words of a text, each once, in the order in which they come first; at most `most` of them.
 * Returns how many. */
struct word_text {
    char bytes[WORD_BYTES]; /* zeros behind the word */
    size_t size;
};
int words_split(struct text_span text, struct word_text *words, int most);
