// Which code runs here: the best path that this processor has and that proves itself.
#pragma once

#include <string>
#include <vector>

#include "tasks.h"

namespace ltp {

// A path that was compiled in, and why it is not used; empty where it may be.
struct Candidate {
  Path path;
  std::string refused;
};

constexpr const char* kNotThere = "this processor does not have it";

// All of them, best first. Decided once, when first asked.
const std::vector<Candidate>& candidates();

// The best one, or the one that LTP_KERNELS_PATH names; null where that one may not be used.
const Path* chosen_path();

// Why a path differs from the portable one on small random cases; empty where it does not.
std::string differs(const Path& path, const Path& portable);

}  // namespace ltp
