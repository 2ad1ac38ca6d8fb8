// Layer normalisation over the rows of an fp16 matrix, statistics in fp32.
//
// Varied: row length (ROW), whether a warp or a whole block owns a row (BLOCK_PER_ROW), block size
// (BLOCK), width of loads and stores (VEC halves), and the algorithm (ALGORITHM: 0 one pass for the
// mean and one for the variance, 1 Welford's running mean and variance in one pass, 2 one read of
// the row, kept in registers).

#include <cuda_fp16.h>

constexpr int TEAM = BLOCK_PER_ROW ? BLOCK : 32;
constexpr int WARPS = BLOCK / 32;
constexpr int PACKS = ROW / VEC;
constexpr int OWN = (PACKS + TEAM - 1) / TEAM;  // packs of a thread

struct alignas(2 * VEC) Pack {
  __half lane[VEC];
};

__device__ __forceinline__ float team_sum(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  if (!BLOCK_PER_ROW) return value;
  __shared__ float per_warp[WARPS];
  __syncthreads();
  if (threadIdx.x % 32 == 0) per_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < WARPS ? per_warp[threadIdx.x % 32] : 0.0f;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

struct Moments {
  float count, mean, square;  // square: sum of squared distances from the mean
};

__device__ __forceinline__ Moments merge(Moments a, Moments b) {
  const float count = a.count + b.count;
  const float share = count > 0.0f ? __fdividef(b.count, count) : 0.0f;
  const float delta = b.mean - a.mean;
  return {count, fmaf(delta, share, a.mean), a.square + b.square + delta * delta * a.count * share};
}

__device__ __forceinline__ Moments warp_merge(Moments m) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const Moments other = {__shfl_xor_sync(0xffffffffu, m.count, mask), __shfl_xor_sync(0xffffffffu, m.mean, mask),
                           __shfl_xor_sync(0xffffffffu, m.square, mask)};
    m = merge(m, other);
  }
  return m;
}

__device__ __forceinline__ Moments team_merge(Moments m) {
  m = warp_merge(m);
  if (!BLOCK_PER_ROW) return m;
  __shared__ Moments per_warp[WARPS];
  if (threadIdx.x % 32 == 0) per_warp[threadIdx.x / 32] = m;
  __syncthreads();
  return warp_merge(threadIdx.x % 32 < WARPS ? per_warp[threadIdx.x % 32] : Moments{0.0f, 0.0f, 0.0f});
}

__device__ __forceinline__ Pack normalised(const Pack& pack, const Pack& gain, const Pack& bias, float mean, float scale) {
  Pack result;
#pragma unroll
  for (int v = 0; v < VEC; ++v) {
    const float value = (__half2float(pack.lane[v]) - mean) * scale;
    result.lane[v] = __float2half_rn(fmaf(value, __half2float(gain.lane[v]), __half2float(bias.lane[v])));
  }
  return result;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
layernorm(const __half* __restrict__ input, const __half* __restrict__ gains, const __half* __restrict__ biases,
          __half* __restrict__ output, int rows, float epsilon) {
  const int row = BLOCK_PER_ROW ? blockIdx.x : blockIdx.x * WARPS + threadIdx.x / 32;
  const int member = BLOCK_PER_ROW ? threadIdx.x : threadIdx.x % 32;
  if (row >= rows) return;
  const Pack* in = reinterpret_cast<const Pack*>(input + static_cast<long long>(row) * ROW);
  const Pack* gain = reinterpret_cast<const Pack*>(gains);
  const Pack* bias = reinterpret_cast<const Pack*>(biases);
  Pack* out = reinterpret_cast<Pack*>(output + static_cast<long long>(row) * ROW);

  if (ALGORITHM == 2) {
    Pack own[OWN];
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < OWN; ++p) {
      if (member + p * TEAM < PACKS) {
        own[p] = in[member + p * TEAM];
#pragma unroll
        for (int v = 0; v < VEC; ++v) sum += __half2float(own[p].lane[v]);
      }
    }
    const float mean = team_sum(sum) * (1.0f / ROW);
    float square = 0.0f;
#pragma unroll
    for (int p = 0; p < OWN; ++p) {
      if (member + p * TEAM < PACKS) {
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
          const float delta = __half2float(own[p].lane[v]) - mean;
          square = fmaf(delta, delta, square);
        }
      }
    }
    const float scale = rsqrtf(team_sum(square) * (1.0f / ROW) + epsilon);
#pragma unroll
    for (int p = 0; p < OWN; ++p) {
      const int i = member + p * TEAM;
      if (i < PACKS) out[i] = normalised(own[p], gain[i], bias[i], mean, scale);
    }
    return;
  }

  float mean, square;
  if (ALGORITHM == 1) {
    Moments m = {0.0f, 0.0f, 0.0f};
    for (int i = member; i < PACKS; i += TEAM) {
      const Pack pack = in[i];
#pragma unroll
      for (int v = 0; v < VEC; ++v) {
        const float value = __half2float(pack.lane[v]);
        const float delta = value - m.mean;
        m.count += 1.0f;
        m.mean += __fdividef(delta, m.count);
        m.square = fmaf(delta, value - m.mean, m.square);
      }
    }
    m = team_merge(m);
    mean = m.mean;
    square = m.square;
  } else {
    float sum = 0.0f;
    for (int i = member; i < PACKS; i += TEAM) {
      const Pack pack = in[i];
#pragma unroll
      for (int v = 0; v < VEC; ++v) sum += __half2float(pack.lane[v]);
    }
    mean = team_sum(sum) * (1.0f / ROW);
    square = 0.0f;
    for (int i = member; i < PACKS; i += TEAM) {
      const Pack pack = in[i];
#pragma unroll
      for (int v = 0; v < VEC; ++v) {
        const float delta = __half2float(pack.lane[v]) - mean;
        square = fmaf(delta, delta, square);
      }
    }
    square = team_sum(square);
  }
  const float scale = rsqrtf(square * (1.0f / ROW) + epsilon);
  for (int i = member; i < PACKS; i += TEAM) out[i] = normalised(in[i], gain[i], bias[i], mean, scale);
}
