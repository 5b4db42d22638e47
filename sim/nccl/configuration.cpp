#include "configuration.hpp"

#include <climits>
#include <cstdlib>
#include <string_view>

namespace lockstep::nccl {
namespace {

constexpr unsigned expected_magic = 0xcafebeef;

// The fields of plain numbers, with what they may be.
struct Field {
  const char* name;
  int ncclConfig_t::*member;
  int least;
  int most;
};

constexpr Field fields[] = {
    {"blocking", &ncclConfig_t::blocking, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, 8},
    {"minCTAs", &ncclConfig_t::minCTAs, 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, 0, 1},
    {"trafficClass", &ncclConfig_t::trafficClass, 0, INT_MAX},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 1, INT_MAX},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 0, 1},
};

}  // namespace

Configuration read_configuration(const ncclConfig_t* config, const Configuration& inherited,
                                 std::string& wrong) {
  Configuration result = inherited;
  if (const char* text = std::getenv("NCCL_COMM_BLOCKING")) {
    result.blocking = std::string_view(text) != "0";
  }
  if (config == nullptr) return result;
  if (config->magic != expected_magic || config->size < offsetof(ncclConfig_t, blocking)) {
    wrong = "the configuration was not initialized with NCCL_CONFIG_INITIALIZER";
    return result;
  }
  // A program built against an older header passes a shorter structure.
  const auto has = [&](const void* member, std::size_t bytes) {
    const auto offset = static_cast<const char*>(member) - reinterpret_cast<const char*>(config);
    return static_cast<std::size_t>(offset) + bytes <= config->size;
  };
  for (const Field& field : fields) {
    if (!has(&(config->*field.member), sizeof(int))) continue;
    const int value = config->*field.member;
    if (value == NCCL_CONFIG_UNDEF_INT || (value >= field.least && value <= field.most)) continue;
    wrong = std::string("the field ") + field.name + " of the configuration is " +
            std::to_string(value) + ", which it cannot be";
    return result;
  }
  const auto given = [](int value) { return value != NCCL_CONFIG_UNDEF_INT; };
  if (given(config->minCTAs) && given(config->maxCTAs) && config->minCTAs > config->maxCTAs) {
    wrong = "minCTAs of the configuration is greater than maxCTAs";
    return result;
  }
  if (given(config->blocking)) result.blocking = config->blocking != 0;
  if (has(&config->commName, sizeof(char*)) && config->commName != nullptr) {
    result.name = config->commName;
  }
  return result;
}

}  // namespace lockstep::nccl
