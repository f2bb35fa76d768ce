// Accesses to shared memory that no barrier orders, found by vector clocks: what a thread did before it came to a barrier is ordered before
// what one that waited there did behind it, and nothing else is. The clocks are those of FastTrack (Flanagan and Freund, PLDI 2009); of each
// word, all threads are kept that read it since it was written.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <algorithm>
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
            untouched(thread, "reads", word, place);
            if (word.written > known[thread][word.writer]) {
                found(thread, "reads", word.writer, "wrote", place);
            }
            word.readers.resize(known.size());
            word.readers[thread] = known[thread][thread];
        });
    }

    void write(unsigned thread, const void *at, unsigned bytes) {
        each(at, bytes, [&](Word &word, size_t place) {
            untouched(thread, "writes", word, place);
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

    // A copy may write at any time from where it is asked for to where its thread waits for it. Nobody else may look meanwhile.
    void begin_copy(unsigned thread, const void *to, unsigned bytes) {
        write(thread, to, bytes);
        each(to, bytes, [](Word &word, size_t) { word.copies++; });
    }

    void end_copy(unsigned thread, const void *to, unsigned bytes) {
        each(to, bytes, [](Word &word, size_t) { word.copies -= word.copies > 0; });
        write(thread, to, bytes);
    }

    unsigned count = 0;

private:
    struct Word {
        unsigned block = 0; // since when it is as it is
        unsigned writer = 0;
        uint32_t written = 0;
        Times readers;       // when they last read it
        unsigned copies = 0; // under way to it
    };
    // Bytes: threads that write single ones beside each other would seem to race.
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
        for (size_t i = from / WORD; i < std::min((from + bytes + WORD - 1) / WORD, words.size()); i++) {
            if (words[i].block != block) {
                words[i].block = block;
                words[i].written = 0;
                words[i].readers.clear();
                words[i].copies = 0;
            }
            access(words[i], i * WORD);
        }
    }

    void untouched(unsigned thread, const char *does, const Word &word, size_t place) {
        if (word.copies > 0 && ++count <= 4) {
            fprintf(stderr, "race: thread %u %s byte %zu of shared memory, to which a copy is under way\n", thread, does, place);
        }
    }

    void found(unsigned thread, const char *does, unsigned other, const char *did, size_t place) {
        if (++count <= 4) {
            fprintf(stderr, "race: thread %u %s byte %zu of shared memory, which thread %u %s\n", thread, does, place, other, did);
        }
    }
};
