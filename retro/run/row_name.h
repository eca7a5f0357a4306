/* retro/run/row_name.h: names of rows that a text brings as they are, not as ids: two rows with one name are equal. */
#pragma once

#include <stdint.h>

/* Row `row` of a picture, by 128 bits of the SHA-256 of all that its rows are made from. */
struct row_name {
    int32_t picture[4];
    int32_t row;
};
