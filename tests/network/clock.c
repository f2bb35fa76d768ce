/* What the kernel says of its clock, in its place: that the clock is synchronised, as long as there
 * is a file KAROO_TEST_CLOCK. A test must not change the clock of the machine that it runs on. */
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

int adjtimex(struct timex *timex)
{
    const char *file = getenv("KAROO_TEST_CLOCK");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(timex, 0, sizeof *timex);
    timex->time.tv_sec = now.tv_sec;
    timex->time.tv_usec = now.tv_nsec / 1000;
    timex->esterror = 100;
    timex->maxerror = 1000;
    if (file != NULL && access(file, F_OK) == 0)
        return TIME_OK;
    timex->status = STA_UNSYNC;
    timex->maxerror = 16000000;
    return TIME_ERROR;
}
