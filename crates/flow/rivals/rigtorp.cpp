// Measures rigtorp's SPSCQueue as `benches/queues` measures ours.
//
//   clang++ -O3 -std=c++17 -static -pthread -I SPSCQUEUE/include rigtorp.cpp -o rigtorp
//   ./rigtorp single BYTES BLOCKS CPU CPU PAUSES SLOTS
//   ./rigtorp trip BYTES TRIPS CPU CPU 0 SLOTS

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "rigtorp/SPSCQueue.h"

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void pause_for(int pauses) {
  for (int i = 0; i < pauses; i++) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
}

// The compiler takes it for changed.
template <typename T> static void opaque(T &value) {
  asm volatile("" : : "r"(&value) : "memory");
}

static std::atomic<int> ready{0};

static void meet() {
  ready.fetch_add(1);
  while (ready.load() < 2) {
    pause_for(1);
  }
}

template <size_t WORDS> struct Contest {
  using Block = std::array<uint64_t, WORDS>;
  using Queue = rigtorp::SPSCQueue<Block>;

  static void put(Queue &queue, const Block &block, int pauses) {
    while (!queue.try_push(block)) {
      pause_for(pauses);
    }
  }

  static void get(Queue &queue, Block &block, int pauses) {
    Block *front;
    while (!(front = queue.front())) {
      pause_for(pauses);
    }
    block = *front;
    queue.pop();
  }

  static double run(bool trip, uint64_t count, int writer, int reader, int pauses,
                    size_t slots) {
    Queue there(slots), back(slots);
    std::thread first([&] {
      static Block block{};
      pin(writer);
      meet();
      for (uint64_t number = 0; number < count; number++) {
        if (trip) {
          get(there, block, pauses);
          opaque(block);
          put(back, block, pauses);
        } else {
          block[0] = number;
          opaque(block);
          put(there, block, pauses);
        }
      }
    });
    double seconds = 0;
    std::thread second([&] {
      static Block block{};
      pin(reader);
      meet();
      auto begin = std::chrono::steady_clock::now();
      for (uint64_t number = 0; number < count; number++) {
        if (trip) {
          block[0] = number;
          opaque(block);
          put(there, block, pauses);
          get(back, block, pauses);
        } else {
          get(there, block, pauses);
        }
        opaque(block);
        if (block[0] != number) {
          std::abort();
        }
      }
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    });
    first.join();
    second.join();
    return seconds * 1e9 / count;
  }
};

int main(int arguments, char **argument) {
  if (arguments != 8) {
    return 2;
  }
  std::string what = argument[1];
  if (what != "single" && what != "trip") {
    return 0;
  }
  bool trip = what == "trip";
  uint64_t bytes = std::strtoull(argument[2], nullptr, 10);
  uint64_t count = std::strtoull(argument[3], nullptr, 10);
  int writer = std::atoi(argument[4]), reader = std::atoi(argument[5]);
  int pauses = std::atoi(argument[6]);
  size_t slots = std::strtoull(argument[7], nullptr, 10);
  double time = -1;
#define SIZE(words)                                                                                \
  case 8 * words:                                                                                  \
    time = Contest<words>::run(trip, count, writer, reader, pauses, slots);                               \
    break;
  switch (bytes) {
    SIZE(1) SIZE(2) SIZE(4) SIZE(8) SIZE(16) SIZE(32) SIZE(64) SIZE(128) SIZE(256) SIZE(512)
    SIZE(1024) SIZE(2048)
  default:
    return 0;
  }
  std::printf("%.4f\n", time);
}
