// Product of a sparse matrix in CSR form and a vector, fp32: y = A * x.
//
// Varied: threads that share a row (TEAM, from a thread to a warp), block size (BLOCK), entries that
// a thread fetches before it adds any (UNROLL), and whether the reads go through the read-only path
// (LDG).

#if LDG
#define READ(address) __ldg(address)
#else
#define READ(address) (*(address))
#endif

static_assert(ROWS % (BLOCK / TEAM) == 0, "blocks hold whole teams of existing rows");

extern "C" __global__ void __launch_bounds__(BLOCK)
spmv(const int* offsets, const int* columns, const float* values, const float* x, float* y) {
  const int row = blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
  const int member = threadIdx.x % TEAM;
  const int end = READ(offsets + row + 1);
  int entry = READ(offsets + row) + member;

  float sum = 0.0f;
#pragma unroll 1
  for (; entry + (UNROLL - 1) * TEAM < end; entry += UNROLL * TEAM) {
    int column[UNROLL];
    float value[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      column[u] = READ(columns + entry + u * TEAM);
      value[u] = READ(values + entry + u * TEAM);
    }
    float factor[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) factor[u] = READ(x + column[u]);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) sum = fmaf(value[u], factor[u], sum);
  }
  if (UNROLL > 1) {
#pragma unroll 1
    for (; entry < end; entry += TEAM) sum = fmaf(READ(values + entry), READ(x + READ(columns + entry)), sum);
  }

#pragma unroll
  for (int offset = TEAM / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (member == 0) y[row] = sum;
}
