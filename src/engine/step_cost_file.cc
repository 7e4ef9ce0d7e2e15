#include "engine/step_cost_file.h"

#include "json/json.h"
#include "json/json_fields.h"

namespace headrace {
namespace {

constexpr int64_t kVersion = 1;
constexpr size_t kNameBytesMost = 1024;
constexpr double kLargest = 3.6e9;  // StepCost::Make has the rules; this only keeps numbers finite

struct Field {
  std::string_view name;
  double StepCostConstants::* value;
  bool needed;
};
constexpr Field kFields[] = {
    {"step_us", &StepCostConstants::step_us, true},
    {"prompt_row_us", &StepCostConstants::prompt_row_us, true},
    {"decode_row_us", &StepCostConstants::decode_row_us, true},
    {"context_token_ns", &StepCostConstants::context_token_ns, true},
    {"prompt_us", &StepCostConstants::prompt_us, false},
    {"prompt_context_ns", &StepCostConstants::prompt_context_ns, false},
    {"prompt_pair_ns", &StepCostConstants::prompt_pair_ns, false},
    {"wide_decode_row_us", &StepCostConstants::wide_decode_row_us, false},
};

Status ReadName(JsonFields& fields, std::string_view key, std::string* out) {
  HR_ASSIGN_OR_RETURN(auto text, fields.String(key, kNameBytesMost));
  *out = std::move(text).value_or("");
  return {};
}

Status ReadNumber(JsonFields& fields, std::string_view key, bool needed, double* out) {
  HR_ASSIGN_OR_RETURN(const auto number, fields.Number(key, 0, kLargest));
  if (!number && needed)
    return Fail(ErrorCode::kInvalidArgument, "a file of step costs needs " + std::string(key), std::string(key));
  *out = number.value_or(0);
  return {};
}

}  // namespace

std::string FormatStepCost(const StepCostFile& f) {
  const StepCostConstants& c = f.constants;
  Json json = {{"headrace_step_cost", kVersion}, {"model", f.model},     {"machine", f.machine},
               {"kernels", f.kernels},           {"threads", f.threads}, {"error_median", f.error_median},
               {"error_p90", f.error_p90}};
  for (const Field& field : kFields) json[std::string(field.name)] = c.*field.value;
  return DumpJson(json) + "\n";
}

Result<StepCostFile> ParseStepCost(std::string_view text) {
  HR_ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.bytes_max = kStepCostFileBytesMax, .depth_max = 2}));
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, ""));
  HR_ASSIGN_OR_RETURN(const auto version, fields.Integer("headrace_step_cost", 1, 1 << 20));
  if (version != kVersion)
    return Fail(ErrorCode::kInvalidArgument,
                "this is no file of step costs of version 1; headrace bench calibrate writes one",
                "headrace_step_cost");
  StepCostFile file;
  HR_RETURN_IF_ERROR(ReadName(fields, "model", &file.model));
  HR_RETURN_IF_ERROR(ReadName(fields, "machine", &file.machine));
  HR_RETURN_IF_ERROR(ReadName(fields, "kernels", &file.kernels));
  HR_ASSIGN_OR_RETURN(const auto threads, fields.Integer("threads", 0, 1 << 20));
  file.threads = static_cast<int>(threads.value_or(0));
  StepCostConstants& c = file.constants;
  for (const Field& field : kFields)
    HR_RETURN_IF_ERROR(ReadNumber(fields, field.name, field.needed, &(c.*field.value)));
  HR_RETURN_IF_ERROR(ReadNumber(fields, "error_median", false, &file.error_median));
  HR_RETURN_IF_ERROR(ReadNumber(fields, "error_p90", false, &file.error_p90));
  HR_RETURN_IF_ERROR(StepCost::Make(c));
  return file;
}

}  // namespace headrace
