// From one CTA to the next in the same place, and how far the latencies of single loads lie apart.

__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}

// A CTA's whole life: a chain of 4 * `steps` dependent FMAs, `early` stores a thread before it and `late` ones after it, each
// warp to lines of its own; `data` has `words` of them, a power of two.
extern "C" __global__ void __launch_bounds__(1024) life(float* data, unsigned words, int steps, int early, int late, float x) {
  const unsigned own = blockIdx.x * blockDim.x * max(early, late) + threadIdx.x;
  for (int i = 0; i < early; ++i) data[(own + i * blockDim.x) & (words - 1)] = x;
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
    asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
    asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
    asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
  }
  if (early + late == 0 && x != 12345.0f) return;
  for (int i = 0; i < late; ++i) data[(own + i * blockDim.x) & (words - 1)] = x;
}

// A load, the sum of two and a store: a CTA of a streaming kernel. One element a thread.
extern "C" __global__ void __launch_bounds__(1024) touch(const float* in, float* out, unsigned words) {
  const unsigned own = (blockIdx.x * blockDim.x + threadIdx.x) & (words - 1);
  out[own] = in[own] + in[own ^ 32];
}

// The first `probes` CTAs: warp 0 times `samples` loads of 128 bytes, one after the other, at lines drawn from `lines` of
// `data`. All others stream tiles of `streamed` bytes at `data` meanwhile (and write them to `to`), pausing in between.
extern "C" __global__ void __launch_bounds__(128) spread(unsigned* out, unsigned* moved, const char* data, char* to,
                                                        unsigned long long streamed, const char* sampled, unsigned lines, int probes,
                                                        int samples, unsigned ticks, int pause, int writes) {
  const unsigned start = now();
  if (blockIdx.x < probes) {
    if (threadIdx.x >= 32) return;
    while (now() - start < ticks / 4) {
    }
    unsigned state = blockIdx.x * 2654435761u + 12345u;
    for (int i = 0; i < samples; ++i) {
      state = state * 1664525u + 1013904223u;
      const char* p = sampled + (state >> 8) % lines * 128ull + threadIdx.x * 4;
      const unsigned from = now();
      unsigned v;
      asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
      if (v == 12345u) out[0] = v;
      const unsigned until = now();
      if (threadIdx.x == 0) out[1 + blockIdx.x * samples + i] = until - from;
      if (now() - start > ticks) return;
    }
    return;
  }
  const uint4* in = reinterpret_cast<const uint4*>(data);
  uint4* back = reinterpret_cast<uint4*>(to);
  const unsigned tiles = streamed / 4096;
  unsigned sum = 0, count = 0;
  float x = pause;
  for (unsigned tile = blockIdx.x % tiles; now() - start < ticks; tile = (tile + gridDim.x) % tiles) {
    const unsigned long long first = tile * 256ull + threadIdx.x;
    const uint4 a = in[first], b = in[first + 128];
    if (writes) back[first] = a, back[first + 128] = b;
    sum ^= a.x ^ b.x;
    ++count;
    for (int i = 0; i < pause; ++i) x = fmaf(x, 0.5f, 1.0f);
  }
  if (threadIdx.x == 0) moved[blockIdx.x] = count;
  if (sum == 0x12345678u || x == 12345.0f) out[0] = sum;
}

// One warp: `samples` loads, each touching `distinct` lines drawn from `lines`; out[i] = cycles until all lanes have theirs.
extern "C" __global__ void many_lines(unsigned* out, const char* data, unsigned lines, int distinct, int samples) {
  unsigned state = 12345u;
  const unsigned lane = threadIdx.x % 32;
  for (int i = 0; i < samples; ++i) {
    state = state * 1664525u + 1013904223u;
    unsigned own = (state >> 8) + lane % distinct * 40503u;
    own = own * 2654435761u >> 5;
    const char* p = data + own % lines * 128ull + lane * 4;
    const unsigned from = now();
    unsigned v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    if (v == 12345u) out[samples] = v;
    const unsigned until = now();
    if (lane == 0) out[i] = until - from;
  }
}

// Each warp, `steps` times: a load of 128 bytes whose address waits for the load before it, then `stores` stores of 128 bytes
// (of what was loaded, or of something at hand). out[cta] = cycles of the whole. `bytes` of data and target, a power of two.
extern "C" __global__ void load_then_store(unsigned* out, const unsigned* data, unsigned* target, unsigned bytes, int steps, int stores, int waits) {
  const unsigned words = bytes / 4 - 1;
  unsigned at = (blockIdx.x * blockDim.x + threadIdx.x) * 5u & ~31u | threadIdx.x % 32;
  unsigned v = 0;
  const unsigned from = now();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    at = at + 4128u * 32u + v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(data + (at & words)) : "memory");
    for (int k = 0; k < stores; ++k)
      asm volatile("st.global.u32 [%0], %1;" ::"l"(target + ((at + 64u * 32u * k) & words)), "r"(waits ? v : i) : "memory");
  }
  const unsigned until = now();
  if (v == 1) out[0] = v;
  if (threadIdx.x == 0) out[1 + blockIdx.x] = until - from;
}

// `steps` times: LOADS loads of 128 bytes a warp, all under way before the first is used. out[cta] = cycles of the whole.
template <int LOADS>
__device__ __forceinline__ void batches(unsigned* out, const unsigned* data, unsigned lines, int steps) {
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
  unsigned sum = 0;
  const unsigned from = now();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    unsigned v[LOADS];
    const unsigned first = (i * warps + warp) * LOADS;
#pragma unroll
    for (int k = 0; k < LOADS; ++k)
      asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v[k]) : "l"(data + (first + k & lines - 1) * 32ull + threadIdx.x % 32) : "memory");
#pragma unroll
    for (int k = 0; k < LOADS; ++k) sum ^= v[k];
  }
  const unsigned until = now();
  if (sum == 1) out[0] = sum;
  if (threadIdx.x == 0) out[1 + blockIdx.x] = until - from;
}
extern "C" __global__ void batches_8(unsigned* out, const unsigned* data, unsigned lines, int steps) { batches<8>(out, data, lines, steps); }
extern "C" __global__ void batches_32(unsigned* out, const unsigned* data, unsigned lines, int steps) { batches<32>(out, data, lines, steps); }
extern "C" __global__ void batches_64(unsigned* out, const unsigned* data, unsigned lines, int steps) { batches<64>(out, data, lines, steps); }

// 16 loads a round, MIX of them spread among the others from global memory, the others from shared memory. Each warp reads 128
// bytes at a time, and goes on by `step` words a round within `words` (a power of two) of its own: few stay in L1, many do not.
// The global address moves with the round because ptxas takes loads that do not move out of the loop.
template <int MIX>
__device__ __forceinline__ void mixed(unsigned* out, const unsigned* data, int rounds, unsigned step, unsigned words) {
  __shared__ volatile unsigned tile[1024];
  tile[threadIdx.x & 1023] = 0;
  __syncthreads();
  unsigned sum = 0, at = 0;
  const volatile unsigned* own = tile + threadIdx.x % 32;
  const unsigned warp = blockIdx.x * blockDim.x / 32 + threadIdx.x / 32;
  const unsigned* far = data + threadIdx.x % 32 + (words > 4096 ? warp * words : 0);
  const unsigned from = now();
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
    unsigned v[16];
    const unsigned* round = far + at;
    at = at + step & words - 1;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      if (k * MIX % 16 < MIX) asm volatile("ld.global.u32 %0, [%1];" : "=r"(v[k]) : "l"(round + 32 * (k * MIX / 16)));
      else v[k] = own[32 * k];
    }
#pragma unroll
    for (int k = 0; k < 16; ++k) sum += v[k];
  }
  const unsigned until = now();
  if (sum == 1) out[0] = sum;
  if (threadIdx.x == 0) out[1 + blockIdx.x] = until - from;
}
#define MIXED(mix)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(1024)                                                                   \
      mixed_##mix(unsigned* out, const unsigned* data, int rounds, unsigned step, unsigned words) {                    \
    mixed<mix>(out, data, rounds, step, words);                                                                        \
  }
MIXED(0) MIXED(1) MIXED(2) MIXED(4) MIXED(8) MIXED(12) MIXED(16)

// Each CTA of 256 threads copies (or, `writes` 0, reads) a tile of `width` words and 4096 / width rows of a matrix with
// `pitch` words a row; 16 words a thread, `batch` of them (1 or 8) under way at once.
template <int BATCH>
__device__ __forceinline__ void tile(unsigned* out, const unsigned* in, unsigned* to, unsigned pitch, unsigned width, int writes) {
  const unsigned rows = 4096 / width, across = pitch / width;
  const unsigned long long corner = static_cast<unsigned long long>(blockIdx.x / across) * rows * pitch + blockIdx.x % across * width;
  unsigned sum = 0;
#pragma unroll 1
  for (int i = 0; i < 16; i += BATCH) {
    unsigned v[BATCH];
    unsigned long long at[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; ++k) {
      const unsigned item = (i + k) * 256 + threadIdx.x;
      at[k] = corner + static_cast<unsigned long long>(item / width) * pitch + item % width;
      v[k] = in[at[k]];
    }
#pragma unroll
    for (int k = 0; k < BATCH; ++k) {
      if (writes) to[at[k]] = v[k];
      else sum ^= v[k];
    }
  }
  if (sum == 1) out[0] = sum;
}
extern "C" __global__ void __launch_bounds__(256) tile_1(unsigned* out, const unsigned* in, unsigned* to, unsigned pitch, unsigned width, int writes) { tile<1>(out, in, to, pitch, width, writes); }
extern "C" __global__ void __launch_bounds__(256) tile_8(unsigned* out, const unsigned* in, unsigned* to, unsigned pitch, unsigned width, int writes) { tile<8>(out, in, to, pitch, width, writes); }

// `steps` times: 32 loads a warp, GROUP after one another to the same line (its data comes once), all under way together.
template <int GROUP>
__device__ __forceinline__ void grouped(unsigned* out, const unsigned* data, unsigned lines, int steps) {
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
  unsigned sum = 0;
  const unsigned from = now();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    unsigned v[32];
    const unsigned* first = data + ((i * warps + warp) * (32 / GROUP) & lines - 1) * 32ull;
#pragma unroll
    for (int k = 0; k < 32; ++k)
      asm volatile("ld.global.u32 %0, [%1];" : "=r"(v[k]) : "l"(first + k / GROUP * 32 + ((threadIdx.x + k) & 31)) : "memory");
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 32; ++k) sum ^= v[k];
  }
  const unsigned until = now();
  if (sum == 1) out[0] = sum;
  if (threadIdx.x == 0) out[1 + blockIdx.x] = until - from;
}
#define GROUPED(group)                                                                                                 \
  extern "C" __global__ void __launch_bounds__(1024, 1)                                                                \
      grouped_##group(unsigned* out, const unsigned* data, unsigned lines, int steps) {                                \
    grouped<group>(out, data, lines, steps);                                                                           \
  }
GROUPED(1) GROUPED(2) GROUPED(4) GROUPED(8) GROUPED(16)

// `steps` times: of each of 8 rows of 128 bytes, 4 loads a warp, each SHIFT words further on than the last.
template <int SHIFT>
__device__ __forceinline__ void shifted(unsigned* out, const unsigned* data, unsigned lines, int steps) {
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
  unsigned sum = 0;
  const unsigned from = now();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    unsigned v[32];
    const unsigned* first = data + ((i * warps + warp) * 16 & lines - 1) * 32ull + threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 32; ++k)
      asm volatile("ld.global.u32 %0, [%1];" : "=r"(v[k]) : "l"(first + k / 4 * 64 + k % 4 * SHIFT) : "memory");
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 32; ++k) sum ^= v[k];
  }
  const unsigned until = now();
  if (sum == 1) out[0] = sum;
  if (threadIdx.x == 0) out[1 + blockIdx.x] = until - from;
}
#define SHIFTED(shift)                                                                                                 \
  extern "C" __global__ void __launch_bounds__(1024, 1)                                                                \
      shifted_##shift(unsigned* out, const unsigned* data, unsigned lines, int steps) {                                \
    shifted<shift>(out, data, lines, steps);                                                                           \
  }
SHIFTED(0) SHIFTED(1) SHIFTED(8)

// CTAs of equal work in rounds: a tile of 64 x 64 words is brought to shared memory, and after a barrier written back `times`
// times. out: SM and end (ns) of each CTA.
extern "C" __global__ void __launch_bounds__(256) rounds(unsigned long long* out, const float* in, float* to, unsigned pitch, int times) {
  __shared__ float words[4096];
  const unsigned across = pitch / 64;
  const unsigned long long corner = static_cast<unsigned long long>(blockIdx.x / across) * 64 * pitch + blockIdx.x % across * 64;
#pragma unroll 4
  for (int i = threadIdx.x; i < 4096; i += 256) words[i] = in[corner + static_cast<unsigned long long>(i / 64) * pitch + i % 64];
  __syncthreads();
  for (int k = 0; k < times; ++k) {
#pragma unroll 4
    for (int i = threadIdx.x; i < 4096; i += 256)
      to[corner + static_cast<unsigned long long>(i / 64) * pitch + i % 64] = words[i] + words[(i + 64 + k) & 4095];
  }
  unsigned sm;
  unsigned long long t;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  if (threadIdx.x == 0) out[2 * blockIdx.x] = sm, out[2 * blockIdx.x + 1] = t;
}
