// Latency of lines that other SMs have or have not read before, and of the constant caches.

__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}
__device__ __forceinline__ unsigned sm_id() {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}
__device__ __forceinline__ unsigned long long step(unsigned long long p) {
  asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p)::"memory");
  return p;
}

// The next line of a walk through all lines: a full-period generator, `lines` a power of two (the same as link_lines').
__device__ __forceinline__ unsigned long long line_after(unsigned long long i, unsigned long long lines) {
  return (1664525ull * i + 1013904223ull) & (lines - 1);
}

// One warp an SM walks the linked lines of `data`, beginning at line (SM id + turn) mod `places` * `spread`. The first CTA
// that lands on an SM walks, the others return at once (claimed[sm] counts them). only >= 0: this SM walks alone.
// out[2 * sm], out[2 * sm + 1]: cycles of the first `head` steps and of the `steps` after them.
extern "C" __global__ void walk(unsigned* out, unsigned* claimed, const char* data, unsigned long long spread, int places,
                                int turn, int only, int head, int steps) {
  const unsigned sm = sm_id();
  if (threadIdx.x != 0 || (only >= 0 && sm != only)) return;
  if (atomicAdd(claimed + sm, 1u) != 0) return;
  const int place = (sm + turn) % gridDim.y;  // gridDim.y SMs
  if (place >= places) return;
  unsigned long long p = reinterpret_cast<unsigned long long>(data + place * spread * 128);
  const unsigned start = now();
#pragma unroll 4
  for (int i = 0; i < head; ++i) p = step(p);
  const unsigned middle = now();
#pragma unroll 4
  for (int i = 0; i < steps; ++i) p = step(p);
  out[2 * sm] = middle - start;
  out[2 * sm + 1] = now() - middle + (p == 1);
}
// Each line of `data` points to another of its own slice of `slice` lines (a power of two), all of them in turn.
extern "C" __global__ void link_slices(char* data, unsigned long long lines, unsigned long long slice) {
  for (unsigned long long i = blockIdx.x * 1ull * blockDim.x + threadIdx.x; i < lines; i += 1ull * gridDim.x * blockDim.x) {
    const unsigned long long base = i / slice * slice, next = base + line_after(i - base, slice);
    *reinterpret_cast<unsigned long long*>(data + i * 128) = reinterpret_cast<unsigned long long>(data + next * 128);
  }
}

// Every CTA reads all of `data` (16 * blockDim.x bytes a step), beginning at its own place, so that at any time all of it
// is being read.
extern "C" __global__ void __launch_bounds__(1024) read_all(unsigned* out, const uint4* data, unsigned long long bytes) {
  const unsigned steps = bytes / (16ull * blockDim.x);
  unsigned sum = 0, at = static_cast<unsigned long long>(blockIdx.x) * steps / gridDim.x;
#pragma unroll 4
  for (unsigned i = 0; i < steps; ++i) {
    const uint4 v = __ldcg(data + static_cast<unsigned long long>(at) * blockDim.x + threadIdx.x);
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
    at = at + 1 == steps ? 0 : at + 1;
  }
  if (sum == 0x12345678u) out[0] = 1;
}

// Each team of `team` threads (a warp, or a CTA) streams rows of `row` bytes, 16 bytes a thread and UNROLL such steps at a
// time; rows one after the other over all teams of a persistent grid. Copies when to != 0.
template <int UNROLL, bool COPY>
__device__ __forceinline__ void rows(unsigned* out, const uint4* data, uint4* to, unsigned row, unsigned count, int team) {
  const unsigned teams = gridDim.x * blockDim.x / team, member = threadIdx.x % team;
  const unsigned words = row / 16;
  unsigned sum = 0;
  for (unsigned r = (blockIdx.x * blockDim.x + threadIdx.x) / team; r < count; r += teams) {
    const unsigned long long base = static_cast<unsigned long long>(r) * words;
    for (unsigned i = member; i < words; i += UNROLL * team) {
      uint4 v[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
        if (i + u * team < words) v[u] = data[base + i + u * team];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
        if (i + u * team < words) {
          if (COPY) to[base + i + u * team] = v[u];
          else sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
        }
    }
  }
  if (sum == 0x12345678u) out[0] = 1;
}
#define ROWS(name, unroll, copy) \
  extern "C" __global__ void __launch_bounds__(256) name(unsigned* out, const uint4* data, uint4* to, unsigned row, unsigned count, int team) { rows<unroll, copy>(out, data, to, row, count, team); }
ROWS(rows_read_1, 1, false) ROWS(rows_read_4, 4, false) ROWS(rows_copy_1, 1, true) ROWS(rows_copy_4, 4, true)

// A chain of dependent constant loads through a table, 64 bytes apart, over `words` words, twice. LDC with an index in a
// vector register (UNIFORM 0: different for the compiler in every lane, equal at run time).
__constant__ unsigned table[16384];
extern "C" __global__ void constant_chain(unsigned* out, int words, int zero) {
  unsigned at = threadIdx.x * zero, ticks[3];
  for (int pass = 0; pass < 3; ++pass) {
    const unsigned start = now();
#pragma unroll 1
    for (int i = 0; i < words; i += 16) at = table[at];
    ticks[pass] = now() - start + (at == 77777u);
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) for (int pass = 0; pass < 3; ++pass) out[pass] = ticks[pass];
}
// N instructions in a row, each with a constant operand of its own at a fixed address, STRIDE words apart.
template <int N, int STRIDE>
__device__ __forceinline__ void operands(unsigned* out, float a) {
  a += threadIdx.x;  // a register, so that the constant can be an operand
  float x = a;
  unsigned ticks[3];
  const float* t = reinterpret_cast<const float*>(table);
#pragma unroll 1
  for (int pass = 0; pass < 3; ++pass) {
    const unsigned start = now();
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(a), "f"(t[i * STRIDE]));
    ticks[pass] = now() - start + (x == 1.2345f);
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) for (int pass = 0; pass < 3; ++pass) out[pass] = ticks[pass];
}
#define OPERANDS(n, stride) \
  extern "C" __global__ void operands_##n##_##stride(unsigned* out, float a) { operands<n, stride>(out, a); }
OPERANDS(64, 1) OPERANDS(64, 16) OPERANDS(256, 1) OPERANDS(256, 16) OPERANDS(256, 64) OPERANDS(512, 1) OPERANDS(512, 16)

// Lanes that read different words of the constant table: `distinct` of them an instruction.
extern "C" __global__ void constant_divergent(unsigned* out, int distinct, int iterations) {
  const unsigned lane = threadIdx.x % 32;
  unsigned at = lane % distinct, sum = 0;
  unsigned start = 0;
#pragma unroll 1
  for (int it = -4; it < iterations; ++it) {
    if (it == 0) start = now();
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += table[(at + i * 32) & 1023];
    at ^= sum & 32;
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = now() - start, out[1] = sum;
}

// Fence after one store a thread: cycles from the fence to the next instruction, one CTA an SM or many; KIND 0: membar.gl,
// 1: membar.gl and an atomic whose result is waited for (a ticket), 2: the atomic alone, 3: membar.gl without a store before it.
template <int KIND>
__device__ __forceinline__ void fence(unsigned* out, unsigned* data, unsigned* tickets, int rounds) {
  unsigned total = 0, sum = 0;
  unsigned* own = data + blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < rounds; ++i) {
    if (KIND < 3) asm volatile("st.global.u32 [%0], %1;" ::"l"(own), "r"(i) : "memory");
    const unsigned start = now();
    if (KIND != 2) asm volatile("membar.gl;" ::: "memory");
    if ((KIND == 1 || KIND == 2) && threadIdx.x == 0) sum += atomicAdd(tickets, 1u);
    if (sum == 0xffffffffu) out[0] = 1;
    total += now() - start;
  }
  if (threadIdx.x == 0) out[blockIdx.x + 1] = total / rounds;
}
extern "C" __global__ void fence_alone(unsigned* out, unsigned* data, unsigned* tickets, int rounds) { fence<0>(out, data, tickets, rounds); }
extern "C" __global__ void fence_ticket(unsigned* out, unsigned* data, unsigned* tickets, int rounds) { fence<1>(out, data, tickets, rounds); }
extern "C" __global__ void ticket_alone(unsigned* out, unsigned* data, unsigned* tickets, int rounds) { fence<2>(out, data, tickets, rounds); }
extern "C" __global__ void fence_only(unsigned* out, unsigned* data, unsigned* tickets, int rounds) { fence<3>(out, data, tickets, rounds); }

// A chain of dependent atomics with results, on one word, by one lane a warp: integer, float, compare-and-swap.
template <int KIND>
__device__ __forceinline__ void atomic_chain(unsigned* out, unsigned* data, int steps) {
  if (threadIdx.x % 32 != 0) return;
  unsigned long long p = reinterpret_cast<unsigned long long>(data + 32 * (blockIdx.x * blockDim.x + threadIdx.x) / 32);
  const unsigned start = now();
#pragma unroll 4
  for (int i = 0; i < steps; ++i) {
    unsigned v;
    if (KIND == 0) asm volatile("atom.global.add.u32 %0, [%1], 0;" : "=r"(v) : "l"(p) : "memory");
    if (KIND == 1) asm volatile("{.reg .f32 f; atom.global.add.f32 f, [%1], 0f00000000; mov.b32 %0, f;}" : "=r"(v) : "l"(p) : "memory");
    if (KIND == 2) asm volatile("atom.global.cas.b32 %0, [%1], 1, 1;" : "=r"(v) : "l"(p) : "memory");
    p += v;  // zero
  }
  if (threadIdx.x == 0) out[blockIdx.x + 1] = now() - start + (p == 1);
}
extern "C" __global__ void atomic_chain_add(unsigned* out, unsigned* data, int steps) { atomic_chain<0>(out, data, steps); }
extern "C" __global__ void atomic_chain_f32(unsigned* out, unsigned* data, int steps) { atomic_chain<1>(out, data, steps); }
extern "C" __global__ void atomic_chain_cas(unsigned* out, unsigned* data, int steps) { atomic_chain<2>(out, data, steps); }
