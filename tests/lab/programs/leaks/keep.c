/* Keeps a list, beside a function that keeps nothing. A library, or with MAIN a program. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node {
    struct node *next;
    char bytes[2000];
};
static struct node *first;

__attribute__((noinline)) void keep(int step) { /* LEAK */
    for (int i = 0; i < 150; i++) {
        struct node *node = malloc(sizeof *node);
        memset(node->bytes, step, sizeof node->bytes);
        node->next = first;
        first = node;
    }
}

__attribute__((noinline)) void scratch(int step) {
    size_t size = 30000;
    char *bytes = malloc(size);
    memset(bytes, step, size);
    free(bytes);
}

#ifdef MAIN
int main(void) {
    for (int step = 0; step < 250; step++) {
        keep(step);
        scratch(step);
        usleep(10000);
    }
    sleep(2);
}
#endif
