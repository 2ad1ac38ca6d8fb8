// Barriers, branches, divergence and instruction fetch on one SM; which sub-core a warp sits on.

__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}

// N barriers of the whole CTA in a row; out[thread] = cycles of the last pass.
template <int N>
__device__ __forceinline__ void barriers(unsigned* out) {
  unsigned elapsed = 0;
#pragma unroll 1
  for (int pass = 0; pass < 3; ++pass) {
    const unsigned start = now();
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("bar.sync 0;" ::: "memory");
    elapsed = now() - start;
  }
  out[threadIdx.x] = elapsed;
}
extern "C" __global__ void barriers_32(unsigned* out) { barriers<32>(out); }
extern "C" __global__ void barriers_96(unsigned* out) { barriers<96>(out); }

// A loop of BODY FFMAs in four chains: what the taken branch costs. out: start, end, SM per warp.
template <int BODY>
__device__ __forceinline__ void loop(unsigned* out, float a, float b, int iterations) {
  float x[4] = {a, b, a + b, a - b};
  unsigned start = now();
#pragma unroll 1
  for (int it = 0; it < iterations; ++it) {
#pragma unroll
    for (int i = 0; i < BODY; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i % 4]) : "f"(a), "f"(b));
  }
  const unsigned end = now();
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) out[4 * warp] = start, out[4 * warp + 1] = end, out[4 * warp + 2] = sm;
  if (x[0] + x[1] + x[2] + x[3] == 12345.0f) out[4 * warp + 3] = 1;
}
extern "C" __global__ void loop_4(unsigned* out, float a, float b, int iterations) { loop<4>(out, a, b, iterations); }
extern "C" __global__ void loop_8(unsigned* out, float a, float b, int iterations) { loop<8>(out, a, b, iterations); }
extern "C" __global__ void loop_16(unsigned* out, float a, float b, int iterations) { loop<16>(out, a, b, iterations); }
extern "C" __global__ void loop_32(unsigned* out, float a, float b, int iterations) { loop<32>(out, a, b, iterations); }
extern "C" __global__ void loop_64(unsigned* out, float a, float b, int iterations) { loop<64>(out, a, b, iterations); }

// Two-way branch on the lane: lanes below `split` do 16 dependent FFMAs, the others 16 dependent FADDs.
extern "C" __global__ void diverge(unsigned* out, float a, float b, int iterations, int split) {
  float x = a;
  const int lane = threadIdx.x % 32;
  unsigned start = now();
#pragma unroll 1
  for (int it = 0; it < iterations; ++it) {
    if (lane < split) {
#pragma unroll
      for (int i = 0; i < 16; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(a), "f"(b));
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(x) : "f"(a));
    }
    __syncwarp();
  }
  const unsigned end = now();
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (lane == 0) out[4 * warp] = start, out[4 * warp + 1] = end, out[4 * warp + 2] = sm;
  if (x == 12345.0f) out[4 * warp + 3] = 1;
}

// Only warps `first` and `second` of the CTA issue MUFU: they collide when they share a sub-core.
extern "C" __global__ void pair(unsigned* out, float a, int iterations, int first, int second) {
  const int warp = threadIdx.x / 32;
  unsigned slot;
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(slot));
  float x[4] = {a, a + 1, a + 2, a + 3};
  __syncthreads();
  const unsigned start = now();
  if (warp == first || warp == second) {
#pragma unroll 1
    for (int it = 0; it < iterations; ++it) {
#pragma unroll
      for (int i = 0; i < 32; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i % 4]));
    }
  }
  const unsigned end = now();
  if (threadIdx.x % 32 == 0) out[4 * warp] = start, out[4 * warp + 1] = end, out[4 * warp + 2] = slot;
  if (x[0] + x[1] + x[2] + x[3] == 12345.0f) out[4 * warp + 3] = 1;
}

#ifdef STRAIGHT
// STRAIGHT FFMAs in a row (16 bytes each), looped: how fast instructions come from each level of instruction cache.
template <int N>
struct Straight {
  static __device__ __forceinline__ void run(float (&x)[8], float a, float b) {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i % 8]) : "f"(a), "f"(b));
    Straight<N - 64>::run(x, a, b);
  }
};
template <>
struct Straight<0> {
  static __device__ __forceinline__ void run(float (&)[8], float, float) {}
};
extern "C" __global__ void straight(unsigned* out, float a, float b, int iterations) {
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = a * i;
  unsigned start = 0;
#pragma unroll 1
  for (int it = -1; it < iterations; ++it) {  // the first pass fills the caches
    if (it == 0) start = now();
    Straight<STRAIGHT>::run(x, a, b);
  }
  const unsigned end = now();
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) out[4 * warp] = start, out[4 * warp + 1] = end, out[4 * warp + 2] = sm;
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += x[i];
  if (sum == 12345.0f) out[4 * warp + 3] = 1;
}
#endif
