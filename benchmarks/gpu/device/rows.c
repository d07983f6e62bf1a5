// Gathers and updates of rows on the CPU; each call is one thread's share.
#include <stdint.h>

#define AHEAD 16

uint64_t gather_rows(const uint64_t* table, const uint32_t* ids, uint64_t count, uint64_t row_words) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            const uint64_t* next = table + (uint64_t)ids[i + AHEAD] * row_words;
            for (uint64_t word = 0; word < row_words; word += 8) __builtin_prefetch(next + word);
        }
        const uint64_t* row = table + (uint64_t)ids[i] * row_words;
        for (uint64_t word = 0; word < row_words; word++) sum ^= row[word];
    }
    return sum;
}

uint64_t update_rows(uint64_t* table, const uint32_t* ids, uint64_t count, uint64_t row_words) {
    for (uint64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            uint64_t* next = table + (uint64_t)ids[i + AHEAD] * row_words;
            for (uint64_t word = 0; word < row_words; word += 8) __builtin_prefetch(next + word, 1);
        }
        uint64_t* row = table + (uint64_t)ids[i] * row_words;
        for (uint64_t word = 0; word < row_words; word++) row[word] += 1;
    }
    return 0;
}
