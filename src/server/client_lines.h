// What a person can paste to send the first request: a curl line and a Python program. Pure.
#pragma once

#include <string>

namespace headrace {

struct ClientLines {
  std::string url;         // "http://127.0.0.1:8080"
  std::string model;       // any text: it is quoted for the shell, JSON and Python
  bool chat = true;        // false: the model has no chat template, and only completes text
  bool needs_key = false;  // read from the variable KEY, so that no line holds it
};

std::string FirstRequestLines(const ClientLines& lines);

}  // namespace headrace
