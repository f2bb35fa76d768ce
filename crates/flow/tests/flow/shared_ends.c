// The two ends of a ring in shared memory, by BerkeleySharedMemoryFIFO: `write NAME` sends 1000
// elements of 100 bytes, `read NAME` takes as many and checks them.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "BerkeleySharedMemoryFIFO.h"

enum { ELEMENTS = 1000, BYTES = 100, RING = 4096 };

static unsigned char expected(int at) { return (unsigned char)(at * 7 + at / 251); }

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    sharedMemoryFIFO_t fifo;
    unsigned char element[BYTES];
    initSharedMemoryFIFO(&fifo);
    int writes = strcmp(argv[1], "write") == 0;
    if (writes)
        producerOpenInitFIFO(argv[2], RING, &fifo);
    else
        consumerOpenFIFOBlock(argv[2], RING, &fifo);
    for (int number = 0; number < ELEMENTS; number++) {
        if (writes) {
            for (int at = 0; at < BYTES; at++) element[at] = expected(number * BYTES + at);
            writeFifo(element, BYTES, 1, &fifo);
            continue;
        }
        readFifo(element, BYTES, 1, &fifo);
        for (int at = 0; at < BYTES; at++)
            if (element[at] != expected(number * BYTES + at)) return 1;
    }
    if (writes) {
        // The memory goes with the writer: the reader is to have all of it first.
        while (isReadyForReading(&fifo)) usleep(100);
        cleanupProducer(&fifo);
    } else {
        cleanupConsumer(&fifo);
    }
    return 0;
}
