/* Frees what it filled, but for a block here and there, so that malloc can give nothing back. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 40000, SIZE = 2000, STEP = 400 };
static char *blocks[COUNT];

__attribute__((noinline)) void fill(int from) { /* LEAK */
    for (int i = from; i < from + STEP; i++) {
        blocks[i] = malloc(SIZE);
        memset(blocks[i], i, SIZE);
    }
}

int main(void) {
    for (int from = 0; from < COUNT; from += STEP) {
        fill(from);
        usleep(10000);
    }
    for (int i = 0; i < COUNT; i++)
        if (i % 50) free(blocks[i]);
    sleep(15);
}
