/* The load of a soak trial. What it does is the name that it is started by; times are
   CLOCK_BOOTTIME in nanoseconds. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MIB = 1 << 20, LARGEST = 128 * MIB };

static volatile sig_atomic_t is_asked_to_end;
static void on_signal(int number) { is_asked_to_end = number; }

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_BOOTTIME, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

static void rest(long ns) {
    struct timespec gap = {ns / 1000000000L, ns % 1000000000L};
    nanosleep(&gap, NULL);
}

static char *reserved(void) {
    return mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void touch(char *memory, long from, long to) {
    for (long at = from; at < to; at += PAGE) memory[at] = 1;
}

/* Starts so many processes a second, of which each touches 1 MiB and ends. Says
   `+ PID BEFORE AFTER` of a start and `- PID SEEN` of an end. */
static void churn(long per_second) {
    long next = now(), flushed = next;
    char *memory = reserved();
    while (!is_asked_to_end) {
        long before = now();
        int pid = fork();
        if (pid == 0) {
            touch(memory, 0, MIB);
            rest(5000000);
            _exit(0);
        }
        printf("+ %d %ld %ld\n", pid, before, now());
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) printf("- %d %ld\n", pid, now());
        next += 1000000000L / per_second;
        if (next > now()) rest(next - now());
        if (now() - flushed > 1000000000L) {
            fflush(stdout);
            flushed = now();
        }
    }
}

/* The highest RSS that the kernel remembers of this address space. ru_maxrss would also have what
   this process was before exec. */
static long highest_kib(void) {
    char line[128];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    fclose(file);
    return kib;
}

/* Moves its RSS five times a second, and once in each day to where it was never before. Says
   `TIME KIB` whenever the kernel's mark of its highest RSS rose. */
static void busy(long day_ns, unsigned seed) {
    char *memory = reserved();
    long begin = now(), held = 0, peak_kib = 0, days = 0;
    while (!is_asked_to_end) {
        long to = (2 + rand_r(&seed) % 7) * MIB + rand_r(&seed) % 200 * PAGE;
        if ((now() - begin) / (double)day_ns > days + (seed % 10) / 10.0) {
            to = 10 * MIB + ++days * MIB / 2;
        }
        if (to > held) touch(memory, held, to);
        if (to < held) madvise(memory + to, held - to, MADV_DONTNEED);
        held = to / PAGE * PAGE;
        long highest = highest_kib();
        if (highest > peak_kib) {
            peak_kib = highest;
            printf("%ld %ld\n", now(), peak_kib);
            fflush(stdout);
        }
        rest(150000000 + rand_r(&seed) % 100000000);
    }
}

/* Runs a command, and says its status and its highest RSS: that of a child of a large process
   would be at least what that process holds. */
static void timed(char **command, int said) {
    int status, pid = fork();
    struct rusage used;
    if (pid == 0) {
        execv(command[0], command);
        _exit(127);
    }
    wait4(pid, &status, 0, &used);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    dprintf(said, "%d %ld\n", code, used.ru_maxrss);
}

int main(int count, char **words) {
    const char *name = strrchr(words[0], '/');
    name = name ? name + 1 : words[0];
    signal(SIGTERM, on_signal);
    if (!strcmp(name, "churn")) churn(atol(words[1]));
    if (!strcmp(name, "busy")) busy(atol(words[1]), atoi(words[2]));
    if (!strcmp(name, "timed")) timed(words + 1, STDERR_FILENO);
    if (!strcmp(name, "greedy")) touch(reserved(), 0, LARGEST);
    if (!strcmp(name, "crashing")) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        *(volatile int *)(long)(count - 1) = 1;
    }
}
