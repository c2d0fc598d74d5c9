// The path for AVX2 with FMA. Only functions of this file are compiled for it; whether they may be called is decided at run time.
#include "tasks.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace ltp {
namespace avx2 {
#include "vec_x86.h"
#include "vec_avx2.h"
#include "tile.h"
#include "band.h"
#include "table.h"
constexpr Path kPath = make_path("avx2");
}  // namespace avx2
}  // namespace ltp

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace ltp {
const Path& avx2_path() { return avx2::kPath; }
}  // namespace ltp
#endif
