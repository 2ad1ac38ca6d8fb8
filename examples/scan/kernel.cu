// Inclusive prefix sums of int32 within segments of fixed length, a block a segment.
//
// A block goes through its segment in tiles of BLOCK * ITEMS elements and carries the sum along.
// Varied: block size (BLOCK), neighbouring elements per thread (ITEMS), how the threads' sums are
// scanned (METHOD: 0 shuffles, 1 Hillis-Steele in shared memory), and how a thread gets at its
// elements (LAYOUT: 0 one by one from global memory, 1 four at a time, 2 coalesced and transposed
// through shared memory, 3 the same with padded rows).

constexpr int TILE = BLOCK * ITEMS;
constexpr int WARPS = BLOCK / 32;
constexpr bool THROUGH_SHARED = LAYOUT >= 2;

static_assert(SEGMENT % TILE == 0, "segments hold whole tiles");

__device__ __forceinline__ int place(int i) { return LAYOUT == 3 ? i + i / 32 : i; }

// Inclusive scan over the block; `total` is the sum of all threads' values. Ends with shared memory in use: the
// caller's next barrier frees it.
__device__ __forceinline__ int block_scan(int value, int& total) {
  if (METHOD == 0) {
    __shared__ int warp_sums[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, value, offset);
      if (lane >= offset) value += other;
    }
    if (lane == 31) warp_sums[warp] = value;
    __syncthreads();
    int sums = lane < WARPS ? warp_sums[lane] : 0;
#pragma unroll
    for (int offset = 1; offset < WARPS; offset *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sums, offset);
      if (lane >= offset) sums += other;
    }
    total = __shfl_sync(0xffffffffu, sums, WARPS - 1);
    const int before = __shfl_sync(0xffffffffu, sums, warp > 0 ? warp - 1 : 0);
    return warp > 0 ? value + before : value;
  } else {
    __shared__ int sums[2][BLOCK];
    int current = 0;
    sums[0][threadIdx.x] = value;
    __syncthreads();
    for (int offset = 1; offset < BLOCK; offset *= 2) {
      if (threadIdx.x >= offset) value += sums[current][threadIdx.x - offset];
      current ^= 1;
      sums[current][threadIdx.x] = value;
      __syncthreads();
    }
    total = sums[current][BLOCK - 1];
    return value;
  }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
scan(const int* __restrict__ input, int* __restrict__ output) {
  __shared__ int staging[THROUGH_SHARED ? TILE + TILE / 32 : 1];
  const long long segment = static_cast<long long>(blockIdx.x) * SEGMENT;
  int carry = 0;
  for (int base = 0; base < SEGMENT; base += TILE) {
    const int* in = input + segment + base;
    int* out = output + segment + base;
    const int first = threadIdx.x * ITEMS;
    int items[ITEMS];

    if (THROUGH_SHARED) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) staging[place(threadIdx.x + i * BLOCK)] = in[threadIdx.x + i * BLOCK];
      __syncthreads();
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) items[i] = staging[place(first + i)];
    } else if (LAYOUT == 1) {
#pragma unroll
      for (int i = 0; i < ITEMS; i += 4) {
        const int4 pack = *reinterpret_cast<const int4*>(in + first + i);
        items[i] = pack.x, items[i + 1] = pack.y, items[i + 2] = pack.z, items[i + 3] = pack.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) items[i] = in[first + i];
    }

#pragma unroll
    for (int i = 1; i < ITEMS; ++i) items[i] += items[i - 1];
    int total;
    const int before = block_scan(items[ITEMS - 1], total) - items[ITEMS - 1] + carry;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) items[i] += before;
    carry += total;

    if (THROUGH_SHARED) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) staging[place(first + i)] = items[i];
      __syncthreads();
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) out[threadIdx.x + i * BLOCK] = staging[place(threadIdx.x + i * BLOCK)];
    } else if (LAYOUT == 1) {
#pragma unroll
      for (int i = 0; i < ITEMS; i += 4)
        *reinterpret_cast<int4*>(out + first + i) = make_int4(items[i], items[i + 1], items[i + 2], items[i + 3]);
    } else {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) out[first + i] = items[i];
    }
    __syncthreads();
  }
}
