#include "report_json.hpp"

#include <cstdio>

namespace lockstep::tool {

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string report_json(const VerifyRun& run) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3f", run.seconds);
  std::string text = "{\n  \"backend\": " + json_string(run.backend);
  text += ",\n  \"sum_rule\": " + json_string(name(run.sum_rule));
  text += ",\n  \"seed\": " + std::to_string(run.seed);
  text += ",\n  \"ranks\": [" + std::to_string(run.ranks.fewest) + ", " +
          std::to_string(run.ranks.most) + "]";
  text += ",\n  \"cases\": " + std::to_string(run.report.cases);
  text += std::string(",\n  \"seconds\": ") + seconds;
  text += std::string(",\n  \"verdict\": ") + (run.report.holds() ? "\"holds\"" : "\"broken\"");
  text += ",\n  \"properties\": [";
  for (std::size_t i = 0; i < run.report.properties.size(); ++i) {
    const kit::PropertyReport& property = run.report.properties[i];
    text += i > 0 ? ",\n    {" : "\n    {";
    text += "\"name\": " + json_string(property.name);
    text += ", \"cases\": " + std::to_string(property.cases);
    text += ", \"verdict\": " + json_string(name(property.verdict));
    if (property.counterexample) {
      text += ", \"aspect\": " + json_string(property.counterexample->divergence.aspect);
      text += ", \"counterexample\": " + json_string(run.counterexamples[i]);
    }
    text += "}";
  }
  text += "\n  ],\n  \"corners\": {";
  for (std::size_t i = 0; i < kit::corner_count; ++i) {
    text += i > 0 ? ",\n    " : "\n    ";
    text += json_string(name(static_cast<kit::Corner>(i))) + ": " +
            std::to_string(run.report.visits[i]);
  }
  return text + "\n  }\n}\n";
}

std::string failure_json(const std::string& backend, const std::string& error) {
  return "{\n  \"backend\": " + json_string(backend) +
         ",\n  \"verdict\": \"failed\",\n  \"error\": " + json_string(error) + "\n}\n";
}

std::string list_json(const std::vector<std::string>& reports) {
  std::string text = "{\"backends\": [\n";
  for (std::size_t i = 0; i < reports.size(); ++i) text += (i > 0 ? "," : "") + reports[i];
  return text + "]}\n";
}

}  // namespace lockstep::tool
