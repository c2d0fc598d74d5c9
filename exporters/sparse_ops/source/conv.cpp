#include "conv.h"

#include "matmul.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

namespace ltp {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;  // of a size or an attribute: then no sum of products below overflows
constexpr int64_t kMostStride = kMost / 16;  // then a vector of them is less than 2³¹ pixels, which gathering needs
constexpr size_t kMostBytes = 12, kPage = 4096;  // of memory: for each weight that is not zero, beyond a page
constexpr int64_t kMostLines = 64;               // of the input from a kernel's first row to its last, for strips

// What it takes to fill a vector of a band, in multiply-adds: of a row, which is often written past the first-level cache,
// and of a strip. (Measured.)
constexpr size_t kRowCost = 4, kStripCost = 2;

// Weights of a column up to which single weights read the input where it is: what is read often is better copied, close
// together. Lines a multiple of this many floats apart share few places of the first-level cache.
constexpr size_t kFewWeights = 10, kBadPlane = 512;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

// Output size and padding in front, along one axis.
struct Axis {
  int64_t size, before;
};

Axis axis(int64_t input, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after, AutoPad pad) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  if (pad == AutoPad::kValid) before = after = 0;
  if (pad == AutoPad::kSameUpper || pad == AutoPad::kSameLower) {
    const int64_t size = (input + stride - 1) / stride;
    const int64_t total = (size - 1) * stride + reach - input;
    if (total < 0) refuse("auto_pad does not say which pixels a stride larger than the kernel leaves out");
    before = pad == AutoPad::kSameUpper ? total / 2 : total - total / 2;
    after = total - before;
  }
  const int64_t room = input + before + after - reach;
  if (room < 0) {
    refuse("the kernel reaches over " + std::to_string(reach) + " but the padded input has " +
           std::to_string(input + before + after));
  }
  return {room / stride + 1, before};
}

}  // namespace

Conv::Conv(const ConvAttributes& attributes, const float* weights, const std::vector<int64_t>& dims)
    : attributes_(attributes) {
  if (dims.size() != 4) refuse("the weights have " + std::to_string(dims.size()) + " axes, not 4");
  for (const int64_t dim : dims) {
    if (dim < 1 || dim >= kMost) refuse("the weights have an axis of " + std::to_string(dim));
  }
  const auto check = [](int64_t value, int64_t least, const char* name, int64_t most = kMost) {
    if (value < least || value >= most) refuse(std::string(name) + " is " + std::to_string(value));
  };
  for (const int64_t value : attributes.strides) check(value, 1, "a stride", kMostStride);
  for (const int64_t value : attributes.dilations) check(value, 1, "a dilation");
  for (const int64_t value : attributes.pads) check(value, 0, "a pad");
  check(attributes.group, 1, "group");
  outputs_ = dims[0];
  channels_ = dims[1];
  kernel_y_ = dims[2];
  kernel_x_ = dims[3];
  if (outputs_ % attributes.group) {
    refuse(std::to_string(outputs_) + " output channels are no multiple of " + std::to_string(attributes.group) +
           " groups");
  }
  const size_t rows = static_cast<size_t>(outputs_ / attributes.group);
  const size_t columns = static_cast<size_t>(channels_ * kernel_y_ * kernel_x_);
  groups_.reserve(static_cast<size_t>(attributes.group));
  for (size_t g = 0; g < static_cast<size_t>(attributes.group); ++g) {
    groups_.emplace_back(Dense{weights + g * rows * columns, rows, columns, columns, 1});
  }
  const int64_t reach = (kernel_y_ - 1) * attributes.dilations[0];
  if (reach < attributes.strides[0] || reach > kMostLines) return;
  size_t bytes = 0, nonzeros = 0;
  for (const Weights& group : groups_) {
    strips_.emplace_back(group, std::array<int64_t, 2>{kernel_y_, kernel_x_}, attributes.strides, attributes.dilations);
    bytes += group.bytes() + strips_.back().bytes();
    nonzeros += group.nonzeros();
  }
  if (bytes > kMostBytes * nonzeros + kPage) strips_.clear();  // hardly any weight has a neighbour
}

Conv::Frame Conv::frame(const std::vector<int64_t>& input) const {
  const ConvAttributes& a = attributes_;
  const Axis y = axis(input[2], kernel_y_, a.strides[0], a.dilations[0], a.pads[0], a.pads[2], a.auto_pad);
  const Axis x = axis(input[3], kernel_x_, a.strides[1], a.dilations[1], a.pads[1], a.pads[3], a.auto_pad);
  return {y.size, x.size, y.before, x.before};
}

std::vector<int64_t> Conv::output_dims(const std::vector<int64_t>& input) const {
  if (input.size() != 4) refuse("the input has " + std::to_string(input.size()) + " axes, not 4");
  for (const int64_t dim : input) {
    if (dim < 0 || dim >= kMost) refuse("the input has an axis of " + std::to_string(dim));
  }
  if (input[1] != channels_ * attributes_.group) {
    refuse("the input has " + std::to_string(input[1]) + " channels, the weights are for " +
           std::to_string(channels_ * attributes_.group));
  }
  const Frame out = frame(input);
  return {input[0], outputs_, out.height, out.width};
}

bool Conv::one_to_one(const std::vector<int64_t>& input, const Frame& out) const {
  return kernel_y_ * kernel_x_ == 1 && attributes_.strides == std::array<int64_t, 2>{1, 1} && out.height == input[2] &&
         out.width == input[3];
}

Window Conv::window(const std::vector<int64_t>& input, const Frame& out) const {
  const ConvAttributes& a = attributes_;
  if (one_to_one(input, out)) return line_window(out.height * out.width);
  if (input[3] == 1 && out.width == 1 && kernel_x_ == 1 && out.left == 0) {  // a column is a line, turned
    return {1, input[2], out.height, {1, kernel_y_}, {1, a.strides[0]}, {1, a.dilations[0]}, {0, out.top}};
  }
  return {input[2], input[3], out.width, {kernel_y_, kernel_x_}, a.strides, a.dilations, {out.top, out.left}};
}

struct Conv::Run {
  Product product;
  const Parallel& parallel;
  const float* input;
  const float* bias;
  const float* residual;
  Limits limits;
  float* output;
  Window window;
  bool one_to_one;
  size_t height, width;  // of the output
  size_t plane;          // pixels of a channel of the input

  size_t positions() const { return height * width; }
  const float* input_of(const Job& job, size_t channels) const { return input + part(job) * channels * plane; }

  // run_length: positions behind which a vector may begin at any float of the output.
  Target target(const Job& job, size_t run_length) const {
    const size_t rows = product.groups[0].rows(), outputs = product.images * product.groups.size() * rows * positions();
    const size_t at = part(job) * rows * positions() + job.tile.first;
    return {output + at, positions(), residual ? residual + at : nullptr, bias ? bias + job.group * rows : nullptr, limits,
            is_streamed(product.path, output, run_length, outputs)};
  }

 private:
  size_t part(const Job& job) const { return job.image * product.groups.size() + job.group; }
};

void Conv::run(const Path& path, const float* input, const std::vector<int64_t>& dims, const float* bias,
               const float* residual, Limits limits, float* output, const Parallel& parallel) const {
  const size_t images = static_cast<size_t>(dims[0]);
  if (!images) return;  // before sizes are multiplied, which are not limited by an empty output
  const Frame out = frame(dims);
  const bool direct = one_to_one(dims, out);
  if (direct && dims[2] * dims[3] == 1 && images > 1 && groups_.size() == 1 && !residual) {  // images are rows of a matrix
    return multiply_right(path, groups_, static_cast<size_t>(channels_), input, images, bias, limits, output, parallel);
  }
  const size_t height = static_cast<size_t>(out.height), width = static_cast<size_t>(out.width);
  const size_t plane = static_cast<size_t>(dims[2] * dims[3]);
  const Run run = {{path, groups_, images, false}, parallel, input, bias, residual, limits, output, window(dims, out),
                   direct, height, width, plane};
  if (pays_in_place(run)) return in_place(run);
  if (pays_in_strips(run)) return in_strips(run);
  in_rows(run);
}

// The input itself is a band where vectors of positions are vectors of it.
bool Conv::pays_in_place(const Run& run) const {
  const Weights& weights = groups_[0];
  const bool whole_vectors = run.plane % static_cast<size_t>(run.product.path.lanes) == 0;
  const bool few = weights.quads().rows || weights.nonzeros() <= kFewWeights * weights.used_count();
  return run.one_to_one && groups_.size() == 1 && whole_vectors && run.plane % kBadPlane && few &&
         static_cast<size_t>(channels_) * run.plane <= UINT32_MAX;
}

void Conv::in_place(const Run& run) const {
  const Weights& weights = groups_[0];
  const Tiles tiles = run.product.in_line(run.plane);
  std::vector<uint32_t> begins(weights.used_count());
  for (size_t i = 0; i < begins.size(); ++i) {
    begins[i] = static_cast<uint32_t>(weights.used(0)[i] * (run.plane / tiles.lanes));
  }
  for_each_job(run.product, tiles, {0}, run.parallel, [&](const Job& job) {
    const float* const input = run.input_of(job, static_cast<size_t>(channels_)) + job.tile.first;
    const auto ask_for = [&](size_t block, float*) {
      for (size_t i = 0; i < weights.used_count(block); ++i) {
        const float* const from = input + weights.used(block)[i] * run.plane;
        for (size_t k = 0; k < job.tile.pitch; k += kLineFloats) __builtin_prefetch(from + k, 0, kSecondLevel);
      }
      return input;
    };
    multiply(run.product.path, weights, job, run.target(job, run.plane), begins.data(), ask_for);
  });
}

// There is less to fill than in rows of columns, but where lines are no whole number of vectors, more to multiply.
bool Conv::pays_in_strips(const Run& run) const {
  if (strips_.empty() || run.window.kernel[0] != kernel_y_) return false;
  const Tiles line = run.product.in_line(run.positions()), below = run.product.below_each_other(run.height, run.width);
  const size_t vectors = below.pitch / below.lanes;
  size_t in_rows = 0, in_strips = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    in_rows += groups_[g].multiplied() + kRowCost * groups_[g].used_count();
    in_strips += groups_[g].multiplied() + kStripCost * strips_[g].count() * (vectors + strips_[g].more()) / vectors;
  }
  return in_strips * below.count * below.pitch < in_rows * line.count * line.pitch;
}

void Conv::in_strips(const Run& run) const {
  const Tiles tiles = run.product.below_each_other(run.height, run.width);
  std::vector<size_t> bands;
  for (const Strips& strips : strips_) bands.push_back(strips.most() * strips.pitch() * tiles.lanes);
  for_each_job(run.product, tiles, bands, run.parallel, [&](const Job& job) {
    const Strips& strips = strips_[job.group];
    std::vector<StripCopy> kinds;
    if (!job.filled) kinds = plan_strips(run.window, job.tile, strips);
    StripBandTask task = {};
    task.input = run.input_of(job, static_cast<size_t>(channels_));
    task.plane = run.plane;
    task.stride = static_cast<size_t>(run.window.strides[1]);
    task.line = static_cast<size_t>(run.window.strides[0] * run.window.width);
    task.kinds = kinds.data();
    task.kind_count = kinds.size();
    task.vectors = job.tile.vectors + strips.more();
    task.pitch = strips.pitch() * tiles.lanes;
    const auto fill = [&](size_t block, float* band) {
      if (job.filled) return band;
      task.band = band;
      task.strips = strips.of_block(block);
      task.strip_count = strips.count(block);
      run.product.path.strip_band(task);
      return band;
    };
    multiply(run.product.path, groups_[job.group], job, run.target(job, run.width), strips.begins(), fill);
  });
}

void Conv::in_rows(const Run& run) const {
  const Tiles tiles = run.product.in_line(run.positions());
  for_each_job(run.product, tiles, rows_of_columns(run.product, tiles), run.parallel, [&](const Job& job) {
    const Weights& weights = groups_[job.group];
    RowBand fill(run.product.path, weights, run.window, job, run.input_of(job, static_cast<size_t>(channels_)), run.plane);
    multiply(run.product.path, weights, job, run.target(job, run.positions()), nullptr, std::ref(fill));
  });
}

}  // namespace ltp
