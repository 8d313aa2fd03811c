// launcher_pmix.cc - the launcher by PMIx (pmix-standard 4; OpenPMIx 4.2 is what Debian 12 has).
#include <pmix.h>

#include <cstdlib>
#include <cstring>

#include "am/splitc/launcher.h"

namespace unet::splitc {
namespace {

constexpr char kHostKey[] = "unet.splitc.host";
constexpr char kNameKey[] = "unet.splitc.name";
constexpr char kSecretKey[] = "unet.splitc.key";
constexpr size_t kChosenMax = 20;  // characters of the user's job name that stand before the random ones

tl::unexpected<Error> failed(const char* call, pmix_status_t status) {
  return fail(Errc::unavailable, std::string("the launcher, by PMIx: ") + call + ": " + PMIx_Error_string(status));
}

pmix_proc_t process(const std::string& job, pmix_rank_t rank) {
  pmix_proc_t of;
  std::memset(&of, 0, sizeof of);
  std::strncpy(of.nspace, job.c_str(), sizeof of.nspace - 1);
  of.rank = rank;
  return of;
}
constexpr pmix_rank_t kWholeJob = (PMIX_RANK_WILDCARD);

// A value that a rank has put or the launcher provides. The library allocated it; the destructor releases it.
class Value {
 public:
  Value() = default;
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value() {
    if (value_ != nullptr) PMIX_VALUE_RELEASE(value_);
  }
  Status get(const pmix_proc_t& of, const char* key) {
    const pmix_status_t status = PMIx_Get(&of, key, nullptr, 0, &value_);
    return status == PMIX_SUCCESS && value_ != nullptr ? Status{} : Status(failed(key, status));
  }
  const pmix_value_t& operator*() const noexcept { return *value_; }

 private:
  pmix_value_t* value_ = nullptr;
};

Result<std::string> get_text(const std::string& job, Rank rank, const char* key) {
  Value value;
  if (const Status got = value.get(process(job, rank), key); !got) return tl::unexpected(got.error());
  if ((*value).type != PMIX_STRING || (*value).data.string == nullptr) return failed(key, PMIX_ERR_TYPE_MISMATCH);
  return std::string((*value).data.string);
}

Status put_text(const char* key, std::string text) {
  pmix_value_t value;
  std::memset(&value, 0, sizeof value);
  value.type = PMIX_STRING;
  value.data.string = text.data();  // the library copies it
  const pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &value);
  return status == PMIX_SUCCESS ? Status{} : Status(failed("PMIx_Put", status));
}

// Makes the values that all ranks have put visible to all.
Status exchange(const std::string& job) {
  if (const pmix_status_t status = PMIx_Commit(); status != PMIX_SUCCESS) return failed("PMIx_Commit", status);
  pmix_info_t collect;
  std::memset(&collect, 0, sizeof collect);
  std::strncpy(collect.key, PMIX_COLLECT_DATA, sizeof collect.key - 1);
  collect.value.type = PMIX_BOOL;
  collect.value.data.flag = true;
  const pmix_proc_t all = process(job, kWholeJob);
  const pmix_status_t status = PMIx_Fence(&all, 1, &collect, 1);
  return status == PMIX_SUCCESS ? Status{} : Status(failed("PMIx_Fence", status));
}

Result<uint32_t> size_of(const std::string& job) {
  Value size;
  if (const Status got = size.get(process(job, kWholeJob), PMIX_JOB_SIZE); !got) return tl::unexpected(got.error());
  if ((*size).type != PMIX_UINT32) return failed(PMIX_JOB_SIZE, PMIX_ERR_TYPE_MISMATCH);
  return (*size).data.uint32;
}

}  // namespace

Result<std::unique_ptr<Launcher>> Launcher::find() {
  if (!detail::launched_by_pmix()) {
    const std::string variable = detail::launched_by_variable();
    if (variable.empty()) return nullptr;
    return fail(Errc::unavailable, variable + " is set, but PMIX_RANK is not: this process was started as one of several by a launcher "
                                              "that does not speak PMIx. Slurm's does by srun --mpi=pmix");
  }
  pmix_proc_t self;
  const pmix_status_t status = PMIx_Init(&self, nullptr, 0);
  if (status != PMIX_SUCCESS) return failed("PMIx_Init", status);
  return std::unique_ptr<Launcher>(new Launcher(self.nspace, self.rank));
}

Launcher::~Launcher() {
  if (!left_) end_all(EXIT_FAILURE, "rank " + std::to_string(rank_) + " has left");
}

Status Launcher::join(Job& job) {
  const Result<uint32_t> size = size_of(job_);
  if (!size) return tl::unexpected(size.error());
  if (*size == 0 || *size > kRanksMax || rank_ >= *size) {
    return fail(Errc::invalid_argument, "rank " + std::to_string(rank_) + " of " + std::to_string(*size) + ": a job has 1 to " +
                                            std::to_string(kRanksMax) + " ranks");
  }
  if (const Status put = put_text(kHostKey, detail::own_host()); !put) return put;
  if (rank_ == 0) {
    const Result<std::string> digits = detail::random_digits(16), secret = detail::random_digits(32);
    if (!digits || !secret) return tl::unexpected((digits ? secret : digits).error());
    if (const Status put = put_text(kNameKey, job.name.substr(0, kChosenMax) + "-" + *digits); !put) return put;
    if (const Status put = put_text(kSecretKey, *secret); !put) return put;
  }
  if (const Status exchanged = exchange(job_); !exchanged) return exchanged;
  Result<std::string> name = get_text(job_, 0, kNameKey);
  if (!name) return tl::unexpected(name.error());
  const Result<std::string> secret = get_text(job_, 0, kSecretKey);
  if (!secret) return tl::unexpected(secret.error());
  const Result<Key> key = parse_key(*secret);
  if (!key) return tl::unexpected(key.error());
  job.name = std::move(*name);
  job.key = *key;
  job.rank = rank_;
  job.size = *size;
  job.hosts.clear();
  for (Rank rank = 0; rank < *size; ++rank) {
    Result<std::string> host = get_text(job_, rank, kHostKey);
    if (!host) return tl::unexpected(host.error());
    job.hosts.push_back(std::move(*host));
  }
  return {};
}

// The launcher kills this process, too, as soon as it gets the message.
void Launcher::end_all(int status, const std::string& text) noexcept {
  if (left_) return;
  left_ = true;
  PMIx_Abort(status, text.c_str(), nullptr, 0);
}

void Launcher::leave() noexcept {
  if (left_) return;
  left_ = true;
  PMIx_Finalize(nullptr, 0);
}

}  // namespace unet::splitc
