// Attention, forward: softmax(Q K^T / 8) V for heads of dimension 64, fp16 in, sums and output fp32.
// Warp-level mma.sync m16n8k16; the running maximum and sum of the softmax stay in registers.
//
// Varied: queries per block (BQ), keys per step (BKEYS), warps (WARPS, each with BQ / WARPS queries),
// copies of K and V (ASYNC: 0 through registers into one buffer, 1 cp.async into two), and the layout
// of the shared rows (LAYOUT: 0 plain, 1 XOR swizzle, 2 padded).

#include <cuda_fp16.h>

constexpr int WIDTH = 64;                      // of a head
constexpr int CHUNKS = WIDTH / 8;              // 16-byte chunks of a row
constexpr int THREADS = 32 * WARPS;
constexpr int BANDS = BQ / (16 * WARPS);       // bands of 16 queries of a warp
constexpr int KEY_TILES = BKEYS / 8;
constexpr int OUT_TILES = WIDTH / 8;
constexpr int PITCH = LAYOUT == 2 ? WIDTH + 8 : WIDTH;
constexpr int TILE_BYTES = 2 * BKEYS * PITCH;
constexpr int STEPS = LENGTH / BKEYS;
constexpr int OWN = BKEYS * CHUNKS / THREADS;  // chunks a thread copies of K, and of V
constexpr float LOG2E_OVER_8 = 0.18033688f;    // scores are kept as exponents of 2

static_assert(LENGTH % BQ == 0 && LENGTH % BKEYS == 0 && BKEYS * CHUNKS % THREADS == 0, "tiles must divide");

__device__ __forceinline__ unsigned chunk_at(int row, int chunk) {
  return 2 * (row * PITCH + (LAYOUT == 1 ? chunk ^ row % 8 : chunk) * 8);
}

__device__ __forceinline__ void copy_async(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void load_matrices(unsigned (&part)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&part)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned halves(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

__device__ __forceinline__ void start_copy(const __half* from, unsigned to) {
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const int slot = threadIdx.x + i * THREADS;
    copy_async(to + chunk_at(slot / CHUNKS, slot % CHUNKS), from + slot * 8);
  }
}

__device__ __forceinline__ void fetch(const __half* from, uint4 (&staged)[OWN]) {
#pragma unroll
  for (int i = 0; i < OWN; ++i) staged[i] = *reinterpret_cast<const uint4*>(from + (threadIdx.x + i * THREADS) * 8);
}

__device__ __forceinline__ void store(const uint4 (&staged)[OWN], unsigned char* to) {
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const int slot = threadIdx.x + i * THREADS;
    *reinterpret_cast<uint4*>(to + chunk_at(slot / CHUNKS, slot % CHUNKS)) = staged[i];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention(const __half* __restrict__ queries, const __half* __restrict__ keys, const __half* __restrict__ values,
          float* __restrict__ output) {
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
  const int lane = threadIdx.x % 32;
  const int first = blockIdx.y * LENGTH + blockIdx.x * BQ + threadIdx.x / 32 * (16 * BANDS);  // query of the warp
  const __half* head_keys = keys + blockIdx.y * LENGTH * WIDTH;
  const __half* head_values = values + blockIdx.y * LENGTH * WIDTH;

  unsigned query[BANDS][WIDTH / 16][4];
#pragma unroll
  for (int band = 0; band < BANDS; ++band)
#pragma unroll
    for (int k = 0; k < WIDTH / 16; ++k)
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int row = first + band * 16 + lane / 4 + part % 2 * 8;
        const int column = k * 16 + part / 2 * 8 + lane % 4 * 2;
        query[band][k][part] = *reinterpret_cast<const unsigned*>(queries + row * WIDTH + column);
      }

  float out[BANDS][OUT_TILES][4] = {};
  float maximum[BANDS][2], sum[BANDS][2];
#pragma unroll
  for (int band = 0; band < BANDS; ++band) {
    maximum[band][0] = maximum[band][1] = -1e30f;
    sum[band][0] = sum[band][1] = 0.0f;
  }

  if (ASYNC) {
    start_copy(head_keys, shared);
    start_copy(head_values, shared + TILE_BYTES);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

#pragma unroll 1
  for (int step = 0; step < STEPS; ++step) {
    unsigned key_tile = shared;
    if (ASYNC) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
      if (step + 1 < STEPS) {
        const unsigned to = shared + (step + 1) % 2 * (2 * TILE_BYTES);
        start_copy(head_keys + (step + 1) * BKEYS * WIDTH, to);
        start_copy(head_values + (step + 1) * BKEYS * WIDTH, to + TILE_BYTES);
        asm volatile("cp.async.commit_group;" ::: "memory");
      }
      key_tile += step % 2 * (2 * TILE_BYTES);
    } else {
      uint4 key_part[OWN], value_part[OWN];
      fetch(head_keys + step * BKEYS * WIDTH, key_part);
      fetch(head_values + step * BKEYS * WIDTH, value_part);
      __syncthreads();
      store(key_part, memory);
      store(value_part, memory + TILE_BYTES);
      __syncthreads();
    }
    const unsigned value_tile = key_tile + TILE_BYTES;

    float score[BANDS][KEY_TILES][4] = {};
#pragma unroll
    for (int k = 0; k < WIDTH / 16; ++k)
#pragma unroll
      for (int tile = 0; tile < KEY_TILES; tile += 2) {
        unsigned part[4];
        const int row = tile * 8 + lane / 16 * 8 + lane % 8;
        load_matrices(part, key_tile + chunk_at(row, 2 * k + lane / 8 % 2));
#pragma unroll
        for (int band = 0; band < BANDS; ++band) {
          multiply_add(score[band][tile], query[band][k], part[0], part[1]);
          multiply_add(score[band][tile + 1], query[band][k], part[2], part[3]);
        }
      }

#pragma unroll
    for (int band = 0; band < BANDS; ++band)
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // rows lane / 4 and lane / 4 + 8
        float top = maximum[band][half];
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile)
          top = fmaxf(top, fmaxf(score[band][tile][2 * half], score[band][tile][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float shrink = exp2f((maximum[band][half] - top) * LOG2E_OVER_8);
        maximum[band][half] = top;
        float added = 0.0f;
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile)
#pragma unroll
          for (int v = 2 * half; v < 2 * half + 2; ++v) {
            score[band][tile][v] = exp2f(fmaf(score[band][tile][v], LOG2E_OVER_8, -top * LOG2E_OVER_8));
            added += score[band][tile][v];
          }
        sum[band][half] = fmaf(sum[band][half], shrink, added);
#pragma unroll
        for (int tile = 0; tile < OUT_TILES; ++tile) {
          out[band][tile][2 * half] *= shrink;
          out[band][tile][2 * half + 1] *= shrink;
        }
      }

#pragma unroll
    for (int k = 0; k < BKEYS / 16; ++k) {
      unsigned weight[BANDS][4];
#pragma unroll
      for (int band = 0; band < BANDS; ++band) {
        weight[band][0] = halves(score[band][2 * k][0], score[band][2 * k][1]);
        weight[band][1] = halves(score[band][2 * k][2], score[band][2 * k][3]);
        weight[band][2] = halves(score[band][2 * k + 1][0], score[band][2 * k + 1][1]);
        weight[band][3] = halves(score[band][2 * k + 1][2], score[band][2 * k + 1][3]);
      }
#pragma unroll
      for (int tile = 0; tile < OUT_TILES; tile += 2) {
        unsigned part[4];
        load_matrices_transposed(part, value_tile + chunk_at(k * 16 + lane % 16, tile + lane / 16));
#pragma unroll
        for (int band = 0; band < BANDS; ++band) {
          multiply_add(out[band][tile], weight[band], part[0], part[1]);
          multiply_add(out[band][tile + 1], weight[band], part[2], part[3]);
        }
      }
    }
  }

#pragma unroll
  for (int band = 0; band < BANDS; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[band][half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float scale = 1.0f / total;
      const int row = first + band * 16 + lane / 4 + half * 8;
#pragma unroll
      for (int tile = 0; tile < OUT_TILES; ++tile)
        *reinterpret_cast<float2*>(output + row * WIDTH + tile * 8 + lane % 4 * 2) =
            make_float2(out[band][tile][2 * half] * scale, out[band][tile][2 * half + 1] * scale);
    }
}
