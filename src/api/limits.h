// Every maximum of a request, in one place. Each has a test of its error in limits_test.cc.
#pragma once

#include <cstddef>

namespace headrace {

struct ApiLimits {
  // The text of a prompt of 1 M tokens is 4-6 MB of English and up to three times that with escapes.
  size_t body_bytes_max = 16u << 20;
  int depth_max = 64;
  size_t nodes_max = 1u << 20;     // bounds token ids in prompts too; tool-call arguments count against it
  size_t fields_max = 1024;        // of one object that we read
  size_t unknown_fields_max = 32;  // names reported; further unknown fields are accepted without a name

  size_t name_bytes_max = 256;  // model, user, message names, tool-call ids, cache keys
  size_t messages_max = 8192;
  size_t parts_max = 1024;  // content parts of one message
  size_t tools_max = 128;
  size_t tool_calls_max = 128;  // of one message
  size_t metadata_pairs_max = 16;
  size_t metadata_key_bytes_max = 64;
  size_t metadata_value_bytes_max = 512;
  size_t safety_identifier_bytes_max = 64;

  size_t prompts_max = 1024;
  int n_max = 128;
  size_t choices_max = 1024;  // prompts x n
  size_t stops_max = 64;
  size_t stop_bytes_max = 1024;
  size_t stops_bytes_max = 4096;  // of all stop strings together
  size_t stop_token_ids_max = 256;
  size_t logit_bias_max = 1024;
  int top_logprobs_max = 20;
};

// One prompt with the largest n must be possible.
static_assert(ApiLimits{}.choices_max >= static_cast<size_t>(ApiLimits{}.n_max));

}  // namespace headrace
