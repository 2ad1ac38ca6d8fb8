// Embedding bags: weighted sums of BAG rows of a table, the rows given by random indices.
//
// Varied: row length (WIDTH floats), width of the loads (VEC floats), threads that share a bag
// (TEAM), block size (BLOCK, and with it bags per block), and unrolling over the rows of a bag
// (UNROLL).

constexpr int FACTOR = UNROLL;  // the pragma takes no macro
constexpr int OWN = WIDTH / (VEC * TEAM);  // packs of a thread

static_assert(WIDTH % (VEC * TEAM) == 0, "rows are shared equally");

struct alignas(4 * VEC) Pack {
  float lane[VEC];
};

extern "C" __global__ void __launch_bounds__(BLOCK)
gather(const float* __restrict__ table, const int* __restrict__ indices, const float* __restrict__ weights,
       float* __restrict__ output, int bags) {
  const int bag = blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
  const int member = threadIdx.x % TEAM;
  if (bag >= bags) return;

  Pack sum[OWN];
#pragma unroll
  for (int p = 0; p < OWN; ++p)
#pragma unroll
    for (int v = 0; v < VEC; ++v) sum[p].lane[v] = 0.0f;

#pragma unroll FACTOR
  for (int k = 0; k < BAG; ++k) {
    const int index = indices[bag * BAG + k];
    const float weight = weights[bag * BAG + k];
    const Pack* row = reinterpret_cast<const Pack*>(table + static_cast<long long>(index) * WIDTH);
#pragma unroll
    for (int p = 0; p < OWN; ++p) {
      const Pack pack = row[member + p * TEAM];
#pragma unroll
      for (int v = 0; v < VEC; ++v) sum[p].lane[v] = fmaf(weight, pack.lane[v], sum[p].lane[v]);
    }
  }

  Pack* out = reinterpret_cast<Pack*>(output + static_cast<long long>(bag) * WIDTH);
#pragma unroll
  for (int p = 0; p < OWN; ++p) out[member + p * TEAM] = sum[p];
}
