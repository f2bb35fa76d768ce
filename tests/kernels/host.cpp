// Runs the threads of kernels on a CPU: those of a block are coroutines that take turns at barriers.
//
// Shared memory is poisoned before each block. Threads run in the order of their numbers, or against it: a kernel whose
// output depends on that has a race.
#include "host.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

Dim threadIdx, blockIdx, gridDim;
alignas(128) unsigned char shared_memory[256 << 10];

// One block at a time, on stacks that the next block has too.
struct Block {
    struct Barrier {
        unsigned come = 0, turn = 0;
    };
    struct Thread {
        ucontext_t start;
        jmp_buf left; // where it left off
        std::unique_ptr<char[]> stack;
        bool begun = false, done = false;
        const Barrier *barrier = nullptr; // that it waits at, in that turn of it
        unsigned turn = 0;
    };

    static constexpr size_t STACK = 256 << 10;
    static constexpr unsigned NAMED = 16;
    std::vector<Thread> threads;
    std::vector<Barrier> barriers; // those that have numbers, then one for each warp
    std::vector<uint64_t> lanes; // what a warp exchanges
    std::vector<Factors> factors; // of its matrix products
    jmp_buf scheduler;
    unsigned current = 0;
    const std::function<void()> kernel;

    static Block *&running() {
        static Block *block = nullptr;
        return block;
    }

    Block(unsigned count, std::function<void()> what) : threads(count), kernel(std::move(what)) {
        for (Thread &thread : threads) {
            thread.stack.reset(new char[STACK]);
            getcontext(&thread.start);
            thread.start.uc_stack.ss_sp = thread.stack.get();
            thread.start.uc_stack.ss_size = STACK;
            thread.start.uc_link = nullptr;
            makecontext(&thread.start, &Block::enter, 0);
        }
    }

    void come(Barrier &barrier, unsigned expected) {
        if (++barrier.come == expected) {
            barrier.come = 0;
            barrier.turn++;
        }
    }

    void wait(Barrier &barrier, unsigned expected) {
        Thread &me = threads[current];
        me.turn = barrier.turn;
        come(barrier, expected);
        if (barrier.turn == me.turn) {
            me.barrier = &barrier;
            leave(me);
            me.barrier = nullptr;
        }
    }

    // Contexts begin threads, jumps switch between them: swapcontext would ask the kernel for the mask of signals each time.
    void leave(Thread &thread) {
        if (_setjmp(thread.left) == 0) {
            _longjmp(scheduler, 1);
        }
    }

    void go_on(Thread &thread) {
        if (_setjmp(scheduler) != 0) {
            return;
        }
        if (thread.begun) {
            _longjmp(thread.left, 1);
        }
        thread.begun = true;
        setcontext(&thread.start);
    }

    static void enter() {
        Block *block = running();
        for (Thread &me = block->threads[block->current];;) {
            block->kernel();
            me.done = true;
            block->leave(me);
        }
    }

    // Whether all threads came to their end.
    bool run(bool backwards) {
        barriers.assign(NAMED + threads.size() / 32 + 1, {});
        lanes.assign(threads.size(), 0);
        factors.assign(threads.size(), {});
        running() = this;
        for (Thread &thread : threads) {
            thread.done = false;
        }
        for (bool any = true; any;) {
            any = false;
            for (unsigned i = 0; i < threads.size(); i++) {
                current = backwards ? threads.size() - 1 - i : i;
                Thread &thread = threads[current];
                if (thread.done || (thread.barrier && thread.barrier->turn == thread.turn)) {
                    continue;
                }
                any = true;
                threadIdx.x = current;
                go_on(thread);
            }
        }
        return std::all_of(threads.begin(), threads.end(), [](const Thread &t) { return t.done; });
    }

    unsigned warp_size() const { return std::min<size_t>(32, threads.size() - current / 32 * 32); }
};

void wait(int barrier, int threads) {
    const unsigned x = threadIdx.x;
    Block::running()->wait(Block::running()->barriers.at(barrier), threads);
    threadIdx.x = x;
}
void arrive(int barrier, int threads) { Block::running()->come(Block::running()->barriers.at(barrier), threads); }
void __syncthreads() { wait(0, Block::running()->threads.size()); }
void __syncwarp() { wait(Block::NAMED + threadIdx.x / 32, warp_size()); }
unsigned warp_size() { return Block::running()->warp_size(); }
uint64_t *lanes() { return &Block::running()->lanes[threadIdx.x / 32 * 32]; }
Factors *factors() { return &Block::running()->factors[threadIdx.x / 32 * 32]; }

bool launch(Dim grid, unsigned threads, size_t shared, bool backwards, void (*kernel)(const void *), const void *arguments) {
    Block block(threads, [&] { kernel(arguments); });
    gridDim = grid;
    const unsigned blocks = grid.x * grid.y * grid.z;
    const unsigned char *const beyond = shared_memory + shared;
    for (unsigned i = 0; i < blocks; i++) {
        const unsigned at = backwards ? blocks - 1 - i : i;
        blockIdx = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
        std::memset(shared_memory, 0xFF, sizeof shared_memory);
        if (!block.run(backwards)) {
            return false;
        }
        // All of it is as the first byte is.
        if (*beyond != 0xFF || std::memcmp(beyond, beyond + 1, std::end(shared_memory) - beyond - 1) != 0) {
            return false;
        }
    }
    return true;
}
