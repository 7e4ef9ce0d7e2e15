// Who is next. Holds every request that has prompt tokens to compute, whether it waits or has begun, and orders them:
//   1. strict bands;
//   2. inside a band fair shares of computed tokens between tenants (fair_shares.h); cached tokens are free because
//      nobody charges them;
//   3. inside a tenant the earliest due time. A request with a deadline is due then: earliest deadline first. One
//      without is due kUndatedSlack after its arrival, later by what its uncached work weighs and by its position, so
//      that short work goes first and waiting makes up for length.
// Bound: inside its tenant a request is overtaken only by what arrived before its due time, which is at most kDueSpan
// after its arrival (a caller's deadline is never in the past). Between tenants: fair_shares.h.
//
// Requests are named by the caller's slots. One thread; time is an argument. Every call but Ahead and Expired is O(log
// n), and nothing allocates after construction. Both wings use it: the scheduler at every step, the gateway against
// credit.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "queueing/fair_shares.h"
#include "queueing/indexed_heap.h"
#include "queueing/mergeable_heaps.h"
#include "queueing/priority.h"

namespace headrace {

// A request without a deadline yields to one that is due within this time of its arrival.
constexpr TimeNs kUndatedSlack = 10 * kNsPerSecond;
// One position is worth this much waiting: as much as 10,000 tokens of work at kAgeingTokensPerSecond.
constexpr TimeNs kPositionWeight = 20 * kNsPerSecond;
// Longer work weighs no more than this.
constexpr TimeNs kWorkWeightLimit = 120 * kNsPerSecond;
// About what a small machine computes in half a second, and most chat prompts are shorter.
constexpr int64_t kTurnTokens = 512;
// Work that one second of waiting outweighs: about half of what a small machine computes.
constexpr double kAgeingTokensPerSecond = 500;
constexpr TimeNs kDueSpan = kUndatedSlack + kWorkWeightLimit + (kPositions - 1) * kPositionWeight;

// kFirstCome: by arrival alone, whatever band, tenant and length: what others do, to compare with.
enum class QueueOrder : uint8_t { kFair, kFirstCome };

struct QueueSpec {
  uint64_t tenant = 0;  // a hash of its name
  double weight = 1;    // its share, from the key file
  Band band = Band::kNormal;
  int32_t position = 0;              // in [0, kPositions)
  int64_t remaining_tokens = 0;      // prompt tokens that are neither cached nor computed
  TimeNs arrival = 0;                // the order of equals, and where ageing begins
  TimeNs deadline = kNever;          // for its first token: of no use later
  TimeNs start_before = kNever;      // the queue timeout
  int32_t tenant_waiting_limit = 0;  // of its key, over all bands; 0: none
  uint64_t fingerprint = 0;          // of tenant and prompt, to know a caller that comes back; 0: not to be known
};

// What stands before a request that would join now, as if nobody else arrived.
struct LineAhead {
  int64_t tokens = 0;
  int32_t requests = 0;  // of those that have not begun
};

class WaitingQueue {
 public:
  // Slots in [0, slots). tokens_per_second: work that one second of waiting outweighs; about half of what the machine
  // computes serves short requests first without forgetting long ones.
  // turn_tokens: of a tenant's long prompt, before another tenant's turn comes.
  explicit WaitingQueue(int32_t slots, double ageing_tokens_per_second = kAgeingTokensPerSecond,
                        int64_t turn_tokens = kTurnTokens, QueueOrder order = QueueOrder::kFair);

  // REQUIRES: the slot is not here.
  void Add(int32_t slot, const QueueSpec& spec);
  // Whoever is next and not set aside; -1: nobody.
  int32_t First() const;
  // Whether a's turn comes before b's as things stand: a strict order of all that are here.
  bool GoesBefore(int32_t a, int32_t b) const;
  // Passes over it until RestoreAside: its turn has come, but there is no room for it now.
  void SetAside(int32_t slot);
  void RestoreAside();
  // It runs now: it no longer waits, so it never expires. It stays in line as long as it has prompt tokens to compute.
  void Begin(int32_t slot);
  // After a look into the cache, or after some of it was computed.
  void SetRemaining(int32_t slot, int64_t tokens);
  // Tokens that a step computes for it, prompt or generated, in line or not. Not those computed again after a
  // preemption.
  void Charge(int32_t slot, int64_t tokens);
  // Its prompt is computed: out of line; Charge goes on.
  void Leave(int32_t slot);
  // Preempted: back in line, at the place that it had.
  void Return(int32_t slot, int64_t remaining_tokens);
  // It is gone, wherever it was.
  void Remove(int32_t slot);

  // Appends those that wait and whose deadline or start_before has come: O(appended). The caller removes them.
  void Expired(TimeNs now, std::vector<int32_t>* slots) const;
  // When the next one expires, kNever if none.
  TimeNs NextExpiry() const { return expiry_.empty() ? kNever : expiry_.FirstKey(); }

  // For admission: O(those before it in its own tenant's line + flows of its band).
  LineAhead Ahead(const QueueSpec& spec) const;
  TimeNs DueOf(const QueueSpec& spec) const;
  bool Has(int32_t slot) const { return at(slot).present; }
  bool InLine(int32_t slot) const { return at(slot).in_line; }
  const QueueSpec& spec(int32_t slot) const { return at(slot).spec; }
  int32_t waiting() const;                                       // not begun
  int32_t waiting(Band band) const { return of(band).waiting; }  // likewise
  int32_t waiting_of(uint64_t tenant) const;                     // likewise
  int32_t waiting_of(uint64_t tenant, Band band) const;          // likewise
  int32_t tenants_in_line(Band band) const { return static_cast<int32_t>(shares_.ready(band).size()); }
  int64_t tokens_in_line(Band band) const { return of(band).tokens; }  // begun or not
  int64_t tokens_in_line() const;
  void CheckIntegrity() const;

 private:
  struct Key {
    TimeNs due = 0;
    uint64_t number = 0;  // of arrival
    bool operator<(const Key& other) const { return due != other.due ? due < other.due : number < other.number; }
  };
  struct Entry {
    QueueSpec spec;
    uint64_t number = 0;
    int32_t flow = kNoFlow;
    bool present = false, in_line = false, begun = false, aside = false;
  };
  struct Line {  // of one flow
    int32_t heap = kEmptyHeap;
    int32_t in_line = 0;  // set aside or not
    int32_t waiting = 0;  // of those, not begun
    int64_t tokens = 0;
  };
  struct OfBand {
    int32_t waiting = 0;
    int64_t tokens = 0;
  };

  QueueSpec Placed(QueueSpec spec) const;
  Entry& at(int32_t slot) { return entries_[static_cast<size_t>(slot)]; }
  const Entry& at(int32_t slot) const { return entries_[static_cast<size_t>(slot)]; }
  Line& line(int32_t flow) { return lines_[static_cast<size_t>(flow)]; }
  const Line& line(int32_t flow) const { return lines_[static_cast<size_t>(flow)]; }
  OfBand& of(Band band) { return bands_[static_cast<size_t>(band)]; }
  const OfBand& of(Band band) const { return bands_[static_cast<size_t>(band)]; }
  void Enter(int32_t slot);
  void Show(int32_t slot);
  void Hide(int32_t slot);
  void CountWaiting(const Entry& entry, int32_t change);
  void CountTokens(const Entry& entry, int64_t change);
  LineAhead AheadInFlow(int32_t flow, TimeNs due) const;

  const double ageing_ns_per_token_;
  const QueueOrder order_;
  std::vector<Entry> entries_;
  FairShares shares_;
  std::vector<Line> lines_;  // by flow
  MergeableHeaps<Key> heaps_;
  IndexedHeap<TimeNs> expiry_;
  std::vector<int32_t> aside_;
  std::array<OfBand, kBands> bands_{};
  uint64_t next_number_ = 1;
};

}  // namespace headrace
