// Azure's CSV; see trace_reader.h. Columns after the third are passed over.
#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "trace/line_reader.h"
#include "trace/trace_reader.h"

namespace headrace {
namespace {

constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

// Cuts the digits at the front of `text`; false when there are none or more than nine.
bool TakeNumber(std::string_view* text, int64_t* value) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  const auto digits = static_cast<size_t>(end - text->data());
  if (error != std::errc() || digits > 9 || text->front() == '-') return false;
  text->remove_prefix(digits);
  return true;
}

bool Take(std::string_view* text, char c) {
  if (!text->starts_with(c)) return false;
  text->remove_prefix(1);
  return true;
}

// 2023-11-16 18:17:03.9799600, with no, some or nine digits behind the point; microseconds since 1970.
bool TakeStamp(std::string_view* text, int64_t* us) {
  int64_t year, month, day, hour, minute, second, fraction = 0;
  if (!(TakeNumber(text, &year) && Take(text, '-') && TakeNumber(text, &month) && Take(text, '-') &&
        TakeNumber(text, &day) && (Take(text, ' ') || Take(text, 'T')) && TakeNumber(text, &hour) && Take(text, ':') &&
        TakeNumber(text, &minute) && Take(text, ':') && TakeNumber(text, &second)))
    return false;
  if (Take(text, '.')) {
    const size_t before = text->size();
    if (!TakeNumber(text, &fraction)) return false;
    for (size_t digits = before - text->size(); digits < 9; ++digits) fraction *= 10;
  }
  if (text->starts_with("+00:00")) text->remove_prefix(6);
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(std::min<int64_t>(year, 9999))),
                                         std::chrono::month(static_cast<unsigned>(std::min<int64_t>(month, 13))),
                                         std::chrono::day(static_cast<unsigned>(std::min<int64_t>(day, 32)))};
  if (!date.ok() || year < 1970 || hour > 23 || minute > 59 || second > 60) return false;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  *us = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1'000'000 + fraction / 1000;
  return true;
}

class AzureReader final : public TraceReader {
 public:
  explicit AzureReader(const ByteSource& source) : lines_(source) {}

  Result<bool> Next(RecordedRequest* request) override {
    HR_ASSIGN_OR_RETURN(auto line, lines_.Next());
    if (line && id_ == 0 && lines_.number() == 1) {
      if (!line->starts_with(kHeader))
        return Fail(lines_.At(ErrorCode::kInvalidArgument, fmt::format("the first line must be {}", kHeader)));
      HR_ASSIGN_OR_RETURN(line, lines_.Next());
    }
    if (!line) return false;
    *request = {.id = ++id_};
    int64_t us = 0;
    if (!Parse(*line, request, &us)) {
      return Fail(
          lines_.At(ErrorCode::kInvalidArgument,
                    "expected a stamp such as 2023-11-16 18:17:03.9799600 and two numbers of tokens; a cut line "
                    "is best removed"));
    }
    if (id_ == 1) first_us_ = last_us_ = us;
    if (us < last_us_)
      return Fail(lines_.At(ErrorCode::kInvalidArgument,
                            "its stamp is before that of the line above; sort the lines by TIMESTAMP"));
    last_us_ = us;
    request->arrival_us = us - first_us_;
    if (const Status status = CheckRecorded(*request); !status)
      return Fail(lines_.At(status.error().code, status.error().message));
    return true;
  }

 private:
  static bool Parse(std::string_view line, RecordedRequest* request, int64_t* us) {
    return TakeStamp(&line, us) && Take(&line, ',') && TakeNumber(&line, &request->prompt_tokens) && Take(&line, ',') &&
           TakeNumber(&line, &request->output_tokens) && (line.empty() || line.front() == ',');
  }

  LineReader lines_;
  uint64_t id_ = 0;
  int64_t first_us_ = 0, last_us_ = 0;
};

}  // namespace

std::unique_ptr<TraceReader> ReadAzure(const ByteSource& source) { return std::make_unique<AzureReader>(source); }

}  // namespace headrace
