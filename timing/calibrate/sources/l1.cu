// Global loads that hit L1, stores, and local memory, on one SM: issue rates by width and by stride between lanes.

__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}
template <int WIDTH>
struct Access {};
template <>
struct Access<4> {
  static __device__ __forceinline__ unsigned load(const char* p) {
    unsigned x;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p));
    return x;
  }
  static __device__ __forceinline__ void store(char* p, unsigned x) { asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
};
template <>
struct Access<8> {
  static __device__ __forceinline__ unsigned load(const char* p) {
    unsigned x, y;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(p));
    return x ^ y;
  }
  static __device__ __forceinline__ void store(char* p, unsigned x) { asm volatile("st.global.v2.u32 [%0], {%1, %1};" ::"l"(p), "r"(x) : "memory"); }
};
template <>
struct Access<16> {
  static __device__ __forceinline__ unsigned load(const char* p) {
    unsigned x, y, z, w;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(p));
    return x ^ y ^ z ^ w;
  }
  static __device__ __forceinline__ void store(char* p, unsigned x) { asm volatile("st.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(p), "r"(x) : "memory"); }
};

__device__ __forceinline__ void report(unsigned* out, unsigned start, unsigned end, unsigned result) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) out[4 * warp] = start, out[4 * warp + 1] = end, out[4 * warp + 2] = sm;
  if (result == 0x12345678u) out[4 * warp + 3] = 1;
}

// Each lane reads at lane * stride bytes from data; 8 loads in flight at offsets of 0..7 * 128 bytes, one a group of
// 128-byte lines; `step` is 0 at run time and keeps the loads inside the loop.
template <int WIDTH>
__device__ __forceinline__ void loads(unsigned* out, char* data, int stride, int step, int iterations) {
  const char* p = data + threadIdx.x % 32 * stride;
  unsigned sum = 0, start = 0;
#pragma unroll 1
  for (int it = -4; it < iterations; ++it) {
    if (it == 0) {
      __syncthreads();
      start = now();
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      unsigned v[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = Access<WIDTH>::load(p + 128 * i);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum ^= v[i];
      p += step;
    }
  }
  report(out, start, now(), sum);
}
extern "C" __global__ void __launch_bounds__(1024) loads_4(unsigned* out, char* data, int stride, int step, int iterations) { loads<4>(out, data, stride, step, iterations); }
extern "C" __global__ void __launch_bounds__(1024) loads_8(unsigned* out, char* data, int stride, int step, int iterations) { loads<8>(out, data, stride, step, iterations); }
extern "C" __global__ void __launch_bounds__(1024) loads_16(unsigned* out, char* data, int stride, int step, int iterations) { loads<16>(out, data, stride, step, iterations); }

// Stores by every SM to its own part of data (`span` bytes a CTA), lane * stride bytes apart.
template <int WIDTH>
__device__ __forceinline__ void stores(unsigned* out, char* data, int stride, int span, int iterations) {
  char* p = data + static_cast<long long>(blockIdx.x) * span + threadIdx.x / 32 * 1024 + threadIdx.x % 32 * stride;
  unsigned start = 0;
#pragma unroll 1
  for (int it = -4; it < iterations; ++it) {
    if (it == 0) {
      __syncthreads();
      start = now();
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) Access<WIDTH>::store(p + 128 * (i % 8), it);
  }
  report(out, start, now(), 0);
}
extern "C" __global__ void __launch_bounds__(1024) stores_4(unsigned* out, char* data, int stride, int span, int iterations) { stores<4>(out, data, stride, span, iterations); }
extern "C" __global__ void __launch_bounds__(1024) stores_8(unsigned* out, char* data, int stride, int span, int iterations) { stores<8>(out, data, stride, span, iterations); }
extern "C" __global__ void __launch_bounds__(1024) stores_16(unsigned* out, char* data, int stride, int span, int iterations) { stores<16>(out, data, stride, span, iterations); }

// Local memory: 16 words a thread, read (and written, if `write`) in an order the compiler cannot see through.
template <bool WRITE>
__device__ __forceinline__ void local(unsigned* out, int step, int iterations) {
  volatile unsigned words[16];
  for (int i = 0; i < 16; ++i) words[i] = i;
  unsigned sum = 0, start = 0;
  int at = 0;
#pragma unroll 1
  for (int it = -4; it < iterations; ++it) {
    if (it == 0) {
      __syncthreads();
      start = now();
    }
    volatile unsigned* p = words + at;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (WRITE) p[i] = sum + i;
      else sum ^= p[i];
    }
    at += step;
  }
  report(out, start, now(), sum ^ words[step]);
}
extern "C" __global__ void __launch_bounds__(1024) local_loads(unsigned* out, int step, int iterations) { local<false>(out, step, iterations); }
extern "C" __global__ void __launch_bounds__(1024) local_stores(unsigned* out, int step, int iterations) { local<true>(out, step, iterations); }

// A chain of dependent loads through pointers, from byte `first` of data, by one thread. Ticks of the whole chain go to out[0], its last
// pointer to out[1]. CACHED 1: through L1. 0: L2 only.
template <int CACHED>
__device__ __forceinline__ void chase(unsigned* out, char* data, unsigned long long first, int steps) {
  unsigned long long p = reinterpret_cast<unsigned long long>(data + first);
  const unsigned start = now();
#pragma unroll 4
  for (int i = 0; i < steps; ++i) {
    if (CACHED) asm volatile("ld.global.u64 %0, [%0];" : "+l"(p)::"memory");
    else asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p)::"memory");
  }
  out[0] = now() - start;
  out[1] = static_cast<unsigned>(p);
}
extern "C" __global__ void chase_l1(unsigned* out, char* data, unsigned long long first, int steps) {
  chase<1>(out, data, first, steps);
}
extern "C" __global__ void chase_l2(unsigned* out, char* data, unsigned long long first, int steps) {
  chase<0>(out, data, first, steps);
}

// Dependent chain of 32-, 64- or 128-bit loads that hit L1 (self-pointing words).
template <int WIDTH, int N>
__device__ __forceinline__ void hit_chain(unsigned* out, unsigned long long* data) {
  unsigned long long p = reinterpret_cast<unsigned long long>(data + 2 * (threadIdx.x % 32));
  unsigned elapsed = 0;
#pragma unroll 1
  for (int pass = 0; pass < 3; ++pass) {
    const unsigned start = now();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (WIDTH == 8) asm volatile("ld.global.u64 %0, [%0];" : "+l"(p)::"memory");
      if (WIDTH == 16) asm volatile("{.reg .u64 t; ld.global.v2.u64 {%0, t}, [%0]; or.b64 %0, %0, t;}" : "+l"(p)::"memory");
      if (WIDTH == 4) asm volatile("{.reg .u32 l, h; mov.b64 {l, h}, %0; ld.global.u32 l, [%0]; mov.b64 %0, {l, h};}" : "+l"(p)::"memory");
    }
    elapsed = now() - start;
  }
  out[threadIdx.x] = elapsed;
  out[1024 + threadIdx.x] = static_cast<unsigned>(p);
}
#define HIT(width, n) extern "C" __global__ void hit_##width##_##n(unsigned* out, unsigned long long* data) { hit_chain<width, n>(out, data); }
HIT(4, 32) HIT(4, 96) HIT(8, 32) HIT(8, 96) HIT(16, 32) HIT(16, 96)

// next[i] = address of line (1664525 i + 1013904223) mod lines (a full-period generator when lines is a power of two),
// `pitch` bytes a line.
extern "C" __global__ void link_lines(char* data, unsigned long long lines, int pitch) {
  for (unsigned long long i = blockIdx.x * 1ull * blockDim.x + threadIdx.x; i < lines; i += 1ull * gridDim.x * blockDim.x) {
    const unsigned long long next = (1664525ull * i + 1013904223ull) & (lines - 1);
    *reinterpret_cast<unsigned long long*>(data + i * pitch) = reinterpret_cast<unsigned long long>(data + next * pitch);
  }
}
// words[2k] and words[2k + 1] hold the address of words[2k].
extern "C" __global__ void link_self(unsigned long long* data, int words) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    data[i] = reinterpret_cast<unsigned long long>(data + (i & ~1));
}

// Latency of L2 for each of `lines` 128-byte lines `pitch` bytes apart, from every SM: out[sm * lines + line], a quarter
// of the fastest of 4 chains of 4 loads (each line's first word holds its own address, see link_own). One warp an SM;
// every SM takes the lines in its own order, so that SMs do not queue up on one line.
extern "C" __global__ void l2_map(unsigned short* out, const char* data, int lines, int pitch) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x != 0) return;
#pragma unroll 1
  for (int k = 0; k < lines; ++k) {
    const int line = (k + sm * 37) % lines;
    unsigned long long p = reinterpret_cast<unsigned long long>(data + static_cast<long long>(line) * pitch);
    unsigned best = 1u << 15;
#pragma unroll 1
    for (int r = 0; r < 4; ++r) {
      const unsigned start = now();
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p)::"memory");
      if (p == 1) out[0] = 1;  // waits for the last load
      best = min(best, now() - start);
    }
    out[sm * lines + line] = best / 4;
  }
}
extern "C" __global__ void link_own(char* data, unsigned long long lines, int pitch) {
  for (unsigned long long i = blockIdx.x * 1ull * blockDim.x + threadIdx.x; i < lines; i += 1ull * gridDim.x * blockDim.x)
    *reinterpret_cast<unsigned long long*>(data + i * pitch) = reinterpret_cast<unsigned long long>(data + i * pitch);
}
