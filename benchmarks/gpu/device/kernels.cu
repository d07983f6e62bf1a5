// The kernels of the probes. Names and arguments are repeated in fake_driver.py.
typedef unsigned long long u64;
typedef unsigned int u32;

__device__ __forceinline__ u64 mixed(u64 x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

extern "C" __global__ void fill_pattern(u64* words, u64 count, u64 seed) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) words[i] = seed + i;
}

extern "C" __global__ void count_mismatches(const u64* words, u64 count, u64 seed, u64* wrong) {
    u64 step = (u64)gridDim.x * blockDim.x, mine = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) mine += words[i] != seed + i;
    if (mine) atomicAdd(wrong, mine);
}

// Each block writes its own counter, 128 bytes from the next, into both memories until `limit` nanoseconds are over.
extern "C" __global__ void count_up(volatile u64* host, volatile u64* device, u64 limit) {
    u64 begin = nanoseconds(), n = 0;
    while (nanoseconds() - begin < limit) {
        n += 1;
        host[blockIdx.x * 16] = n;
        device[blockIdx.x * 16] = n;
        __threadfence_system();
    }
}

// Answers every change of words[0] by writing it to words[16], until `rounds` are answered or the limit is over.
extern "C" __global__ void echo_words(volatile u64* words, u64 rounds, u64 limit) {
    u64 begin = nanoseconds(), last = 0;
    while (last < rounds && nanoseconds() - begin < limit) {
        u64 seen = words[0];
        if (seen != last) {
            last = seen;
            words[16] = seen;
            __threadfence_system();
        }
    }
}

// Row numbers: uniform for exponent 0, else Zipf with that exponent; the hot rows are scattered over the table.
extern "C" __global__ void draw_rows(u32* ids, u64 count, u64 rows, u64 seed, double exponent) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    u64 random = mixed(seed + i);
    if (exponent == 0.0) {
        ids[i] = (u32)(random % rows);
        return;
    }
    double u = (double)(random >> 11) * (1.0 / 9007199254740992.0), power = 1.0 - exponent;
    double rank = pow((pow((double)rows + 1.0, power) - 1.0) * u + 1.0, 1.0 / power);
    ids[i] = (u32)(mixed((u64)rank) % rows);
}

// `lanes` threads read one row of lanes * 16 bytes. The sum keeps the compiler from dropping the loads.
extern "C" __global__ void gather_rows(const uint4* table, const u32* ids, u64 count, u32 lanes, u32* sink) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x / lanes;
    u32 lane = thread % lanes, sum = 0;
#pragma unroll 4
    for (u64 i = thread / lanes; i < count; i += step) {
        uint4 value = table[(u64)ids[i] * lanes + lane];
        sum ^= value.x ^ value.y ^ value.z ^ value.w;
    }
    if (sum == 0x12345677u) *sink = sum;
}

extern "C" __global__ void update_rows(uint4* table, const u32* ids, u64 count, u32 lanes, u32* sink) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x / lanes;
    u32 lane = thread % lanes;
    for (u64 i = thread / lanes; i < count; i += step) {
        uint4* place = table + (u64)ids[i] * lanes + lane;
        uint4 value = *place;
        value.x += 1;
        value.y += 2;
        value.z += 3;
        value.w += 4;
        *place = value;
    }
}

// Arithmetic on all multiprocessors for `limit` nanoseconds: a busy device.
extern "C" __global__ void keep_busy(float* sink, u64 limit) {
    u64 begin = nanoseconds();
    float a = threadIdx.x, b = 1.0001f;
    while (nanoseconds() - begin < limit)
        for (int i = 0; i < 256; i++) a = a * b + 0.5f;
    if (a == 12345.0f) *sink = a;
}
