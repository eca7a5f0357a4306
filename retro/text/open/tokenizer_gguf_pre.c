/* retro/text/open/tokenizer_gguf_pre.c: the names in tokenizer.ggml.pre and what they stand for:
 * the regular expressions of the tokenizer.json that each name was given to. See tokenizer_gguf.h.
 */
#include <string.h>

#include "retro/text/open/tokenizer_gguf.h"

/* English suffixes, letters, numbers by threes, the rest, white space. */
#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS_AND_SPACE(numbers) \
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix) \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" suffix
#define REST_AND_SPACE "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char llama3[] = SUFFIXES "|" WORDS_AND_SPACE("\\p{N}{1,3}");
static const char qwen2[] = SUFFIXES "|" WORDS_AND_SPACE("\\p{N}");
static const char tekken[] = CASED("") "|\\p{N}" REST_AND_SPACE;
static const char gpt4o[] = CASED(SUFFIXES "?") "|\\p{N}{1,3}" REST_AND_SPACE;
static const char bloom[] =
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+";
static const char digit[] = "\\p{N}";
static const char three_digits[] = "[0-9][0-9][0-9]";
static const char line_end[] = "[\\r\\n]";
static const char bailing[] =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
    "\\s+(?!\\S)|\\s+";
static const char seed_coder[] = SUFFIXES
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| "
    "?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char qwen35[] = SUFFIXES
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
    "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";

/* DeepSeek's: letters of scripts with cases, punctuation, Chinese, Japanese and Korean. */
static const char deepseek_letters[] =
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-"
    "\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}"
    "\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-"
    "\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-"
    "\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-"
    "\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-"
    "\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-"
    "\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-"
    "\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}"
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}"
    "\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-"
    "\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+";
static const char deepseek_punctuation[] =
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+";
static const char deepseek_han[] = "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+";
static const char deepseek3_han[] = "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+";
static const char deepseek3[] =
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

#define STEPS(...) \
    (const char *const[GGUF_PRE_STEPS + 1]) { __VA_ARGS__ }

static const struct gguf_pre kinds[] = {
    {"gpt-2", STEPS(gpt2), false, false},
    {"phi-2", STEPS(gpt2), false, false},
    {"mpt", STEPS(gpt2), false, false},
    {"olmo", STEPS(gpt2), false, false},
    {"jais", STEPS(gpt2), false, false},
    {"trillion", STEPS(gpt2), false, false},
    {"exaone4", STEPS(gpt2), false, false},
    {"modern-bert", STEPS(gpt2), false, false},
    {"gigachat", STEPS(gpt2), false, false},
    {"mellum", STEPS(gpt2), false, false},
    {"granite-docling", STEPS(gpt2), false, false},
    {"llama3", STEPS(llama3), true, true},
    {"llama-v3", STEPS(llama3), true, true},
    {"llama-bpe", STEPS(llama3), true, true},
    {"falcon3", STEPS(llama3), true, true},
    {"falcon-h1", STEPS(llama3), true, true},
    {"pixtral", STEPS(llama3), true, true},
    {"midm-2.0", STEPS(llama3), true, true},
    {"lfm2", STEPS(llama3), true, true},
    {"dbrx", STEPS(llama3), false, false},
    {"smaug-bpe", STEPS(llama3), false, false},
    {"chatglm-bpe", STEPS(llama3), false, false},
    {"glm4", STEPS(llama3), true, false},
    {"qwen2", STEPS(qwen2), false, false},
    {"deepseek-r1-qwen", STEPS(qwen2), false, false},
    {"stablelm2", STEPS(qwen2), false, false},
    {"hunyuan", STEPS(qwen2), false, false},
    {"megrez", STEPS(qwen2), false, false},
    {"grok-2", STEPS(qwen2), false, false},
    {"qwen35", STEPS(qwen35), false, false},
    {"tekken", STEPS(tekken), true, true},
    {"gpt-4o", STEPS(gpt4o), false, false},
    {"llama4", STEPS(gpt4o), false, false},
    {"kanana2", STEPS(gpt4o), false, false},
    {"minimax-m2", STEPS(gpt4o), false, false},
    {"starcoder", STEPS(digit, gpt2), false, false},
    {"refact", STEPS(digit, gpt2), false, false},
    {"command-r", STEPS(digit, gpt2), false, false},
    {"smollm", STEPS(digit, gpt2), false, false},
    {"codeshell", STEPS(digit, gpt2), false, false},
    {"exaone", STEPS(digit, gpt2), false, false},
    {"minerva-7b", STEPS(digit, gpt2), false, false},
    {"falcon", STEPS("[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2, three_digits), false, false},
    {"bloom", STEPS(bloom), false, false},
    {"poro-chat", STEPS(bloom), false, false},
    {"gpt3-finnish", STEPS(bloom), false, false},
    {"viking", STEPS(bloom, digit), false, false},
    {"bailingmoe", STEPS(bailing), false, false},
    {"seed-coder", STEPS(seed_coder), false, false},
    /* No line ends are left where white space is looked for at a line's end. */
    {"deepseek-llm",
     STEPS(line_end, deepseek_letters, deepseek_punctuation, "\\s+(?!.)", deepseek_han, "\\p{N}+"),
     false, false},
    {"deepseek-coder", STEPS(line_end, "\\s?\\p{L}+", "\\s?\\p{P}+", deepseek_han, digit), false,
     false},
    {"deepseek-v3", STEPS("\\p{N}{1,3}", deepseek3_han, deepseek3), false, false},
    {"hunyuan-dense", STEPS("\\p{N}{1,3}", deepseek3_han, deepseek3), false, false},
    {"default", STEPS("[\\p{P}\\$\\+<=>\\^~\\|]+", gpt2, "\\p{N}+", three_digits), false, false},
};

int gguf_pre_count(void) { return (int)ARRAY_COUNT(kinds); }

const struct gguf_pre *gguf_pre_at(int i) {
    CHECK(i >= 0 && i < gguf_pre_count());
    return &kinds[i];
}

const struct gguf_pre *gguf_pre_find(struct text_span name) {
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (name.size == strlen(kinds[i].name) && memcmp(name.text, kinds[i].name, name.size) == 0)
            return &kinds[i];
    return NULL;
}
