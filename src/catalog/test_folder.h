// For the tests of this room: a folder that goes away, and files in it.
#pragma once

#include <cstdlib>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace headrace {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "headrace-catalog-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string Path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  std::string Read(const std::string& name) const {
    std::ostringstream out;
    out << std::ifstream(Path(name), std::ios::binary).rdbuf();
    return out.str();
  }
  bool Has(const std::string& name) const { return std::filesystem::exists(Path(name)); }

 private:
  std::string path_;
};

inline std::string TestPattern(size_t size) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 31 + i / 251);
  return out;
}

}  // namespace headrace
