#include "catalog/download.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "catalog/partial_file.h"

namespace headrace {
namespace {

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "bytes 100-999/1000" or "bytes */1000" (RFC 9110, 14.4).
struct ContentRange {
  std::optional<uint64_t> first;
  std::optional<uint64_t> total;
};

ContentRange ParseContentRange(std::string_view text) {
  ContentRange range;
  if (!text.starts_with("bytes ")) return range;
  text.remove_prefix(6);
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return range;
  range.total = ParseNumber(text.substr(slash + 1));
  range.first = ParseNumber(text.substr(0, text.substr(0, slash).find('-')));
  return range;
}

class Downloader {
 public:
  Downloader(const DownloadRequest& request, const PullPorts& ports, PullProgress& progress, PartialFile& part)
      : request_(request),
        ports_(ports),
        progress_(progress),
        part_(part),
        started_with_(part.size()),
        total_(request.bytes),
        name_(std::filesystem::path(request.target).filename().string()) {}

  // Attempts until the file is whole, an error is final, or nothing comes any more.
  Status Run() {
    HR_RETURN_IF_ERROR(DropUnusable());
    if (part_.size() > 0) progress_.Say("resuming " + name_ + " at " + FormatBytes(part_.size()));
    for (int fruitless = 0; !Whole();) {
      const uint64_t before = part_.size();
      const Status done = Attempt();
      progress_.EndFile();
      if (done) return {};
      if (!WorthRetrying(done.error())) return done;
      fruitless = part_.size() > before ? 0 : fruitless + 1;
      if (fruitless >= kFruitlessAttemptsMax) return GivenUp(done.error());
      progress_.Say(done.error().message + "; trying again");
      // 0.2, 0.4, 0.8 s: long enough for a server that restarts its worker, short enough for who waits.
      ports_.pause((int64_t{200} << fruitless) * kNsPerMs);
    }
    return {};
  }

 private:
  bool Whole() const { return total_ != 0 && part_.size() == total_; }

  // Bytes of a file that may have changed since are worth nothing unless a hash or the server's tag can tell.
  Status DropUnusable() {
    const bool longer = request_.bytes != 0 && part_.size() > request_.bytes;
    const bool unknown = request_.sha256.empty() && part_.tag().empty();
    return longer || (unknown && part_.size() > 0) ? part_.Restart() : Status();
  }

  static bool WorthRetrying(const Error& error) {
    return error.field == "cut" || error.field == "timeout" || error.field == "server";
  }

  static std::unexpected<Error> GivenUp(Error error) {
    error.message += "; given up after " + std::to_string(kFruitlessAttemptsMax) +
                     " attempts that brought nothing: the same command resumes";
    return Fail(std::move(error));
  }

  Status Attempt() {
    if (ports_.cancelled()) return Fail(PullCancelled());
    HttpFetchRequest fetch{.url = request_.url, .headers = request_.headers};
    if (part_.size() > 0) {
      fetch.headers.emplace_back("Range", "bytes=" + std::to_string(part_.size()) + "-");
      // A weak tag may not be used here (RFC 9110, 13.1.5).
      if (!part_.tag().empty() && !part_.tag().starts_with("W/")) fetch.headers.emplace_back("If-Range", part_.tag());
    }
    auto result = ports_.fetch(
        fetch, [this](std::span<const std::byte> bytes) { return OnBody(bytes); },
        [this](const HttpResult& head) { return OnHead(head); });
    if (!result) return Fail(result.error());
    if (result->status == 416) return OnRangeRefused(*result);
    if (result->status / 100 != 2) return Refused(*result);
    return {};
  }

  Status OnHead(const HttpResult& head) {
    if (head.status / 100 != 2) return {};
    std::string_view tag = head.Header("ETag");
    if (tag.empty()) tag = head.Header("Last-Modified");
    const auto length = ParseNumber(head.Header("Content-Length"));
    if (head.status == 206) {
      const ContentRange range = ParseContentRange(head.Header("Content-Range"));
      if (range.first && *range.first != part_.size())
        return Fail(ErrorCode::kIo, "the server sent another range of " + name_ + " than was asked for", "response");
      HR_RETURN_IF_ERROR(LearnTotal(range.total ? range.total
                                    : length    ? std::optional(*length + part_.size())
                                                : length));
    } else {
      HR_RETURN_IF_ERROR(part_.Restart());
      started_with_ = 0;
      HR_RETURN_IF_ERROR(LearnTotal(length));
    }
    if (tag != part_.tag()) HR_RETURN_IF_ERROR(part_.NoteTag(std::string(tag.substr(0, 1024))));
    return total_ > part_.size() ? part_.NeedSpace(total_ - part_.size()) : Status();
  }

  Status LearnTotal(std::optional<uint64_t> total) {
    if (!total) return {};
    if (request_.bytes != 0 && *total != request_.bytes)
      return Fail(ErrorCode::kCorruptData,
                  name_ + " has " + std::to_string(*total) + " bytes at its source, but " +
                      std::to_string(request_.bytes) + " were expected",
                  "size");
    total_ = *total;
    return {};
  }

  Status OnBody(std::span<const std::byte> bytes) {
    if (ports_.cancelled()) return Fail(PullCancelled());
    if (total_ != 0 && bytes.size() > total_ - part_.size())
      return Fail(ErrorCode::kCorruptData, name_ + " is longer at its source than the source says", "size");
    HR_RETURN_IF_ERROR(part_.Append(bytes));
    progress_.Advance(name_, part_.size(), total_, started_with_);
    return {};
  }

  // 416: the server has no byte behind ours. Whole, or another file.
  Status OnRangeRefused(const HttpResult& result) {
    const ContentRange range = ParseContentRange(result.Header("Content-Range"));
    if (range.total && *range.total == part_.size()) return LearnTotal(range.total);
    HR_RETURN_IF_ERROR(part_.Restart());
    return Fail(ErrorCode::kIo, "the server does not resume " + name_ + "; starting over", "server");
  }

  std::unexpected<Error> Refused(const HttpResult& result) {
    const std::string answer =
        "the server answers " + std::to_string(result.status) + " for " + EscapeForLog(request_.url);
    switch (result.status) {
      case 401:
      case 403:
        return Fail(ErrorCode::kPermissionDenied,
                    answer + ": it wants a login or the licence accepted (a token goes into HF_TOKEN)", "url");
      case 404:
      case 410:
        return Fail(ErrorCode::kNotFound, answer + ": there is no such file", "url");
      case 408:
      case 429:
        return Fail(ErrorCode::kUnavailable, answer, "server");
      default:
        return Fail(result.status >= 500 ? ErrorCode::kUnavailable : ErrorCode::kIo, answer,
                    result.status >= 500 ? "server" : "url");
    }
  }

  const DownloadRequest& request_;
  const PullPorts& ports_;
  PullProgress& progress_;
  PartialFile& part_;
  uint64_t started_with_;
  uint64_t total_;
  const std::string name_;
};

}  // namespace

Result<std::string> Download(const DownloadRequest& request, const PullPorts& ports, PullProgress& progress) {
  HR_ASSIGN_OR_RETURN(PartialFile part, PartialFile::Open(request.target, request.url, ports));
  if (const Status fetched = Downloader(request, ports, progress, part).Run(); !fetched) {
    if (fetched.error().code == ErrorCode::kCorruptData || part.size() == 0) part.Discard();
    return Fail(fetched.error());
  }
  return part.Finish(request.bytes, request.sha256);
}

}  // namespace headrace
