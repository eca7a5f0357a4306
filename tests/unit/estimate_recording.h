/* tests/unit/estimate_recording.h: a build of 88 files, pages of docs, manuals and HTML, on a busy
 * machine, as its estimate was told of it: files that are expected (guessed bytes of text),
 * documents that were read (guess, bytes), text that was embedded (bytes, milliseconds since the
 * beginning). */
#pragma once

#include <stdint.h>

enum recorded_kind { EXPECT, READ, DONE };
static const struct recorded_event {
    enum recorded_kind kind;
    uint32_t bytes, value;
} recording[] = {
    {EXPECT, 1067, 0},     {EXPECT, 5995, 0},      {EXPECT, 2726, 0},     {EXPECT, 778, 0},
    {EXPECT, 4435, 0},     {EXPECT, 33712, 0},     {EXPECT, 27985, 0},    {EXPECT, 5234, 0},
    {EXPECT, 339798, 0},   {EXPECT, 8163, 0},      {EXPECT, 1576, 0},     {EXPECT, 5035, 0},
    {EXPECT, 11196, 0},    {EXPECT, 22364, 0},     {EXPECT, 3492, 0},     {EXPECT, 4673, 0},
    {EXPECT, 10435, 0},    {EXPECT, 5272, 0},      {EXPECT, 6375, 0},     {EXPECT, 2187, 0},
    {EXPECT, 2389, 0},     {EXPECT, 5550, 0},      {EXPECT, 2603, 0},     {EXPECT, 2609, 0},
    {EXPECT, 3417, 0},     {EXPECT, 3554, 0},      {EXPECT, 4240, 0},     {EXPECT, 15868, 0},
    {EXPECT, 3812, 0},     {EXPECT, 8749, 0},      {EXPECT, 2905, 0},     {EXPECT, 5042, 0},
    {EXPECT, 3564, 0},     {EXPECT, 7000, 0},      {EXPECT, 2429, 0},     {EXPECT, 4269, 0},
    {EXPECT, 4956, 0},     {EXPECT, 5307, 0},      {EXPECT, 5821, 0},     {EXPECT, 3339, 0},
    {EXPECT, 2940, 0},     {EXPECT, 5880, 0},      {EXPECT, 3294, 0},     {EXPECT, 3251, 0},
    {EXPECT, 3573, 0},     {EXPECT, 10890, 0},     {EXPECT, 2625, 0},     {EXPECT, 4397, 0},
    {EXPECT, 115, 0},      {EXPECT, 6220, 0},      {EXPECT, 9037, 0},     {EXPECT, 2582, 0},
    {EXPECT, 7625, 0},     {EXPECT, 9754, 0},      {EXPECT, 84038, 0},    {EXPECT, 10590, 0},
    {EXPECT, 1285, 0},     {EXPECT, 21360, 0},     {EXPECT, 5422, 0},     {EXPECT, 7608, 0},
    {EXPECT, 7734, 0},     {EXPECT, 20697, 0},     {EXPECT, 4046, 0},     {EXPECT, 4066, 0},
    {EXPECT, 3072, 0},     {EXPECT, 8705, 0},      {EXPECT, 4899, 0},     {EXPECT, 2998, 0},
    {EXPECT, 3471, 0},     {EXPECT, 4801, 0},      {EXPECT, 4569, 0},     {EXPECT, 5697, 0},
    {EXPECT, 3131, 0},     {EXPECT, 5986, 0},      {EXPECT, 3950, 0},     {EXPECT, 44072, 0},
    {EXPECT, 3259, 0},     {EXPECT, 9753, 0},      {EXPECT, 1862, 0},     {EXPECT, 6412, 0},
    {EXPECT, 5534, 0},     {EXPECT, 9794, 0},      {EXPECT, 13320, 0},    {EXPECT, 6301, 0},
    {EXPECT, 2960, 0},     {EXPECT, 2245, 0},      {EXPECT, 2704, 0},     {EXPECT, 3045, 0},
    {READ, 1067, 1067},    {READ, 5995, 5995},     {READ, 2726, 2726},    {READ, 778, 778},
    {READ, 4435, 4435},    {READ, 33712, 33712},   {DONE, 45736, 17030},  {READ, 27985, 27985},
    {READ, 5234, 5234},    {READ, 339798, 339798}, {DONE, 58434, 29600},  {DONE, 74320, 42730},
    {DONE, 76178, 57820},  {DONE, 75503, 70660},   {DONE, 77475, 93820},  {READ, 8163, 8163},
    {READ, 1576, 1576},    {READ, 5035, 5035},     {READ, 11196, 11196},  {READ, 22364, 22364},
    {DONE, 48553, 109370}, {READ, 3492, 3492},     {READ, 4673, 4673},    {READ, 10435, 10435},
    {READ, 5272, 5272},    {READ, 6375, 6375},     {DONE, 44022, 126020}, {READ, 2187, 2187},
    {READ, 2389, 2389},    {READ, 5550, 5550},     {READ, 2603, 2603},    {READ, 2609, 2609},
    {READ, 3417, 3417},    {READ, 3554, 3554},     {READ, 4240, 4240},    {READ, 14710, 14710},
    {READ, 1158, 0},       {READ, 3812, 3812},     {READ, 7068, 7068},    {READ, 1681, 0},
    {READ, 2905, 2905},    {READ, 3608, 3608},     {READ, 1434, 0},       {READ, 3564, 3564},
    {DONE, 60729, 139580}, {READ, 6280, 6280},     {READ, 720, 0},        {READ, 2429, 2429},
    {READ, 2816, 2816},    {READ, 1453, 0},        {READ, 4956, 4956},    {READ, 3821, 3821},
    {READ, 1486, 0},       {READ, 5821, 5821},     {READ, 2679, 2679},    {READ, 660, 0},
    {READ, 2940, 2940},    {READ, 4622, 4622},     {READ, 1258, 0},       {READ, 3294, 3294},
    {READ, 2319, 2319},    {READ, 932, 0},         {READ, 3573, 3573},    {READ, 9192, 9192},
    {READ, 1698, 0},       {READ, 2625, 2625},     {READ, 3311, 3311},    {DONE, 61386, 154090},
    {READ, 1086, 0},       {READ, 115, 115},       {READ, 6220, 6220},    {READ, 9037, 9037},
    {READ, 1294, 1294},    {READ, 1288, 0},        {READ, 7625, 7625},    {READ, 9754, 9754},
    {READ, 84038, 84038},  {DONE, 47345, 168380},  {DONE, 50838, 182820}, {READ, 10590, 10590},
    {READ, 1285, 1285},    {READ, 18180, 18180},   {DONE, 50584, 194170}, {READ, 3180, 0},
    {READ, 5422, 5422},    {READ, 5054, 5054},     {READ, 2554, 0},       {READ, 7734, 7734},
    {READ, 20697, 20697},  {READ, 4046, 4046},     {READ, 4066, 4066},    {DONE, 43392, 208170},
    {READ, 3072, 3072},    {READ, 8705, 8705},     {READ, 4899, 4899},    {READ, 2998, 2998},
    {READ, 3471, 3471},    {READ, 4801, 4801},     {READ, 4569, 4569},    {READ, 5697, 5697},
    {READ, 3131, 3131},    {READ, 5986, 5986},     {DONE, 46935, 219570}, {READ, 3950, 3950},
    {READ, 44072, 44072},  {READ, 3259, 3259},     {DONE, 52493, 232640}, {READ, 9753, 9753},
    {READ, 1862, 1862},    {READ, 6412, 6412},     {READ, 5534, 5534},    {READ, 9794, 9794},
    {READ, 13320, 13320},  {READ, 6301, 6301},     {DONE, 50483, 244360}, {READ, 2960, 2960},
    {READ, 2245, 2245},    {READ, 2704, 2704},     {READ, 2122, 2122},    {READ, 923, 0},
    {DONE, 15573, 247980},
};
