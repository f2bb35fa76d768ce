// Accesses to shared memory that no barrier orders, found by vector clocks: what a thread did before it came to a barrier is ordered before
// what one that waited there did behind it, and nothing else is. The clocks are those of FastTrack (Flanagan and Freund, PLDI 2009); of each
// word, all threads are kept that read it since it was written.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <vector>

class Races {
public:
    // A time of each thread.
    using Times = std::vector<uint32_t>;

    // Whether the kernel is compiled with calls for its accesses. The first is __tsan_init.
    static inline bool compiled = false;

    // Of `bytes` at `memory`.
    Races(const void *memory, size_t bytes) : memory(static_cast<const char *>(memory)), words(bytes / WORD) {}

    // A block begins, whose races are looked for or not.
    void begin(unsigned threads, bool look) {
        watching = compiled && look;
        known.assign(watching ? threads : 0, Times(threads, 0));
        for (unsigned i = 0; i < known.size(); i++) {
            known[i][i] = 1;
        }
        block++;
    }

    // What `thread` did is ordered before what those do that learn of `told`.
    void tell(unsigned thread, Times &told) {
        if (watching) {
            told.resize(known.size());
            join(told, known[thread]);
            known[thread][thread]++;
        }
    }

    void learn(unsigned thread, const Times &told) {
        if (watching) {
            join(known[thread], told);
        }
    }

    void read(unsigned thread, const void *at, unsigned bytes) {
        each(at, bytes, [&](Word &word, size_t place) {
            if (word.written > known[thread][word.writer]) {
                found(thread, "reads", word.writer, "wrote", place);
            }
            word.readers.resize(known.size());
            word.readers[thread] = known[thread][thread];
        });
    }

    void write(unsigned thread, const void *at, unsigned bytes) {
        each(at, bytes, [&](Word &word, size_t place) {
            if (word.written > known[thread][word.writer]) {
                found(thread, "writes", word.writer, "wrote", place);
            }
            for (unsigned other = 0; other < word.readers.size(); other++) {
                if (word.readers[other] > known[thread][other]) {
                    found(thread, "writes", other, "read", place);
                    break;
                }
            }
            word.readers.clear();
            word.writer = thread;
            word.written = known[thread][thread];
        });
    }

    unsigned count = 0;

private:
    struct Word {
        unsigned block = 0; // since when it is as it is
        unsigned writer = 0;
        uint32_t written = 0;
        Times readers; // when they last read it
    };
    static constexpr size_t WORD = 2;
    bool watching = false;
    const char *const memory;
    std::vector<Word> words;
    unsigned block = 0;
    std::vector<Times> known;

    static void join(Times &to, const Times &from) {
        for (unsigned i = 0; i < from.size(); i++) {
            to[i] = to[i] < from[i] ? from[i] : to[i];
        }
    }

    template <typename Access> void each(const void *at, unsigned bytes, Access access) {
        const size_t from = static_cast<const char *>(at) - memory;
        if (!watching || from >= words.size() * WORD) {
            return;
        }
        for (size_t i = from / WORD; i < (from + bytes + WORD - 1) / WORD; i++) {
            if (words[i].block != block) {
                words[i].block = block;
                words[i].written = 0;
                words[i].readers.clear();
            }
            access(words[i], i * WORD);
        }
    }

    void found(unsigned thread, const char *does, unsigned other, const char *did, size_t place) {
        if (++count <= 4) {
            fprintf(stderr, "race: thread %u %s byte %zu of shared memory, which thread %u %s\n", thread, does, place, other, did);
        }
    }
};
