// Flags of vLLM that start scripts carry along and that change nothing here: they are taken with the one value that is
// true of Headrace, and said to be ignored. Constant; any thread.
#pragma once

#include <string_view>

namespace headrace {

struct ForeignFlag {
  std::string_view name;      // without dashes
  std::string_view accepted;  // "": a switch
  std::string_view why;       // what to say to another value
};

// A switch of vLLM that sets an option of ours.
struct ForeignSwitch {
  std::string_view name;  // without dashes
  std::string_view option;
  std::string_view value;
};

// Both: `flag` with its dashes, with '-' or '_' inside. nullptr: there is none.
const ForeignFlag* FindForeignFlag(std::string_view flag);
const ForeignSwitch* FindForeignSwitch(std::string_view flag);

}  // namespace headrace
