// Completes the futures of a group's operations, and runs what users attached to them.
//
// A callback may start operations of the group and wait for them, for as long as it likes. So the
// thread that is about to run callbacks first makes sure that another one completes futures: an
// idle one, or a new one. There are as many threads as callbacks that run at one time, and one or
// two more; an idle one ends after a while. User code runs on these threads alone, never inside a
// call that starts an operation or waits for one.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"

namespace unisono::pytorch {

class Work;

class Completer : public std::enable_shared_from_this<Completer> {
 public:
  // Keeps the operation until it is complete, though its user forgets it.
  void hold(c10::intrusive_ptr<Work> work);
  // Settles those that are complete, which nobody may have looked at.
  void settle_done();
  // Has the operation's futures completed. Throws std::system_error if there is no thread for it.
  void watch(c10::intrusive_ptr<Work> work);
  // Those that are not complete yet.
  std::vector<c10::intrusive_ptr<Work>> unfinished();
  // Ends the threads once every watched operation is settled. A callback that runs past the
  // deadline keeps its thread, which ends with it.
  void stop(Deadline deadline);
  // Waits until this process has no such thread, for the end of the process: a thread that comes
  // back to Python after that would end it with an abort.
  static void await_threads(Deadline deadline);

 private:
  using Lock = std::unique_lock<std::mutex>;

  // All of them are called with the lock held.
  void start_thread();
  void run(Lock& lock);
  // Until there is something to do for this thread; false if it is to end.
  bool await_turn(Lock& lock);
  // Drives what is watched until an operation is done, takes it out and returns it.
  c10::intrusive_ptr<Work> drive(Lock& lock);
  c10::intrusive_ptr<Work> take_done();
  // Has another thread complete what else is watched while this one runs callbacks.
  void hand_over();

  std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<c10::intrusive_ptr<Work>> held_;
  std::deque<c10::intrusive_ptr<Work>> watched_;
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;
  bool is_driven_ = false;  // by one of the threads
  bool stopping_ = false;
};

}  // namespace unisono::pytorch
