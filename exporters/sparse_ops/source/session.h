// onnxruntime's side of a kernel in C++: errors are exceptions, tensors know their dims.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ort_abi.h"

namespace ltp {

// Throws std::runtime_error with the status's text, and releases it.
void check(const Api& api, OrtStatus* status);

struct Tensor {
  float* data = nullptr;
  std::vector<int64_t> dims;
  explicit operator bool() const { return data || !dims.empty(); }
  size_t size() const;  // elements; throws where that overflows
};

// A float tensor; empty for null. Throws where it is of another type.
Tensor tensor(const Api& api, const OrtValue* value);

// What a kernel can ask for when it is made.
class Info {
 public:
  Info(const Api& api, const OrtKernelInfo* info) : api_(api), info_(info) {}
  std::string node() const;
  Tensor constant(size_t input) const;  // empty where it is none
  int64_t integer(const char* name, int64_t otherwise) const;
  float number(const char* name, float otherwise) const;
  std::string text(const char* name) const;                  // empty where there is none
  std::vector<int64_t> integers(const char* name) const;  // empty where there are none

 private:
  bool there(OrtStatus* status) const;  // whether an attribute could be read
  Api api_;
  const OrtKernelInfo* info_;
};

// What a kernel can ask for when it runs.
class Context {
 public:
  Context(const Api& api, OrtKernelContext* context) : api_(api), context_(context) {}
  Tensor input(size_t index) const;  // empty where it is left out
  float* output(const std::vector<int64_t>& dims) const;
  // On the session's own threads. An exception of a task is thrown again here.
  void parallel(size_t count, const std::function<void(size_t)>& task) const;

 private:
  Api api_;
  OrtKernelContext* context_;
};

}  // namespace ltp
