// endpoint_test.cc - messages between two endpoints through libfabric's interface: sizes, order, matching, and ends.
#include <catch2/catch.hpp>

#include <atomic>
#include <string_view>
#include <thread>

#include "fabric/test_side.h"

using namespace unet;
using namespace unet::fabric;

namespace {

constexpr uint64_t kAll = ~uint64_t{0};
constexpr size_t kSizes[] = {0, 1, 8, 20, 28, 29, 64, 16 * 1024, 16 * 1024 + 1, 300'000, 3'000'000};

std::string text_of(size_t length, uint64_t seed = 0) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + (seed + i * 7) % 23);
  return text;
}

// Sends, and leaves the completion in the queue.
void send(Pair& pair, std::string_view text, uint64_t tag) {
  pair.until_done([&] { return fi_tsend(pair.a.endpoint, text.data(), text.size(), nullptr, pair.to_b, tag, nullptr); });
}

// Opens the channel, by a message without a tag that stays unexpected. Later messages arrive within a few polls.
void open_channel(Pair& pair) {
  pair.until_done([&] { return fi_send(pair.a.endpoint, "", 0, nullptr, pair.to_b, nullptr); });
  pair.next(pair.a);
}

}  // namespace

TEST_CASE("messages of all sizes arrive, expected or not") {
  Pair pair;
  open_channel(pair);
  const bool expected = GENERATE(true, false);
  uint64_t tag = 100;
  for (const size_t size : kSizes) {
    const std::string text = text_of(size, ++tag);
    std::string to(size + 10, '-');
    int context = 0;
    const auto post = [&] {
      REQUIRE(fi_trecv(pair.b.endpoint, to.data(), to.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, &context) == 0);
    };
    if (expected) post();
    pair.until_done([&] { return fi_tsenddata(pair.a.endpoint, text.data(), size, nullptr, tag << 31, pair.to_b, tag, &tag); });
    for (int i = 0; i < 100 && !expected; ++i) pair.poll();
    if (!expected) post();
    const fi_cq_tagged_entry received = pair.next(pair.b);
    REQUIRE(received.len == size);
    REQUIRE(received.tag == tag);
    REQUIRE(received.data == tag << 31);
    REQUIRE(received.op_context == &context);
    REQUIRE(received.flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
    REQUIRE(to.substr(0, size) == text);
    REQUIRE(to.substr(size) == std::string(10, '-'));
    const fi_cq_tagged_entry sent = pair.next(pair.a);
    REQUIRE(sent.op_context == &tag);
    REQUIRE(sent.flags == (FI_SEND | FI_TAGGED));
  }
}

TEST_CASE("a read of no completions makes progress, also while some wait") {
  Pair pair;
  open_channel(pair);
  send(pair, "x", 1);
  char byte = 0;
  REQUIRE(fi_trecv(pair.a.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 2, 0, nullptr) == 0);
  pair.until_done([&] { return fi_tsend(pair.b.endpoint, "y", 1, nullptr, pair.to_a, 2, nullptr); });
  for (int i = 0; i < 100; ++i) pair.poll();
  REQUIRE(byte == 'y');
}

TEST_CASE("an endpoint sends to itself") {
  TestNi ni;
  Side side;
  const fi_addr_t self = side.know(side);
  for (const size_t size : kSizes) {
    const std::string text = text_of(size);
    std::string to(size, '-');
    REQUIRE(fi_send(side.endpoint, text.data(), size, nullptr, self, nullptr) == 0);
    REQUIRE(fi_recv(side.endpoint, to.data(), size, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    fi_cq_tagged_entry entries[2];
    REQUIRE(fi_cq_read(side.queue, entries, 2) == 2);
    REQUIRE(to == text);
  }
}

TEST_CASE("unexpected messages of any number arrive in order, and their bytes are bounded") {
  Pair pair;
  constexpr size_t kMany = 1000;
  const size_t size = GENERATE(size_t{100}, size_t{16 * 1024});
  const std::string text = text_of(size);
  for (uint64_t i = 0; i < kMany; ++i) {
    pair.until_done([&] { return fi_tinject(pair.a.endpoint, text.data(), size, pair.to_b, i); });
  }
  std::string to(size, '-');
  for (uint64_t i = 0; i < kMany; ++i) {
    REQUIRE(fi_trecv(pair.b.endpoint, to.data(), size, nullptr, FI_ADDR_UNSPEC, 0, kAll, nullptr) == 0);
    const fi_cq_tagged_entry received = pair.next(pair.b);
    REQUIRE(received.tag == i);
    REQUIRE(to == text);
    to.assign(size, '-');
  }
  // The sender hears that it may send early bytes again.
  for (int i = 0; i < 1000; ++i) pair.poll();
  send(pair, text, 1);
  REQUIRE(pair.next(pair.a).flags == (FI_SEND | FI_TAGGED));
}

TEST_CASE("a flood of unexpected messages waits at its sender, and goes on when the peer receives") {
  Pair pair;
  constexpr uint64_t kMany = 300'000;
  uint64_t sent = 0;
  const auto flood = [&] {
    for (int refused = 0; sent < kMany && refused < 1000;) {
      const ssize_t result = fi_tinject(pair.a.endpoint, &sent, sizeof sent, pair.to_b, sent);
      if (result != 0) pair.poll();
      refused = result == 0 ? 0 : refused + 1;
      sent += result == 0 ? 1 : 0;
    }
  };
  flood();
  REQUIRE(sent >= kUnexpectedMax);
  REQUIRE(sent < kUnexpectedMax + 1000);
  for (uint64_t i = 0; i < kMany; ++i) {
    uint64_t got = 0;
    if (i % 10'000 == 0) flood();
    REQUIRE(fi_trecv(pair.b.endpoint, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, 0, kAll, nullptr) == 0);
    if (pair.next(pair.b).tag != i || got != i) FAIL("message " << i);
  }
}

TEST_CASE("a message that is longer than its receive is cut, with an error") {
  Pair pair;
  const size_t size = GENERATE(size_t{20}, size_t{100}, size_t{100'000});
  const std::string text = text_of(size);
  std::string to(10, '-');
  REQUIRE(fi_trecv(pair.b.endpoint, to.data(), to.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &to) == 0);
  send(pair, text, 1);
  const fi_cq_err_entry error = pair.next_error(pair.b);
  REQUIRE(error.err == FI_ETRUNC);
  REQUIRE(error.len == 10);
  REQUIRE(error.olen == size - 10);
  REQUIRE(error.op_context == &to);
  REQUIRE(to == text.substr(0, 10));
  REQUIRE(pair.next(pair.a).flags == (FI_SEND | FI_TAGGED));
}

TEST_CASE("a receive is cancelled once") {
  Pair pair;
  char byte = 0;
  int context = 0;
  REQUIRE(fi_trecv(pair.b.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 1, 0, &context) == 0);
  REQUIRE(fi_cancel(&pair.b.endpoint->fid, &context) == 0);
  const fi_cq_err_entry error = pair.next_error(pair.b);
  REQUIRE(error.err == FI_ECANCELED);
  REQUIRE(error.op_context == &context);
  REQUIRE(fi_cancel(&pair.b.endpoint->fid, &context) == -FI_ENOENT);
}

TEST_CASE("a peek finds, claims and discards") {
  Pair pair;
  open_channel(pair);
  const std::string text = text_of(50'000);
  send(pair, text, 5);
  send(pair, "next", 5);
  for (int i = 0; i < 100; ++i) pair.poll();
  int context = 0;
  fi_msg_tagged message{.addr = FI_ADDR_UNSPEC, .tag = 6, .context = &context};
  REQUIRE(fi_trecvmsg(pair.b.endpoint, &message, FI_PEEK) == 0);
  REQUIRE(pair.next_error(pair.b).err == FI_ENOMSG);
  message.tag = 5;
  REQUIRE(fi_trecvmsg(pair.b.endpoint, &message, FI_PEEK | FI_CLAIM) == 0);
  REQUIRE(pair.next(pair.b).len == text.size());
  fi_msg_tagged other{.addr = FI_ADDR_UNSPEC, .tag = 5, .context = &other};
  REQUIRE(fi_trecvmsg(pair.b.endpoint, &other, FI_PEEK | FI_DISCARD) == 0);
  REQUIRE(pair.next(pair.b).len == 4);
  std::string to(text.size(), '-');
  const iovec whole{to.data(), to.size()};
  message.msg_iov = &whole;
  message.iov_count = 1;
  REQUIRE(fi_trecvmsg(pair.b.endpoint, &message, FI_CLAIM) == 0);
  REQUIRE(pair.next(pair.b).len == text.size());
  REQUIRE(to == text);
  REQUIRE(fi_trecvmsg(pair.b.endpoint, &message, FI_CLAIM) == -FI_EINVAL);
}

TEST_CASE("a buffer for several messages is returned when it is full") {
  Pair pair;
  constexpr size_t kLeast = 100;
  REQUIRE(fi_setopt(&pair.b.endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &kLeast, sizeof kLeast) == 0);
  std::string to(250, '-');
  const iovec whole{to.data(), to.size()};
  const fi_msg message{.msg_iov = &whole, .desc = nullptr, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &to, .data = 0};
  REQUIRE(fi_recvmsg(pair.b.endpoint, &message, FI_MULTI_RECV) == 0);
  for (size_t i = 0; i < 3; ++i) {
    const std::string text = text_of(60, i);
    pair.until_done([&] { return fi_inject(pair.a.endpoint, text.data(), text.size(), pair.to_b); });
    const fi_cq_tagged_entry received = pair.next(pair.b);
    REQUIRE(received.buf == to.data() + i * 60);
    REQUIRE(std::string(static_cast<char*>(received.buf), received.len) == text);
    REQUIRE(((received.flags & FI_MULTI_RECV) != 0) == (i == 2));
  }
}

TEST_CASE("a buffer for several messages is in one piece") {
  TestNi ni;
  Side side([](fi_info& hints) { hints.rx_attr->op_flags = FI_MULTI_RECV; });
  char bytes[2];
  const iovec pieces[] = {{&bytes[0], 1}, {&bytes[1], 1}};
  REQUIRE(fi_recvv(side.endpoint, pieces, nullptr, 2, FI_ADDR_UNSPEC, nullptr) == -FI_EINVAL);
}

TEST_CASE("a receive from one peer takes no message of another") {
  Pair pair([](fi_info& hints) { hints.caps = FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE; });
  const fi_addr_t self = pair.b.know(pair.b);
  char from_self = 0, from_a = 0;
  REQUIRE(fi_trecv(pair.b.endpoint, &from_self, 1, nullptr, self, 1, 0, &from_self) == 0);
  REQUIRE(fi_trecv(pair.b.endpoint, &from_a, 1, nullptr, pair.to_a, 1, 0, &from_a) == 0);
  send(pair, "a", 1);
  fi_cq_tagged_entry entry{};
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  pair.until_done([&] { return fi_cq_readfrom(pair.b.queue, &entry, 1, &source); });
  REQUIRE(entry.op_context == &from_a);
  REQUIRE(source == pair.to_a);
}

TEST_CASE("a delivery is complete only when a receive has the message") {
  Pair pair;
  const size_t size = GENERATE(size_t{0}, size_t{8}, size_t{1000}, size_t{100'000});
  const std::string text = text_of(size);
  const iovec whole{const_cast<char*>(text.data()), size};
  const fi_msg_tagged message{.msg_iov = &whole, .iov_count = 1, .addr = pair.to_b, .tag = 3, .context = &pair};
  pair.until_done([&] { return fi_tsendmsg(pair.a.endpoint, &message, FI_DELIVERY_COMPLETE); });
  for (int i = 0; i < 100; ++i) pair.poll();
  fi_cq_tagged_entry entry{};
  REQUIRE(fi_cq_read(pair.a.queue, &entry, 1) == -FI_EAGAIN);
  std::string to(size, '-');
  REQUIRE(fi_trecv(pair.b.endpoint, to.data(), size, nullptr, FI_ADDR_UNSPEC, 3, 0, nullptr) == 0);
  REQUIRE(pair.next(pair.a).op_context == &pair);
  REQUIRE(to == text);
}

TEST_CASE("several pieces without bytes are a message") {
  Pair pair;
  char byte = 0;
  const iovec pieces[] = {{&byte, 0}, {&byte, 0}};
  fi_msg_tagged message{.msg_iov = pieces, .desc = nullptr, .iov_count = 2, .addr = pair.to_b, .tag = 1, .ignore = 0, .context = nullptr,
                        .data = 0};
  REQUIRE(fi_trecv(pair.b.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
  pair.until_done([&] { return fi_tsendmsg(pair.a.endpoint, &message, FI_DELIVERY_COMPLETE); });
  REQUIRE(pair.next(pair.b).len == 0);
  pair.next(pair.a);
}

TEST_CASE("messages of several pieces") {
  Pair pair;
  const size_t size = GENERATE(size_t{6}, size_t{3000}, size_t{150'000});
  const std::string text = text_of(size);
  char* const from = const_cast<char*>(text.data());
  const iovec out[] = {{from, size / 3}, {from + size / 3, size - size / 3}};
  std::string to(size, '-');
  const iovec in[] = {{to.data(), size / 2}, {to.data() + size / 2, size - size / 2}};
  REQUIRE(fi_trecvv(pair.b.endpoint, in, nullptr, 2, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
  pair.until_done([&] { return fi_tsendv(pair.a.endpoint, out, nullptr, 2, pair.to_b, 1, nullptr); });
  REQUIRE(pair.next(pair.b).len == size);
  REQUIRE(to == text);
}

TEST_CASE("a peer that is gone ends what waits for it, and further sends fail") {
  Pair pair;
  const std::string text = text_of(100'000);
  open_channel(pair);
  send(pair, text, 1);
  fi_cq_tagged_entry entry{};
  REQUIRE(fi_cq_read(pair.a.queue, &entry, 1) == -FI_EAGAIN);
  pair.b.close_endpoint();
  fi_cq_err_entry error{};
  pair.until_done([&]() -> ssize_t {
    const ssize_t read = fi_cq_read(pair.a.queue, &entry, 1);
    return read == -FI_EAVAIL ? fi_cq_readerr(pair.a.queue, &error, 0) : read;
  });
  REQUIRE(error.err == FI_ECONNRESET);
  send(pair, "x", 1);
  REQUIRE(pair.next_error(pair.a).err == FI_EHOSTUNREACH);
}

TEST_CASE("sends wait in order for the channel, and are bounded") {
  Pair pair;
  uint64_t tag = 0;
  while (fi_tinject(pair.a.endpoint, &tag, sizeof tag, pair.to_b, tag) == 0) ++tag;
  REQUIRE(tag == 64);
  REQUIRE(fi_tinject(pair.a.endpoint, &tag, sizeof tag, pair.to_b, tag) == -FI_EAGAIN);
  const uint64_t sent = tag;
  for (uint64_t i = 0; i <= sent; ++i) {
    uint64_t got = 0;
    REQUIRE(fi_trecv(pair.b.endpoint, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, 0, kAll, nullptr) == 0);
    if (i == sent) send(pair, std::string(reinterpret_cast<const char*>(&tag), sizeof tag), tag);
    REQUIRE(pair.next(pair.b).tag == i);
    REQUIRE(got == i);
  }
}

TEST_CASE("long messages wait for the channel") {
  Pair pair;
  const std::string text = text_of(100'000);
  std::string to(text.size(), '-');
  int context = 0;
  REQUIRE(fi_tsend(pair.a.endpoint, text.data(), text.size(), nullptr, pair.to_b, 1, &context) == 0);
  REQUIRE(fi_trecv(pair.b.endpoint, to.data(), to.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
  REQUIRE(pair.next(pair.b).len == text.size());
  REQUIRE(pair.next(pair.a).op_context == &context);
  REQUIRE(to == text);
}

TEST_CASE("without a name at the address a send fails") {
  TestNi ni;
  Side side;
  fi_addr_t number = 0;
  const std::string host(side.info->domain_attr->name);
  const std::string text = "unet://" + host + "/nothing";
  REQUIRE(fi_av_insert(side.vector, text.c_str(), 1, &number, 0, nullptr) == 1);
  REQUIRE(fi_send(side.endpoint, "x", 1, nullptr, number, nullptr) == 0);
  fi_cq_tagged_entry entry{};
  const Nanoseconds end = monotonic_now() + 60 * kSecond;
  while (fi_cq_read(side.queue, &entry, 1) == -FI_EAGAIN && monotonic_now() < end) {}
  fi_cq_err_entry error{};
  REQUIRE(fi_cq_readerr(side.queue, &error, 0) == 1);
  REQUIRE(error.err == FI_EHOSTUNREACH);
  REQUIRE(fi_send(side.endpoint, "x", 1, nullptr, number + 1, nullptr) == -FI_EINVAL);
  REQUIRE(fi_av_remove(side.vector, &number, 1, 0) == 0);
  REQUIRE(fi_av_remove(side.vector, &number, 1, 0) == -FI_EINVAL);
}

TEST_CASE("bytes that were injected for a slow peer outlive the call to fi_close()") {
  Pair pair;
  const std::string text = text_of(16 * 1024);
  // Unexpected messages make b slow.
  constexpr uint64_t kCount = 300;
  for (uint64_t tag = 0; tag < kCount; ++tag) {
    pair.until_done([&] { return fi_tinject(pair.a.endpoint, text.data(), text.size(), pair.to_b, tag); });
  }
  std::string to(text.size(), '-');
  std::thread receiver([&] {
    for (uint64_t tag = 0; tag < kCount; ++tag) {
      must(fi_trecv(pair.b.endpoint, to.data(), to.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, nullptr) == 0, "fi_trecv");
      fi_cq_tagged_entry entry{};
      const Nanoseconds end = monotonic_now() + 10 * kSecond;
      while (fi_cq_read(pair.b.queue, &entry, 1) != 1 && monotonic_now() < end) {}
      must(entry.len == text.size(), "a message");
    }
  });
  pair.a.close_endpoint();
  receiver.join();
  REQUIRE(to == text);
}

TEST_CASE("a number that was removed leads nowhere") {
  Pair pair;
  send(pair, "x", 1);
  REQUIRE(fi_av_remove(pair.a.vector, &pair.to_b, 1, 0) == 0);
  REQUIRE(fi_tsend(pair.a.endpoint, "x", 1, nullptr, pair.to_b, 1, nullptr) == -FI_EINVAL);
  const fi_addr_t again = pair.a.know(pair.b);
  REQUIRE(again != pair.to_b);
  pair.until_done([&] { return fi_tsend(pair.a.endpoint, "x", 1, nullptr, again, 1, nullptr); });
}

TEST_CASE("a peer that closes before it is greeted fails the send") {
  Pair pair;
  REQUIRE(fi_tsend(pair.a.endpoint, "x", 1, nullptr, pair.to_b, 1, nullptr) == 0);
  const Nanoseconds start = monotonic_now();
  while (monotonic_now() - start < kSecond / 10) fi_cq_read(pair.b.queue, nullptr, 0);  // takes the channel
  pair.b.close_endpoint();
  fi_cq_tagged_entry entry{};
  ssize_t read = 0;
  do {
    read = fi_cq_read(pair.a.queue, &entry, 1);
  } while (read == -FI_EAGAIN && monotonic_now() - start < 10 * kSecond);
  REQUIRE(read == -FI_EAVAIL);
}

TEST_CASE("a child of fork() closes its copies of what the parent goes on to use") {
  Pair pair([](fi_info& hints) { hints.domain_attr->data_progress = FI_PROGRESS_AUTO; });
  for (int i = 0; i < 10; ++i) {
    send(pair, "x", 1);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      std::atomic<bool> closed = false;
      std::thread own([&] { closed.wait(false); });  // mostly with the handle of a thread of the parent
      pair.a.close_endpoint();
      pair.b.close_endpoint();
      for (const Side* each : {&pair.a, &pair.b}) {
        if (fi_close(&each->queue->fid) != 0 || fi_close(&each->vector->fid) != 0 || fi_close(&each->domain->fid) != 0) ::_exit(1);
      }
      closed = true;
      closed.notify_one();
      own.join();
      ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    char byte = 0;
    REQUIRE(fi_trecv(pair.b.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
    REQUIRE(pair.next(pair.b).len == 1);
    pair.next(pair.a);
  }
}

TEST_CASE("a poll set names the queues and counters with news") {
  Pair pair;
  fid_cntr* counter = nullptr;
  int in_counter = 0, in_queue = 0;
  fi_cntr_attr counters{};
  REQUIRE(fi_cntr_open(pair.b.domain, &counters, &counter, &in_counter) == 0);
  fid_cq* queue = nullptr;
  fi_cq_attr queues{};
  REQUIRE(fi_cq_open(pair.b.domain, &queues, &queue, &in_queue) == 0);
  fi_poll_attr attributes{};
  fid_poll* set = nullptr;
  REQUIRE(fi_poll_open(pair.b.domain, &attributes, &set) == 0);
  REQUIRE(fi_poll_add(set, &queue->fid, 0) == 0);
  REQUIRE(fi_poll_add(set, &counter->fid, 0) == 0);
  REQUIRE(fi_poll_add(set, &pair.b.queue->fid, 0) == 0);
  REQUIRE(fi_poll_add(set, &pair.b.endpoint->fid, 0) == -FI_EINVAL);
  void* contexts[3];
  REQUIRE(fi_poll(set, contexts, 3) == 0);
  REQUIRE(fi_cntr_add(counter, 1) == 0);
  REQUIRE(fi_poll(set, contexts, 3) == 1);
  REQUIRE(contexts[0] == &in_counter);
  REQUIRE(fi_poll(set, contexts, 3) == 0);
  char byte = 0;
  REQUIRE(fi_trecv(pair.b.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
  send(pair, "x", 1);
  pair.next(pair.a);
  int found = 0;
  pair.until_done([&]() -> ssize_t { return (found = fi_poll(set, contexts, 3)) == 0 ? -FI_EAGAIN : found; });
  REQUIRE(found == 1);
  REQUIRE(contexts[0] == pair.b.queue->fid.context);
  REQUIRE(pair.next(pair.b).len == 1);
  REQUIRE(fi_close(&set->fid) == -FI_EBUSY);
  REQUIRE(fi_close(&queue->fid) == -FI_EBUSY);
  for (fid* each : {&queue->fid, &counter->fid, &pair.b.queue->fid}) REQUIRE(fi_poll_del(set, each, 0) == 0);
  REQUIRE(fi_poll_del(set, &queue->fid, 0) == -FI_EINVAL);
  for (fid* each : {&set->fid, &queue->fid, &counter->fid}) REQUIRE(fi_close(each) == 0);
}

TEST_CASE("a child of fork() that closes its copies leaves the parent's descriptors alone") {
  Pair pair([](fi_info&) {}, {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD});
  char byte = 0;
  const auto exchange = [&](const std::function<void()>& wait) {
    REQUIRE(fi_trecv(pair.b.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
    send(pair, "x", 1);
    wait();
    REQUIRE(pair.next(pair.b).len == 1);
    pair.next(pair.a);
  };
  exchange([] {});
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    pair.a.close_endpoint();
    pair.b.close_endpoint();
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  fid* object = &pair.b.queue->fid;
  int descriptor = -1;
  REQUIRE(fi_control(object, FI_GETWAIT, &descriptor) == 0);
  pair.until_done([&]() -> ssize_t { return fi_trywait(pair.b.fabric, &object, 1); });
  exchange([&] {
    pollfd on{descriptor, POLLIN, 0};
    REQUIRE(::poll(&on, 1, 10'000) == 1);
  });
}

TEST_CASE("a reader that sleeps is woken by a message") {
  TestNi ni;
  const fi_cq_attr waiting{.size = 0, .flags = 0, .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD};
  Side side([](fi_info&) {}, waiting);
  fid* object = &side.queue->fid;
  int descriptor = -1;
  REQUIRE(fi_control(object, FI_GETWAIT, &descriptor) == 0);
  while (fi_trywait(side.fabric, &object, 1) != 0) fi_cq_read(side.queue, nullptr, 0);
  pollfd on{descriptor, POLLIN, 0};
  REQUIRE(::poll(&on, 1, 0) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::usleep(100'000);
    Side sender;
    fi_addr_t number = 0;
    const std::string name = side.name();
    fi_av_insert(sender.vector, name.data(), 1, &number, 0, nullptr);
    while (fi_inject(sender.endpoint, "x", 1, number) == -FI_EAGAIN) fi_cq_read(sender.queue, nullptr, 0);
    sender.close_endpoint();
    ::_exit(0);
  }
  char byte = 0;
  fi_cq_entry entry{};
  REQUIRE(fi_recv(side.endpoint, &byte, 1, nullptr, FI_ADDR_UNSPEC, &byte) == 0);
  REQUIRE(fi_cq_sread(side.queue, &entry, 1, nullptr, 30'000) == 1);
  REQUIRE(entry.op_context == &byte);
  REQUIRE(byte == 'x');
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  REQUIRE(fi_cq_sread(side.queue, &entry, 1, nullptr, 10) == -FI_EAGAIN);
}
