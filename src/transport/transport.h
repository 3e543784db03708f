// The transport seam: one-sided connections between two ranks.
//
// A Transport makes Connections. A connection joins two ranks on one channel, in both directions
// at once: each end owns a region of memory and some signals; the peer puts bytes into the region
// and stores values into the signals. That is all that shared memory, sockets, NVLink and RDMA
// have in common, and all that fifo.h needs. Where the wire allows it, an end also exposes other
// memory, such as a call's buffers, and the peer puts into that.
//
// What holds on every wire, and the tests of tests/conformance that each transport passes for it:
//
//   ordering        A signal is seen after all the data of its own put and of every put before it
//                   on this connection, into any memory. Data without a signal have no order. There
//                   is nothing to flush: who has read the signal with acquire reads the data.
//                   - Put.SignalIsSeenAfterTheBytesOfEveryPutBefore
//                   - Exposed.ASignalIsSeenAfterTheBytesInEveryMemory
//                   - Processes.BytesGoThereAndBack
//   signals         One end stores a signal, the other reads it. Its values only grow; of several
//                   under way the last alone may be seen. All 64 bits arrive, and any number of
//                   puts: what a wire counts in fewer bits wraps around unseen.
//                   - Put.OfNoBytesIsAlwaysTakenAndTheLatestValueArrives
//                   - Put.EveryValueOfASignalArrivesWhole
//                   - Put.ASignalOnlyGrowsWhicheverPutsStoreIt
//                   - Processes.SignalsWithoutBytesGoThereAndBack
//                   - Put.ManyWaitingPutsAllComeThrough
//   completion      A complete put no longer reads its source. It may not have arrived yet. A
//                   complete get has all its bytes at their destination. Gets complete in order.
//                   - Put.LeavesItsSourceWhenItIsComplete
//                   - Put.SeveralLeaveTheirSourcesAsTheyAreCounted
//                   - Exposed.APutLeavesItsSourceWhenItIsComplete
//                   - Get.ManyAtOnceCompleteInOrder
//   gets            A get reads at any time between its start and its completion, each byte once.
//                   It has no order with puts. The owner's end answers in its progress(), or not at
//                   all.
//                   - Get.BringsTheBytesOfItsPlaceAndTouchesNothingElse
//                   - Get.ReadsBetweenItsStartAndItsCompletionAlone
//                   - Get.GoesAlongWithPutsBothWays
//   back-pressure   try_put(), try_put_to() and try_get() return false when too much is under way.
//                   - Put.IsNotTakenWhenTooMuchIsUnderWay
//                   - Exposed.PutsAreNotTakenWhenTooMuchIsUnderWay
//                   - Get.WaitsWhenTooManyAreUnderWay
//   waking          Who sleeps until event_descriptor() is readable, or in sleep(), and then looks,
//                   misses nothing.
//                   - Events.WhoSleepsOnTheDescriptorMissesNothing
//                   - Events.WhoSleepsInTheTransportMissesNothing
//   overrun         What was taken is not lost, however long the peer does not look, and however
//                   many others put to it: no queue of completions overflows.
//                   - Put.OfManyPeersToOneThatDoesNotLookAreNotLost
//   errors          An error is final, and both ends have it. It names the rank to blame, which the
//                   first fault decides. A peer that left is an error for check_peer() alone, after
//                   what it had put; one that died, too.
//                   - Faults.AbortTellsThePeerWhoIsToBlame
//                   - Faults.TheFirstFaultCounts
//                   - Faults.AbortFromAnotherThreadReachesAPeerThatWaits
//                   - Faults.APeerThatLeavesIsAnErrorOnlyForWhoWaits
//                   - Faults.ALeavingPeerIsToldOnlyAfterALookForWhatItLeft
//                   - Processes.AKilledPeerIsNamed
//                   - Processes.AKilledPeerIsToldByTheSecondLook
//   exposure        Memory is exposed to one connection. Its key names nothing on another one, in
//                   another epoch, rank or process, and is not given again.
//                   - Exposed.OtherKeysChangeNothingAndAreErrors
//                   - Get.OtherKeysBringNothingAndAreErrors
//                   - Exposed.ThereIsABoundAndWithdrawalMakesRoom
//   withdrawal      A fence: no byte of the peer lands, and none is read for it, after withdraw(),
//                   abort() or the destructor has returned, also of a put or a get that is under
//                   way. The memory may then be freed. So may, after abort() or the destructor, the
//                   destinations of this end's own gets, and the sources of its puts.
//                   A peer whose process is stopped in the middle of a copy is waited for only so
//                   long: it is logged, the connection fails, and that copy may end later.
//                   - Exposed.NothingLandsAfterWithdrawal
//                   - Exposed.MemoryMayBeFreedAfterAbort
//                   - Exposed.NoneOfManyPutsLandsAfterAbort
//                   - Put.SourcesMayBeFreedAfterAbort
//                   - Get.ReadsNothingAfterWithdrawal
//                   - Get.MemoryMayBeFreedAfterItsOwnersAbort
//                   - Get.NothingLandsAfterTheGettersAbort
//                   - ExposingProcesses.WithdrawalFromAStoppedPeerEnds
//                   - ExposingProcesses.NothingLandsAfterWithdrawal
//                   - GettingProcesses.NothingIsReadAfterWithdrawal
//   lifetime        Exposed memory stays until it is withdrawn. Where its owner frees it before,
//                   the sender has an error that names the owner; the owner's process may end.
//                   - ExposingProcesses.AMemoryThatWasUnmappedIsAnError
//                   - GettingProcesses.AMemoryThatWasUnmappedIsAnError
//   revoked keys    A put that reaches withdrawn memory, or memory that never was exposed, changes
//                   nothing, its signal is not stored, and one of the two ends has an error that
//                   names the other. A get from there brings nothing and never completes.
//                   - Exposed.OtherKeysChangeNothingAndAreErrors
//                   - Get.OtherKeysBringNothingAndAreErrors
//   bounds          The owner's end checks them, or what it says in memory that both map: a put or
//                   get past the memory is as one with a revoked key.
//                   - Exposed.PutsEndAtTheLastByte
//                   - Get.EndsAtTheLastByte
//   bound           An end exposes at most most_exposed pieces of memory at a time.
//                   - Exposed.ThereIsABoundAndWithdrawalMakesRoom
//   device memory   Belongs to transports whose links are mapped on devices: puts of a connection
//                   with a DeviceLink read sources in a GPU's memory, and nvlink/registrations.h
//                   has a rank's device memory mapped by its peers. To expose it on any other
//                   connection is misuse, which names the transport, the address and the device.
//                   - DeviceMemory.IsExposedByNoTransportOfTheHost
//                   - DeviceSource.IsPutWhereLinksAreMappedOnDevices
//
// Rows about exposed memory and gets do not concern a transport that declares to reach regions only
// (NVLink); Exposing and Getting hold it to that.
//
// Threads: a Transport may be used by several communicators' threads at once; a Connection
// belongs to whoever drives its communicator, one thread at a time. abort() alone may be
// called from any thread.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/key.h"
#include "base/open_epochs.h"
#include "sys/seal.h"
#include "transport/mapped_link.h"

namespace unisono::transport {

// Names a connection, the same at both ends. What does not match in everything is refused.
struct ConnectionKey {
  std::uint64_t communicator = 0;
  std::uint32_t epoch = 0;
  std::uint32_t channel = 0;
  bool operator==(const ConnectionKey&) const = default;
};

// Per direction; the same at both ends.
struct Geometry {
  // Address space: memory is committed as it is touched, but a GPU's at once.
  std::size_t region_bytes = 0;
  int signals = 0;
  std::uint64_t layout = 0;  // a fingerprint of what the user of the region lays out in it
  bool operator==(const Geometry&) const = default;
};

struct ConnectionRequest {
  ConnectionKey key;
  int ranks = 0;  // of the communicator of `key`, in which these two are numbered
  int self = 0;
  int peer = 0;
  std::string_view peer_address;  // the peer transport's address()
  Geometry geometry;
};

// Memory that a rank exposes, as its peer names it. Travels by any way that the two ends share.
struct RemoteMemory {
  std::uint64_t key = 0;      // 0: none, nothing can be put there
  std::uint64_t address = 0;  // of the first byte, as the wire names it
};

// Stores `value` into the peer's signal `index` after the put's bytes. Values of a signal only
// grow.
struct Signal {
  int index = -1;  // -1: none
  std::uint64_t value = 0;
};

// Why a connection is no longer to be used, told to the peer: who is to blame.
struct Fault {
  enum class Kind : std::uint32_t {
    none,
    aborted,
    failed,
    timed_out,
    protocol_violation,
    disagreed,  // the calls of two ranks do not match, and none is known to be at fault
    altered,    // what `rank` sent is not what arrived, and the network is to blame
  };
  Kind kind = Kind::none;
  int rank = -1;
};

class Connection {
 public:
  virtual ~Connection() = default;

  int self() const { return self_; }
  int peer() const { return peer_; }

  // Whether the peer has joined; an error if it cannot. Never blocks; call it repeatedly, with
  // Transport::progress() between.
  virtual Result<bool> ready() = 0;

  // Ours: puts of the peer land here. Aligned to a page, zeroed at first. Valid at once. nullptr,
  // both, where they lie in a GPU's memory: see device_link().
  std::byte* region() const { return region_; }
  // Ours: stored to by the peer. Read with acquire. Valid at once.
  const std::atomic<std::uint64_t>* signals() const { return signals_; }

  // What is mapped of both ends, for the host's processors or for a GPU; valid once ready, nullptr
  // where that is not mapped. Both ends map or neither does.
  const HostLink* host_link() const { return host_link_ ? &*host_link_ : nullptr; }
  const DeviceLink* device_link() const { return device_link_ ? &*device_link_ : nullptr; }

  // Makes sure that there is memory behind `bytes` of a region, ours or the peer's (once ready), or
  // says what is missing. What one end loads or stores in a mapped region has been reserved before
  // by either: shared memory that is taken as it is touched may be used up by other programs, and
  // touching it is then the end of the process. try_put() does so by itself.
  virtual Status reserve(std::size_t offset, std::size_t bytes);
  virtual Status reserve_at_peer(std::size_t offset, std::size_t bytes);

  // Starts to move `bytes` from `source` to `peer_offset` of the peer's region, then to store
  // the signal. False: too much is under way, try again after progress(). A put of 0 bytes is
  // always taken (of a signal, only the latest value is kept). The source must stay as it is until
  // the put is complete. Only when ready. What is put to a peer that has left is dropped.
  virtual Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                               Signal signal) = 0;

  // Lets the peer put into this memory, and get from it, until withdraw(), abort() or the
  // destructor. The key is 0 where this transport reaches regions only. Misuse when most_exposed
  // are exposed already, or for a GPU's memory that the host does not load and store.
  static constexpr std::size_t most_exposed = 64;
  virtual Result<RemoteMemory> expose(void* memory, std::size_t bytes);
  // A fence (see above). Nothing happens for memory that is not exposed.
  virtual void withdraw(const RemoteMemory& memory);
  // Whether try_put_to() works from this end; valid once ready.
  virtual bool puts_in_place() const { return false; }
  // As try_put(), to `offset` of memory that the peer exposes.
  virtual Result<bool> try_put_to(const RemoteMemory& memory, std::size_t offset,
                                  const void* source, std::size_t bytes, Signal signal);

  // Whether try_get() works from this end; valid once ready.
  virtual bool can_get() const { return false; }
  // Starts to copy `bytes` at `offset` of memory that the peer exposes to `destination`, which the
  // caller leaves alone until the get is complete. False: too much is under way, try again after
  // progress(). A get of 0 bytes is always taken. Only when ready. A get from a peer that has left
  // never completes: check_peer() tells.
  virtual Result<bool> try_get(const RemoteMemory& memory, std::size_t offset, void* destination,
                               std::size_t bytes);
  // Gets accepted, and of those, how many (in order) have all their bytes.
  virtual std::uint64_t gets_started() const { return 0; }
  virtual std::uint64_t gets_completed() const { return 0; }

  // Puts accepted, and of those, how many (in order) no longer need their source.
  virtual std::uint64_t puts_started() const = 0;
  virtual std::uint64_t puts_completed() const = 0;

  // Whether read_peer works: probed when the connection is made; valid once ready.
  virtual bool can_read_peer() const = 0;
  // Reads the peer process's memory at `peer_address` (an address there, in memory that the peer
  // has offered). Blocks for the time of the copy only. The peer may free what it offered once it
  // has called abort() or destroyed its end: a read fails from then on.
  virtual Status read_peer(void* destination, std::uint64_t peer_address, std::size_t bytes) = 0;

  // Moves what is pending in both directions. Cheap when nothing is. An error is final: the peer
  // told a fault (its culprit is named) or sent what it must not, or this end was aborted. That the
  // peer has left is no error here: a rank that has done its part may go, and what it put stays.
  virtual Status progress() = 0;
  // As progress(), but leaves it to the next Transport::sleep() to find what has come meanwhile.
  virtual Status progress_known() { return progress(); }
  // When progress() is wanted next though no event will tell, by the steady clock.
  virtual std::int64_t next_due_ns() const { return INT64_MAX; }
  // As progress(), and fails when the peer has left or died. For a connection whose message or
  // credit is awaited, now and then: it may cost a system call. A peer that left is told by the
  // second call that sees it, so that what it put before can be looked for in between.
  virtual Status check_peer() = 0;

  // Whether nothing gets through to the peer's host, as far as this transport can tell though the
  // connection has not ended yet. May cost system calls.
  virtual bool is_unanswered() { return false; }

  // Tells the peer, as far as it can still be told, that this connection is given up, and why. Of
  // several faults the first counts. When it returns, the peer copies nothing out of this process's
  // own memory or into what this end exposes. Any thread.
  virtual void abort(Fault fault) = 0;

  // Memory that this connection holds now (touched pages, queues), in bytes.
  virtual std::size_t memory_bytes() const = 0;

 protected:
  Connection(int self, int peer) : self_(self), peer_(peer) {}

  int self_;
  int peer_;
  std::byte* region_ = nullptr;
  std::atomic<std::uint64_t>* signals_ = nullptr;
  std::optional<HostLink> host_link_;
  std::optional<DeviceLink> device_link_;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // A descriptor that polls as readable when progress() has something to do; -1 if there is none.
  virtual int event_descriptor() const { return -1; }
  // Sleeps until progress() has something to do, at most so long. Connection::progress_known() then
  // does what the sleep found. False at once where that takes more than one system call: the caller
  // then sleeps on the descriptor. Thread-safe.
  virtual bool sleep(std::int64_t) { return false; }

  // What a peer needs to reach this one, opaque, at most max_address_bytes; travels in the
  // bootstrap.
  virtual std::string address() const = 0;
  // Begins a connection; returns at once. Both ends call it, in any order, at any time.
  virtual Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) = 0;
  // Accepts and advances connections under way. Thread-safe; cheap when nothing is under way.
  virtual Status progress() = 0;
  // Whether it must stay because another rank of this process may still use what it made. Whoever
  // lets it go anyway waits for that rank, which may be of the very same thread. Thread-safe.
  virtual bool is_used_in_this_process() { return false; }

  static constexpr std::size_t max_address_bytes = 512;
};

// What every transport is made from.
struct TransportOptions {
  // Only the ranks of this job have it. Whoever connects must prove it, both ways, before anything
  // else is said; the keys of connections and the names of shared memory derive from it.
  Key key{};
  // How data between hosts are protected; the same on all ranks.
  sys::Protection protection = sys::Protection::none;
  // Protects connections over the loopback interface as those between hosts. Only this host's
  // administrator can read or change what travels there, so they are left as they are by default.
  bool protects_loopback = false;
  // Where listeners bind; see Setting::interface, socket_streams and rails.
  std::string interface;
  std::int64_t socket_streams = 0;
  std::string rails;
  // Lets the processes of this user on this host read this one's memory.
  bool shares_memory = false;
  // What a peer asks for in an epoch that is over is refused; null: none is.
  std::shared_ptr<const OpenEpochs> epochs;
  // Holds back every put between nodes by so long; for tests of long links.
  std::int64_t delay_ns = 0;
};

// A bug where the key was left out.
Status check_options(const TransportOptions& options);

}  // namespace unisono::transport
