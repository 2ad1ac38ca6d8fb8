// Double-precision matrix product on the FMA pipe: C = A * B, all row-major, through shared memory.
//
// Varied: block tile (BM x BN x BK), thread tile (TM x TN), whether a thread's rows and columns are
// neighbours or spread over the tile (SPREAD), width of the copies (COPY doubles), padding of the
// shared rows (PAD doubles), and buffering (BUFFERS: 1 loads and stores between two barriers, 2
// cp.async into the buffer not in use).

constexpr int ALONG_N = BN / TN;
constexpr int ALONG_M = BM / TM;
constexpr int A_PITCH = BK + PAD;
constexpr int B_PITCH = BN + PAD;
constexpr int TILES = SIZE_K / BK;

static_assert(SIZE_M % BM == 0 && SIZE_N % BN == 0 && SIZE_K % BK == 0, "tiles must divide the problem");
static_assert(THREADS == ALONG_M * ALONG_N, "a thread a thread tile");

struct alignas(8 * COPY) Pack {
  double lane[COPY];
};

__device__ __forceinline__ void copy_async(double* to, const double* from) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if (COPY == 2)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(address), "l"(from) : "memory");
}

// Copies a tile of HEIGHT rows of WIDTH doubles. The packs of the plain copy are all fetched before one is stored.
template <int HEIGHT, int WIDTH, int PITCH>
struct Tile {
  static constexpr int PACKS = WIDTH / COPY;  // of a row
  static constexpr int OWN = HEIGHT * PACKS / THREADS;
  static_assert(HEIGHT * PACKS % THREADS == 0, "threads copy equally much");
  Pack staged[OWN];

  __device__ __forceinline__ void fetch(const double* from, int stride) {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      const int slot = threadIdx.x + i * THREADS;
      staged[i] = *reinterpret_cast<const Pack*>(from + slot / PACKS * stride + slot % PACKS * COPY);
    }
  }
  __device__ __forceinline__ void store(double* to) const {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      const int slot = threadIdx.x + i * THREADS;
      *reinterpret_cast<Pack*>(to + slot / PACKS * PITCH + slot % PACKS * COPY) = staged[i];
    }
  }
  static __device__ __forceinline__ void start(double* to, const double* from, int stride) {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      const int slot = threadIdx.x + i * THREADS;
      copy_async(to + slot / PACKS * PITCH + slot % PACKS * COPY, from + slot / PACKS * stride + slot % PACKS * COPY);
    }
  }
};

using ATile = Tile<BM, BK, A_PITCH>;
using BTile = Tile<BK, BN, B_PITCH>;

__device__ __forceinline__ int row_of(int i) {
  const int y = threadIdx.x / ALONG_N;
  return SPREAD ? y + i * ALONG_M : y * TM + i;
}

__device__ __forceinline__ int column_of(int j) {
  const int x = threadIdx.x % ALONG_N;
  return SPREAD ? x + j * ALONG_N : x * TN + j;
}

__device__ __forceinline__ void multiply(const double* a, const double* b, double (&sum)[TM][TN]) {
#pragma unroll
  for (int k = 0; k < BK; ++k) {
    double left[TM], right[TN];
#pragma unroll
    for (int i = 0; i < TM; ++i) left[i] = a[row_of(i) * A_PITCH + k];
#pragma unroll
    for (int j = 0; j < TN; ++j) right[j] = b[k * B_PITCH + column_of(j)];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[i][j] = fma(left[i], right[j], sum[i][j]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
dgemm(const double* __restrict__ a, const double* __restrict__ b, double* __restrict__ c) {
  __shared__ __align__(16) double a_tile[BUFFERS][BM * A_PITCH];
  __shared__ __align__(16) double b_tile[BUFFERS][BK * B_PITCH];
  const double* a_rows = a + blockIdx.y * BM * SIZE_K;
  const double* b_columns = b + blockIdx.x * BN;
  double sum[TM][TN] = {};

  if (BUFFERS == 2) {
    ATile::start(a_tile[0], a_rows, SIZE_K);
    BTile::start(b_tile[0], b_columns, SIZE_N);
    asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll 1
    for (int tile = 0; tile < TILES; ++tile) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
      const int next = tile + 1;
      if (next < TILES) {
        ATile::start(a_tile[next % BUFFERS], a_rows + next * BK, SIZE_K);
        BTile::start(b_tile[next % BUFFERS], b_columns + next * BK * SIZE_N, SIZE_N);
        asm volatile("cp.async.commit_group;" ::: "memory");
      }
      multiply(a_tile[tile % BUFFERS], b_tile[tile % BUFFERS], sum);
    }
  } else {
#pragma unroll 1
    for (int tile = 0; tile < TILES; ++tile) {
      ATile a_part;
      BTile b_part;
      a_part.fetch(a_rows + tile * BK, SIZE_K);
      b_part.fetch(b_columns + tile * BK * SIZE_N, SIZE_N);
      __syncthreads();
      a_part.store(a_tile[0]);
      b_part.store(b_tile[0]);
      __syncthreads();
      multiply(a_tile[0], b_tile[0], sum);
    }
  }

#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j)
      c[(blockIdx.y * BM + row_of(i)) * SIZE_N + blockIdx.x * BN + column_of(j)] = sum[i][j];
}
