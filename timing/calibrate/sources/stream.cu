// Bandwidth of L2 and DRAM: reads, writes and copies, by bytes in flight, footprint and number of SMs.

template <int WIDTH>
struct Vector {};
template <>
struct Vector<4> {
  using type = unsigned;
};
template <>
struct Vector<8> {
  using type = uint2;
};
template <>
struct Vector<16> {
  using type = uint4;
};
__device__ __forceinline__ unsigned fold(unsigned v) { return v; }
__device__ __forceinline__ unsigned fold(uint2 v) { return v.x ^ v.y; }
__device__ __forceinline__ unsigned fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }
__device__ __forceinline__ void fill(unsigned& v, unsigned x) { v = x; }
__device__ __forceinline__ void fill(uint2& v, unsigned x) { v = make_uint2(x, x); }
__device__ __forceinline__ void fill(uint4& v, unsigned x) { v = make_uint4(x, x, x, x); }

__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}

enum Kind { READ, WRITE, COPY };
constexpr int THREADS = 128;  // of a streaming CTA

// Tiles of THREADS * UNROLL accesses; the tile a CTA takes is rotated by each repeat, so that no SM reads again what
// its own L1 still holds. Loads of one tile are all in flight before the first is used.
template <Kind KIND, int WIDTH, int UNROLL>
__device__ __forceinline__ void stream(unsigned* out, char* data, char* target, unsigned long long bytes, int repeats) {
  using V = typename Vector<WIDTH>::type;
  constexpr unsigned tile_items = THREADS * UNROLL;
  const unsigned tiles = static_cast<unsigned>(bytes / (tile_items * static_cast<unsigned long long>(WIDTH)));
  const V* in = reinterpret_cast<const V*>(data);
  V* to = reinterpret_cast<V*>(target);
  unsigned sum = 0;
  const unsigned all = tiles * repeats;
  for (unsigned k = blockIdx.x; k < all; k += gridDim.x) {
    const unsigned repeat = k / tiles;
    unsigned tile = k - repeat * tiles + repeat * 37;
    if (tile >= tiles) tile %= tiles;
    const unsigned long long first = static_cast<unsigned long long>(tile) * tile_items + threadIdx.x;
    V v[UNROLL];
    if (KIND != WRITE) {
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) v[u] = in[first + u * THREADS];
      __syncwarp();  // keeps the compiler from using the first before the last is issued
    }
    if (KIND == READ) {
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) sum ^= fold(v[u]);
    } else {
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        if (KIND == WRITE) fill(v[u], k);
        to[first + u * THREADS] = v[u];
      }
    }
  }
  if (sum == 0x12345678u) out[0] = sum;
}

#define STREAM(name, kind, width, unroll)                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      name##_##width##_##unroll(unsigned* out, char* data, char* target, unsigned long long bytes, int repeats) {      \
    stream<kind, width, unroll>(out, data, target, bytes, repeats);                                                    \
  }
STREAM(read, READ, 4, 1) STREAM(read, READ, 4, 2) STREAM(read, READ, 4, 4) STREAM(read, READ, 4, 8)
STREAM(read, READ, 8, 1) STREAM(read, READ, 8, 4)
STREAM(read, READ, 16, 1) STREAM(read, READ, 16, 2) STREAM(read, READ, 16, 4)
STREAM(write, WRITE, 4, 1) STREAM(write, WRITE, 4, 4) STREAM(write, WRITE, 8, 4) STREAM(write, WRITE, 16, 1) STREAM(write, WRITE, 16, 4)
STREAM(copy, COPY, 4, 1) STREAM(copy, COPY, 4, 4) STREAM(copy, COPY, 8, 4) STREAM(copy, COPY, 16, 1) STREAM(copy, COPY, 16, 4)

// The same on SMs 0..active_sms-1 alone, `ctas` CTAs on each, for `ticks` cycles; moved[cta] = tiles done. `ticket` (64 words an SM, zero before
// the launch) numbers the CTAs of an SM; each has a part of the data to itself.
template <Kind KIND>
__device__ __forceinline__ void active(unsigned* out, char* data, char* target, unsigned tiles, int active_sms, int ctas,
                                       unsigned* ticket, unsigned* moved, unsigned ticks) {
  unsigned sm, sum = 0, count = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (sm >= active_sms) return;
  __shared__ unsigned number;
  if (threadIdx.x == 0) number = atomicAdd(ticket + 64 * sm, 1u);
  __syncthreads();
  if (number >= ctas) return;
  constexpr int UNROLL = 4;
  const uint4* in = reinterpret_cast<const uint4*>(data);
  uint4* to = reinterpret_cast<uint4*>(target);
  const unsigned share = max(1u, tiles / (active_sms * ctas));  // tiles of one CTA, read again and again, past L1
  const unsigned base = (sm * ctas + number) * share % tiles;
  const unsigned start = now();
  for (unsigned i = 0; now() - start < ticks; i = i + 1 < share ? i + 1 : 0) {
    const unsigned long long first = static_cast<unsigned long long>(base + i) * (THREADS * UNROLL) + threadIdx.x;
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (KIND != WRITE)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[u].x), "=r"(v[u].y), "=r"(v[u].z), "=r"(v[u].w) : "l"(in + first + u * THREADS));
      else fill(v[u], i);
    }
    if (KIND == READ) {
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) sum ^= fold(v[u]);
    } else {
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) to[first + u * THREADS] = v[u];
    }
    ++count;
  }
  if (threadIdx.x == 0) moved[blockIdx.x] = count;
  if (sum == 0x12345678u) out[0] = sum;
}
#define ACTIVE(name, kind)                                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS) name(unsigned* out, char* data, char* target, unsigned tiles,  \
                                                             int active_sms, int ctas, unsigned* ticket, unsigned* moved, \
                                                             unsigned ticks) {                                         \
    active<kind>(out, data, target, tiles, active_sms, ctas, ticket, moved, ticks);                                          \
  }
ACTIVE(active_read, READ) ACTIVE(active_write, WRITE) ACTIVE(active_copy, COPY)

// One tile a CTA, as ordinary kernels do (a grid that covers the data).
template <Kind KIND, int UNROLL>
__device__ __forceinline__ void once(unsigned* out, const uint4* in, uint4* to) {
  const unsigned long long first = static_cast<unsigned long long>(blockIdx.x) * THREADS * UNROLL + threadIdx.x;
  uint4 v[UNROLL];
  unsigned sum = 0;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (KIND != WRITE) v[u] = in[first + u * THREADS];
    else v[u] = make_uint4(blockIdx.x, 1, 2, 3);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (KIND == READ) sum ^= fold(v[u]);
    else to[first + u * THREADS] = v[u];
  }
  if (KIND == READ && sum == 0x12345678u) out[0] = sum;
}
extern "C" __global__ void once_read(unsigned* out, const uint4* in, uint4* to) { once<READ, 4>(out, in, to); }
extern "C" __global__ void once_write(unsigned* out, const uint4* in, uint4* to) { once<WRITE, 4>(out, in, to); }
extern "C" __global__ void once_copy(unsigned* out, const uint4* in, uint4* to) { once<COPY, 4>(out, in, to); }

// Latency under load: for `ticks` cycles thread 0 of CTA 0 runs a dependent chain of loads while all other CTAs stream
// reads, pausing `pause` dependent FFMAs between tiles. out[0], out[1] = ticks and loads of the chain; loaded[cta] = tiles.
extern "C" __global__ void __launch_bounds__(THREADS) under_load(unsigned* out, unsigned* loaded, char* data, unsigned long long bytes,
                                                                char* chain, unsigned long long from_byte, unsigned ticks, int pause) {
  const unsigned start = now();
  if (blockIdx.x == 0) {
    if (threadIdx.x != 0) return;
    unsigned long long p = reinterpret_cast<unsigned long long>(chain + from_byte);
    while (now() - start < ticks / 4) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p)::"memory");  // the load builds up
    unsigned count = 0, elapsed;
    const unsigned from = now();
    do {
#pragma unroll
      for (int i = 0; i < 8; ++i) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p)::"memory");
      if (p == 1) out[7] = 1;  // waits for the last load
      count += 8;
      elapsed = now() - from;
    } while (now() - start < ticks);
    out[0] = elapsed, out[1] = count;
    return;
  }
  const uint4* in = reinterpret_cast<const uint4*>(data);
  constexpr unsigned tile_items = THREADS * 2;
  const unsigned tiles = static_cast<unsigned>(bytes / (tile_items * 16ull));
  unsigned sum = 0, count = 0;
  float x = pause;
  for (unsigned tile = blockIdx.x % tiles; now() - start < ticks; tile = (tile + gridDim.x) % tiles) {
    const unsigned long long first = static_cast<unsigned long long>(tile) * tile_items + threadIdx.x;
    const uint4 a = in[first], b = in[first + THREADS];
    sum ^= fold(a) ^ fold(b);
    ++count;
    for (int i = 0; i < pause; ++i) x = fmaf(x, 0.5f, 1.0f);
  }
  if (threadIdx.x == 0) loaded[blockIdx.x] = count;
  if (sum == 0x12345678u || x == 12345.0f) out[4] = sum;
}

// Atomics from all SMs. mode 0: every lane the same word; 1: lanes of a warp on 32 neighbouring words, all warps the same;
// 2: every warp its own 128-byte line (coalesced); 3: every lane its own pseudo-random word of `words`.
template <bool RETURNS>
__device__ __forceinline__ void atomics(unsigned* out, unsigned* data, unsigned words, int mode, int steps) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned state = thread * 2654435761u + 12345u, sum = 0;
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    unsigned at;
    if (mode == 0) at = 0;
    else if (mode == 1) at = threadIdx.x % 32;
    else if (mode == 2) at = (thread + i * 4096) % words;
    else {
      state = state * 1664525u + 1013904223u;
      at = __umulhi(state, words);
    }
    if (RETURNS) {
      unsigned old;
      asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(data + at), "r"(thread) : "memory");
      sum ^= old;
    } else {
      asm volatile("red.global.add.u32 [%0], %1;" ::"l"(data + at), "r"(thread) : "memory");
    }
  }
  if (sum == 0x12345678u) out[0] = sum;
}
extern "C" __global__ void __launch_bounds__(1024) atomics_atom(unsigned* out, unsigned* data, unsigned words, int mode, int steps) { atomics<true>(out, data, words, mode, steps); }
extern "C" __global__ void __launch_bounds__(1024) atomics_red(unsigned* out, unsigned* data, unsigned words, int mode, int steps) { atomics<false>(out, data, words, mode, steps); }
extern "C" __global__ void __launch_bounds__(1024) atomics_red_f32(unsigned* out, float* data, unsigned words, int mode, int steps) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < steps; ++i) {
    const unsigned at = mode == 0 ? 0 : mode == 1 ? threadIdx.x % 32 : (thread + i * 4096) % words;
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(data + at), "f"(1.0f) : "memory");
  }
}
// A dependent chain of global atomics by one thread.
extern "C" __global__ void atomic_chain(unsigned* out, unsigned* data, int steps) {
  unsigned x = 0;
  const unsigned start = now();
  for (int i = 0; i < steps; ++i) asm volatile("atom.global.add.u32 %0, [%1], %0;" : "+r"(x) : "l"(data) : "memory");
  if (x == 12345) out[3] = x;
  out[0] = now() - start;
}
