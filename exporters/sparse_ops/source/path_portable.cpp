// The path for any processor, and the one that the others are compared with.
#include "tasks.h"

namespace ltp {
namespace portable {
#include "vec_portable.h"
#include "tile.h"
#include "band.h"
#include "table.h"
constexpr Path kPath = make_path("portable");
}  // namespace portable

const Path& portable_path() { return portable::kPath; }

}  // namespace ltp
