// Which groups a block of the back end has, in which order.
#pragma once
#include "geometry.cuh"

// Successive turns of a block. The front end's blocks have had `run` successive groups each: the last of these come
// first, because most of them are still in the L2 cache. Turns are counted through the runs' last groups, then through those before; a block has every gridDim.y-th.
// Going on takes no division: that would be long to wait for.
struct Turns {
    int first, groups, run, runs;
    int step_runs, step_left; // from turn to turn
    int of, left;             // this turn's run, and how many of its groups are left behind this turn

    __device__ __forceinline__ Turns(const SpectraRange &range, int run)
        : first(range.first_group), groups((range.end + GROUP - 1) / GROUP - range.first_group), run(run),
          runs((groups + run - 1) / run), step_runs(int(gridDim.y) % runs), step_left(int(gridDim.y) / runs), of(int(blockIdx.y) % runs),
          left(run - 1 - int(blockIdx.y) / runs) {
        skip();
    }

    __device__ __forceinline__ bool over() const { return left < 0; }
    // Counted from the chunk's first.
    __device__ __forceinline__ int group() const { return first + of * run + left; }

    __device__ __forceinline__ void next() {
        step();
        skip();
    }

  private:
    __device__ __forceinline__ void step() {
        of += step_runs;
        left -= step_left;
        if (of >= runs) {
            of -= runs;
            left -= 1;
        }
    }

    // The last run may be short.
    __device__ __forceinline__ void skip() {
        while (!over() && of * run + left >= groups) {
            step();
        }
    }
};
