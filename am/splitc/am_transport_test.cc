// am_transport_test.cc - how the ranks of a job find each other on a network interface: which processes they accept, and how long they try.
#include "am/splitc/am_transport.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "unet/test_daemon.h"

using namespace unet;
using namespace unet::splitc;

namespace {

constexpr uint8_t kOperation = 7;

struct Heard final : Receiver {
  void handle(const Arrival& arrival, splitc::Answer&) override { from.push_back(arrival.from); }
  void come_back(Rank, uint8_t, std::string_view) override { ++returned; }
  std::vector<Rank> from;
  uint32_t returned = 0;
};

Job job_of(const TestDaemon& daemon, Rank rank, uint32_t size) {
  Job job;
  job.rank = rank;
  job.size = size;
  job.ni = daemon.ni();
  job.memory = uint64_t{1} << 20;
  return job;
}

// A process that connects to rank 0 under `name`, unless that is empty.
struct Asker {
  Asker(const TestDaemon& daemon, const std::string& name) : context(*Context::open(daemon.ni(), "test")) {
    auto made = am::Endpoint::create(context);
    must(made.has_value(), "am::Endpoint::create");
    endpoint = std::move(*made);
    if (!name.empty()) must(endpoint->bind(name).has_value(), "bind");
  }
  Status ask(AmTransport& rank, am::Tag tag = am::kAnyTag) {
    Status mapped;
    std::atomic<bool> over{false};
    std::thread asker([&] {
      mapped = endpoint->map(0, "splitc/job/0", tag);
      over = true;
    });
    while (!over) rank.wait(kMillisecond);
    asker.join();
    return mapped;
  }
  Context context;
  std::unique_ptr<am::Endpoint> endpoint;
};

}  // namespace

TEST_CASE("only ranks of the job are let in, though all are processes of one user") {
  const TestDaemon daemon;
  auto rank = std::move(*AmTransport::open(job_of(daemon, 0, 3)));
  for (const char* name : {"", "stranger", "splitc/job/3", "splitc/job/01", "splitc/other/1", "splitc/job/1/distant"}) {
    INFO("'" << name << "'");
    Asker asker(daemon, name);
    const Status asked = asker.ask(*rank);
    REQUIRE_FALSE(asked);
    REQUIRE(asked.error().code == Errc::refused);
  }
  Asker honest(daemon, "splitc/job/1");
  REQUIRE(honest.ask(*rank));
}

TEST_CASE("a rank is who its name says, whatever its messages say") {
  const TestDaemon daemon;
  Heard heard;
  auto rank = std::move(*AmTransport::open(job_of(daemon, 0, 3)));
  rank->set_receiver(heard);
  Asker second(daemon, "splitc/job/2"), first(daemon, "splitc/job/1");
  REQUIRE(second.ask(*rank, am::Tag{3}));
  REQUIRE(first.ask(*rank, am::Tag{4}));
  for (const Asker* each : {&first, &second, &first}) {
    const size_t before = heard.from.size();
    REQUIRE(each->endpoint->request(0, kOperation, uint32_t{1}) == am::Outcome::sent);
    while (heard.from.size() == before) rank->wait(kMillisecond);
  }
  REQUIRE(heard.from == std::vector<Rank>{1, 2, 1});
  REQUIRE(rank->strangers() == 0);
}

// A service gives this error for an endpoint with a full queue of requests.
TEST_CASE("a rank that is refused at first tries again") {
  const TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  auto busy = std::make_unique<unet::Endpoint>(*context.create_endpoint());
  REQUIRE(busy->bind("splitc/job/1"));
  std::atomic<bool> over{false};
  uint32_t refused = 0;
  std::thread answerer([&] {
    while (!over) {
      const auto request = busy->next_request();
      if (!request) {
        std::this_thread::yield();
      } else if (refused < 3) {
        ++refused;
        busy->reject(request->id);
      } else {
        static_cast<void>(busy->accept(request->id));
      }
    }
  });
  auto rank = std::move(*AmTransport::open(job_of(daemon, 0, 2)));
  const Status connected = rank->connect();
  over = true;
  answerer.join();
  CHECK(connected);
  CHECK(refused == 3);
}
