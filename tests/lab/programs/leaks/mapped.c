/* Mappings that stay, each filled at once, beside one that is unmapped. */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 512 << 10 };
static char *volatile last;

static char *map(void) {
    return mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

__attribute__((noinline)) void grow(int step) { /* LEAK */
    char *pages = map();
    memset(pages, step, SIZE);
    last = pages;
}

__attribute__((noinline)) void scratch(int step) {
    char *pages = map();
    memset(pages, step, SIZE);
    munmap(pages, SIZE);
}

int main(void) {
    for (int step = 0; step < 200; step++) {
        grow(step);
        scratch(step);
        usleep(15000);
    }
    sleep(2);
}
