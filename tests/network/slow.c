/* An rx lcore that is slow at its work: each packet that it has placed takes as many milliseconds
 * more as the file KAROO_TEST_SLOW says. It sleeps, so that it takes no CPU from others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

struct rte_mbuf;
typedef void free_bulk(struct rte_mbuf **, unsigned int);

static double milliseconds(void)
{
    const char *path = getenv("KAROO_TEST_SLOW");
    char name[16] = "";
    double found = 0;
    FILE *file;
    prctl(PR_GET_NAME, name);
    if (path == NULL || strcmp(name, "rx0") != 0)
        return 0;
    file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lf", &found) != 1)
        found = 0;
    fclose(file);
    return found;
}

void rte_pktmbuf_free_bulk(struct rte_mbuf **mbufs, unsigned int count)
{
    free_bulk *next = (free_bulk *)dlsym(RTLD_NEXT, "rte_pktmbuf_free_bulk");
    double seconds = milliseconds() * 1e-3 * count;
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
    next(mbufs, count);
}
