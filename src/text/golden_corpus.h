// Tests only: the corpus of the tokenizer goldens, the same generator as tests/text/corpus.py. Both change together.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headrace {

class GoldenCorpus {
 public:
  // `samples` is the content of tests/text/samples.txt.
  explicit GoldenCorpus(const std::string& samples);

  // Calls `visit` with each of the 10,000 lines.
  void ForEachLine(const std::function<void(const std::string&)>& visit) const;
  // Long runs of one kind.
  static std::vector<std::string> RunLines();
  // One hash of ids per hundred lines and one for the runs, as the golden files hold them.
  std::vector<std::string> Hashes(const std::function<std::vector<int32_t>(const std::string&)>& encode) const;

 private:
  std::vector<std::string> samples_;
};

}  // namespace headrace
