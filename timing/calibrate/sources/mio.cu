// Bursts of N independent instructions of one kind: when the last has issued, and when the last result is there. The
// first tells the depth of the queue behind the sub-core's issue slot and how fast it drains. Also cp.async, and first
// passes over code.

__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}
extern __shared__ __align__(128) unsigned words[];

namespace ops {
struct lds32 {
  static constexpr bool values = false;
  static __device__ __forceinline__ void issue(unsigned& x, unsigned address, const char*) {
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  }
};
struct lds128 {
  static constexpr bool values = false;
  static __device__ __forceinline__ void issue(unsigned& x, unsigned address, const char*) {
    asm volatile("{.reg .u32 t, u, v; ld.volatile.shared.v4.u32 {%0, t, u, v}, [%1];}" : "=r"(x) : "r"(address) : "memory");
  }
};
struct sts32 {
  static constexpr bool values = false;
  static __device__ __forceinline__ void issue(unsigned& x, unsigned address, const char*) {
    x = address;
    asm volatile("st.volatile.shared.u32 [%0], %0;" ::"r"(address) : "memory");
  }
};
struct ldg32 {
  static constexpr bool values = false;
  static __device__ __forceinline__ void issue(unsigned& x, unsigned, const char* p) {
    asm volatile("ld.relaxed.cta.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  }
};
struct ldg128 {
  static constexpr bool values = false;
  static __device__ __forceinline__ void issue(unsigned& x, unsigned, const char* p) {
    asm volatile("{.reg .u32 t, u, v; ld.global.v4.u32 {%0, t, u, v}, [%1]; lop3.b32 %0, %0, t, u, 0x96; xor.b32 %0, %0, v;}" : "=r"(x) : "l"(p) : "memory");
  }
};
struct stg32 {
  static constexpr bool values = false;
  static __device__ __forceinline__ void issue(unsigned& x, unsigned address, const char* p) {
    x = address;
    asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(p), "r"(address) : "memory");
  }
};
struct shfl {
  static constexpr bool values = true;
  static __device__ __forceinline__ void issue(unsigned& x, unsigned address, const char*) {
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 31, 0xffffffff;" : "=r"(x) : "r"(address) : "memory");
  }
};
struct mufu {
  static constexpr bool values = true;
  static __device__ __forceinline__ void issue(unsigned& x, unsigned address, const char*) {
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(*reinterpret_cast<float*>(&x)) : "f"(__uint_as_float(address)) : "memory");
  }
};

}  // namespace ops

// out: per warp: cycles until the last of N has issued, until all results are there.
template <class Op, int N, bool VALUES>
__device__ __forceinline__ void burst(unsigned* out, const char* data, const unsigned* seed) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) words[i] = i;
  __syncthreads();
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(words)) + seed[lane];
  unsigned issued = 0, done = 0, sum = 0;
#pragma unroll 1
  for (int pass = 0; pass < 4; ++pass) {
    unsigned x[N], y[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      y[i] = base + (sum >> 31) + 16 * lane + 512 * (i % 8);
      if (VALUES) y[i] += i / 8;  // no two the same
    }
    __syncthreads();
    const unsigned start = now();
#pragma unroll
    for (int i = 0; i < N; ++i) Op::issue(x[i], y[i], data + 16 * lane + 512 * i);
    issued = now() - start;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += x[i];
    if (sum == 0x12345678u) out[1023] = sum;
    done = now() - start;
  }
  if (lane == 0) out[2 * (threadIdx.x / 32)] = issued, out[2 * (threadIdx.x / 32) + 1] = done;
}
#define BURST(op, n) extern "C" __global__ void burst_##op##_##n(unsigned* out, const char* data, const unsigned* seed) { burst<ops::op, n, ops::op::values>(out, data, seed); }
#define BURSTS(op) BURST(op, 1) BURST(op, 2) BURST(op, 3) BURST(op, 4) BURST(op, 5) BURST(op, 6) BURST(op, 7) BURST(op, 8) BURST(op, 10) BURST(op, 12) BURST(op, 16) BURST(op, 24) BURST(op, 32)
BURSTS(lds32) BURSTS(lds128) BURSTS(sts32) BURSTS(ldg32) BURSTS(ldg128) BURSTS(stg32) BURSTS(shfl) BURSTS(mufu)

// cp.async of 16 bytes a thread (past L1), four in a group, from `span` bytes a CTA; waits for the group before last.
extern "C" __global__ void __launch_bounds__(1024) async_copy(unsigned* out, const char* data, unsigned span, int iterations) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(words)) + 16 * threadIdx.x;
  const char* from = data + static_cast<unsigned long long>(blockIdx.x) * span;
  const unsigned pitch = 16 * blockDim.x;
  unsigned at = 0, start = 0;
#pragma unroll 1
  for (int it = -4; it < iterations; ++it) {
    if (it == 0) {
      __syncthreads();
      start = now();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + (i % 2) * pitch), "l"(from + at + 16 * threadIdx.x) : "memory");
      at += pitch;
      if (at >= span) at = 0;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 2;" ::: "memory");
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const unsigned end = now();
  if (threadIdx.x % 32 == 0) out[4 * warp] = start, out[4 * warp + 1] = end, out[4 * warp + 2] = sm;
}

// Granules of 4 * `lanes` bytes (4, 32, 64, 128) at pseudo-random places: `lanes` neighbouring lanes share one.
extern "C" __global__ void __launch_bounds__(1024) scatter(unsigned* out, unsigned* data, unsigned granules, int lanes, int pitch_words, int write, int steps) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned state = thread / lanes * 2654435761u + 12345u, sum = 0;
  const unsigned lane = threadIdx.x % lanes;
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    unsigned v[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      state = state * 1664525u + 1013904223u;
      unsigned* p = data + static_cast<unsigned long long>(__umulhi(state, granules)) * pitch_words + lane;
      if (write) *p = state;
      else v[u] = *p;
    }
    if (!write) sum ^= v[0] ^ v[1] ^ v[2] ^ v[3];
  }
  if (sum == 0x12345678u) out[0] = sum;
}
