#include "paths.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "conv.h"
#include "matmul.h"

namespace ltp {

const Path& portable_path();
#if defined(__x86_64__)
const Path& avx2_path();
const Path& avx512_path();
#elif defined(__aarch64__)
const Path& neon_path();
#endif

namespace {

// The same numbers everywhere, without the standard library's distributions.
class Random {
 public:
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state_ >> 33) - (1 << 30)) / static_cast<float>(1 << 30);
  }
  std::vector<float> vector(size_t count, float zeros = 0) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = next();
      if (zeros > 0 && (next() + 1) / 2 < zeros) value = 0;
    }
    return values;
  }

 private:
  uint64_t state_ = 1;
};

bool close(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= 1e-4f)) return false;
  }
  return true;
}

void serial(size_t count, const std::function<void(size_t)>& task) {
  for (size_t i = 0; i < count; ++i) task(i);
}

}  // namespace

std::string differs(const Path& path, const Path& portable) {
  Random random;
  const Limits limits = {-1.0f, 2.0f};
  const size_t rows = 7;                    // four and three
  for (const float zeros : {0.0f, 0.8f}) {  // blocks of four, single weights
    const int most = (zeros > 0 ? path.max_single : path.max_quad) * path.lanes;
    int64_t nth = 0;
    for (int64_t positions = 1; positions <= most; positions += path.lanes / 2 - 1, ++nth) {  // all remainders of tiles
      const int64_t channels = nth % 5 ? 5 : 100;  // one block of columns, several
      const int64_t stride = 1 + nth % 3, kernel = nth % 2 ? 1 : 3, width = (positions - 1) * stride + 1;
      const std::vector<float> weights = random.vector(rows * static_cast<size_t>(channels * kernel), zeros);
      const std::vector<float> bias = random.vector(rows), input = random.vector(static_cast<size_t>(channels * width));
      ConvAttributes attributes;
      attributes.pads = {0, kernel / 2, 0, kernel / 2};
      attributes.strides = {1, stride};
      const Conv conv(attributes, weights.data(), {static_cast<int64_t>(rows), channels, 1, kernel});
      const std::vector<int64_t> dims = {1, channels, 1, width};
      std::vector<float> ours(rows * static_cast<size_t>(positions)), theirs = ours;
      const std::vector<float> residual = random.vector(ours.size());
      conv.run(path, input.data(), dims, bias.data(), residual.data(), limits, ours.data(), serial);
      conv.run(portable, input.data(), dims, bias.data(), residual.data(), limits, theirs.data(), serial);
      if (!close(ours, theirs)) return "a convolution over " + std::to_string(positions) + " positions differs";
      const MatMul product(Dense{weights.data(), rows, static_cast<size_t>(channels), static_cast<size_t>(channels), 1});
      const size_t count = static_cast<size_t>(positions);
      product.run_left(path, input.data(), 1, count, limits, ours.data(), serial);
      product.run_left(portable, input.data(), 1, count, limits, theirs.data(), serial);
      if (!close(ours, theirs)) return "a product of " + std::to_string(positions) + " columns differs";
      product.run_right(path, input.data(), count, bias.data(), limits, ours.data(), serial);
      product.run_right(portable, input.data(), count, bias.data(), limits, theirs.data(), serial);
      if (!close(ours, theirs)) return "a product of " + std::to_string(positions) + " rows differs";
    }
  }
  return "";
}

const std::vector<Candidate>& candidates() {
  // Never destroyed: a session may end after the library's own objects, where a program holds it to its exit.
  static const std::vector<Candidate>& all = *[] {
    auto* const made = new std::vector<Candidate>;
    std::vector<Candidate>& found = *made;
    const Path& portable = portable_path();
    const auto add = [&](const Path& path, bool there) {
      found.push_back({path, there ? differs(path, portable) : "this processor does not have it"});
    };
#if defined(__x86_64__)
    __builtin_cpu_init();
    add(avx512_path(), __builtin_cpu_supports("avx512f"));
    add(avx2_path(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#elif defined(__aarch64__)
    add(neon_path(), true);
#endif
    found.push_back({portable, ""});
    return made;
  }();
  return all;
}

const Path* chosen_path() {
  static const Path* const chosen = []() -> const Path* {
    const char* const wanted = std::getenv("LTP_KERNELS_PATH");
    const bool any = !wanted || !*wanted;
    for (const Candidate& candidate : candidates()) {
      if (candidate.refused.empty() && (any || !std::strcmp(wanted, candidate.path.name))) return &candidate.path;
    }
    return nullptr;
  }();
  return chosen;
}

}  // namespace ltp
