#include "text/golden_corpus.h"

#include <array>
#include <cstdio>
#include <sstream>

#include "base/random.h"

namespace headrace {
namespace {

constexpr int kLines = 10'000;
constexpr uint64_t kSeed = 20240611;
constexpr uint64_t kHashStart = 0xCBF29CE484222325ull;
constexpr std::array<std::array<uint32_t, 2>, 21> kRanges = {{
    {0x21, 0x7E},       {0xA1, 0xFF},       {0x100, 0x17F},     {0x391, 0x3A1},   {0x3B1, 0x3C9},   {0x410, 0x44F},
    {0x5D0, 0x5EA},     {0x627, 0x63A},     {0x905, 0x939},     {0x966, 0x96F},   {0xE01, 0xE30},   {0x2010, 0x2027},
    {0x2190, 0x21FF},   {0x3041, 0x3096},   {0x30A1, 0x30FA},   {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3}, {0xFF01, 0xFF5E},
    {0x1F300, 0x1F320}, {0x1F600, 0x1F64F}, {0x1D400, 0x1D454},
}};

void AppendUtf8(uint32_t c, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12), tail(6), tail(0);
  }
}

std::string Unescape(const std::string& line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      out += line[i];
      continue;
    }
    switch (const char c = line[++i]) {
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'u':
        AppendUtf8(static_cast<uint32_t>(std::stoul(line.substr(i + 1, 4), nullptr, 16)), out);
        i += 4;
        break;
      default:
        out += c;
    }
  }
  return out;
}

void HashIds(uint64_t& value, std::vector<int32_t> ids) {
  ids.push_back(-1);
  for (int32_t id : ids) {
    for (int shift : {0, 8, 16, 24}) {
      value = (value ^ ((static_cast<uint32_t>(id) >> shift) & 0xFF)) * 0x100000001B3ull;
    }
  }
}

std::string Hex(uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string Repeat(const std::string& unit, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += unit;
  return out;
}

}  // namespace

GoldenCorpus::GoldenCorpus(const std::string& samples) {
  std::istringstream in(samples);
  for (std::string line; std::getline(in, line);) samples_.push_back(Unescape(line));
}

void GoldenCorpus::ForEachLine(const std::function<void(const std::string&)>& visit) const {
  Random random(kSeed);
  for (int i = 0; i < kLines; ++i) {
    std::string line;
    for (uint64_t parts = 1 + random.Below(12); parts > 0; --parts) {
      if (random.Below(8) == 0) {
        const auto& range = kRanges[random.Below(kRanges.size())];
        for (uint64_t chars = 1 + random.Below(6); chars > 0; --chars) {
          AppendUtf8(range[0] + static_cast<uint32_t>(random.Below(range[1] - range[0] + 1)), line);
        }
      } else {
        line += samples_[random.Below(samples_.size())];
      }
      if (random.Below(2) == 0) line += ' ';
    }
    visit(line);
  }
}

std::vector<std::string> GoldenCorpus::RunLines() {
  std::vector<std::string> lines;
  for (const char* unit :
       {"Z", "\u4f60", "\n", ".", "\U0001f642", " ", "\t", "7", "e\u0301", "\r\n", " \n", "'s", "a ", "-=", "\u00df"}) {
    lines.push_back(Repeat(unit, 2000));
    lines.push_back(Repeat(unit, 500) + "x");
    lines.push_back("x" + Repeat(unit, 500) + " y");
  }
  return lines;
}

std::vector<std::string> GoldenCorpus::Hashes(
    const std::function<std::vector<int32_t>(const std::string&)>& encode) const {
  std::vector<std::string> hashes;
  uint64_t value = kHashStart;
  int line_index = 0;
  ForEachLine([&](const std::string& line) {
    HashIds(value, encode(line));
    if (++line_index % 100 == 0) {
      hashes.push_back(Hex(value));
      value = kHashStart;
    }
  });
  for (const std::string& line : RunLines()) HashIds(value, encode(line));
  hashes.push_back(Hex(value));
  return hashes;
}

}  // namespace headrace
