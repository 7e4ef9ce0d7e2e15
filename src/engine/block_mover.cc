#include "engine/block_mover.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {
namespace {

// Of the newest measurement in a mean.
constexpr double kNewest = 0.1;
// What is found too slow becomes so much faster in our eyes with each time that it is not used, so that it is tried
// again: a disk that was ten times slower than computing after 230 prompts.
constexpr double kForgiven = 0.99;
// While restores are all there is to do and the bell does not ring, they are looked at so often.
constexpr TimeNs kLookAgain = 100 * kNsPerMs;

void Mean(double* mean, double value) { *mean = *mean == 0 ? value : *mean + kNewest * (value - *mean); }

}  // namespace

BlockMover::BlockMover(SecondTier& tier, Executor& executor, Scheduler& scheduler, const Clock& clock, Doorbell& bell)
    : tier_(tier),
      executor_(executor),
      scheduler_(scheduler),
      clock_(clock),
      block_bytes_(executor.Describe().block_bytes) {
  notes_.Reserve(scheduler.pool().blocks());
  restores_.reserve(static_cast<size_t>(scheduler.limits().sequences_max));
  scheduler_.SetBlockNotes(&notes_);
  scheduler_.SetRestorer(this);
  if (tier_.disk) tier_.disk->Start(&bell, tier_.virtual_disk_took);
}

BlockMover::~BlockMover() {
  if (tier_.disk) tier_.disk->Stop();
}

// ---- into the pool -------------------------------------------------------------------------------------------------

void BlockMover::BringIn(TimeNs now) {
  copied_bytes_ = 0;
  begun_ = false;
  if (tier_.disk) {
    tier_.disk->Drain(now);
    std::vector<DiskTier::Read>& reads = tier_.disk->reads();
    size_t taken = 0;
    for (; taken < reads.size() && copied_bytes_ < kCopyBytesMax; ++taken) CopyRead(reads[taken]);
    reads.erase(reads.begin(), reads.begin() + static_cast<std::ptrdiff_t>(taken));
  }
  for (Restore& restore : restores_) {
    while (restore.next < restore.end && copied_bytes_ < kCopyBytesMax && Continue(restore, now)) {
    }
  }
}

// A sequence that has gone meanwhile, or that lost an earlier block, has no use for it.
void BlockMover::CopyRead(const DiskTier::Read& read) {
  const auto number = static_cast<uint32_t>(read.ticket >> 32);
  const auto block = static_cast<int64_t>(read.ticket & UINT32_MAX);
  const auto restore = std::ranges::find(restores_, number, &Restore::number);
  if (restore != restores_.end()) {
    --restore->reading;
    if (!read.ok) {
      restore->end = std::min(restore->end, block);
    } else if (block < restore->end) {
      CopyIn(*restore, block, read.bytes);
      TierStats::Count(tier_.disk->stats().restored);
    }
  }
  tier_.disk->EndRead(read.buffer);
}

bool BlockMover::Continue(Restore& restore, TimeNs now) {
  return ContinueWith(restore, restore.chain->named(restore.next), now);
}

bool BlockMover::ContinueWith(Restore& restore, const NamedBlock& wanted, TimeNs now) {
  if (tier_.memory) {
    if (const std::span<const std::byte> bytes = tier_.memory->Get(wanted); !bytes.empty()) {
      const TimeNs begin = clock_.Now();
      CopyIn(restore, restore.next, bytes);
      Mean(&ns_per_copy_, static_cast<double>(clock_.Now() - begin));
      TierStats::Count(tier_.memory->stats().restored);
      ++restore.next;
      return true;
    }
  }
  if (!tier_.disk || !tier_.disk->Has(wanted.name, now)) {
    restore.end = restore.next;  // given up since it was planned
    return false;
  }
  const uint64_t ticket = uint64_t{restore.number} << 32 | static_cast<uint64_t>(restore.next);
  if (!tier_.disk->StartRead(wanted, static_cast<int32_t>(restore.next), ticket)) return false;
  ++restore.reading;
  ++restore.next;
  return true;
}

void BlockMover::CopyIn(const Restore& restore, int64_t block, std::span<const std::byte> bytes) {
  executor_.WriteBlock(scheduler_.blocks(restore.slot)[static_cast<size_t>(block)], bytes);
  copied_bytes_ += block_bytes_;
}

void BlockMover::EndRestores(TimeNs now) {
  std::erase_if(restores_, [&](const Restore& restore) {
    const bool late = now - restore.since > kRestoreMax;
    if (!late && (restore.next < restore.end || restore.reading > 0)) return false;
    scheduler_.Restored(restore.slot, late ? 0 : restore.end - restore.first);
    return true;
  });
}

// ---- in Plan -------------------------------------------------------------------------------------------------------

int64_t BlockMover::BlocksToRestore(const BlockChain& chain, int64_t first, int64_t end) {
  if (restores_.size() == restores_.capacity()) return 0;
  const TimeNs now = clock_.Now();
  int64_t in_memory = 0, on_disk = 0;
  for (int64_t block = first; block < std::min(end, chain.blocks()); ++block) {
    if (tier_.memory && tier_.memory->Has(chain.name(block))) {
      ++in_memory;
    } else if (tier_.disk && tier_.disk->Has(chain.name(block), now)) {
      ++on_disk;
    } else {
      break;
    }
  }
  return in_memory + on_disk > 0 && Faster(in_memory, on_disk) ? in_memory + on_disk : 0;
}

bool BlockMover::Faster(int64_t memory_blocks, int64_t disk_blocks) {
  const double ns_per_read = tier_.disk ? tier_.disk->ns_per_read() : 0;
  const double compute = static_cast<double>((memory_blocks + disk_blocks) * kBlockTokens) * ns_per_row_;
  const double restore = static_cast<double>(memory_blocks) * ns_per_copy_ +
                         static_cast<double>(disk_blocks) * (ns_per_copy_ + ns_per_read) +
                         static_cast<double>(Pending()) * ns_per_read;
  if (compute == 0 || restore <= compute) return true;
  ns_per_copy_ *= kForgiven;
  if (tier_.disk) tier_.disk->set_ns_per_read(ns_per_read * kForgiven);
  TierStats& stats = disk_blocks > 0 ? tier_.disk->stats() : tier_.memory->stats();
  TierStats::Count(stats.declined, static_cast<uint64_t>(memory_blocks + disk_blocks));
  return false;
}

// Blocks that others wait for.
int64_t BlockMover::Pending() const {
  int64_t pending = 0;
  for (const Restore& restore : restores_) pending += restore.end - restore.next + restore.reading;
  return pending;
}

// ---- out of the pool -----------------------------------------------------------------------------------------------

void BlockMover::Follow(const BatchPlan& plan, TimeNs now) {
  for (int32_t slot : plan.preempted) Forget(slot);
  for (const PlannedRestore& planned : plan.restores) {
    restores_.push_back({.slot = planned.slot,
                         .chain = planned.chain,
                         .number = next_number_++,
                         .first = planned.first,
                         .next = planned.first,
                         .end = planned.end,
                         .since = now});
    Touch(planned);
    begun_ = true;
  }
  SaveEvicted(now);
}

// From the end, so that the beginning is the most recent.
void BlockMover::Touch(const PlannedRestore& restore) {
  for (int64_t block = restore.end - 1; block >= 0; --block) {
    if (tier_.memory) tier_.memory->Touch(restore.chain->name(block));
    if (tier_.disk) tier_.disk->Touch(restore.chain->name(block));
  }
}

void BlockMover::SaveEvicted(TimeNs now) {
  const size_t most = std::max<size_t>(1, kSaveBytesMax / block_bytes_);
  const size_t saved = std::min(notes_.evicted.size(), most);
  for (size_t i = 0; i < saved; ++i) Save(notes_.evicted[i], now);
  notes_.lost += notes_.evicted.size() - saved;
  notes_.evicted.clear();
}

// Also to disk, if it was not written when it was published.
void BlockMover::Save(const BlockNote& note, TimeNs now) {
  if (tier_.memory) {
    if (const std::span<std::byte> to = tier_.memory->Put(note.named, now); !to.empty())
      executor_.ReadBlock(note.block, to);
  }
  if (tier_.disk) {
    if (const std::span<std::byte> to = tier_.disk->BeginWrite(note.named, nullptr, 0, now); !to.empty()) {
      executor_.ReadBlock(note.block, to);
      tier_.disk->SubmitWrite();
    }
  }
  if (note.pinned_until > 0) PinBelow(note.named.name, note.pinned_until, now);
}

void BlockMover::PinBelow(const BlockName& name, TimeNs until, TimeNs now) {
  if (tier_.memory) tier_.memory->Pin(name, until, now);
  if (tier_.disk) tier_.disk->Pin(name, until, now);
}

void BlockMover::EndPinsBelow(TimeNs now) {
  if (tier_.memory) tier_.memory->EndPins(now);
  if (tier_.disk) tier_.disk->EndPins(now);
}

void BlockMover::WriteBehind(TimeNs now) {
  if (tier_.disk) {
    for (const BlockNote& note : notes_.published) {
      const std::span<std::byte> to = tier_.disk->BeginWrite(note.named, &note.parent, note.depth, now);
      if (to.empty()) continue;
      executor_.ReadBlock(note.block, to);
      tier_.disk->SubmitWrite();
    }
  }
  for (const BlockPin& pin : notes_.pinned) PinBelow(pin.name, pin.until, now);
  notes_.pinned.clear();
  EndPinsBelow(now);
  TierStats& stats = tier_.disk ? tier_.disk->stats() : tier_.memory->stats();
  TierStats::Count(stats.dropped, notes_.lost);
  notes_.lost = 0;
  notes_.published.clear();
}

void BlockMover::Forget(int32_t slot) {
  std::erase_if(restores_, [slot](const Restore& restore) { return restore.slot == slot; });
}

void BlockMover::CountStep(TimeNs took, int32_t rows) {
  Mean(&ns_per_row_, static_cast<double>(took) / static_cast<double>(rows));
}

TimeNs BlockMover::NextWakeUp(TimeNs now) const {
  if (restores_.empty()) return kNever;
  if (begun_ || copied_bytes_ >= kCopyBytesMax || !tier_.disk || !tier_.disk->reading()) return now;
  return std::min(now + kLookAgain, tier_.disk->NextDone());
}

}  // namespace headrace
