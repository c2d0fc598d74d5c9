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

constexpr Limits kLimits = {-1.0f, 2.0f};
constexpr size_t kRows = 7;  // four and three

bool same(const Path& path, const Path& portable, const Conv& conv, const std::vector<int64_t>& dims, Random& random) {
  const auto size = [](const std::vector<int64_t>& of) { return static_cast<size_t>(of[0] * of[1] * of[2] * of[3]); };
  const std::vector<float> input = random.vector(size(dims)), bias = random.vector(kRows);
  std::vector<float> ours(size(conv.output_dims(dims))), theirs = ours;
  const std::vector<float> residual = random.vector(ours.size());
  conv.run(path, input.data(), dims, bias.data(), residual.data(), kLimits, ours.data(), serial);
  conv.run(portable, input.data(), dims, bias.data(), residual.data(), kLimits, theirs.data(), serial);
  return close(ours, theirs);
}

// Two-dimensional convolutions with lines of any remainder; wherever lines nearly fill vectors, bands are strips.
std::string images_differ(const Path& path, const Path& portable, Random& random) {
  for (int64_t nth = 0; nth < 2 * path.lanes; ++nth) {
    const int64_t width = nth + 1, stride_y = 1 + nth / 2 % 2, stride_x = 1 + nth % 3, height = 9 + nth % 16;
    const int64_t channels = nth % path.lanes < path.lanes - 2 ? 5 : 60;  // several blocks of columns
    const std::vector<int64_t> dims = {1, channels, (height - 1) * stride_y + 1, (width - 1) * stride_x + 1};
    ConvAttributes attributes;
    attributes.pads = {1, 1, 1, 1};
    attributes.strides = {stride_y, stride_x};
    const std::vector<float> weights = random.vector(kRows * 9 * static_cast<size_t>(channels), nth % 2 ? 0.8f : 0);
    const Conv conv(attributes, weights.data(), {kRows, channels, 3, 3});
    if (!same(path, portable, conv, dims, random)) return "a convolution with lines of " + std::to_string(width) + " differs";
  }
  return "";
}

}  // namespace

std::string differs(const Path& path, const Path& portable) {
  Random random;
  for (const float zeros : {0.0f, 0.8f}) {  // blocks of four, single weights
    const int most = (zeros > 0 ? path.max_single : path.max_quad) * path.lanes;
    int64_t nth = 0;
    for (int64_t positions = 1; positions <= most; positions += path.lanes / 2 - 1, ++nth) {  // all remainders of tiles
      const int64_t channels = nth % 5 ? 5 : 100;  // one block of columns, several
      const int64_t stride = 1 + nth % 3, kernel = nth % 2 ? 1 : 3, width = (positions - 1) * stride + 1;
      const std::vector<float> weights = random.vector(kRows * static_cast<size_t>(channels * kernel), zeros);
      ConvAttributes attributes;
      attributes.pads = {0, kernel / 2, 0, kernel / 2};
      attributes.strides = {1, stride};
      const Conv conv(attributes, weights.data(), {static_cast<int64_t>(kRows), channels, 1, kernel});
      const std::string of = std::to_string(positions);
      if (!same(path, portable, conv, {1, channels, 1, width}, random)) return "a convolution over " + of + " positions differs";
      const size_t count = static_cast<size_t>(positions), columns = static_cast<size_t>(channels);
      const MatMul product(Dense{weights.data(), kRows, columns, columns, 1});
      const std::vector<float> bias = random.vector(kRows), input = random.vector(columns * count);
      std::vector<float> ours(kRows * count), theirs = ours;
      product.run_left(path, input.data(), 1, count, kLimits, ours.data(), serial);
      product.run_left(portable, input.data(), 1, count, kLimits, theirs.data(), serial);
      if (!close(ours, theirs)) return "a product of " + of + " columns differs";
      product.run_right(path, input.data(), count, bias.data(), kLimits, ours.data(), serial);
      product.run_right(portable, input.data(), count, bias.data(), kLimits, theirs.data(), serial);
      if (!close(ours, theirs)) return "a product of " + of + " rows differs";
    }
  }
  return images_differ(path, portable, random);
}

const std::vector<Candidate>& candidates() {
  // Never destroyed: a session may end after the library's own objects, where a program holds it to its exit.
  static const std::vector<Candidate>& all = *[] {
    auto* const made = new std::vector<Candidate>;
    std::vector<Candidate>& found = *made;
    const Path& portable = portable_path();
    const auto add = [&](const Path& path, bool there) {
      found.push_back({path, there ? differs(path, portable) : kNotThere});
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
