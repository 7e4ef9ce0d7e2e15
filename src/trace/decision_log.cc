#include "trace/decision_log.h"

#include "json/json.h"
#include "json/json_fields.h"
#include "trace/limits.h"

namespace headrace {
namespace {

constexpr int64_t kVersion = 1;
constexpr JsonLimits kLineLimits{.bytes_max = kDecisionLineBytesMax, .depth_max = 4, .nodes_max = 1 << 18};

Json AsJson(TimeNs time) { return time == kNever ? Json(nullptr) : Json(time); }

Json AsJson(const DecidedArrival& a) {
  Json json = {a.request,
               a.prompt_tokens,
               a.max_tokens,
               a.band,
               a.position,
               a.tenant,
               a.weight,
               a.arrival,
               AsJson(a.start_before),
               AsJson(a.finish_before),
               AsJson(a.deadline),
               a.prompt_logits};
  if (a.keep_until > 0) json.push_back(a.keep_until);
  return json;
}

Json AsJson(const DecidedEnd& end) {
  Json json = {end.request, end.output_tokens, end.failed};
  for (const RecordedBlock& block : end.blocks) json.push_back(Json::array({block.high, block.low}));
  return json;
}

template <typename T>
void Put(Json* json, const char* key, const std::vector<T>& items, auto as_json) {
  if (items.empty()) return;
  Json& array = (*json)[key] = Json::array();
  for (const T& item : items) array.push_back(as_json(item));
}

// Reads the values of one array in turn; the first that is not as it must be is the error.
class Values {
 public:
  Values(const Json& array, const char* field) : array_(array), field_(field) {
    if (!array.is_array()) Miss();
  }

  template <typename T>
  void Take(T* out) {
    const Json* value = Next();
    if (value == nullptr || !Fits<T>(*value)) return Miss();
    *out = value->get<T>();
  }
  void TakeTime(TimeNs* out) {
    const Json* value = Next();
    if (value == nullptr || !(value->is_null() || value->is_number_integer())) return Miss();
    *out = value->is_null() ? kNever : value->get<TimeNs>();
  }
  bool AtEnd() const { return at_ >= (ok_ ? array_.size() : 0); }
  const Json* Next() { return ok_ && at_ < array_.size() ? &array_[at_++] : nullptr; }
  Status Done() const {
    if (ok_ && AtEnd()) return {};
    return Fail(ErrorCode::kInvalidArgument, std::string(field_) + " is not as a log of decisions has it", field_);
  }

 private:
  template <typename T>
  static bool Fits(const Json& value) {
    if constexpr (std::is_same_v<T, bool>) return value.is_boolean();
    if constexpr (std::is_same_v<T, double>) return value.is_number();
    if constexpr (std::is_same_v<T, int32_t>)
      return value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= INT32_MAX;
    if constexpr (std::is_same_v<T, int64_t>) return value.is_number_integer() && value.get<int64_t>() >= 0;
    return value.is_number_unsigned();
  }
  void Miss() { ok_ = false; }

  const Json& array_;
  const char* field_;
  size_t at_ = 0;
  bool ok_ = true;
};

Status Read(const Json& json, DecidedArrival* a) {
  Values values(json, "in");
  values.Take(&a->request);
  values.Take(&a->prompt_tokens);
  values.Take(&a->max_tokens);
  values.Take(&a->band);
  values.Take(&a->position);
  values.Take(&a->tenant);
  values.Take(&a->weight);
  values.TakeTime(&a->arrival);
  values.TakeTime(&a->start_before);
  values.TakeTime(&a->finish_before);
  values.TakeTime(&a->deadline);
  values.Take(&a->prompt_logits);
  if (!values.AtEnd()) values.Take(&a->keep_until);
  HR_RETURN_IF_ERROR(values.Done());
  if (a->prompt_tokens < 1 || a->prompt_tokens > kTraceTokensMax)
    return Fail(ErrorCode::kInvalidArgument, "in: a prompt has a token at least", "in");
  return {};
}

Status Read(const Json& json, DecidedSpan* span) {
  Values values(json, "plan");
  values.Take(&span->request);
  values.Take(&span->first_position);
  values.Take(&span->rows);
  values.Take(&span->samples);
  return values.Done();
}

Status Read(const Json& json, DecidedEnd* end) {
  Values values(json, "out");
  values.Take(&end->request);
  values.Take(&end->output_tokens);
  values.Take(&end->failed);
  while (!values.AtEnd()) {
    const Json* pair = values.Next();
    Values names(*pair, "out");
    RecordedBlock& block = end->blocks.emplace_back();
    names.Take(&block.high);
    names.Take(&block.low);
    HR_RETURN_IF_ERROR(names.Done());
  }
  return values.Done();
}

Status Read(const Json& json, uint64_t* request) {
  if (!json.is_number_unsigned()) return Fail(ErrorCode::kInvalidArgument, "a request is a number", "");
  *request = json.get<uint64_t>();
  return {};
}

template <typename T>
Status ReadAll(JsonFields& fields, std::string_view key, std::vector<T>* out) {
  HR_ASSIGN_OR_RETURN(const Json* array, fields.Array(key, kLineLimits.nodes_max));
  for (size_t i = 0; array != nullptr && i < array->size(); ++i)
    HR_RETURN_IF_ERROR(Read((*array)[i], &out->emplace_back()));
  return {};
}

}  // namespace

void AppendSetup(const DecisionSetup& s, std::string* out) {
  const Json json = {{"headrace_decisions", kVersion},     {"context", s.context},
                     {"kv_blocks", s.kv_blocks},           {"rows_max", s.rows_max},
                     {"logit_rows_max", s.logit_rows_max}, {"sequences_max", s.sequences_max},
                     {"waiting_max", s.waiting_max},       {"shared_tokens_max", s.shared_tokens_max},
                     {"drafts_max", s.drafts_max},         {"prefix_cache", s.prefix_cache},
                     {"room_ahead", s.room_ahead},         {"first_come", s.first_come},
                     {"brown_out_wait", s.brown_out_wait}, {"itl_target", s.itl_target}};
  *out += DumpJson(json);
  *out += '\n';
}

Result<DecisionSetup> ParseSetup(std::string_view line) {
  HR_ASSIGN_OR_RETURN(const Json json, ParseJson(line, kLineLimits));
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, ""));
  HR_ASSIGN_OR_RETURN(const auto version, fields.Integer("headrace_decisions", 1, 1 << 20));
  if (version != kVersion)
    return Fail(ErrorCode::kInvalidArgument,
                "this is no log of decisions of version 1; serve --decision-log writes one", "headrace_decisions");
  DecisionSetup s;
  const auto read = [&](std::string_view key, int64_t least, int64_t most, auto* out) -> Status {
    HR_ASSIGN_OR_RETURN(const auto value, fields.Integer(key, least, most));
    if (!value) return Fail(ErrorCode::kInvalidArgument, std::string(key) + " is needed", std::string(key));
    *out = static_cast<std::remove_pointer_t<decltype(out)>>(*value);
    return {};
  };
  HR_RETURN_IF_ERROR(read("context", 1, kTraceTokensMax, &s.context));
  HR_RETURN_IF_ERROR(read("kv_blocks", 1, 1 << 24, &s.kv_blocks));
  HR_RETURN_IF_ERROR(read("rows_max", 1, 1 << 20, &s.rows_max));
  HR_RETURN_IF_ERROR(read("sequences_max", 1, 4096, &s.sequences_max));
  HR_RETURN_IF_ERROR(read("logit_rows_max", s.sequences_max, 1 << 20, &s.logit_rows_max));
  HR_RETURN_IF_ERROR(read("waiting_max", 0, 1'000'000, &s.waiting_max));
  HR_RETURN_IF_ERROR(read("shared_tokens_max", 0, s.rows_max, &s.shared_tokens_max));
  HR_RETURN_IF_ERROR(read("drafts_max", 0, 1 << 20, &s.drafts_max));
  HR_RETURN_IF_ERROR(read("brown_out_wait", 0, INT64_MAX, &s.brown_out_wait));
  HR_RETURN_IF_ERROR(read("itl_target", 0, INT64_MAX, &s.itl_target));
  HR_ASSIGN_OR_RETURN(const auto prefix_cache, fields.Bool("prefix_cache"));
  HR_ASSIGN_OR_RETURN(const auto room_ahead, fields.Bool("room_ahead"));
  HR_ASSIGN_OR_RETURN(const auto first_come, fields.Bool("first_come"));
  s.prefix_cache = prefix_cache.value_or(true);
  s.room_ahead = room_ahead.value_or(false);  // logs of before it was there
  s.first_come = first_come.value_or(false);
  return s;
}

void AppendDecision(const StepDecision& d, std::string* out) {
  Json json = {{"now", d.now}, {"began", d.began}, {"end", d.end}};
  const auto number = [](uint64_t request) { return Json(request); };
  Put(&json, "in", d.arrivals, [](const DecidedArrival& a) { return AsJson(a); });
  Put(&json, "cancelled", d.cancelled, number);
  Put(&json, "expired", d.expired, number);
  Put(&json, "preempted", d.preempted, number);
  Put(&json, "plan", d.spans,
      [](const DecidedSpan& s) { return Json{s.request, s.first_position, s.rows, s.samples}; });
  Put(&json, "during", d.during, [](const DecidedArrival& a) { return AsJson(a); });
  Put(&json, "out", d.ended, [](const DecidedEnd& e) { return AsJson(e); });
  if (d.failed) json["failed"] = true;
  *out += DumpJson(json);
  *out += '\n';
}

Result<StepDecision> ParseDecision(std::string_view line) {
  HR_ASSIGN_OR_RETURN(const Json json, ParseJson(line, kLineLimits));
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, ""));
  StepDecision d;
  HR_ASSIGN_OR_RETURN(const auto now, fields.Integer("now", 0, INT64_MAX));
  HR_ASSIGN_OR_RETURN(const auto began, fields.Integer("began", 0, INT64_MAX));
  HR_ASSIGN_OR_RETURN(const auto end, fields.Integer("end", 0, INT64_MAX));
  if (!now || !end) return Fail(ErrorCode::kInvalidArgument, "now and end are needed", "now");
  d.now = *now;
  d.began = began.value_or(*now);
  d.end = *end;
  HR_RETURN_IF_ERROR(ReadAll(fields, "in", &d.arrivals));
  HR_RETURN_IF_ERROR(ReadAll(fields, "cancelled", &d.cancelled));
  HR_RETURN_IF_ERROR(ReadAll(fields, "expired", &d.expired));
  HR_RETURN_IF_ERROR(ReadAll(fields, "preempted", &d.preempted));
  HR_RETURN_IF_ERROR(ReadAll(fields, "plan", &d.spans));
  HR_RETURN_IF_ERROR(ReadAll(fields, "during", &d.during));
  HR_RETURN_IF_ERROR(ReadAll(fields, "out", &d.ended));
  HR_ASSIGN_OR_RETURN(const auto failed, fields.Bool("failed"));
  d.failed = failed.value_or(false);
  return d;
}

}  // namespace headrace
