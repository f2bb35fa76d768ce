// Transforms in registers, and how to make long ones of them.
//
// A transform of L points is made in place, by decimation in frequency: a pass of radix R takes the points
// p + j * L/R, transforms them, multiplies output d by e^(-2*pi*i*p*d/L), and leaves R transforms of L/R points.
// After the last pass, frequency k lies at position<L>(k).
#pragma once

__device__ constexpr int radix(int length) {
    return length <= 16 ? length : length == 32 || length == 64 || length == 512 ? 8 : 16;
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

// The frequency that lies at `at`.
template <int L> __device__ __forceinline__ int frequency(int at) {
    constexpr int R = radix(L);
    if constexpr (R == L) {
        return at;
    } else {
        return at / (L / R) + R * frequency<L / R>(at % (L / R));
    }
}

__device__ __forceinline__ float2 multiply(float2 a, float2 b) {
    return make_float2(fmaf(a.x, b.x, -a.y * b.y), fmaf(a.x, b.y, a.y * b.x));
}

// cos and sin of -2*pi*k/16.
template <int K> __device__ __forceinline__ float2 root16() {
    constexpr float c[] = {1.f, 0.923879532511286756f, 0.707106781186547524f, 0.382683432365089772f,
                           0.f, -0.382683432365089772f, -0.707106781186547524f, -0.923879532511286756f};
    constexpr float s[] = {0.f, -0.382683432365089772f, -0.707106781186547524f, -0.923879532511286756f,
                           -1.f, -0.923879532511286756f, -0.707106781186547524f, -0.382683432365089772f};
    return make_float2(c[K], s[K]);
}

// b times e^(-2*pi*i*K/16).
template <int K> __device__ __forceinline__ float2 turn16(float2 b) {
    constexpr float h = 0.707106781186547524f;
    if constexpr (K == 0) {
        return b;
    } else if constexpr (K == 4) {
        return make_float2(b.y, -b.x);
    } else if constexpr (K == 2) {
        return make_float2(h * (b.x + b.y), h * (b.y - b.x));
    } else if constexpr (K == 6) {
        return make_float2(h * (b.y - b.x), -h * (b.x + b.y));
    } else {
        return multiply(b, root16<K>());
    }
}

template <int R> struct Dft;

template <> struct Dft<1> {
    static __device__ __forceinline__ void run(float2 *, int) {}
};

template <int R, int K = 0> struct Combine {
    static __device__ __forceinline__ void run(float2 *v, const float2 *even, const float2 *odd) {
        const float2 b = turn16<K * (16 / R)>(odd[K]);
        v[K] = make_float2(even[K].x + b.x, even[K].y + b.y);
        v[K + R / 2] = make_float2(even[K].x - b.x, even[K].y - b.y);
        if constexpr (K + 1 < R / 2) {
            Combine<R, K + 1>::run(v, even, odd);
        }
    }
};

// R points in registers, in place, natural order in and out.
template <int R> struct Dft {
    static __device__ __forceinline__ void run(float2 *v, int = 0) {
        float2 even[R / 2], odd[R / 2];
#pragma unroll
        for (int i = 0; i < R / 2; i++) {
            even[i] = v[2 * i];
            odd[i] = v[2 * i + 1];
        }
        Dft<R / 2>::run(even, 0);
        Dft<R / 2>::run(odd, 0);
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
