#include "session.h"

#include <exception>
#include <mutex>

namespace ltp {

void check(const Api& api, OrtStatus* status) {
  if (!status) return;
  const std::string text = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw std::runtime_error(text);
}

size_t Tensor::size() const {
  size_t total = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(total, static_cast<size_t>(dim), &total) || total > SIZE_MAX / 8) {
      throw std::length_error("a tensor has too many elements");
    }
  }
  return total;
}

Tensor tensor(const Api& api, const OrtValue* value) {
  Tensor found;
  if (!value) return found;
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api, api.GetTensorTypeAndShape(value, &info));
  int type = 0;
  size_t axes = 0;
  OrtStatus* status = api.GetTensorElementType(info, &type);
  if (!status) status = api.GetDimensionsCount(info, &axes);
  found.dims.resize(axes);
  if (!status) status = api.GetDimensions(info, found.dims.data(), axes);
  api.ReleaseTensorTypeAndShapeInfo(info);
  check(api, status);
  if (type != kFloat) throw std::invalid_argument("a tensor is not of 32-bit floats");
  void* data = nullptr;
  check(api, api.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
  found.data = static_cast<float*>(data);
  return found;
}

std::string Info::node() const {
  size_t size = 0;
  if (!there(api_.KernelInfo_GetNodeName(info_, nullptr, &size)) || !size) return "";
  std::string name(size, '\0');
  check(api_, api_.KernelInfo_GetNodeName(info_, name.data(), &size));
  name.resize(size - 1);  // without the final zero
  return name;
}

Tensor Info::constant(size_t input) const {
  int constant = 0;
  const OrtValue* value = nullptr;
  check(api_, api_.KernelInfoGetConstantInput_tensor(info_, input, &constant, &value));
  return constant ? tensor(api_, value) : Tensor{};
}

bool Info::there(OrtStatus* status) const {
  if (status) api_.ReleaseStatus(status);
  return !status;
}

int64_t Info::integer(const char* name, int64_t otherwise) const {
  int64_t value = 0;
  return there(api_.KernelInfoGetAttribute_int64(info_, name, &value)) ? value : otherwise;
}

float Info::number(const char* name, float otherwise) const {
  float value = 0;
  return there(api_.KernelInfoGetAttribute_float(info_, name, &value)) ? value : otherwise;
}

std::string Info::text(const char* name) const {
  size_t size = 0;
  if (!there(api_.KernelInfoGetAttribute_string(info_, name, nullptr, &size)) || !size) return "";
  std::string value(size, '\0');
  check(api_, api_.KernelInfoGetAttribute_string(info_, name, value.data(), &size));
  value.resize(size - 1);
  return value;
}

std::vector<int64_t> Info::integers(const char* name) const {
  size_t size = 0;
  if (!there(api_.KernelInfoGetAttributeArray_int64(info_, name, nullptr, &size)) || !size) return {};
  std::vector<int64_t> values(size);
  check(api_, api_.KernelInfoGetAttributeArray_int64(info_, name, values.data(), &size));
  return values;
}

Tensor Context::input(size_t index) const {
  size_t count = 0;
  check(api_, api_.KernelContext_GetInputCount(context_, &count));
  if (index >= count) return {};
  const OrtValue* value = nullptr;
  check(api_, api_.KernelContext_GetInput(context_, index, &value));
  return tensor(api_, value);
}

float* Context::output(const std::vector<int64_t>& dims) const {
  Tensor{nullptr, dims}.size();
  OrtValue* value = nullptr;
  check(api_, api_.KernelContext_GetOutput(context_, 0, dims.data(), dims.size(), &value));
  void* data = nullptr;
  check(api_, api_.GetTensorMutableData(value, &data));
  return static_cast<float*>(data);
}

void Context::parallel(size_t count, const std::function<void(size_t)>& task) const {
  struct Shared {
    const std::function<void(size_t)>& task;
    std::mutex mutex;
    std::exception_ptr thrown;
  } shared{task, {}, {}};
  const auto run = [](void* user, size_t i) {  // onnxruntime's threads know no exceptions of ours
    Shared& all = *static_cast<Shared*>(user);
    try {
      all.task(i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(all.mutex);
      all.thrown = std::current_exception();
    }
  };
  check(api_, api_.KernelContext_ParallelFor(context_, run, count, 0, &shared));
  if (shared.thrown) std::rethrow_exception(shared.thrown);
}

}  // namespace ltp
