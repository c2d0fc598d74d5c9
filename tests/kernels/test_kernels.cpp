// Random layers against a plain loop, bad input, and many threads, through the functions that onnxruntime calls.
//
//   test_kernels [cases] [seed]
//
// The path is the one that LTP_KERNELS_PATH names, else the best of this processor. Exit 1 with a line for what differs.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "paths.h"
#include "stand_in.h"
#include "weights.h"

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions*, const OrtApiBase*);

namespace {

int failures = 0;

void expect(bool right, const std::string& what) {
  if (right) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}

std::string take_text(OrtStatus* status) {
  if (!status) return "";
  std::string text = status->text;
  --stand_in::live_statuses;
  delete status;
  return text.empty() ? "an empty text" : text;
}

const OrtCustomOp& op(const std::string& name) {
  static const OrtApiBase base = {[](uint32_t version) { return version == 17 ? stand_in::table() : nullptr; },
                                  [] { return "stand-in"; }};
  static OrtSessionOptions options;
  static const std::string failed = take_text(RegisterCustomOps(&options, &base));
  for (const OrtCustomOp* found : options.domain->ops) {
    if (name == found->GetName(found)) return *found;
  }
  std::printf("no operator %s; %s\n", name.c_str(), failed.c_str());
  std::exit(1);
}

// A kernel as a session holds it.
class Kernel {
 public:
  Kernel(const std::string& name, const OrtKernelInfo& info) : op_(op(name)) {
    error = take_text(op_.CreateKernelV2(&op_, stand_in::table(), &info, &kernel_));
  }
  ~Kernel() {
    if (kernel_) op_.KernelDestroy(kernel_);
  }
  std::string run(OrtKernelContext& context) const { return take_text(op_.KernelComputeV2(kernel_, &context)); }
  std::string error;

 private:
  const OrtCustomOp& op_;
  void* kernel_ = nullptr;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t from_to(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool chance(double share) { return std::uniform_real_distribution<>(0, 1)(engine_) < share; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[from_to(0, static_cast<int64_t>(all.size()) - 1)];
  }
  OrtValue tensor(const std::vector<int64_t>& dims) {
    OrtValue value{dims, {}};
    size_t size = 1;
    for (const int64_t dim : dims) size *= static_cast<size_t>(dim);
    value.data.reserve(size);
    for (size_t i = 0; i < size; ++i) value.data.push_back(std::normal_distribution<float>()(engine_));
    return value;
  }
  // Zeros in a share of the places; in `tied` neighbouring places at this distance at once.
  void prune(OrtValue& value, double share, size_t rows, size_t row_pitch, size_t columns, size_t column_pitch) {
    const size_t tied = chance(0.4) ? 4 : 1;
    for (size_t row = 0; row < rows; row += tied) {
      for (size_t column = 0; column < columns; ++column) {
        if (!chance(share)) continue;
        for (size_t k = row; k < row + tied && k < rows; ++k) value.data[k * row_pitch + column * column_pitch] = 0;
      }
    }
  }

 private:
  std::mt19937_64 engine_;
};

struct Case {
  std::string name;
  OrtKernelInfo info;
  OrtValue x, weights, bias, residual;
  bool has_bias = false, has_residual = false, left = false;
  std::vector<double> wanted, size;  // results, and the sum of the absolute values of what was added up
  std::vector<int64_t> dims;

  std::vector<const OrtValue*> inputs() const {
    std::vector<const OrtValue*> all = {&x, &weights};
    if (left) std::swap(all[0], all[1]);
    if (has_bias) all.push_back(&bias);
    if (has_residual) all.push_back(&residual);
    return all;
  }
};

void add_activation(Case& c, Random& random) {
  const int kind = static_cast<int>(random.from_to(0, 2));
  double low = -INFINITY, high = INFINITY;
  if (kind == 1) {
    c.name += "Relu";
    low = 0;
  } else if (kind == 2) {
    c.name += "Clip";
    c.info.numbers.insert({{"min", -0.5f}, {"max", 1.5f}});
    low = -0.5;
    high = 1.5;
  }
  for (double& value : c.wanted) value = std::min(std::max(value, low), high);
}

Case conv_case(Random& random) {
  Case c;
  const int64_t groups = random.chance(0.2) ? random.from_to(2, 4) : 1;
  const int64_t channels = random.chance(0.2) ? random.from_to(100, 300) : random.from_to(1, 20);
  const int64_t outputs = groups * random.from_to(1, 21);
  int64_t ky = random.one_of<int64_t>({1, 1, 3, 3, 2, 5, 7}), kx = random.one_of<int64_t>({1, 1, 3, 3, 2, 5, 7});
  int64_t sy = random.one_of<int64_t>({1, 1, 2, 3}), sx = random.one_of<int64_t>({1, 1, 2, 2, 3, 5});
  const int64_t dy = random.one_of<int64_t>({1, 1, 2, 3}), dx = random.one_of<int64_t>({1, 1, 2, 3});
  const int64_t large = channels > 20 ? 9 : 40;
  int64_t images = random.one_of<int64_t>({1, 1, 1, 2, 0});
  int64_t height = random.chance(0.1) ? 1 : random.from_to(1, large);
  int64_t width = random.chance(0.3) ? random.one_of<int64_t>({8, 16, 32, 48}) : random.from_to(1, large);
  std::vector<int64_t> pads = {random.from_to(0, 3), random.from_to(0, 3), random.from_to(0, 3), random.from_to(0, 3)};
  if (random.chance(0.2)) {  // as large as the input, at a stride of one
    pads = {random.from_to(0, dy * (ky - 1)), random.from_to(0, dx * (kx - 1)), 0, 0};
    pads[2] = dy * (ky - 1) - pads[0];
    pads[3] = dx * (kx - 1) - pads[1];
  }
  if (random.chance(0.15)) {  // images that are read where they are, and images of one pixel
    ky = kx = sy = sx = 1;
    if (random.chance(0.8)) pads = {0, 0, 0, 0};
    height = width = 1;
    images = random.from_to(1, 20);
    if (random.chance(0.5)) height = random.from_to(1, 6), width = random.one_of<int64_t>({8, 16, 32});
  }
  height = std::max(height, dy * (ky - 1) + 1 - pads[0] - pads[2]);
  width = std::max(width, dx * (kx - 1) + 1 - pads[1] - pads[3]);
  c.info.arrays = {{"strides", {sy, sx}}, {"dilations", {dy, dx}}, {"pads", pads}, {"kernel_shape", {ky, kx}}};
  c.info.integers = {{"group", groups}};
  if (sy <= dy * (ky - 1) + 1 && sx <= dx * (kx - 1) + 1 && random.chance(0.15)) {
    c.info.texts = {{"auto_pad", random.one_of<std::string>({"SAME_UPPER", "SAME_LOWER"})}};
    const auto same = [&](int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t& a, int64_t& b) {
      const int64_t total =
          std::max<int64_t>(((size + stride - 1) / stride - 1) * stride + dilation * (kernel - 1) + 1 - size, 0);
      a = c.info.texts["auto_pad"] == "SAME_UPPER" ? total / 2 : total - total / 2;
      b = total - a;
    };
    same(height, ky, sy, dy, pads[0], pads[2]);
    same(width, kx, sx, dx, pads[1], pads[3]);
  }
  c.name = "SparseConv";
  c.x = random.tensor({images, channels * groups, height, width});
  c.weights = random.tensor({outputs, channels, ky, kx});
  const size_t columns = static_cast<size_t>(channels * ky * kx);
  random.prune(c.weights, random.one_of({0.0, 0.5, 0.8, 0.9, 0.99, 1.0}), static_cast<size_t>(outputs), columns, columns,
               1);
  c.has_bias = random.chance(0.7);
  if (c.has_bias) c.name += "Bias";
  c.bias = random.tensor({outputs});
  const int64_t oh = (height + pads[0] + pads[2] - dy * (ky - 1) - 1) / sy + 1;
  const int64_t ow = (width + pads[1] + pads[3] - dx * (kx - 1) - 1) / sx + 1;
  c.dims = {images, outputs, oh, ow};
  c.has_residual = random.chance(0.3);
  if (c.has_residual) {
    c.name += "Add";
    c.residual = random.tensor(c.dims);
  }
  for (int64_t n = 0; n < images; ++n) {
    for (int64_t o = 0; o < outputs; ++o) {
      const int64_t first = o / (outputs / groups) * channels;
      for (int64_t y = 0; y < oh; ++y) {
        for (int64_t x = 0; x < ow; ++x) {
          double sum = c.has_bias ? c.bias.data[static_cast<size_t>(o)] : 0, size = std::abs(sum);
          for (int64_t i = 0; i < channels; ++i) {
            for (int64_t a = 0; a < ky; ++a) {
              for (int64_t b = 0; b < kx; ++b) {
                const int64_t iy = y * sy + a * dy - pads[0], ix = x * sx + b * dx - pads[1];
                if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
                const double product =
                    double{c.x.data[static_cast<size_t>(((n * channels * groups + first + i) * height + iy) * width + ix)]} *
                    c.weights.data[static_cast<size_t>(((o * channels + i) * ky + a) * kx + b)];
                sum += product;
                size += std::abs(product);
              }
            }
          }
          if (c.has_residual) sum += c.residual.data[c.wanted.size()];
          c.wanted.push_back(sum);
          c.size.push_back(size + 1);
        }
      }
    }
  }
  add_activation(c, random);
  return c;
}

Case product_case(Random& random) {
  Case c;
  const size_t kind = static_cast<size_t>(random.from_to(0, 3));
  c.name = std::vector<std::string>{"SparseMatMul", "SparseMatMulBias", "SparseLeftMatMul", "SparseGemm"}[kind];
  c.left = kind == 2;
  const int64_t inner = random.chance(0.3) ? random.from_to(100, 500) : random.from_to(1, 60);
  const int64_t outputs = random.from_to(1, 90);
  const int64_t count = random.one_of<int64_t>({0, 1, 1, 2, 3, random.from_to(4, 140)});
  const int64_t outer = kind == 3 ? 1 : random.one_of<int64_t>({1, 1, 2, 3});
  const bool transposed = kind == 3 && random.chance(0.5);
  const bool vector = kind < 3 && count == 1 && outer == 1 && random.chance(0.5);  // an input of one axis
  float alpha = 1, beta = 1;
  if (kind == 3) {
    c.info.integers = {{"transB", transposed}};
    if (random.chance(0.3)) c.info.numbers = {{"alpha", alpha = 0.5f}, {"beta", beta = -2.0f}};
  }
  c.weights = random.tensor(c.left || transposed ? std::vector<int64_t>{outputs, inner} : std::vector<int64_t>{inner, outputs});
  const size_t row_pitch = c.left || transposed ? static_cast<size_t>(inner) : 1;
  const size_t column_pitch = c.left || transposed ? 1 : static_cast<size_t>(outputs);
  random.prune(c.weights, random.one_of({0.0, 0.5, 0.9, 0.99, 1.0}), static_cast<size_t>(outputs), row_pitch,
               static_cast<size_t>(inner), column_pitch);
  c.has_bias = kind == 1 || (kind == 3 && random.chance(0.7));
  if (kind == 3 && c.has_bias) c.name += "Bias";
  const bool scalar = kind == 3 && random.chance(0.3);
  c.bias = random.tensor(scalar ? std::vector<int64_t>{} : std::vector<int64_t>{outputs});
  c.dims = c.left ? std::vector<int64_t>{outputs, count} : std::vector<int64_t>{count, outputs};
  std::vector<int64_t> dims = c.left ? std::vector<int64_t>{inner, count} : std::vector<int64_t>{count, inner};
  if (kind < 3 && random.chance(0.6)) {
    for (auto* all : {&c.dims, &dims}) all->insert(all->begin(), {outer, 1});
  } else if (outer > 1) {
    for (auto* all : {&c.dims, &dims}) all->insert(all->begin(), outer);
  }
  if (vector) {
    dims = {inner};
    c.dims = {outputs};
  }
  c.x = random.tensor(dims);
  const auto weight = [&](int64_t row, int64_t column) {
    return double{alpha} * c.weights.data[static_cast<size_t>(row) * row_pitch + static_cast<size_t>(column) * column_pitch];
  };
  const int64_t matrices = c.left ? outer : 1, rows = c.left ? count : outer * count;
  for (int64_t m = 0; m < matrices; ++m) {
    for (int64_t i = 0; i < (c.left ? outputs : rows); ++i) {
      for (int64_t j = 0; j < (c.left ? rows : outputs); ++j) {
        const int64_t o = c.left ? i : j;
        double sum = c.has_bias ? double{beta} * c.bias.data[scalar ? 0 : static_cast<size_t>(o)] : 0, size = std::abs(sum);
        for (int64_t k = 0; k < inner; ++k) {
          const int64_t at = c.left ? (m * inner + k) * rows + j : i * inner + k;
          const double product = c.x.data[static_cast<size_t>(at)] * weight(o, k);
          sum += product;
          size += std::abs(product);
        }
        c.wanted.push_back(sum);
        c.size.push_back(size + 1);
      }
    }
  }
  add_activation(c, random);
  return c;
}

// What is wrong with the output; empty if nothing is.
std::string compare(const Case& c, const OrtValue& output) {
  if (output.dims != c.dims) return "other dims";
  for (size_t i = 0; i < c.wanted.size(); ++i) {
    if (!(std::abs(output.data[i] - c.wanted[i]) <= 1e-5 * c.size[i])) {
      return "element " + std::to_string(i) + " is " + std::to_string(output.data[i]) + ", not " +
             std::to_string(c.wanted[i]);
    }
  }
  return "";
}

void random_cases(int count, uint64_t seed) {
  for (int i = 0; i < count; ++i) {
    Random random(seed * 1000003 + static_cast<uint64_t>(i));
    Case c = random.chance(0.65) ? conv_case(random) : product_case(random);
    const std::string what = "case " + std::to_string(i) + " of seed " + std::to_string(seed) + ", " + c.name + ": ";
    if (random.chance(0.9)) c.info.constants[c.left ? 0 : 1] = &c.weights;
    const Kernel kernel(c.name, c.info);
    expect(kernel.error.empty(), what + kernel.error);
    OrtKernelContext context{c.inputs(), {}, static_cast<int>(random.one_of({1, 1, 3}))};
    const std::string error = kernel.error.empty() ? kernel.run(context) : "not made";
    expect(error.empty(), what + error);
    const std::string wrong = error.empty() ? compare(c, context.output) : "";
    expect(wrong.empty(), what + wrong);
  }
}

// Sixteen threads call one kernel at once, with inputs of different sizes.
void concurrent_calls() {
  Random random(7);
  const OrtValue weights = [&] {
    OrtValue value = random.tensor({24, 40, 3, 3});
    random.prune(value, 0.9, 24, 360, 360, 1);
    return value;
  }();
  OrtKernelInfo info;
  info.arrays = {{"pads", {1, 1, 1, 1}}};
  info.constants = {{1, &weights}};
  const Kernel kernel("SparseConvRelu", info);
  std::vector<OrtValue> inputs, wanted;
  for (int64_t i = 0; i < 16; ++i) {
    inputs.push_back(random.tensor({1 + i % 2, 40, 3 + i, 20 - i}));
    OrtKernelContext context{{&inputs.back(), &weights}, {}};
    expect(kernel.run(context).empty(), "a call alone");
    wanted.push_back(context.output);
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < inputs.size(); ++i) {
    threads.emplace_back([&, i] {
      for (size_t k = 0; k < 10; ++k) {
        const size_t which = (i + k) % inputs.size();
        OrtKernelContext context{{&inputs[which], &weights}, {}, i % 4 == 0 ? 2 : 1};
        const std::string error = kernel.run(context);
        if (!error.empty() || context.output.data != wanted[which].data) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(wrong == 0, "calls at the same time differ from calls alone: " + std::to_string(wrong));
}

void bad_input() {
  Random random(3);
  const OrtValue x = random.tensor({1, 4, 5, 5}), w = random.tensor({6, 4, 3, 3});
  const auto conv = [&](const char* what, const OrtValue& weights, std::function<void(OrtKernelInfo&)> change,
                        const std::vector<const OrtValue*>& inputs, const char* name = "SparseConv") {
    for (const bool constant : {true, false}) {
      OrtKernelInfo info;
      info.node = "layer 7";
      if (constant) info.constants = {{1, &weights}};
      if (change) change(info);
      const Kernel kernel(name, info);
      std::string error = kernel.error;
      OrtKernelContext context{inputs, {}};
      if (error.empty()) error = kernel.run(context);
      expect(error.find("'layer 7'") != std::string::npos, std::string(what) + " is not refused by name: " + error);
    }
  };
  const auto array = [](const char* name, std::vector<int64_t> values) {
    return [=](OrtKernelInfo& info) { info.arrays[name] = values; };
  };
  const OrtValue flat = random.tensor({6, 4}), empty = random.tensor({6, 0, 3, 3}), narrow = random.tensor({1, 3, 5, 5}),
                 line = random.tensor({4, 5}), five = random.tensor({5}), small = random.tensor({1, 6, 2, 3});
  OrtValue half = x;
  half.type = 10;
  conv("weights of two axes", flat, nullptr, {&x, &flat});
  conv("weights without elements", empty, nullptr, {&x, &empty});
  conv("an input with fewer channels", w, nullptr, {&narrow, &w});
  conv("an input of two axes", w, nullptr, {&line, &w});
  conv("an input of another type", w, nullptr, {&half, &w});
  conv("a bias of another size", w, nullptr, {&x, &w, &five}, "SparseConvBias");
  conv("a kernel larger than the input", w, array("dilations", {3, 3}), {&x, &w});
  conv("a stride of zero", w, array("strides", {0, 1}), {&x, &w});
  conv("a negative pad", w, array("pads", {0, -1, 0, 0}), {&x, &w});
  conv("a pad that overflows", w, array("pads", {INT64_MAX, 0, INT64_MAX, 0}), {&x, &w});
  conv("a stride that overflows", w, array("strides", {1, 1 << 28}), {&x, &w});
  conv("a dilation that overflows", w, array("dilations", {INT64_MAX / 2, 1}), {&x, &w});
  conv("an output that overflows", w, array("pads", {1 << 30, 1 << 30, 1 << 30, 1 << 30}), {&x, &w});
  conv("auto_pad and a stride larger than the kernel", w, [](OrtKernelInfo& info) {
    info.texts["auto_pad"] = "SAME_UPPER";
    info.arrays["strides"] = {5, 1};
  }, {&x, &w});
  const OrtValue none = random.tensor({0, 4, 5, 5});
  const int64_t most = INT32_MAX;
  OrtKernelInfo padded;
  padded.arrays["pads"] = {most, most, most, most};
  OrtKernelContext without{{&none, &w}, {}};
  expect(Kernel("SparseConv", padded).run(without).empty(), "no images, which would be too large");
  conv("three strides", w, array("strides", {1, 1, 1}), {&x, &w});
  conv("another kernel_shape", w, array("kernel_shape", {1, 1}), {&x, &w});
  conv("groups that do not divide", w, [](OrtKernelInfo& info) { info.integers["group"] = 4; }, {&x, &w});
  conv("no groups", w, [](OrtKernelInfo& info) { info.integers["group"] = 0; }, {&x, &w});
  conv("an unknown auto_pad", w, [](OrtKernelInfo& info) { info.texts["auto_pad"] = "SOME"; }, {&x, &w});
  conv("limits that are no numbers", w, [](OrtKernelInfo& info) { info.numbers["min"] = kNan; }, {&x, &w}, "SparseConvClip");
  conv("a residual of another shape", w, nullptr, {&x, &w, &small}, "SparseConvAdd");
  conv("no residual", w, nullptr, {&x, &w}, "SparseConvAdd");
  conv("no bias", w, nullptr, {&x, &w, nullptr}, "SparseConvBias");
  conv("no input", w, nullptr, {nullptr, &w});

  const OrtValue matrix = random.tensor({4, 6}), rows = random.tensor({3, 5}), scalar = random.tensor({});
  conv("rows of another length", matrix, nullptr, {&rows, &matrix}, "SparseMatMul");
  conv("an input without axes", matrix, nullptr, {&scalar, &matrix}, "SparseMatMul");
  conv("weights of four axes", w, nullptr, {&rows, &w}, "SparseMatMul");
  conv("a bias of another size", matrix, nullptr, {&line, &matrix, &five}, "SparseMatMulBias");
  conv("no bias", matrix, nullptr, {&line, &matrix}, "SparseMatMulBias");
  conv("transA", matrix, [](OrtKernelInfo& info) { info.integers["transA"] = 1; }, {&line, &matrix}, "SparseGemm");
  conv("an input of three axes", matrix, nullptr, {&x, &matrix}, "SparseGemm");

  OrtKernelInfo info;
  info.node = "layer 7";
  const Kernel kernel("SparseConv", info);
  OrtKernelContext context{{&x, &w}, {}};
  context.refuses_output = true;
  expect(kernel.run(context).find("no memory") != std::string::npos, "the runtime's own error is passed on");
}

void not_a_number() {
  OrtValue w{{2, 1, 1, 1}, {1.0f, kNan}}, x{{1, 1, 1, 40}, Floats(40, 1.0f)};
  x.data[3] = kNan;
  OrtKernelInfo info;
  info.constants = {{1, &w}};
  const Kernel kernel("SparseConvRelu", info);
  OrtKernelContext context{{&x, &w}, {}};
  expect(kernel.run(context).empty(), "not a number is computed");
  for (size_t i = 0; i < 40; ++i) {
    expect(std::isnan(context.output.data[i]) == (i == 3), "NaN of the input stays where it is: " + std::to_string(i));
    expect(std::isnan(context.output.data[40 + i]), "a weight that is not a number shows");
  }
}

void no_bias_by_factor() {
  const OrtValue w{{1, 1}, {2.0f}}, x{{1, 1}, {3.0f}}, bias{{1}, {kNan}};
  OrtKernelInfo info;
  info.constants = {{1, &w}};
  info.numbers = {{"beta", 0.0f}};
  OrtKernelContext context{{&x, &w, &bias}, {}};
  expect(Kernel("SparseGemmBias", info).run(context).empty() && context.output.data[0] == 6.0f,
         "a bias that counts nothing may be not a number");
}

void forms() {
  Random random(5);
  const size_t rows = 64, columns = 900;
  for (const double share : {0.5, 0.9, 0.98, 0.999}) {
    OrtValue single = random.tensor({64, 900}), fours = single;
    for (size_t i = 0; i < single.data.size(); ++i) {
      if (random.chance(share)) single.data[i] = 0;
    }
    for (size_t row = 0; row < rows; row += 4) {
      for (size_t column = 0; column < columns; ++column) {
        if (!random.chance(share)) continue;
        for (size_t k = 0; k < 4; ++k) fours.data[(row + k) * columns + column] = 0;
      }
    }
    const ltp::Weights a({single.data.data(), rows, columns, columns, 1}), b({fours.data.data(), rows, columns, columns, 1});
    const std::string at = " at " + std::to_string(share);
    expect(share < 0.6 || a.quads().rows == 0, "single weights are seen" + at);
    expect(b.quads().rows == rows / 4 && b.singles().rows == 0, "blocks of four are seen" + at);
    for (const ltp::Weights* w : {&a, &b}) {
      expect(w->bytes() <= 12 * w->nonzeros() + 4 * (rows + 1), "twelve bytes a weight" + at);
    }
  }
}

// A session may run once more while a program's own objects are destroyed, and those of its threads already are.
void run_at_the_end() {
  static const OrtValue w{{16, 16, 1, 1}, Floats(256, 1.0f)}, x{{1, 16, 20, 20}, Floats(6400, 1.0f)};
  static OrtKernelInfo info;
  info.constants = {{1, &w}};
  static const Kernel kernel("SparseConv", info);
  static const auto run = [] {
    OrtKernelContext context{{&x, &w}, {}};
    return kernel.run(context).empty() && context.output.data == Floats(6400, 16.0f);
  };
  expect(run(), "a run before the end");
  std::atexit([] {
    if (run()) return;
    std::printf("FAILED: a run at the end\n");
    std::fflush(stdout);
    std::_Exit(1);
  });
}

void old_runtime() {
  const OrtApiBase base = {[](uint32_t version) { return version == 1 ? stand_in::table() : nullptr; },
                           [] { return "1.16.3"; }};
  OrtSessionOptions options;
  expect(take_text(RegisterCustomOps(&options, &base)).find("1.17") != std::string::npos, "an old runtime is told so");
}

}  // namespace

int main(int count, char** words) {
  for (const ltp::Candidate& candidate : ltp::candidates()) {
    if (candidate.refused.empty()) continue;
    std::printf("%s: %s\n", candidate.path.name, candidate.refused.c_str());
    expect(candidate.refused == ltp::kNotThere, "the path proves itself");
  }
  const ltp::Path* const path = ltp::chosen_path();
  if (!path) {
    std::printf("the path named by LTP_KERNELS_PATH cannot be used here\n");
    return failures ? 1 : 2;
  }
  old_runtime();
  forms();
  not_a_number();
  no_bias_by_factor();
  bad_input();
  concurrent_calls();
  run_at_the_end();
  random_cases(count > 1 ? std::atoi(words[1]) : 2000, count > 2 ? std::strtoull(words[2], nullptr, 10) : 0);
  expect(stand_in::live_statuses == 0, "statuses are released");
  std::printf("%s: %s\n", path->name, failures ? "failed" : "passed");
  return failures != 0;
}
