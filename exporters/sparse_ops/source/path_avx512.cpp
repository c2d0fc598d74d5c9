// The path for AVX-512. Only functions of this file are compiled for it; whether they may be called is decided at run time.
#include "tasks.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own header
#endif

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f")
#endif

namespace ltp {
namespace avx512 {
#include "vec_x86.h"
#include "vec_avx512.h"
#include "tile.h"
#include "band.h"
#include "table.h"
constexpr Path kPath = make_path("avx512");
}  // namespace avx512
}  // namespace ltp

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace ltp {
const Path& avx512_path() { return avx512::kPath; }
}  // namespace ltp
#endif
