// What a pull tells the person who waits. Called by the pulling thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace headrace {

class PullProgress {
 public:
  virtual ~PullProgress() = default;
  // One line of what happens next.
  virtual void Say(std::string_view line) = 0;
  // `done` of `total` bytes are on disk (total 0: unknown); done_at_start of them were there before.
  virtual void Advance(std::string_view file, uint64_t done, uint64_t total, uint64_t done_at_start) = 0;
  // The file is complete, or the attempt over.
  virtual void EndFile() = 0;
};

class SilentProgress final : public PullProgress {
 public:
  void Say(std::string_view) override {}
  void Advance(std::string_view, uint64_t, uint64_t, uint64_t) override {}
  void EndFile() override {}
};

// Lines on stderr. On a terminal one of them moves, with rate and time left; elsewhere nothing moves.
class StderrProgress final : public PullProgress {
 public:
  StderrProgress(const Clock& clock, bool is_terminal) : clock_(clock), is_terminal_(is_terminal) {}
  void Say(std::string_view line) override;
  void Advance(std::string_view file, uint64_t done, uint64_t total, uint64_t done_at_start) override;
  void EndFile() override;

 private:
  const Clock& clock_;
  const bool is_terminal_;
  bool line_open_ = false;
  TimeNs started_ = 0;
  TimeNs shown_ = 0;
};

// "98.4 MB": decimal, as disks and download pages count.
std::string FormatBytes(uint64_t bytes);
// The moving line without its carriage return: "name  45.1 MB of 98.4 MB  12.3 MB/s  4 s left".
std::string FormatProgress(std::string_view file, uint64_t done, uint64_t total, uint64_t done_at_start,
                           TimeNs elapsed);

}  // namespace headrace
