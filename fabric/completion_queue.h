// completion_queue.h - the object of fi_cq_open(): the ends of data transfers, in order.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include <deque>
#include <utility>
#include <vector>

#include "fabric/waiter.h"
#include "fabric/words.h"

namespace unet::fabric {

// fi_ops_domain::cq_open.
int open_completion_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context);

// The end of a transfer, with everything that any format tells. It begins like fi_cq_tagged_entry.
struct Completion {
  void* context = nullptr;
  uint64_t flags = 0;
  size_t length = 0;
  void* buffer = nullptr;
  uint64_t data = 0, tag = 0;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
};

class CompletionQueue : public fid_cq {
 public:
  CompletionQueue(Domain& domain, const fi_cq_attr& attributes, void* context);

  Domain& domain() noexcept { return domain_; }
  Waiter& waiter() noexcept { return waiter_; }

  // ---- called by endpoints and poll sets, with the domain's lock

  bool empty() const noexcept { return count_ == 0; }
  // Whether an operation may begin that will end here: the program reads too rarely otherwise.
  bool has_room() const noexcept { return count_ < size_; }
  void add(const Completion& completion) noexcept {
    if (reader_.room != 0 && count_ == 0) return give(completion);
    add_later(completion);
  }
  // `overflow`: bytes of the message that found no room.
  void add_error(const Completion& completion, int error, size_t overflow = 0);

  // ---- called by the program

  ssize_t read(void* to, size_t count, fi_addr_t* sources);
  ssize_t read_error(fi_cq_err_entry* to);
  // Waits for at most `timeout` milliseconds; -1: for ever.
  ssize_t read_waiting(void* to, size_t count, fi_addr_t* sources, int timeout);
  void signal();
  int try_wait();

 private:
  struct alignas(64) Entry {
    Completion completion;
    bool failed;  // the oldest of errors_ says how
  };
  struct Failure {
    int error;
    size_t overflow;
  };
  // The program's array, in a call that polls the endpoints. Completions go straight there while none waits in the queue.
  struct Reader {
    char* at = nullptr;
    size_t room = 0;  // entries
  };
  // Stores `bytes` of a completion: each format of the program begins like the next one, and Completion like the last one.
  static void put(void* at, const Completion& completion, size_t bytes) noexcept {
    auto& to = *static_cast<fi_cq_tagged_entry*>(at);
    put_word(to.op_context, completion.context);
    if (bytes < sizeof(fi_cq_msg_entry)) return;
    put_word(to.flags, completion.flags);
    put_word(to.len, completion.length);
    if (bytes < sizeof(fi_cq_data_entry)) return;
    put_word(to.buf, completion.buffer);
    put_word(to.data, completion.data);
    if (bytes == sizeof(fi_cq_tagged_entry)) put_word(to.tag, completion.tag);
  }
  void give(const Completion& completion) noexcept {
    put(std::exchange(reader_.at, reader_.at + entry_bytes_), completion, entry_bytes_);
    --reader_.room;
  }
  // Adds an entry to the queue, and returns it.
  Entry& add_later(const Completion& completion) noexcept {
    if (__builtin_expect(count_ == entries_.size(), 0)) grow();
    Entry& entry = entries_[(first_ + count_++) & (entries_.size() - 1)];
    put(&entry.completion, completion, sizeof(fi_cq_tagged_entry));
    put_word(entry.completion.source, completion.source);
    entry.failed = false;
    waiter_.note();
    return entry;
  }
  void grow();
  ssize_t take(void* to, size_t count, fi_addr_t* sources) noexcept;

  Domain& domain_;
  const size_t entry_bytes_;  // of the format
  const size_t size_;
  std::vector<Entry> entries_;  // a ring; its size is a power of two
  size_t first_ = 0, count_ = 0;
  Reader reader_;
  std::deque<Failure> errors_;
  bool signalled_ = false;
  Waiter waiter_;
};

}  // namespace unet::fabric
