#include "fault.hpp"

#include <signal.h>
#include <ucontext.h>

#include "state.hpp"
#include "text.hpp"

namespace lockstep::devices {
namespace {

struct sigaction before;

// Whether it was a write; where it cannot be told, it was not.
bool was_write([[maybe_unused]] void* context) {
#if defined(__x86_64__)
  constexpr long long write_bit = 2;  // of the page fault's error code
  return (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & write_bit) != 0;
#else
  return false;
#endif
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    // It happens again, and ends the process.
    struct sigaction plain = {};
    plain.sa_handler = SIG_DFL;
    ::sigaction(SIGSEGV, &plain, nullptr);
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (!Engine::instance().explain_fault(address, was_write(context))) {
    pass_on(signal, info, context);
  }
}

}  // namespace

void watch_faults() {
  struct sigaction ours = {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  ::sigaction(SIGSEGV, &ours, &before);
}

bool Engine::explain_fault(std::uintptr_t address, bool write) {
  State& state = *state_;
  // The fault happened in the program's code, never in the engine's, so that the lock will come
  // free. If it does not, the fault is left to the others.
  const std::optional<Lock> held = state.lock_in_time();
  if (!held) return false;
  const Call host{"the program, on the host", {}};
  const std::string what =
      std::string("it ") + (write ? "writes to " : "reads ") + address_text(address);

  if (const Guard::Entry* entry = state.guard.find(address)) {
    const bool result = entry->touch == Touch::write;
    state.find_fault(
        result ? "host-access-before-synchronization" : "host-write-before-synchronization", host,
        nullptr, -1,
        what + ", in " + text(*entry->allocation) + ", which pending work " +
            (result ? "writes." : "still reads."),
        {"the work: " + entry->text},
        "Wait for the work first: synchronize its stream, or an event recorded after it.");
    state.guard.release(entry->allocation);
    return true;
  }
  const AllocationRef found = state.memory.find(address);
  if (const int device = state.memory.window_of(address); device >= 0) {
    std::vector<std::string> details;
    if (found) details.push_back("the allocation: " + text(*found));
    state.find_fault(
        "device-memory-on-host", host, nullptr, device,
        what + ", which is memory of device " + std::to_string(device) + ".", std::move(details),
        in_host_function() ? "Host functions cannot touch device memory either; copy it first."
                           : "Copy it to the host and wait for the copy.");
  } else if (found && !found->tracks_writes()) {
    if (found->freed) {
      state.find_fault("use-after-free", host, nullptr, -1,
                       what + ", in memory that was freed before.",
                       {"it was " + text(*found), "freed by: " + found->end_text},
                       "Free memory after its last use.");
    } else if (address < found->end()) {
      return true;  // another thread's fault has opened the page meanwhile
    } else {
      state.find_fault("out-of-range", host, nullptr, -1, what + ", behind its allocation.",
                       {"the allocation: " + text(*found)}, "Check the index.");
    }
  }
  return false;
}

}  // namespace lockstep::devices
