// Runs the queue of Laminar's own benchmark between two CPUs, as `benches/queues` asks.
//
// It is compiled with the sources of laminarCommCharacterize in place of its commCharaterize.c, once
// for each size: see build.sh. The number of blocks is fixed by the compilation; the one asked for
// is not heeded.
//
// Its threads run at the highest real-time priority, while its main thread spins until they are
// ready: with two CPUs that never ends. Here they have a lower one, and the main thread sleeps.

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "laminarFifoRunner.h"
#include "testParams.h"

static int real_time;

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument) {
  int result = __real_pthread_create(thread, attributes, run, argument);
  usleep(5000);
  return result;
}

int __real_pthread_attr_setschedpolicy(pthread_attr_t *, int);

int __wrap_pthread_attr_setschedpolicy(pthread_attr_t *attributes, int policy) {
  (void)policy;
  return __real_pthread_attr_setschedpolicy(attributes, real_time ? SCHED_FIFO : SCHED_OTHER);
}

int __real_pthread_attr_setschedparam(pthread_attr_t *, const struct sched_param *);

int __wrap_pthread_attr_setschedparam(pthread_attr_t *attributes, const struct sched_param *given) {
  (void)given;
  struct sched_param param = {.sched_priority = real_time ? 50 : 0};
  return __real_pthread_attr_setschedparam(attributes, &param);
}

int main(int arguments, char **argument) {
  if (arguments != 8) {
    return 2;
  }
  // Its loops have no pause, and its queue has 31 blocks; all that differs between the cases.
  if (strcmp(argument[1], "single") != 0 || atoi(argument[6]) > 0) {
    return 0;
  }
  // Real time as the others in the same run: only if this was started so.
  struct sched_param high = {.sched_priority = 90};
  real_time = sched_getscheduler(0) == SCHED_FIFO && sched_setscheduler(0, SCHED_FIFO, &high) == 0;
  int writer = atoi(argument[4]), reader = atoi(argument[5]);
  char path[] = "/tmp/laminar-XXXXXX";
  int file = mkstemp(path);
  if (file < 0) {
    return 1;
  }
  close(file);
  runLaminarFifoBench(&writer, &reader, 1, path);
  FILE *report = fopen(path, "r");
  char line[256];
  double writing, reading;
  int ok = report && fgets(line, sizeof line, report) && fgets(line, sizeof line, report) &&
           sscanf(line, "%*d,%*d,%lf,%lf", &writing, &reading) == 2;
  unlink(path);
  if (ok) {
    printf("%.4f\n", reading * 1e9 / TRANSACTIONS_BLKS);
  }
  return !ok;
}
