#include "bench/engine_report.h"

#include <fmt/format.h>

#include "json/json.h"

namespace headrace {
namespace {

// A row as rates, and as shares of the probes' medians; 0: does not apply.
struct Rates {
  Summary tokens_s, step_ms;
  double gb_s = 0, of_memory = 0, of_step_read = 0;
  double gop_s = 0, of_dots = 0, of_tiles = 0;
};

double Share(double rate, const std::vector<double>& limits) {
  const double limit = Summarise(limits).median;
  return limit > 0 ? rate / limit : 0;
}

Rates RatesOf(const EngineRow& row, const ProbeRounds& probes) {
  std::vector<double> tokens_s, step_ms;
  for (const double s : row.step_seconds) {
    tokens_s.push_back(row.step_tokens / s);
    step_ms.push_back(s * 1e3);
  }
  Rates rates{.tokens_s = Summarise(tokens_s), .step_ms = Summarise(step_ms)};
  const double steps_s = rates.tokens_s.median / row.step_tokens;
  rates.gb_s = row.step_bytes * steps_s * 1e-9;
  rates.of_memory = Share(rates.gb_s, probes.read_gb_s);
  rates.of_step_read = Share(rates.gb_s, probes.read_step_gb_s);
  rates.gop_s = row.step_operations * steps_s * 1e-9;
  rates.of_dots = Share(rates.gop_s, probes.dot_gop_s);
  rates.of_tiles = Share(rates.gop_s, probes.tile_gop_s);
  return rates;
}

std::string NameOf(const EngineRow& row) {
  if (row.prompt > 0) return fmt::format("prompt of {}", row.prompt);
  return fmt::format("generation, {} sequence{}, depth {}", row.batch, row.batch == 1 ? "" : "s", row.depth);
}

struct NamedProbe {
  std::string name, unit;
  Summary rate;
};

std::vector<NamedProbe> ProbesOf(const EngineReport& report) {
  std::vector<NamedProbe> out;
  const auto add = [&](std::string name, const char* unit, const std::vector<double>& rounds) {
    if (!rounds.empty()) out.push_back({std::move(name), unit, Summarise(rounds)});
  };
  add(fmt::format("read {} MB", report.probe_bytes / 1'000'000), "GB/s", report.probes.read_gb_s);
  add(fmt::format("read {} MB again and again, as much as a step's weights", report.step_weight_bytes / 1'000'000),
      "GB/s", report.probes.read_step_gb_s);
  add("int8: " + report.dots_name, "GOP/s", report.probes.dot_gop_s);
  add("int8: " + report.tile_dots_name, "GOP/s", report.probes.tile_gop_s);
  return out;
}

std::string Percent(double share) { return share > 0 ? fmt::format("{:.0f} %", share * 100) : "-"; }
std::string Rate(double rate) { return rate > 0 ? fmt::format("{:.1f}", rate) : "-"; }

Json AsJson(const Summary& s) {
  return {{"median", s.median}, {"least", s.least}, {"largest", s.largest}, {"count", s.count}};
}

}  // namespace

std::string ReportAsMarkdown(const EngineReport& report) {
  std::string out =
      fmt::format("{}{}; {} thread{}, kernels {}, last-level cache {} MB\n\n",
                  report.model.empty() ? "" : "`" + report.model + "` on ", report.machine, report.threads,
                  report.threads == 1 ? "" : "s", report.kernels, report.cache_bytes / 1'000'000);
  if (!report.rows.empty()) {
    out += fmt::format("Packed weights {:.1f} MB, of which a step reads {:.1f} MB.\n\n",
                       static_cast<double>(report.weight_bytes) * 1e-6,
                       static_cast<double>(report.step_weight_bytes) * 1e-6);
    out +=
        "| measured | tokens/s | least to largest | ms a step | GB/s | of memory | of a read of that size | GOP/s | "
        "of int8 | of tiles |\n|---|---|---|---|---|---|---|---|---|---|\n";
  }
  for (const EngineRow& row : report.rows) {
    const Rates r = RatesOf(row, report.probes);
    out += fmt::format("| {} | {:.1f} | {:.1f} to {:.1f} | {:.2f} | {} | {} | {} | {} | {} | {} |\n", NameOf(row),
                       r.tokens_s.median, r.tokens_s.least, r.tokens_s.largest, r.step_ms.median, Rate(r.gb_s),
                       Percent(r.of_memory), Percent(r.of_step_read), Rate(r.gop_s), Percent(r.of_dots),
                       Percent(r.of_tiles));
  }
  out += fmt::format("{}| probe of this machine | median | least to largest | unit |\n|---|---|---|---|\n",
                     report.rows.empty() ? "" : "\n");
  for (const NamedProbe& p : ProbesOf(report)) {
    out += fmt::format("| {} | {:.1f} | {:.1f} to {:.1f} | {} |\n", p.name, p.rate.median, p.rate.least, p.rate.largest,
                       p.unit);
  }
  if (!report.left_out.empty()) out += "\n";
  for (const std::string& what : report.left_out) out += "- Left out: " + what + "\n";
  return out;
}

std::string ReportAsJson(const EngineReport& report) {
  Json rows = Json::array(), probes = Json::array();
  for (const EngineRow& row : report.rows) {
    const Rates r = RatesOf(row, report.probes);
    rows.push_back({{"name", NameOf(row)},
                    {"prompt", row.prompt},
                    {"batch", row.batch},
                    {"depth", row.depth},
                    {"tokens_s", AsJson(r.tokens_s)},
                    {"step_ms", AsJson(r.step_ms)},
                    {"step_bytes", row.step_bytes},
                    {"step_operations", row.step_operations},
                    {"gb_s", r.gb_s},
                    {"share_of_memory", r.of_memory},
                    {"share_of_read_of_that_size", r.of_step_read},
                    {"gop_s", r.gop_s},
                    {"share_of_int8", r.of_dots},
                    {"share_of_tiles", r.of_tiles}});
  }
  for (const NamedProbe& p : ProbesOf(report)) {
    Json probe = AsJson(p.rate);
    probe["name"] = p.name;
    probe["unit"] = p.unit;
    probes.push_back(std::move(probe));
  }
  return DumpJson({{"model", report.model},
                   {"machine", report.machine},
                   {"threads", report.threads},
                   {"kernels", report.kernels},
                   {"weight_bytes", report.weight_bytes},
                   {"step_weight_bytes", report.step_weight_bytes},
                   {"cache_bytes", report.cache_bytes},
                   {"rows", rows},
                   {"probes", probes},
                   {"left_out", report.left_out}}) +
         "\n";
}

std::string ReportAsCsv(const EngineReport& report) {
  std::string out =
      "what,prompt,batch,depth,unit,median,least,largest,count,gb_s,share_of_memory,share_of_read_of_that_size,gop_s,"
      "share_of_int8,share_of_tiles\n";
  for (const EngineRow& row : report.rows) {
    const Rates r = RatesOf(row, report.probes);
    out += fmt::format("{},{},{},{},tokens/s,{:.3f},{:.3f},{:.3f},{},{:.3f},{:.4f},{:.4f},{:.3f},{:.4f},{:.4f}\n",
                       row.prompt > 0 ? "prompt" : "generation", row.prompt, row.batch, row.depth, r.tokens_s.median,
                       r.tokens_s.least, r.tokens_s.largest, r.tokens_s.count, r.gb_s, r.of_memory, r.of_step_read,
                       r.gop_s, r.of_dots, r.of_tiles);
  }
  for (const NamedProbe& p : ProbesOf(report)) {
    out += fmt::format("\"{}\",,,,{},{:.3f},{:.3f},{:.3f},{},,,,,,\n", p.name, p.unit, p.rate.median, p.rate.least,
                       p.rate.largest, p.rate.count);
  }
  return out;
}

}  // namespace headrace
