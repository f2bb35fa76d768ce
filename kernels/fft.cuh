// Transforms in registers.
#pragma once

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
