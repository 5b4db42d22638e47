// The host side of NCCL's device interface. It serves kernels, which cannot run here: each function
// says so and fails.

#include "exports.hpp"
#include "finding.hpp"

namespace {

int refuse(const char* function) {
  lockstep::devices::refuse(function, "it serves kernels, which simulated devices cannot run");
  return ncclInternalError;
}

}  // namespace

// Declared by a header of their own, with structures that are of no use here: whatever they are
// given, they look at nothing. Those that return a team or a number of slots give an error code in
// the place of the first field.
#define LOCKSTEP_NCCL_REFUSED(name)                              \
  extern "C" __attribute__((visibility("default"))) int name() { \
    return refuse(#name);                                        \
  }                                                              \
  LOCKSTEP_NCCL_PROFILED(name)

LOCKSTEP_NCCL_REFUSED(ncclDevCommCreate);
LOCKSTEP_NCCL_REFUSED(ncclDevCommDestroy);
LOCKSTEP_NCCL_REFUSED(ncclGinBarrierCreateRequirement);
LOCKSTEP_NCCL_REFUSED(ncclLLA2ACalcSlots);
LOCKSTEP_NCCL_REFUSED(ncclLLA2ACreateRequirement);
LOCKSTEP_NCCL_REFUSED(ncclLsaBarrierCreateRequirement);
LOCKSTEP_NCCL_REFUSED(ncclTeamLsa);
LOCKSTEP_NCCL_REFUSED(ncclTeamRail);
LOCKSTEP_NCCL_REFUSED(ncclTeamRankToLsa);
LOCKSTEP_NCCL_REFUSED(ncclTeamRankToWorld);
LOCKSTEP_NCCL_REFUSED(ncclTeamWorld);
