// Runs the threads of kernels on a CPU: those of a block are coroutines that take turns at barriers.
//
// Shared memory is poisoned before each block. Threads run in the order of their numbers, or against it: a kernel whose
// output depends on that has a race. races.hpp finds those that show in no output.
#include "host.hpp"
#include "races.hpp"

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
        Races::Times told; // by those who came
    };
    // Into shared memory, under way.
    struct Copy {
        void *to;
        const void *from;
        unsigned bytes, batch;
    };
    struct Thread {
        ucontext_t start;
        jmp_buf left; // where it left off
        std::unique_ptr<char[]> stack;
        bool begun = false, done = false;
        const Barrier *barrier = nullptr; // that it waits at, in that turn of it
        unsigned turn = 0;
        std::vector<Copy> copies;
        unsigned batch = 0; // of copies that are asked for
        std::vector<unsigned> came; // to each barrier: in which turn, and one
    };

    static constexpr size_t STACK = 256 << 10;
    static constexpr unsigned NAMED = 16;
    std::vector<Thread> threads;
    std::vector<Barrier> barriers; // those that have numbers, then one for each warp
    std::vector<uint64_t> lanes; // what a warp exchanges
    std::vector<Factors> factors; // of its matrix products
    jmp_buf scheduler;
    unsigned current = 0;
    bool backwards = false, twice = false;
    Races races{shared_memory, sizeof shared_memory};
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

    // Those who waited learn what was told. Where threads only meet, none does: what passes between them then is no memory.
    void come(Barrier &barrier, unsigned expected) {
        // A thread that comes again before the others have come makes the barrier another one in another order of threads.
        unsigned &came = threads[current].came[&barrier - barriers.data()];
        twice |= came == barrier.turn + 1;
        came = barrier.turn + 1;
        if (++barrier.come == expected) {
            for (unsigned i = 0; i < threads.size(); i++) {
                if (threads[i].barrier == &barrier && threads[i].turn == barrier.turn) {
                    races.learn(i, barrier.told);
                }
            }
            barrier.told.clear();
            barrier.come = 0;
            barrier.turn++;
        }
    }

    void arrive(Barrier &barrier, unsigned expected) {
        races.tell(current, barrier.told);
        come(barrier, expected);
    }

    void wait(Barrier &barrier, unsigned expected, bool tells = true) {
        Thread &me = threads[current];
        me.turn = barrier.turn;
        me.barrier = &barrier;
        if (tells) {
            races.tell(current, barrier.told);
        }
        come(barrier, expected);
        if (barrier.turn == me.turn) {
            leave(me);
        }
        me.barrier = nullptr;
    }

    // The bytes come at the first or at the last moment: at once where threads run against their order, else where their thread waits.
    void copy(void *to, const void *from, unsigned bytes) {
        threads[current].copies.push_back({to, from, bytes, threads[current].batch});
        races.begin_copy(current, to, bytes);
        if (backwards) {
            std::memcpy(to, from, bytes);
        }
    }

    void wait_for_copies(unsigned batches) {
        Thread &me = threads[current];
        const auto over = [&](const Copy &copy) { return copy.batch + batches < me.batch; };
        for (const Copy &copy : me.copies) {
            if (over(copy)) {
                if (!backwards) {
                    std::memcpy(copy.to, copy.from, copy.bytes);
                }
                races.end_copy(current, copy.to, copy.bytes);
            }
        }
        std::erase_if(me.copies, over);
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
    bool run(bool look_for_races) {
        barriers.assign(NAMED + threads.size() / 32 + 1, {});
        lanes.assign(threads.size(), 0);
        factors.assign(threads.size(), {});
        running() = this;
        races.begin(threads.size(), look_for_races);
        for (Thread &thread : threads) {
            thread.done = false;
            thread.copies.clear();
            thread.came.assign(barriers.size(), 0);
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
        running() = nullptr;
        return !twice && std::all_of(threads.begin(), threads.end(), [](const Thread &t) { return t.done; });
    }

    unsigned warp_size() const { return std::min<size_t>(32, threads.size() - current / 32 * 32); }
};

static void wait(unsigned barrier, unsigned threads, bool tells) {
    const unsigned x = threadIdx.x;
    Block::running()->wait(Block::running()->barriers.at(barrier), threads, tells);
    threadIdx.x = x;
}
static unsigned named(int barrier) { return unsigned(barrier) < Block::NAMED ? barrier : throw "no such barrier"; }
void wait(int barrier, int threads) { wait(named(barrier), threads, true); }
void arrive(int barrier, int threads) { Block::running()->arrive(Block::running()->barriers.at(named(barrier)), threads); }
void __syncthreads() { wait(0, Block::running()->threads.size()); }
void __syncwarp() { wait(Block::NAMED + threadIdx.x / 32, warp_size(), true); }
void meet() { wait(Block::NAMED + threadIdx.x / 32, warp_size(), false); }
void copy_async(void *to, const void *from, unsigned bytes) { Block::running()->copy(to, from, bytes); }
void commit_copies() { Block::running()->threads[Block::running()->current].batch++; }
void wait_for_copies(unsigned batches) { Block::running()->wait_for_copies(batches); }
unsigned warp_size() { return Block::running()->warp_size(); }
uint64_t *lanes() { return &Block::running()->lanes[threadIdx.x / 32 * 32]; }
Factors *factors() { return &Block::running()->factors[threadIdx.x / 32 * 32]; }

int launch(Dim grid, unsigned threads, size_t shared, bool backwards, void (*kernel)(const void *), const void *arguments) {
    Block block(threads, [&] { kernel(arguments); });
    block.backwards = backwards;
    gridDim = grid;
    const unsigned blocks = grid.x * grid.y * grid.z;
    const unsigned char *const beyond = shared_memory + shared;
    for (unsigned i = 0; i < blocks; i++) {
        const unsigned at = backwards ? blocks - 1 - i : i;
        blockIdx = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
        std::memset(shared_memory, 0xFF, sizeof shared_memory);
        // Blocks of the same runs and layers do the same with shared memory.
        if (!block.run(blockIdx.x == 0)) {
            return 0;
        }
        // All of it is as the first byte is.
        if (*beyond != 0xFF || std::memcmp(beyond, beyond + 1, std::end(shared_memory) - beyond - 1) != 0) {
            return 0;
        }
    }
    return block.races.count > 0 ? 2 : 1;
}

// What g++ calls for accesses with -fsanitize=thread.
static void seen(void *at, unsigned bytes, void (Races::*access)(unsigned, const void *, unsigned)) {
    if (Block *const block = Block::running()) {
        (block->races.*access)(block->current, at, bytes);
    }
}
extern "C" {
void __tsan_init() { Races::compiled = true; }
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
#define ACCESS(kind, bytes) \
    void __tsan_##kind##read##bytes(void *at) { seen(at, bytes, &Races::read); } \
    void __tsan_##kind##write##bytes(void *at) { seen(at, bytes, &Races::write); }
ACCESS(, 1)
ACCESS(, 2)
ACCESS(, 4)
ACCESS(, 8)
ACCESS(, 16)
ACCESS(unaligned_, 2)
ACCESS(unaligned_, 4)
ACCESS(unaligned_, 8)
ACCESS(unaligned_, 16)
#undef ACCESS
void __tsan_read_range(void *at, unsigned long bytes) { seen(at, bytes, &Races::read); }
void __tsan_write_range(void *at, unsigned long bytes) { seen(at, bytes, &Races::write); }
}
