/* retro/text/unicode_ages.c: characters that the reference libraries see with an older or newer Unicode than ours. Made
 * by comparing every code point of tokenizers 0.22.2 with utf8proc 2.8 (Unicode 15) and Python 3.11's tables, which are
 * PCRE2 10.42's (Unicode 14). */
#include "retro/text/unicode_ages.h"

struct range {
    int32_t first, last;
};

/* Category Mn for us, not for the reference. */
static const struct range not_nonspacing[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8E1},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},
    {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xD00, 0xD00},     {0xD3B, 0xD3C},
    {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x180F, 0x180F},   {0x1885, 0x1886},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFB},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},
    {0xA9BD, 0xA9BD},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x111C9, 0x111C9},
    {0x111CF, 0x111CF}, {0x1123E, 0x1123E}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x11438, 0x1143F},
    {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1145E, 0x1145E}, {0x1182F, 0x11837}, {0x11839, 0x1183A},
    {0x1193B, 0x1193C}, {0x1193E, 0x1193E}, {0x11943, 0x11943}, {0x119D4, 0x119D7}, {0x119DA, 0x119DB},
    {0x119E0, 0x119E0}, {0x11A01, 0x11A0A}, {0x11A33, 0x11A38}, {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47},
    {0x11A51, 0x11A56}, {0x11A59, 0x11A5B}, {0x11A8A, 0x11A96}, {0x11A98, 0x11A99}, {0x11C30, 0x11C36},
    {0x11C38, 0x11C3D}, {0x11C3F, 0x11C3F}, {0x11C92, 0x11CA7}, {0x11CAA, 0x11CB0}, {0x11CB2, 0x11CB3},
    {0x11CB5, 0x11CB6}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A}, {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45},
    {0x11D47, 0x11D47}, {0x11D90, 0x11D91}, {0x11D95, 0x11D95}, {0x11D97, 0x11D97}, {0x11EF3, 0x11EF4},
    {0x11F00, 0x11F01}, {0x11F36, 0x11F3A}, {0x11F40, 0x11F40}, {0x11F42, 0x11F42}, {0x13440, 0x13440},
    {0x13447, 0x13455}, {0x16F4F, 0x16F4F}, {0x16FE4, 0x16FE4}, {0x1CF00, 0x1CF2D}, {0x1CF30, 0x1CF46},
    {0x1E000, 0x1E006}, {0x1E008, 0x1E018}, {0x1E01B, 0x1E021}, {0x1E023, 0x1E024}, {0x1E026, 0x1E02A},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1E944, 0x1E94A}};

/* Categories Cc, Cf and Co for us only. */
static const struct range not_control[] = {{0x890, 0x891}, {0x8E2, 0x8E2}, {0x110CD, 0x110CD}, {0x13430, 0x1343F}};

/* Category P for us only. */
static const struct range not_punctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
    {0x10F86, 0x10F89}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C},
    {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71},
    {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};

/* Combining class over 1 for us, 0 for the reference. */
static const struct range not_combining[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};

/* Characters that only we decompose. */
static const struct range not_decomposed[] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},
                                              {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
                                              {0x11938, 0x11938}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

/* Upper case that only the reference knows, and how far off its lower case is. */
static const struct {
    struct range range;
    int32_t offset;
} lower_case[] = {{{0x1C89, 0x1C89}, 1},   {{0xA7CB, 0xA7CB}, -42343}, {{0xA7CC, 0xA7CC}, 1},
                  {{0xA7CE, 0xA7CE}, 1},   {{0xA7D2, 0xA7D2}, 1},      {{0xA7D4, 0xA7D4}, 1},
                  {{0xA7DA, 0xA7DA}, 1},   {{0xA7DC, 0xA7DC}, -42561}, {{0x10D50, 0x10D65}, 32},
                  {{0x16EA0, 0x16EB8}, 27}};

static bool contains(const struct range *ranges, size_t n, int32_t c) {
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (c < ranges[middle].first) {
            n = middle;
        } else if (c > ranges[middle].last) {
            low = middle + 1;
        } else {
            return true;
        }
    }
    return false;
}

bool age_not_nonspacing(int32_t c) { return contains(not_nonspacing, ARRAY_COUNT(not_nonspacing), c); }
bool age_not_control(int32_t c) { return contains(not_control, ARRAY_COUNT(not_control), c); }
bool age_not_punctuation(int32_t c) { return contains(not_punctuation, ARRAY_COUNT(not_punctuation), c); }
bool age_not_combining(int32_t c) { return contains(not_combining, ARRAY_COUNT(not_combining), c); }
bool age_not_decomposed(int32_t c) { return contains(not_decomposed, ARRAY_COUNT(not_decomposed), c); }

int32_t age_lower_offset(int32_t c) {
    for (size_t i = 0; i < ARRAY_COUNT(lower_case); i++)
        if (c >= lower_case[i].range.first && c <= lower_case[i].range.last) return lower_case[i].offset;
    return 0;
}

/* Letters newer than PCRE2, as ranges of a character class. */
const char age_letters[] =
    "\\x{1c89}-\\x{1c8a}"
    "\\x{a7cb}-\\x{a7cd}"
    "\\x{a7da}-\\x{a7dc}"
    "\\x{105c0}-\\x{105f3}"
    "\\x{10d4a}-\\x{10d65}"
    "\\x{10d6f}-\\x{10d85}"
    "\\x{10ec2}-\\x{10ec4}"
    "\\x{1123f}-\\x{11240}"
    "\\x{11380}-\\x{11389}"
    "\\x{1138b}-\\x{1138b}"
    "\\x{1138e}-\\x{1138e}"
    "\\x{11390}-\\x{113b5}"
    "\\x{113b7}-\\x{113b7}"
    "\\x{113d1}-\\x{113d1}"
    "\\x{113d3}-\\x{113d3}"
    "\\x{11bc0}-\\x{11be0}"
    "\\x{11f02}-\\x{11f02}"
    "\\x{11f04}-\\x{11f10}"
    "\\x{11f12}-\\x{11f33}"
    "\\x{1342f}-\\x{1342f}"
    "\\x{13441}-\\x{13446}"
    "\\x{13460}-\\x{143fa}"
    "\\x{16100}-\\x{1611d}"
    "\\x{16d40}-\\x{16d6c}"
    "\\x{18cff}-\\x{18cff}"
    "\\x{1b132}-\\x{1b132}"
    "\\x{1b155}-\\x{1b155}"
    "\\x{1df25}-\\x{1df2a}"
    "\\x{1e030}-\\x{1e06d}"
    "\\x{1e4d0}-\\x{1e4eb}"
    "\\x{1e5d0}-\\x{1e5ed}"
    "\\x{1e5f0}-\\x{1e5f0}"
    "\\x{2b739}-\\x{2b739}"
    "\\x{2ebf0}-\\x{2ee5d}"
    "\\x{31350}-\\x{323af}";

/* Numbers newer than PCRE2, as ranges of a character class. */
const char age_numbers[] =
    "\\x{10d40}-\\x{10d49}"
    "\\x{116d0}-\\x{116e3}"
    "\\x{11bf0}-\\x{11bf9}"
    "\\x{11f50}-\\x{11f59}"
    "\\x{16130}-\\x{16139}"
    "\\x{16d70}-\\x{16d79}"
    "\\x{1ccf0}-\\x{1ccf9}"
    "\\x{1d2c0}-\\x{1d2d3}"
    "\\x{1e4f0}-\\x{1e4f9}"
    "\\x{1e5f1}-\\x{1e5fa}";
