#include "transport/shm/transport.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/try.h"
#include "sys/cross_memory.h"
#include "transport/shm/connection.h"
#include "transport/shm/segment.h"

namespace unisono::transport::shm {
namespace {

constexpr std::size_t max_job_characters = 64;

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const TransportOptions& options)
      : job_(options.job), secret_(options.secret) {}

  std::string_view name() const override { return "shm"; }
  // The name of a segment follows from the job and the key; there is nothing to be told.
  std::string address() const override { return "shm"; }
  Status progress() override { return {}; }

  Result<std::unique_ptr<Connection>> connect(const ConnectionRequest& request) override {
    return make_connection(job_, secret_, request);
  }

 private:
  std::string job_;
  std::string secret_;
};

bool valid_job(const std::string& job) {
  return !job.empty() && job.size() <= max_job_characters &&
         std::all_of(job.begin(), job.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(const TransportOptions& options) {
  if (!valid_job(options.job))
    return misuse("the job's name '", options.job, "' must be 1 to ", max_job_characters,
                  " characters of a-z and 0-9");
  sys::allow_cross_memory_reads();
  remove_stale_segments();
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(options));
}

}  // namespace unisono::transport::shm
