// Fair shares of computed tokens between tenants, inside each band: start-time fair queueing (Goyal, Vin, Cheng,
// "Start-time Fair Queuing", SIGCOMM 1996), charged by tokens as in the Virtual Token Counter (Sheng et al., "Fairness
// in Serving Large Language Models", OSDI 2024). A flow is one tenant in one band; its counter grows by tokens /
// weight, and the least counter is next. A flow keeps its
// turn until its request's prompt is computed or turn_tokens are (deficit round robin's quantum: Shreedhar, Varghese,
// "Efficient Fair Queueing Using Deficit Round Robin", SIGCOMM 1995), so that short prompts are not computed in slices
// beside others, where each would take as long as all. One thread. Room for all flows is taken at construction.
//
// Invariants: while two flows both have something ready, their counters differ by no more than one turn and one charge
// of each; a flow that was idle continues at the band's virtual time, so idling earns nothing; work that was done while
// nobody else in the band had anything ready leaves no debt.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "queueing/band.h"
#include "queueing/indexed_heap.h"

namespace headrace {

constexpr int32_t kNoFlow = -1;
// A weight outside is taken as the nearer of the two: 1 : 10,000 between two tenants is as good as never.
constexpr double kLeastWeight = 0.01, kLargestWeight = 100;
// Flows without a request that are remembered because they owe more than the band's virtual time says.
constexpr int32_t kIndebtedFlows = 1024;

class FairShares {
 public:
  // owners: requests alive at once, at most.
  FairShares(int32_t owners, int64_t turn_tokens);

  // The flow of this tenant in this band, with one owner more. A weight that changed counts from now on.
  int32_t Open(Band band, uint64_t tenant, double weight);
  void Close(int32_t flow);
  // kNoFlow when there is none.
  int32_t Find(Band band, uint64_t tenant) const;

  // The flow has something that can be chosen, or no longer.
  void SetReady(int32_t flow, bool ready);
  // The flow was without waiting work and gets some now.
  void Join(int32_t flow);
  // in_line: for work of somebody in line, whose start moves the band's virtual time.
  void Charge(int32_t flow, int64_t tokens, bool in_line);

  // A prompt of this flow is computed or gone: its turn is over.
  void EndTurn(int32_t flow);

  // The ready flow with the least counter, kNoFlow if none.
  int32_t First(Band band) const;
  bool GoesBefore(int32_t a, int32_t b) const { return KeyOf(a) < KeyOf(b); }
  std::span<const int32_t> ready(Band band) const { return of(band).ready.ids(); }
  double counter(int32_t flow) const { return at(flow).counter; }
  double weight(int32_t flow) const { return at(flow).weight; }
  // Where a tenant without a flow would begin.
  double virtual_time(Band band) const { return of(band).virtual_time; }
  int32_t flows() const { return static_cast<int32_t>(flows_.size()); }
  void CheckIntegrity() const;

 private:
  struct Key {
    double counter = 0;
    uint64_t turn = 0;  // equal counters: who was charged longest ago
    bool operator<(const Key& other) const {
      return counter != other.counter ? counter < other.counter : turn < other.turn;
    }
  };
  struct Flow {
    uint64_t tenant = 0;
    Band band = Band::kNormal;
    double weight = 1;
    double counter = 0;
    double began_at = 0;      // the counter when the turn began: its place among the ready
    int64_t turn_tokens = 0;  // charged in this turn
    uint64_t turn = 0;
    int32_t owners = 0;
    bool known = false;                          // in the table
    int32_t older = kNoFlow, younger = kNoFlow;  // among the indebted
  };
  struct OfBand {
    double virtual_time = 0;
    IndexedHeap<Key> ready;
  };

  Flow& at(int32_t flow) { return flows_[static_cast<size_t>(flow)]; }
  const Flow& at(int32_t flow) const { return flows_[static_cast<size_t>(flow)]; }
  OfBand& of(Band band) { return bands_[static_cast<size_t>(band)]; }
  const OfBand& of(Band band) const { return bands_[static_cast<size_t>(band)]; }
  Key KeyOf(int32_t flow) const { return {at(flow).began_at, at(flow).turn}; }
  size_t HomeOf(Band band, uint64_t tenant) const;
  size_t PlaceOf(Band band, uint64_t tenant) const;
  void MoveReady(int32_t flow);
  void Forget(int32_t flow);
  void Unlink(int32_t flow);

  const int64_t turn_tokens_;
  std::vector<Flow> flows_;
  std::vector<int32_t> free_;
  std::vector<int32_t> table_;  // open addressing, a power of two of at least twice the flows
  int32_t oldest_ = kNoFlow, youngest_ = kNoFlow;
  uint64_t turn_ = 0;
  std::array<OfBand, kBands> bands_;
};

}  // namespace headrace
