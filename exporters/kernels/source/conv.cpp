#include "conv.h"

#include "band_plan.h"

#include <stdexcept>
#include <string>

namespace ltp {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;  // of a size or an attribute: then no sum of products below overflows

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
  const auto check = [](int64_t value, int64_t least, const char* name) {
    if (value < least || value >= kMost) refuse(std::string(name) + " is " + std::to_string(value));
  };
  for (const int64_t value : attributes.strides) check(value, 1, "a stride");
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

void Conv::run(const Path& path, const float* input, const std::vector<int64_t>& dims, const float* bias,
               const float* residual, Limits limits, float* output, const Parallel& parallel) const {
  const size_t images = static_cast<size_t>(dims[0]);
  if (!images) return;  // before sizes are multiplied, which are not limited by an empty output
  const Frame out = frame(dims);
  const size_t positions = static_cast<size_t>(out.height * out.width);

  const size_t rows = groups_[0].rows();
  const size_t plane = static_cast<size_t>(dims[2] * dims[3]);
  const size_t group_input = static_cast<size_t>(channels_) * plane, group_output = rows * positions;
  Window window = {dims[2], dims[3], out.width, {kernel_y_, kernel_x_}, attributes_.strides, attributes_.dilations,
                   {out.top, out.left}};
  if (kernel_y_ * kernel_x_ == 1 && plane == positions && out.top == 0 && out.left == 0 && out.width == dims[3] &&
      attributes_.strides == std::array<int64_t, 2>{1, 1}) {
    window = line_window(static_cast<int64_t>(plane));  // positions of input and output are the same
  }
  if (window.width == 1 && window.out_width == 1 && kernel_x_ == 1 && out.left == 0) {  // a column is a line, turned
    window = {1, dims[2], out.height, {1, kernel_y_}, {1, attributes_.strides[0]}, {1, attributes_.dilations[0]},
              {0, out.top}};
  }
  const bool streams = is_streamed(path, output, positions, images * groups_.size() * group_output);
  for_each_job(path, groups_, images, positions, false, parallel, [&](const Job& job) {
    const Weights& weights = groups_[job.group];
    const size_t part = job.image * groups_.size() + job.group, at = part * group_output + job.first;
    const Target target = {output + at, positions, residual ? residual + at : nullptr,
                           bias ? bias + job.group * rows : nullptr, limits, streams};
    const BandPlan plan = job.filled ? BandPlan{} : plan_band(window, static_cast<size_t>(path.lanes), job);
    ConvBandTask task = plan.task();
    task.input = input + part * group_input;
    task.plane = plane;
    multiply(path, weights, job, target, [&](size_t block, float* band) {
      task.band = band;
      task.columns = weights.used(block);
      task.column_count = weights.used_count(block);
      path.conv_band(task);
    });
  });
}

}  // namespace ltp
