// Transforms in registers, and how to make long ones of them.
//
// A transform of L points is made in place, by decimation in frequency: a pass of radix R takes the points
// p + j * L/R, transforms them, multiplies output d by e^(-2*pi*i*p*d/L), and leaves R transforms of L/R points.
// After the last pass, frequency k lies at position<L>(k).
#pragma once

__device__ constexpr int radix(int length) {
    return length <= 16 ? length : length == 64 ? 8 : length == 32 || length == 512 || length == 1024 ? 32 : 16;
}

// Where frequency k lies after all passes.
template <int L> __device__ __forceinline__ int position(int k) {
    constexpr int R = radix(L);
    if constexpr (R == L) {
        return k;
    } else {
        return k % R * (L / R) + position<L / R>(k / R);
    }
}

__device__ __forceinline__ float2 multiply(float2 a, float2 b) {
    return make_float2(fmaf(a.x, b.x, -a.y * b.y), fmaf(a.x, b.y, a.y * b.x));
}

// e^(-2*pi*i*K/32).
template <int K> __device__ __forceinline__ float2 root32() {
    constexpr float c[] = {1.f, 0.980785280403230449f, 0.923879532511286756f, 0.831469612302545237f,
                           0.707106781186547524f, 0.555570233019602225f, 0.382683432365089772f, 0.195090322016128268f, 0.f};
    if constexpr (K <= 8) {
        return make_float2(c[K], -c[8 - K]);
    } else {
        return make_float2(-c[16 - K], -c[K - 8]);
    }
}

// b times e^(-2*pi*i*K/32).
template <int K> __device__ __forceinline__ float2 turn32(float2 b) {
    constexpr float h = 0.707106781186547524f;
    if constexpr (K == 0) {
        return b;
    } else if constexpr (K == 8) {
        return make_float2(b.y, -b.x);
    } else if constexpr (K == 4) {
        return make_float2(h * (b.x + b.y), h * (b.y - b.x));
    } else if constexpr (K == 12) {
        return make_float2(h * (b.y - b.x), -h * (b.x + b.y));
    } else {
        return multiply(b, root32<K>());
    }
}

template <int R> struct Dft;

template <> struct Dft<1> {
    static __device__ __forceinline__ void run(float2 *) {}
};

template <int R, int K = 0> struct Combine {
    static __device__ __forceinline__ void run(float2 *v, const float2 *even, const float2 *odd) {
        const float2 b = turn32<K * (32 / R)>(odd[K]);
        v[K] = make_float2(even[K].x + b.x, even[K].y + b.y);
        v[K + R / 2] = make_float2(even[K].x - b.x, even[K].y - b.y);
        if constexpr (K + 1 < R / 2) {
            Combine<R, K + 1>::run(v, even, odd);
        }
    }
};

// R points in registers, in place, natural order in and out.
template <int R> struct Dft {
    static __device__ __forceinline__ void run(float2 *v) {
        float2 even[R / 2], odd[R / 2];
#pragma unroll
        for (int i = 0; i < R / 2; i++) {
            even[i] = v[2 * i];
            odd[i] = v[2 * i + 1];
        }
        Dft<R / 2>::run(even);
        Dft<R / 2>::run(odd);
        Combine<R>::run(v, even, odd);
    }
};

// One pass over sub-transforms of LENGTH points of transforms of TOTAL points.
// load(line, at) and store(line, at, value) reach the points of `lines` transforms; consecutive threads
// have consecutive lines. `roots` holds e^(-2*pi*i*k/N).
template <int TOTAL, int LENGTH, int THREADS, typename Load, typename Store>
__device__ __forceinline__ void pass(int lines, const float2 *__restrict__ roots, Load load, Store store) {
    constexpr int R = radix(LENGTH);
    constexpr int STEP = LENGTH / R;
    const int items = lines * (TOTAL / R);
    for (int item = threadIdx.x; item < items; item += THREADS) {
        const int line = item % lines;
        const int butterfly = item / lines;
        const int p = butterfly % STEP;
        const int base = butterfly / STEP * LENGTH + p;
        float2 v[R];
#pragma unroll
        for (int j = 0; j < R; j++) {
            v[j] = load(line, base + j * STEP);
        }
        Dft<R>::run(v);
#pragma unroll
        for (int d = 0; d < R; d++) {
            if (STEP > 1 && d > 0) {
                v[d] = multiply(v[d], __ldg(&roots[p * d * (N / LENGTH)]));
            }
            store(line, base + d * STEP, v[d]);
        }
    }
}
