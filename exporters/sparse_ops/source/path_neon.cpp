// The path for NEON, which every aarch64 has.
#include "tasks.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace ltp {
namespace neon {
#include "vec_neon.h"
#include "tile.h"
#include "band.h"
#include "table.h"
constexpr Path kPath = make_path("neon");
}  // namespace neon

const Path& neon_path() { return neon::kPath; }

}  // namespace ltp
#endif
