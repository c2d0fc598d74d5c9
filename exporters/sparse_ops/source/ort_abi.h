// The few entries of onnxruntime's C ABI that these kernels use.
//
// onnxruntime ships its headers in none of its Python packages, but the ABI is frozen by position: functions of OrtApi
// are only ever appended, and its source asserts their offsets for each version. So a table of pointers and the
// positions below are all that is needed. Signatures: onnxruntime_c_api.h of microsoft/onnxruntime, MIT licence.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct OrtStatus;
struct OrtValue;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtTensorTypeAndShapeInfo;

struct OrtApiBase {
  const void* (*GetApi)(uint32_t version);  // null where onnxruntime is older than the version
  const char* (*GetVersionString)();
};

// As of API version 17; later versions append to it, and read only what `version` says is there.
struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const void* api, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void* kernel, OrtKernelContext*);
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const void* api, const OrtKernelInfo*, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*);
  OrtStatus* (*InferOutputShape)(const OrtCustomOp*, void* context);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
};

}  // extern "C"

namespace ltp {

constexpr uint32_t kApiVersion = 17;  // the first with ParallelFor; onnxruntime 1.17
constexpr int kFloat = 1;             // ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
constexpr int kRequired = 0;            // INPUT_OUTPUT_REQUIRED
constexpr int kInvalidArgument = 2;  // OrtErrorCode

// The table with its types. Every call that can fail returns null, or a status that the caller has to release.
class Api {
 public:
  explicit Api(const void* table) : table_(static_cast<void* const*>(table)) {}
  explicit operator bool() const { return table_ != nullptr; }

#define LTP_ENTRY(position, result, name, parameters, arguments)                       \
  result name parameters const {                                                       \
    return reinterpret_cast<result(*) parameters>(table_[position]) arguments;         \
  }
  LTP_ENTRY(0, OrtStatus*, CreateStatus, (int code, const char* text), (code, text))
  LTP_ENTRY(2, const char*, GetErrorMessage, (const OrtStatus* status), (status))
  LTP_ENTRY(26, OrtStatus*, CreateCustomOpDomain, (const char* domain, OrtCustomOpDomain** out), (domain, out))
  LTP_ENTRY(27, OrtStatus*, CustomOpDomain_Add, (OrtCustomOpDomain* domain, const OrtCustomOp* op), (domain, op))
  LTP_ENTRY(28, OrtStatus*, AddCustomOpDomain, (OrtSessionOptions* options, OrtCustomOpDomain* domain),
            (options, domain))
  LTP_ENTRY(51, OrtStatus*, GetTensorMutableData, (OrtValue* value, void** out), (value, out))
  LTP_ENTRY(60, OrtStatus*, GetTensorElementType, (const OrtTensorTypeAndShapeInfo* info, int* out), (info, out))
  LTP_ENTRY(61, OrtStatus*, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo* info, size_t* out), (info, out))
  LTP_ENTRY(62, OrtStatus*, GetDimensions, (const OrtTensorTypeAndShapeInfo* info, int64_t* out, size_t count),
            (info, out, count))
  LTP_ENTRY(65, OrtStatus*, GetTensorTypeAndShape, (const OrtValue* value, OrtTensorTypeAndShapeInfo** out),
            (value, out))
  LTP_ENTRY(85, OrtStatus*, KernelInfoGetAttribute_float, (const OrtKernelInfo* info, const char* name, float* out),
            (info, name, out))
  LTP_ENTRY(86, OrtStatus*, KernelInfoGetAttribute_int64, (const OrtKernelInfo* info, const char* name, int64_t* out),
            (info, name, out))
  LTP_ENTRY(87, OrtStatus*, KernelInfoGetAttribute_string,
            (const OrtKernelInfo* info, const char* name, char* out, size_t* size), (info, name, out, size))
  LTP_ENTRY(88, OrtStatus*, KernelContext_GetInputCount, (const OrtKernelContext* context, size_t* out), (context, out))
  LTP_ENTRY(90, OrtStatus*, KernelContext_GetInput,
            (const OrtKernelContext* context, size_t index, const OrtValue** out), (context, index, out))
  LTP_ENTRY(91, OrtStatus*, KernelContext_GetOutput,
            (OrtKernelContext* context, size_t index, const int64_t* dims, size_t count, OrtValue** out),
            (context, index, dims, count, out))
  LTP_ENTRY(93, void, ReleaseStatus, (OrtStatus* status), (status))
  LTP_ENTRY(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo* info), (info))
  LTP_ENTRY(163, OrtStatus*, KernelInfoGetAttributeArray_int64,
            (const OrtKernelInfo* info, const char* name, int64_t* out, size_t* size), (info, name, out, size))
  LTP_ENTRY(244, OrtStatus*, KernelInfo_GetNodeName, (const OrtKernelInfo* info, char* out, size_t* size),
            (info, out, size))
  LTP_ENTRY(249, OrtStatus*, KernelInfoGetConstantInput_tensor,
            (const OrtKernelInfo* info, size_t index, int* constant, const OrtValue** out),
            (info, index, constant, out))
  LTP_ENTRY(274, OrtStatus*, KernelContext_ParallelFor,
            (const OrtKernelContext* context, void (*task)(void*, size_t), size_t total, size_t batches, void* user),
            (context, task, total, batches, user))
#undef LTP_ENTRY

 private:
  void* const* table_;
};

}  // namespace ltp
