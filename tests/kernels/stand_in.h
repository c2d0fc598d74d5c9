// A small stand-in for onnxruntime: the table of functions that the kernels use, with tensors, attributes and threads.
#pragma once

#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "ort_abi.h"

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct OrtStatus {
  std::string text;
};

// Memory at a line of the cache, as onnxruntime gives it.
template <class T>
struct AtLine {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  AtLine() = default;
  template <class U>
  AtLine(const AtLine<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const AtLine&) const { return true; }
  bool operator!=(const AtLine&) const { return false; }
};
using Floats = std::vector<float, AtLine<float>>;

// Where memory for just these floats is reserved, AddressSanitizer sees what is read behind them.
struct OrtValue {
  std::vector<int64_t> dims;
  Floats data;
  int type = ltp::kFloat;
};

struct OrtTensorTypeAndShapeInfo {
  std::vector<int64_t> dims;
  int type;
};

struct OrtKernelInfo {
  std::string node = "a node";
  std::map<std::string, int64_t> integers;
  std::map<std::string, float> numbers;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<int64_t>> arrays;
  std::map<size_t, const OrtValue*> constants;
};

struct OrtKernelContext {
  std::vector<const OrtValue*> inputs;
  OrtValue output;
  int threads = 1;
  bool refuses_output = false;
};

struct OrtCustomOpDomain {
  std::vector<const OrtCustomOp*> ops;
};
struct OrtSessionOptions {
  const OrtCustomOpDomain* domain = nullptr;
};

namespace stand_in {

inline std::atomic<int> live_statuses{0};

inline OrtStatus* fail(const std::string& text) {
  ++live_statuses;
  return new OrtStatus{text};
}

// Strings and arrays: the size first, then the content; a string's size counts the final zero.
template <class T>
OrtStatus* give(const T* content, size_t count, T* out, size_t* size) {
  if (!out) {
    *size = count;
    return nullptr;
  }
  if (*size < count) return fail("too small");
  std::memcpy(out, content, count * sizeof(T));
  *size = count;
  return nullptr;
}

template <class T>
OrtStatus* find(const std::map<std::string, T>& all, const char* name, T* out) {
  const auto found = all.find(name);
  if (found == all.end()) return fail("no attribute");
  *out = found->second;
  return nullptr;
}

inline OrtStatus* parallel_for(const OrtKernelContext* context, void (*task)(void*, size_t), size_t total, size_t,
                               void* user) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < total; i = next++) task(user, i);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < context->threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return nullptr;
}

inline OrtStatus* get_output(OrtKernelContext* context, size_t, const int64_t* dims, size_t count, OrtValue** out) {
  if (context->refuses_output) return fail("no memory");
  context->output.dims.assign(dims, dims + count);
  size_t size = 1;
  for (const int64_t dim : context->output.dims) size *= static_cast<size_t>(dim);
  if (size > (size_t{1} << 28)) return fail("too large");
  context->output.data.assign(size, kNan);
  *out = &context->output;
  return nullptr;
}

inline const void* table() {
  static void* entries[300] = {};
  const auto set = [](int position, auto function) { entries[position] = reinterpret_cast<void*>(+function); };
  if (!entries[0]) {
    set(2, [](const OrtStatus* status) { return status->text.c_str(); });
    set(26, [](const char*, OrtCustomOpDomain** out) -> OrtStatus* {
      *out = new OrtCustomOpDomain;
      return nullptr;
    });
    set(27, [](OrtCustomOpDomain* domain, const OrtCustomOp* op) -> OrtStatus* {
      domain->ops.push_back(op);
      return nullptr;
    });
    set(28, [](OrtSessionOptions* options, OrtCustomOpDomain* domain) -> OrtStatus* {
      options->domain = domain;
      return nullptr;
    });
    set(51, [](OrtValue* value, void** out) -> OrtStatus* {
      *out = value->data.data();
      return nullptr;
    });
    set(60, [](const OrtTensorTypeAndShapeInfo* info, int* out) -> OrtStatus* {
      *out = info->type;
      return nullptr;
    });
    set(61, [](const OrtTensorTypeAndShapeInfo* info, size_t* out) -> OrtStatus* {
      *out = info->dims.size();
      return nullptr;
    });
    set(62, [](const OrtTensorTypeAndShapeInfo* info, int64_t* out, size_t count) -> OrtStatus* {
      for (size_t i = 0; i < count; ++i) out[i] = info->dims[i];
      return nullptr;
    });
    set(65, [](const OrtValue* value, OrtTensorTypeAndShapeInfo** out) -> OrtStatus* {
      *out = new OrtTensorTypeAndShapeInfo{value->dims, value->type};
      return nullptr;
    });
    set(85, [](const OrtKernelInfo* info, const char* name, float* out) { return find(info->numbers, name, out); });
    set(86, [](const OrtKernelInfo* info, const char* name, int64_t* out) { return find(info->integers, name, out); });
    set(87, [](const OrtKernelInfo* info, const char* name, char* out, size_t* size) -> OrtStatus* {
      const auto found = info->texts.find(name);
      if (found == info->texts.end()) return fail("no attribute");
      return give(found->second.c_str(), found->second.size() + 1, out, size);
    });
    set(88, [](const OrtKernelContext* context, size_t* out) -> OrtStatus* {
      *out = context->inputs.size();
      return nullptr;
    });
    set(90, [](const OrtKernelContext* context, size_t index, const OrtValue** out) -> OrtStatus* {
      *out = context->inputs[index];
      return nullptr;
    });
    set(91, get_output);
    set(93, [](OrtStatus* status) {
      --live_statuses;
      delete status;
    });
    set(99, [](OrtTensorTypeAndShapeInfo* info) { delete info; });
    set(163, [](const OrtKernelInfo* info, const char* name, int64_t* out, size_t* size) -> OrtStatus* {
      const auto found = info->arrays.find(name);
      if (found == info->arrays.end()) return fail("no attribute");
      return give(found->second.data(), found->second.size(), out, size);
    });
    set(244, [](const OrtKernelInfo* info, char* out, size_t* size) {
      return give(info->node.c_str(), info->node.size() + 1, out, size);
    });
    set(249, [](const OrtKernelInfo* info, size_t index, int* constant, const OrtValue** out) -> OrtStatus* {
      const auto found = info->constants.find(index);
      *constant = found != info->constants.end();
      *out = *constant ? found->second : nullptr;
      return nullptr;
    });
    set(274, parallel_for);
    set(0, [](int, const char* text) { return fail(text); });
  }
  return entries;
}

}  // namespace stand_in
