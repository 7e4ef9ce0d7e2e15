#include "text/chat_template.h"

#include <ctime>
#include <utility>

#include "text/shim.h"

namespace headrace {
namespace {

constexpr const char* kField = "chat_template";

ts_render_limits ToShim(const RenderLimits& limits) {
  ts_render_limits raw{};
  raw.steps_max = limits.steps_max;
  raw.output_bytes_max = limits.output_bytes_max;
  raw.time_ms_max = limits.time_ms_max;
  raw.unix_seconds = limits.now_unix_seconds;
  if (limits.now_unix_seconds < 0) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    raw.unix_seconds = now;
    raw.utc_offset_seconds = static_cast<int32_t>(local.tm_gmtoff);
  }
  return raw;
}

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string source) {
  if (source.size() > kTemplateBytesMax) {
    return Fail(ErrorCode::kTooLarge,
                "the chat template has more than " + std::to_string(kTemplateBytesMax) +
                    " bytes; use another one with --chat-template",
                kField);
  }
  ts_template* handle = nullptr;
  ShimBuffer err;
  const ts_status status = ts_template_new(ShimBytes(source), source.size(), &handle, err.raw());
  if (status != TS_OK) return Fail(ShimError(status, err, ErrorCode::kInvalidArgument, kField));
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(handle, std::move(source)));
}

ChatTemplate::~ChatTemplate() { ts_template_free(handle_); }

Result<std::string> ChatTemplate::Render(std::string_view context_json, const RenderLimits& limits) const {
  if (context_json.size() > kTemplateContextBytesMax) {
    return Fail(
        ErrorCode::kTooLarge,
        "the messages have more than " + std::to_string(kTemplateContextBytesMax) + " bytes as JSON; send less text",
        "messages");
  }
  const ts_render_limits raw = ToShim(limits);
  ShimBuffer out;
  ShimBuffer err;
  const ts_status status =
      ts_template_render(handle_, ShimBytes(context_json), context_json.size(), &raw, out.raw(), err.raw());
  if (status == TS_OK) return std::string(out.view());
  Error error = ShimError(status, err, ErrorCode::kInvalidArgument, kField);
  if (status == TS_LIMIT) error.message += "; send less text, or start with another --chat-template";
  return Fail(std::move(error));
}

}  // namespace headrace
