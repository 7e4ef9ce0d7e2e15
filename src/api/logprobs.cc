// Log-probabilities in both shapes: chat's list of objects (C14) and the parallel arrays of completions (L3).
#include <algorithm>
#include <cmath>

#include "api/wire.h"
#include "json/json.h"

namespace headrace {
namespace {

void AppendLogprob(std::string& out, float value) {
  AppendJsonFloat(out, std::isfinite(value) ? std::max(value, kLogprobFloor) : kLogprobFloor);
}

void AppendTokenObject(std::string& out, std::string_view token, std::string_view bytes, float logprob) {
  out += R"({"token":)";
  AppendJsonString(out, token);
  out += R"(,"logprob":)";
  AppendLogprob(out, logprob);
  out += R"(,"bytes":[)";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonInteger(out, static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

// {"token": logprob, ...}, with the chosen token as well, as OpenAI does. Distinct tokens may have one text, for
// example halves of a character: a name is written once, for its most likely token.
void AppendTopMap(std::string& out, const TokenLogprob& chosen) {
  out += '{';
  for (size_t i = 0; i < chosen.top.size(); ++i) {
    const auto same = [&](size_t j) { return chosen.top[j].token == chosen.top[i].token; };
    bool written = false;
    for (size_t j = 0; j < i; ++j) written = written || same(j);
    if (written) continue;
    if (i > 0) out += ',';
    AppendJsonString(out, chosen.top[i].token);
    out += ':';
    AppendLogprob(out, chosen.top[i].logprob);
  }
  if (std::ranges::find(chosen.top, chosen.token, &TopLogprob::token) == chosen.top.end()) {
    if (!chosen.top.empty()) out += ',';
    AppendJsonString(out, chosen.token);
    out += ':';
    AppendLogprob(out, *chosen.logprob);
  }
  out += '}';
}

// Characters that begin in these bytes.
int64_t CharacterCount(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

template <typename Write>
void AppendList(std::string& out, std::string_view key, std::span<const TokenLogprob> tokens, Write write) {
  out += key;
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    write(tokens[i]);
  }
  out += ']';
}

}  // namespace

void AppendChatLogprobs(std::string& out, std::span<const TokenLogprob> tokens) {
  AppendList(out, R"({"content":)", tokens, [&](const TokenLogprob& token) {
    AppendTokenObject(out, token.token, token.bytes, token.logprob.value_or(kLogprobFloor));
    out += R"(,"top_logprobs":[)";
    for (size_t i = 0; i < token.top.size(); ++i) {
      if (i > 0) out += ',';
      AppendTokenObject(out, token.top[i].token, token.top[i].bytes, token.top[i].logprob);
      out += '}';
    }
    out += "]}";
  });
  out += R"(,"refusal":null})";
}

void AppendCompletionLogprobs(std::string& out, std::span<const TokenLogprob> tokens, int64_t* text_offset) {
  AppendList(out, R"({"tokens":)", tokens, [&](const TokenLogprob& token) { AppendJsonString(out, token.token); });
  AppendList(out, R"(,"token_logprobs":)", tokens, [&](const TokenLogprob& token) {
    if (token.logprob) {
      AppendLogprob(out, *token.logprob);
    } else {
      out += "null";
    }
  });
  AppendList(out, R"(,"top_logprobs":)", tokens, [&](const TokenLogprob& token) {
    if (token.logprob) {
      AppendTopMap(out, token);
    } else {
      out += "null";
    }
  });
  AppendList(out, R"(,"text_offset":)", tokens, [&](const TokenLogprob& token) {
    AppendJsonInteger(out, *text_offset);
    *text_offset += CharacterCount(token.bytes);
  });
  out += '}';
}

}  // namespace headrace
