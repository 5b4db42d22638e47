// Where the ranks of a new communicator find each other: each enters with what it was told, and
// when all have come the clique is made. Made from a unique id, by a split, or by a shrink;
// gatherings are told apart by a key that only the ranks concerned know. Guarded by the engine's
// lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "clique.hpp"

namespace lockstep::nccl {

// A member that waits to be let in.
class Candidate : public Member {
 public:
  // Null when the rank is in none of the new communicators. `key` names the clique to later
  // gatherings of its ranks.
  virtual void joined(const std::shared_ptr<Clique>& clique, int rank, const std::string& key) = 0;
};

enum class Birth : std::uint8_t { unique_id, split, shrink };

// What a rank enters with.
struct Entry {
  Birth birth = Birth::unique_id;
  std::string key = {};
  std::string name = {};  // of the communicator or its parent, for reports
  int ranks = 0;          // of the new communicator, or of the parent
  int rank = 0;           // likewise
  int device = 0;
  // Devices of one number on one host are one device, unless NCCL_HOSTID says the hosts differ.
  std::string host = {};
  std::string place = {};          // "process 1234" where it is not the clique's
  int color = 0;                   // of a split
  int order = 0;                   // of a split: its key
  std::vector<int> excluded = {};  // of a shrink
  Candidate* candidate = nullptr;
};

class Gatherings {
 public:
  static Gatherings& instance();

  // Ranks that contradict each other fail, all of them, and the key is spent.
  void enter(Entry entry);
  // Someone who waits here gives up or is gone: `how` completes "rank 3 ...". The others fail with
  // it. Nothing happens when it does not wait here.
  void withdraw(Candidate* candidate, const std::string& how);
  // Completes "waits for ...": who has not come yet.
  std::string awaited(const std::string& key) const;

 private:
  struct Gathering {
    std::vector<Entry> entries;
  };
  void complete(Gathering gathering);
  void refuse(const std::string& key, const char* rule, const std::string& what,
              const char* advice);

  std::map<std::string, Gathering> open_;
  // Keys of unique ids that were used, with what became of it.
  std::map<std::string, std::string> spent_;
};

}  // namespace lockstep::nccl
