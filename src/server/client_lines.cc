#include "server/client_lines.h"

#include <fmt/format.h>

#include <string_view>

#include "json/json.h"

namespace headrace {
namespace {

// For POSIX shells: nothing is special in single quotes but the quote.
std::string ShellQuoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string Curl(const ClientLines& lines) {
  const std::string name = DumpJson(Json(lines.model));
  const std::string body =
      lines.chat ? "{\"model\": " + name +
                       ", \"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]}"
                 : "{\"model\": " + name + ", \"prompt\": \"The capital of France is\", \"max_tokens\": 16}";
  return fmt::format("curl {}/v1/{} -H 'Content-Type: application/json'{} \\\n  -d {}\n", lines.url,
                     lines.chat ? "chat/completions" : "completions",
                     lines.needs_key ? " -H \"Authorization: Bearer $KEY\"" : "", ShellQuoted(body));
}

// A JSON string is a Python string with the same meaning, once it is ASCII or UTF-8.
std::string Python(const ClientLines& lines) {
  const std::string name = DumpJson(Json(lines.model));
  const std::string call = lines.chat
                               ? fmt::format(
                                     "chat.completions.create(model={}, messages=[{{\"role\": \"user\", \"content\": "
                                     "\"Hello\"}}]).choices[0].message.content",
                                     name)
                               : fmt::format(
                                     "completions.create(model={}, prompt=\"The capital of France is\", "
                                     "max_tokens=16).choices[0].text",
                                     name);
  return fmt::format("{}from openai import OpenAI\nclient = OpenAI(base_url=\"{}/v1\", api_key={})\nprint(client.{})\n",
                     lines.needs_key ? "import os\n" : "", lines.url,
                     lines.needs_key ? "os.environ[\"KEY\"]" : "\"none\"", call);
}

}  // namespace

std::string FirstRequestLines(const ClientLines& lines) {
  return (lines.needs_key ? "export KEY=...  # the API key\n\n" : "") + Curl(lines) + "\n" + Python(lines);
}

}  // namespace headrace
