// The operators as onnxruntime sees them, and the entry points of the library.
//
// Domain "ltp.kernels", version 1; 32-bit floats. The weights W are read once, when the session is made.
//
//   SparseConv        (X, W)           as ONNX Conv with two spatial axes: strides, dilations, pads, group, auto_pad
//   SparseMatMul      (X, W)           as ONNX MatMul: X of any number of axes, W of two
//   SparseLeftMatMul  (W, X)           as ONNX MatMul: W of two axes, X of any number
//   SparseGemm        (X, W)           as ONNX Gemm with transA = 0: alpha, beta, transB
//
// What follows can be part of the operator, and of its name in this order:
//
//   Bias              (X, W, B)        not for LeftMatMul; one value for each output, of Gemm also a single one
//   Add               (X, W, [B,] Z)   only for Conv; Z has the shape of the result
//   Relu or Clip                       Clip's limits are the attributes min and max
//
// So SparseConvBiasAddRelu is a whole end of a residual block. No input is optional: onnxruntime leaves a convolution
// whose bias is missing out of its own optimisations when it inlines the function of the same name.
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "conv.h"
#include "matmul.h"
#include "paths.h"
#include "session.h"

namespace ltp {
namespace {

constexpr const char* kDomain = "ltp.kernels";

enum class Base { kConv, kMatMul, kLeftMatMul, kGemm };
enum class Activation { kNone, kRelu, kClip };

struct Op : OrtCustomOp {
  std::string name;
  Base base;
  bool bias, residual;
  Activation activation;

  size_t weight_input() const { return base == Base::kLeftMatMul ? 0 : 1; }
  size_t inputs() const { return 2u + bias + residual; }
};

class Kernel {
 public:
  Kernel(const Op& op, const Api& api, const Info& info, const Path& path)
      : op_(op), api_(api), path_(path), node_(info.node()) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    limits_ = {-kInfinity, kInfinity};
    if (op.activation == Activation::kRelu) limits_.low = 0;
    if (op.activation == Activation::kClip) limits_ = {info.number("min", -kInfinity), info.number("max", kInfinity)};
    if (std::isnan(limits_.low) || std::isnan(limits_.high)) throw std::invalid_argument("min or max is not a number");
  }
  virtual ~Kernel() = default;
  virtual void compute(const Context& context) const = 0;

  const Op& op() const { return op_; }
  const Api& api() const { return api_; }
  const std::string& node() const { return node_; }

 protected:
  const Op& op_;
  const Api api_;
  const Path& path_;
  const std::string node_;
  Limits limits_;
};

std::string shown(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return "[" + text + "]";
}

// One value for each output, times a factor; null where nothing is added. What is not as it is given is `spread`.
const float* bias_values(const Op& op, const Tensor& bias, size_t outputs, float factor, std::vector<float>& spread) {
  if (!op.bias) return nullptr;
  const size_t size = bias ? bias.size() : 0;
  const bool one = op.base == Base::kGemm && bias.data && size == 1;
  if (!one && (size != outputs || bias.dims.empty() || bias.dims.back() != static_cast<int64_t>(outputs))) {
    throw std::invalid_argument("the bias is " + shown(bias.dims) + ", not one value for each of " +
                                std::to_string(outputs) + " outputs");
  }
  if (factor == 0.0f) return nullptr;  // also where a value is not a number
  if (!one && factor == 1.0f) return bias.data;
  spread.resize(outputs);
  for (size_t i = 0; i < outputs; ++i) spread[i] = factor * bias.data[one ? 0 : i];
  return spread.data();
}

template <size_t kCount>
std::array<int64_t, kCount> array(const Info& info, const char* name, std::array<int64_t, kCount> values) {
  const std::vector<int64_t> given = info.integers(name);
  if (given.empty()) return values;
  if (given.size() != kCount) throw std::invalid_argument(std::string(name) + " has " + shown(given));
  for (size_t i = 0; i < kCount; ++i) values[i] = given[i];
  return values;
}

// A layer whose weights are known when the kernel is made, or, where they are computed by the graph and were not folded,
// only when it runs: then they are read every time.
template <class Layer>
class Fixed {
 public:
  template <class Make>
  Fixed(const Tensor& weights, Make make) : layer_(weights ? std::optional<Layer>(make(weights)) : std::nullopt) {}
  template <class Make>
  const Layer& get(const Context& context, size_t input, Make make, std::optional<Layer>& local) const {
    return layer_ ? *layer_ : local.emplace(make(context.input(input)));
  }

 private:
  std::optional<Layer> layer_;
};

class ConvKernel : public Kernel {
 public:
  ConvKernel(const Op& op, const Api& api, const Info& info, const Path& path)
      : Kernel(op, api, info, path), attributes_(read(info)), kernel_shape_(info.integers("kernel_shape")),
        conv_(info.constant(1), [this](const Tensor& weights) { return make(weights); }) {}

  void compute(const Context& context) const override {
    const Tensor input = context.input(0);
    const Tensor bias = op_.bias ? context.input(2) : Tensor{};
    const Tensor residual = op_.residual ? context.input(2u + op_.bias) : Tensor{};
    std::optional<Conv> local;
    const Conv& conv = conv_.get(context, 1, [this](const Tensor& weights) { return make(weights); }, local);
    std::vector<float> spread;
    const float* const values = bias_values(op_, bias, static_cast<size_t>(conv.outputs()), 1.0f, spread);
    const std::vector<int64_t> dims = conv.output_dims(input.dims);
    if (op_.residual && residual.dims != dims) {
      throw std::invalid_argument("what is added is " + shown(residual.dims) + ", the result " + shown(dims));
    }
    float* const output = context.output(dims);
    conv.run(path_, input.data, input.dims, values, residual.data, limits_, output,
             [&](size_t count, const std::function<void(size_t)>& task) { context.parallel(count, task); });
  }

 private:
  static ConvAttributes read(const Info& info) {
    ConvAttributes found;
    found.strides = array<2>(info, "strides", found.strides);
    found.dilations = array<2>(info, "dilations", found.dilations);
    found.pads = array<4>(info, "pads", found.pads);
    found.group = info.integer("group", 1);
    const std::string pad = info.text("auto_pad");
    if (pad == "VALID") {
      found.auto_pad = AutoPad::kValid;
    } else if (pad == "SAME_UPPER") {
      found.auto_pad = AutoPad::kSameUpper;
    } else if (pad == "SAME_LOWER") {
      found.auto_pad = AutoPad::kSameLower;
    } else if (!pad.empty() && pad != "NOTSET") {
      throw std::invalid_argument("auto_pad is " + pad);
    }
    return found;
  }

  Conv make(const Tensor& weights) const {
    if (!kernel_shape_.empty() && (weights.dims.size() != 4 || kernel_shape_ != std::vector<int64_t>(
                                                                     weights.dims.begin() + 2, weights.dims.end()))) {
      throw std::invalid_argument("kernel_shape is " + shown(kernel_shape_) + ", the weights " + shown(weights.dims));
    }
    weights.size();
    return Conv(attributes_, weights.data, weights.dims);
  }

  const ConvAttributes attributes_;
  const std::vector<int64_t> kernel_shape_;
  const Fixed<Conv> conv_;
};

class MatMulKernel : public Kernel {
 public:
  MatMulKernel(const Op& op, const Api& api, const Info& info, const Path& path)
      : Kernel(op, api, info, path), gemm_(op.base == Base::kGemm), left_(op.base == Base::kLeftMatMul),
        transposed_(gemm_ && info.integer("transB", 0)), alpha_(gemm_ ? info.number("alpha", 1) : 1),
        beta_(gemm_ ? info.number("beta", 1) : 1),
        product_(info.constant(op.weight_input()), [this](const Tensor& weights) { return make(weights); }) {
    if (gemm_ && info.integer("transA", 0)) throw std::invalid_argument("transA is set");
  }

  void compute(const Context& context) const override {
    const Tensor input = context.input(left_ ? 1 : 0);
    std::optional<MatMul> local;
    const MatMul& product = product_.get(
        context, op_.weight_input(), [this](const Tensor& weights) { return make(weights); }, local);
    const size_t axes = input.dims.size(), outputs = product.weights().rows();
    if (!axes || (gemm_ && axes != 2)) throw std::invalid_argument("the input is " + shown(input.dims));
    const size_t inner = left_ && axes > 1 ? axes - 2 : axes - 1;  // the axis that is summed over
    if (input.dims[inner] != static_cast<int64_t>(product.columns())) {
      throw std::invalid_argument("the input is " + shown(input.dims) + ", the weights are for " +
                                  std::to_string(product.columns()));
    }
    std::vector<int64_t> dims = input.dims;
    dims[inner] = static_cast<int64_t>(outputs);
    size_t outer = 1;
    for (size_t i = 0; i < inner; ++i) outer *= static_cast<size_t>(dims[i]);
    std::vector<float> spread;
    const float* const bias = bias_values(op_, op_.bias ? context.input(2) : Tensor{}, outputs, beta_, spread);
    float* const output = context.output(dims);
    const Parallel parallel = [&](size_t count, const std::function<void(size_t)>& task) {
      context.parallel(count, task);
    };
    if (left_) {
      const size_t count = axes > 1 ? static_cast<size_t>(dims[axes - 1]) : 1;
      product.run_left(path_, input.data, outer, count, limits_, output, parallel);
    } else {
      product.run_right(path_, input.data, outer, bias, limits_, output, parallel);
    }
  }

 private:
  MatMul make(const Tensor& weights) const {
    const std::vector<int64_t>& dims = weights.dims;
    if (dims.size() != 2 || dims[0] < 1 || dims[1] < 1) throw std::invalid_argument("the weights are " + shown(dims));
    weights.size();
    const size_t first = static_cast<size_t>(dims[0]), second = static_cast<size_t>(dims[1]);
    std::vector<float> scaled;
    const float* data = weights.data;
    if (alpha_ != 1.0f) {
      scaled.assign(data, data + first * second);
      for (float& value : scaled) value *= alpha_;
      data = scaled.data();
    }
    // Exporters write Gemm where the input has a row for each sample, MatMul where it has one for each place, too.
    if (left_ || transposed_) return MatMul(Dense{data, first, second, second, 1}, gemm_);
    return MatMul(Dense{data, second, first, 1, second}, gemm_);
  }

  const bool gemm_, left_, transposed_;
  const float alpha_, beta_;
  const Fixed<MatMul> product_;
};

OrtStatus* status(const Api& api, const Op& op, const std::string& node, const char* what) try {
  const std::string text = std::string(kDomain) + "." + op.name + ", node '" + node + "': " + what;
  return api.CreateStatus(kInvalidArgument, text.c_str());
} catch (const std::exception&) {  // no memory for a text
  return api.CreateStatus(kInvalidArgument, what);
}

const Op& as_op(const OrtCustomOp* op) { return *static_cast<const Op*>(op); }

OrtStatus* create(const OrtCustomOp* custom, const void* table, const OrtKernelInfo* given, void** kernel) {
  const Op& op = as_op(custom);
  const Api api(table);
  const Info info(api, given);
  std::string node;
  try {
    node = info.node();
    const Path* const path = chosen_path();
    if (!path) throw std::runtime_error("LTP_KERNELS_PATH names no path that can be used here");
    std::unique_ptr<Kernel> made;
    if (op.base == Base::kConv) {
      made = std::make_unique<ConvKernel>(op, api, info, *path);
    } else {
      made = std::make_unique<MatMulKernel>(op, api, info, *path);
    }
    *kernel = made.release();
    return nullptr;
  } catch (const std::exception& error) {
    return status(api, op, node, error.what());
  }
}

OrtStatus* compute(void* given, OrtKernelContext* context) {
  const Kernel& kernel = *static_cast<const Kernel*>(given);
  try {
    kernel.compute(Context(kernel.api(), context));
    return nullptr;
  } catch (const std::exception& error) {
    return status(kernel.api(), kernel.op(), kernel.node(), error.what());
  }
}

Op make_op(const std::string& name, Base base, bool bias, bool residual, Activation activation) {
  Op op = {};
  op.name = name;
  op.base = base;
  op.bias = bias;
  op.residual = residual;
  op.activation = activation;
  op.version = kApiVersion;
  op.GetName = [](const OrtCustomOp* o) { return as_op(o).name.c_str(); };
  op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  op.GetInputType = [](const OrtCustomOp*, size_t) { return kFloat; };
  op.GetInputTypeCount = [](const OrtCustomOp* o) { return as_op(o).inputs(); };
  op.GetOutputType = [](const OrtCustomOp*, size_t) { return kFloat; };
  op.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  op.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  op.GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return kRequired; };
  op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return kRequired; };
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };
  op.GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.CreateKernelV2 = create;
  op.KernelComputeV2 = compute;
  op.GetStartVersion = [](const OrtCustomOp*) { return 1; };
  op.GetEndVersion = [](const OrtCustomOp*) { return std::numeric_limits<int>::max(); };
  return op;
}

const std::vector<Op>& ops() {
  static const std::vector<Op>& all = *[] {  // never destroyed, as candidates() are not
    auto* const made = new std::vector<Op>;
    const auto add = [&](const std::string& name, Base base, bool bias, bool residual) {
      made->push_back(make_op(name, base, bias, residual, Activation::kNone));
      made->push_back(make_op(name + "Relu", base, bias, residual, Activation::kRelu));
      made->push_back(make_op(name + "Clip", base, bias, residual, Activation::kClip));
    };
    add("SparseLeftMatMul", Base::kLeftMatMul, false, false);
    for (const bool bias : {false, true}) {
      const std::string end = bias ? "Bias" : "";
      add("SparseConv" + end, Base::kConv, bias, false);
      add("SparseConv" + end + "Add", Base::kConv, bias, true);
      add("SparseMatMul" + end, Base::kMatMul, bias, false);
      add("SparseGemm" + end, Base::kGemm, bias, false);
    }
    return made;
  }();
  return all;
}

}  // namespace
}  // namespace ltp

#define LTP_EXPORT extern "C" __attribute__((visibility("default")))

// What SessionOptions.register_custom_ops_library calls.
LTP_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) try {
  using namespace ltp;
  const Api api(base->GetApi(kApiVersion));
  if (!api) {  // too old to have any table of ours; version 1 has been there from the beginning
    return Api(base->GetApi(1)).CreateStatus(kInvalidArgument, "the sparse kernels need onnxruntime 1.17 or newer");
  }
  static OrtCustomOpDomain* domain = nullptr;  // kept as long as the library: sessions refer to it
  static OrtStatus* const failed = [&]() -> OrtStatus* {
    if (OrtStatus* status = api.CreateCustomOpDomain(kDomain, &domain)) return status;
    for (const Op& op : ops()) {
      if (OrtStatus* status = api.CustomOpDomain_Add(domain, &op)) return status;
    }
    return nullptr;
  }();
  if (failed) return api.CreateStatus(kInvalidArgument, api.GetErrorMessage(failed));
  return api.AddCustomOpDomain(options, domain);
} catch (const std::exception& error) {
  return ltp::Api(base->GetApi(1)).CreateStatus(ltp::kInvalidArgument, error.what());
}

// The name of the path that is used here; empty where LTP_KERNELS_PATH names none that can be.
LTP_EXPORT const char* ltp_kernels_path() try {
  const ltp::Path* const path = ltp::chosen_path();
  return path ? path->name : "";
} catch (const std::exception&) {  // no memory
  return "";
}

// One line for each path: its name, and why it is not used where it is not.
LTP_EXPORT const char* ltp_kernels_paths() try {
  static const std::string text = [] {
    std::string lines;
    for (const ltp::Candidate& candidate : ltp::candidates()) {
      lines += std::string(candidate.path.name) + (candidate.refused.empty() ? "" : ": " + candidate.refused) + "\n";
    }
    return lines;
  }();
  return text.c_str();
} catch (const std::exception&) {
  return "";
}

#ifndef LTP_KERNELS_SOURCES
#define LTP_KERNELS_SOURCES unknown
#endif
#define LTP_QUOTED(text) #text
#define LTP_TEXT(macro) LTP_QUOTED(macro)

// The hash of the sources that this was built from, as the compiler was told.
LTP_EXPORT const char* ltp_kernels_sources() { return LTP_TEXT(LTP_KERNELS_SOURCES); }
