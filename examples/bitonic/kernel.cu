// Bitonic sort of segments of 32-bit keys, a block a segment.
//
// Varied: segment length (SEGMENT), block size (BLOCK, and with it keys per thread), padding of
// shared memory (PAD: one word after every 32), and where the steps happen (MODE):
//   0 every step in shared memory;
//   1 steps between keys less than 32 apart by shuffles, the others in shared memory;
//   2 keys stay in registers, a thread's keys BLOCK apart: far steps within the thread, near ones by
//     shuffles, those between by exchange through shared memory;
//   3 keys stay in registers, a thread's keys neighbours: near steps within the thread, then
//     shuffles, far ones by exchange through shared memory.

constexpr int KEYS = SEGMENT / BLOCK;
constexpr int APART = MODE == 3 ? 1 : BLOCK;         // distance of a thread's keys
constexpr int LANES_APART = MODE == 3 ? KEYS : 1;    // distance of keys in neighbouring lanes

static_assert(KEYS >= 2 && SEGMENT % BLOCK == 0, "a step takes at least one pair a thread");

__device__ __forceinline__ int place(int i) { return PAD ? i + i / 32 : i; }

__device__ __forceinline__ int index_of(int key) {
  return MODE == 3 ? threadIdx.x * KEYS + key : threadIdx.x + key * BLOCK;
}

__device__ __forceinline__ unsigned chosen(unsigned own, unsigned other, int index, int stride, int size) {
  const bool low = (index & stride) == 0, ascending = (index & size) == 0;
  return low == ascending ? min(own, other) : max(own, other);
}

__device__ __forceinline__ void step_shared(unsigned* keys, int stride, int size) {
#pragma unroll
  for (int p = 0; p < KEYS / 2; ++p) {
    const int pair = threadIdx.x + p * BLOCK;
    const int low = 2 * pair - (pair & (stride - 1));
    const unsigned a = keys[place(low)], b = keys[place(low + stride)];
    const bool ascending = (low & size) == 0;
    keys[place(low)] = ascending ? min(a, b) : max(a, b);
    keys[place(low + stride)] = ascending ? max(a, b) : min(a, b);
  }
}

__device__ __forceinline__ void step_shuffle(unsigned (&own)[KEYS], int stride, int size) {
#pragma unroll
  for (int k = 0; k < KEYS; ++k) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, own[k], stride / LANES_APART);
    own[k] = chosen(own[k], other, index_of(k), stride, size);
  }
}

__device__ __forceinline__ void step_thread(unsigned (&own)[KEYS], int stride, int size) {
#pragma unroll
  for (int distance = KEYS / 2; distance > 0; distance /= 2) {
    if (stride != distance * APART) continue;
#pragma unroll
    for (int k = 0; k < KEYS; ++k) {
      if (k & distance) continue;
      const unsigned a = own[k], b = own[k + distance];
      const bool ascending = (index_of(k) & size) == 0;
      own[k] = ascending ? min(a, b) : max(a, b);
      own[k + distance] = ascending ? max(a, b) : min(a, b);
    }
  }
}

__device__ __forceinline__ void step_exchange(unsigned* keys, unsigned (&own)[KEYS], int stride, int size) {
  __syncthreads();
#pragma unroll
  for (int k = 0; k < KEYS; ++k) keys[place(index_of(k))] = own[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < KEYS; ++k) own[k] = chosen(own[k], keys[place(index_of(k) ^ stride)], index_of(k), stride, size);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
bitonic(const unsigned* __restrict__ input, unsigned* __restrict__ output) {
  __shared__ unsigned keys[SEGMENT + (PAD ? SEGMENT / 32 : 0)];
  const unsigned* in = input + static_cast<long long>(blockIdx.x) * SEGMENT;
  unsigned* out = output + static_cast<long long>(blockIdx.x) * SEGMENT;
  unsigned own[KEYS];

  if (MODE < 2) {
#pragma unroll
    for (int k = 0; k < KEYS; ++k) keys[place(threadIdx.x + k * BLOCK)] = in[threadIdx.x + k * BLOCK];
    __syncthreads();
  } else {
#pragma unroll
    for (int k = 0; k < KEYS; ++k) own[k] = in[index_of(k)];
  }

#pragma unroll 1
  for (int size = 2; size <= SEGMENT; size *= 2) {
    if (MODE < 2) {
      int stride = size / 2;
#pragma unroll 1
      for (; stride >= (MODE == 1 ? 32 : 1); stride /= 2) {
        step_shared(keys, stride, size);
        __syncthreads();
      }
      if (MODE == 1) {
#pragma unroll
        for (int k = 0; k < KEYS; ++k) own[k] = keys[place(threadIdx.x + k * BLOCK)];
#pragma unroll 1
        for (; stride > 0; stride /= 2) step_shuffle(own, stride, size);
#pragma unroll
        for (int k = 0; k < KEYS; ++k) keys[place(threadIdx.x + k * BLOCK)] = own[k];
        __syncthreads();
      }
    } else {
#pragma unroll 1
      for (int stride = size / 2; stride > 0; stride /= 2) {
        if (MODE == 2 ? stride >= BLOCK : stride < KEYS)
          step_thread(own, stride, size);
        else if (stride < 32 * LANES_APART)
          step_shuffle(own, stride, size);
        else
          step_exchange(keys, own, stride, size);
      }
    }
  }

  if (MODE < 2) {
#pragma unroll
    for (int k = 0; k < KEYS; ++k) out[threadIdx.x + k * BLOCK] = keys[place(threadIdx.x + k * BLOCK)];
  } else {
#pragma unroll
    for (int k = 0; k < KEYS; ++k) out[index_of(k)] = own[k];
  }
}
