// Parameters by name: the settings of this process (UNISONO_*, NCCL_COMM_ID), and no others.

#include <cstring>
#include <limits>

#include "group.h"
#include "settings.h"

// Lives as long as the process, and so do the texts in it.
struct ncclParamHandle {
  std::string key;
  unisono::ProcessSetting setting;
};

namespace unisono::nccl {
namespace {

// Settings are read once, so that one table serves for ever. Never destroyed: a handle has no end.
std::vector<ncclParamHandle>& table() {
  static auto& only = *[] {
    auto* made = new std::vector<ncclParamHandle>;
    for (ProcessSetting& setting : all_settings())
      made->push_back({std::string(setting.variable), std::move(setting)});
    return made;
  }();
  return only;
}

// The current value: ncclSetEncryption may have changed one.
ProcessSetting value_of(const ncclParamHandle& param) {
  for (ProcessSetting& setting : all_settings())
    if (setting.variable == param.key) return std::move(setting);
  return param.setting;
}

ncclParamHandle* find(const char* function, const char* key) {
  if (key == nullptr) {
    fail(ncclInvalidArgument, text(function, ": the key is null"));
    return nullptr;
  }
  for (ncclParamHandle& param : table())
    if (param.key == key) return &param;
  fail(ncclInvalidArgument,
       text(function, ": there is no parameter ", key,
            "; Unisono's are those of ncclParamGetAllParameterKeys, and NCCL's own are not read"));
  return nullptr;
}

bool is_param(const char* function, ncclParamHandle_t handle, const void* out) {
  for (const ncclParamHandle& param : table())
    if (&param == handle && out != nullptr) return true;
  fail(ncclInvalidArgument, out == nullptr ? text(function, ": the pointer for the value is null")
                                           : text(function, ": ", static_cast<const void*>(handle),
                                                  " is not a handle of ncclParamBind"));
  return false;
}

template <class Number>
ncclResult_t get_number(const char* function, ncclParamHandle_t handle, Number* out) {
  if (!is_param(function, handle, out)) return ncclInvalidArgument;
  const ProcessSetting setting = value_of(*handle);
  if (!setting.is_number)
    return fail(ncclInvalidArgument, text(function, ": ", handle->key, " is a string, '",
                                          setting.text, "', not a number"));
  if (!std::in_range<Number>(setting.number))
    return fail(ncclInvalidArgument,
                text(function, ": ", handle->key, " is ", setting.number, ", which does not fit ",
                     sizeof(Number) * 8, std::is_signed_v<Number> ? " bits" : " unsigned bits"));
  *out = static_cast<Number>(setting.number);
  return ncclSuccess;
}

// Valid until this thread asks again.
const char* keep(std::string& place, std::string value) {
  place = std::move(value);
  return place.c_str();
}

ncclResult_t get_bytes(ncclParamHandle_t handle, void* out, int most, int* length) {
  constexpr const char* function = "ncclParamGet";
  if (!is_param(function, handle, out)) return ncclInvalidArgument;
  const ProcessSetting setting = value_of(*handle);
  const std::size_t bytes = setting.is_number ? sizeof setting.number : setting.text.size() + 1;
  if (most < 0 || static_cast<std::size_t>(most) < bytes)
    return fail(ncclInvalidArgument, text(function, ": ", handle->key, " needs ", bytes,
                                          " bytes; the buffer has ", most));
  if (setting.is_number)
    std::memcpy(out, &setting.number, bytes);
  else
    std::memcpy(out, setting.text.c_str(), bytes);
  if (length != nullptr) *length = static_cast<int>(bytes);
  return ncclSuccess;
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclParamBind(ncclParamHandle_t* handle, const char* key) {
  if (handle == nullptr)
    return fail(ncclInvalidArgument, "ncclParamBind: the pointer for the handle is null");
  *handle = find("ncclParamBind", key);
  return *handle != nullptr ? ncclSuccess : ncclInvalidArgument;
}
UNISONO_NCCL_EXPORT(ncclParamBind);

ncclResult_t ncclParamGetI8(ncclParamHandle_t handle, std::int8_t* out) {
  return get_number("ncclParamGetI8", handle, out);
}
UNISONO_NCCL_EXPORT(ncclParamGetI8);

ncclResult_t ncclParamGetI16(ncclParamHandle_t handle, std::int16_t* out) {
  return get_number("ncclParamGetI16", handle, out);
}
UNISONO_NCCL_EXPORT(ncclParamGetI16);

ncclResult_t ncclParamGetI32(ncclParamHandle_t handle, std::int32_t* out) {
  return get_number("ncclParamGetI32", handle, out);
}
UNISONO_NCCL_EXPORT(ncclParamGetI32);

ncclResult_t ncclParamGetI64(ncclParamHandle_t handle, std::int64_t* out) {
  return get_number("ncclParamGetI64", handle, out);
}
UNISONO_NCCL_EXPORT(ncclParamGetI64);

ncclResult_t ncclParamGetU8(ncclParamHandle_t handle, std::uint8_t* out) {
  return get_number("ncclParamGetU8", handle, out);
}
UNISONO_NCCL_EXPORT(ncclParamGetU8);

ncclResult_t ncclParamGetU16(ncclParamHandle_t handle, std::uint16_t* out) {
  return get_number("ncclParamGetU16", handle, out);
}
UNISONO_NCCL_EXPORT(ncclParamGetU16);

ncclResult_t ncclParamGetU32(ncclParamHandle_t handle, std::uint32_t* out) {
  return get_number("ncclParamGetU32", handle, out);
}
UNISONO_NCCL_EXPORT(ncclParamGetU32);

ncclResult_t ncclParamGetU64(ncclParamHandle_t handle, std::uint64_t* out) {
  return get_number("ncclParamGetU64", handle, out);
}
UNISONO_NCCL_EXPORT(ncclParamGetU64);

ncclResult_t ncclParamGetStr(ncclParamHandle_t handle, const char** out) {
  thread_local std::string kept;
  if (!is_param("ncclParamGetStr", handle, static_cast<const void*>(out)))
    return ncclInvalidArgument;
  *out = keep(kept, value_of(*handle).text);
  return ncclSuccess;
}
UNISONO_NCCL_EXPORT(ncclParamGetStr);

ncclResult_t ncclParamGet(ncclParamHandle_t handle, void* out, int most, int* length) {
  return get_bytes(handle, out, most, length);
}
UNISONO_NCCL_EXPORT(ncclParamGet);

ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* length) {
  thread_local std::string kept;
  const ncclParamHandle* const param = find("ncclParamGetParameter", key);
  if (param == nullptr) return ncclInvalidArgument;
  if (value == nullptr)
    return fail(ncclInvalidArgument, "ncclParamGetParameter: the pointer for the value is null");
  *value = keep(kept, value_of(*param).text);
  if (length != nullptr) *length = static_cast<int>(kept.size());
  return ncclSuccess;
}
UNISONO_NCCL_EXPORT(ncclParamGetParameter);

ncclResult_t ncclParamGetAllParameterKeys(const char*** keys, int* count) {
  thread_local std::vector<const char*> kept;
  if (keys == nullptr || count == nullptr)
    return fail(
        ncclInvalidArgument,
        "ncclParamGetAllParameterKeys: the pointer for the keys or for their number is null");
  kept.clear();
  for (const ncclParamHandle& param : table()) kept.push_back(param.key.c_str());
  *keys = kept.data();
  *count = static_cast<int>(kept.size());
  return ncclSuccess;
}
UNISONO_NCCL_EXPORT(ncclParamGetAllParameterKeys);

void ncclParamDumpAll() {
  for (const unisono::ProcessSetting& setting : all_settings())
    unisono::log_warning(text(setting.variable, "=", setting.text));
}
UNISONO_NCCL_EXPORT(ncclParamDumpAll);
