// CTA launch, launch overhead and clocks.

extern "C" __global__ void empty() {}

// Almost empty, but the grid sees a kernel of many registers.
template <int VALUES>
__device__ __forceinline__ void never(float* data, int n) {
  if (n != 12345) return;
  float v[VALUES];
#pragma unroll
  for (int i = 0; i < VALUES; ++i) v[i] = data[i * 32 + threadIdx.x];
  __syncthreads();
  for (int r = 0; r < n; ++r) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) v[i] = fmaf(v[i], v[(i + 1) % VALUES], v[(i + 7) % VALUES]);
  }
#pragma unroll
  for (int i = 0; i < VALUES; ++i) data[i * 32 + threadIdx.x] = v[i];
}
extern "C" __global__ void __launch_bounds__(1024, 2) empty_32(float* data, int n) { never<20>(data, n); }
extern "C" __global__ void __launch_bounds__(256, 2) empty_128(float* data, int n) { never<110>(data, n); }

// One store a thread: the smallest kernel with a result.
extern "C" __global__ void store_one(unsigned* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x; }

// Where and when each CTA ran: 4 words a CTA: SM, hardware warp slot of warp 0, start (ns), start (SM clock); stays
// `ticks` cycles. slots: per warp of the grid its hardware slot.
extern "C" __global__ void placement(unsigned* out, unsigned* slots, int ticks) {
  unsigned sm, slot, ns;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(slot));
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(ns));
  const unsigned start = clock();
  const unsigned warps = blockDim.x / 32;
  if (threadIdx.x == 0) out[4 * blockIdx.x] = sm, out[4 * blockIdx.x + 1] = slot, out[4 * blockIdx.x + 2] = ns, out[4 * blockIdx.x + 3] = start;
  if (threadIdx.x % 32 == 0) slots[blockIdx.x * warps + threadIdx.x / 32] = slot;
  while (clock() - start < ticks) {
  }
}

// One warp an SM spins for `ticks` cycles: out[0..1] = nanoseconds and cycles, from SM 0.
extern "C" __global__ void clock_rate(unsigned long long* out, long long ticks) {
  unsigned long long from, until;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
  const long long start = clock64();
  while (clock64() - start < ticks) {
  }
  const long long elapsed = clock64() - start;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(until));
  if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = until - from, out[1] = elapsed;
}

// Full load of one kind for `iterations`, kind 0 HMMA, 1 FFMA. out: per CTA nanoseconds, cycles, SM.
extern "C" __global__ void __launch_bounds__(512, 2) burn(unsigned long long* out, unsigned* sink, const uint4* data, int kind, int iterations) {
  unsigned long long from, until;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
  const long long start = clock64();
  const uint4 seed = data[threadIdx.x + blockIdx.x * blockDim.x];
  unsigned d[4][4];
  float x[8];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) d[i][j] = 0;
  for (int i = 0; i < 8; ++i) x[i] = __uint_as_float((seed.x >> i & 0x7fffff) | 0x3f800000);
  if (kind == 0) {
    for (int it = 0; it < iterations; ++it)
#pragma unroll
      for (int i = 0; i < 16; ++i)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+r"(d[i % 4][0]), "+r"(d[i % 4][1]), "+r"(d[i % 4][2]), "+r"(d[i % 4][3])
                     : "r"(seed.x), "r"(seed.y), "r"(seed.z), "r"(seed.w), "r"(seed.x ^ 0x1111), "r"(seed.y ^ 0x2222));
  } else {
    const float a = x[1], b = x[2];
    for (int it = 0; it < iterations; ++it)
#pragma unroll
      for (int i = 0; i < 64; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i % 8]) : "f"(a), "f"(b));
  }
  const long long elapsed = clock64() - start;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(until));
  unsigned sum = 0;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) sum ^= d[i][j];
  for (int i = 0; i < 8; ++i) sum ^= __float_as_uint(x[i]);
  if (sum == 0x12345678u) sink[0] = sum;
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) out[3 * blockIdx.x] = until - from, out[3 * blockIdx.x + 1] = elapsed, out[3 * blockIdx.x + 2] = sm;
}
