// Two ranks that make small calls again and again, and count what they must not do on the way:
// allocate, lock a mutex, call the system (which ends the process: a seccomp filter).
//
// Ends with 0: nothing of that; 1: the set-up failed; 2: it allocated or locked; 3: it called the
// system; 4: this machine does not let a process forbid itself system calls.

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unisono/communicator.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <new>
#include <string>

namespace {

thread_local long counted = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  ++counted;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++counted;
  return lock(mutex);
}

namespace {

using namespace unisono;

bool call_all(Communicator& comm, int rounds) {
  std::array<float, 64> input{}, output{};
  constexpr std::int64_t count = 16;
  constexpr DataType type = DataType::float32;
  const int peer = 1 - comm.rank();
  for (int i = 0; i < rounds; ++i) {
    for (const bool sends : {comm.rank() == 0, comm.rank() != 0})
      if (!(sends ? comm.send(input.data(), count, type, peer)
                  : comm.recv(output.data(), count, type, peer))
               .ok())
        return false;
    if (!comm.all_reduce(input.data(), output.data(), count, type).ok() ||
        !comm.all_gather(input.data(), output.data(), count, type).ok() ||
        !comm.reduce_scatter(input.data(), output.data(), count, type).ok() ||
        !comm.broadcast(output.data(), output.data(), count, type, 0).ok() ||
        !comm.all_to_all(input.data(), output.data(), count, type).ok() || !comm.barrier().ok())
      return false;
  }
  return true;
}

[[noreturn]] void leave(int code) {
  for (;;) syscall(SYS_exit_group, code);
}

// From here on any system call but exit_group kills. (Strict mode would forbid the processor's
// counter, too, which is none.)
bool forbid_system_calls() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

[[noreturn]] void be_rank(int rank, const std::string& rendezvous) {
  auto comm = Communicator::init(
      {.rank = rank, .world_size = 2, .rendezvous = rendezvous, .secret = "quiet", .node = "one"});
  if (!comm.ok() || !call_all(*comm, 100)) leave(1);
  if (!forbid_system_calls()) leave(4);
  counted = 0;
  const bool right = call_all(*comm, 300);
  leave(!right ? 1 : counted > 0 ? 2 : 0);
}

}  // namespace

int main() {
  std::string directory = std::filesystem::temp_directory_path() / "unisono-quiet.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return 1;
  setenv("UNISONO_SPIN", "1000000000", 1);
  for (int rank = 0; rank < 2; ++rank)
    if (fork() == 0) be_rank(rank, "file://" + directory + "/rendezvous");
  int worst = 0;
  for (int rank = 0; rank < 2; ++rank) {
    int status = 0;
    wait(&status);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
    const int code = killed ? 3 : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (code > worst) worst = code;
  }
  std::filesystem::remove_all(directory);
  return worst;
}
