// task_liar.cc - a caller of an agent of remote tasks that wants more than its rights; tests/system/remote_tasks.py runs it.
//
// Usage: task_liar self NAME       calls unet-agent@NAME with a job that names that agent as its second host, and prints the answers
//        task_liar secret FILE     calls the agent of this host, and prints whether the agent sends back the secret of FILE
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "am/endpoint.h"
#include "am/rpc/task/branch.h"
#include "apps/task_secret.h"
#include "unet/context.h"

namespace {

using namespace unet;

constexpr uint8_t kHandler = 1;
constexpr uint64_t kKey = 1;
constexpr Nanoseconds kPatience = 10 * kSecond;

template <typename T>
T take(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "task_liar: %s\n", result.error().text.c_str());
  std::exit(1);
}

struct Answers {
  bool over = false;
  uint32_t records = 0;
  am::Tag tag{};
};

void take_record(am::Token& token, void* of) {
  auto& answers = *static_cast<Answers*>(of);
  const auto type = static_cast<rpc::RecordType>(token.argument(2));
  const std::string text(reinterpret_cast<const char*>(token.payload().data()), token.payload().size());
  if (type == rpc::RecordType::output) std::printf("rank %u: %s", token.argument(3), text.c_str());
  if (type == rpc::RecordType::failed) std::printf("node %u failed: %s\n", token.argument(4), text.c_str());
  answers.over |= type == rpc::RecordType::done;
  answers.tag = token.tag();
  ++answers.records;
}

}  // namespace

int main(int, char** argv) {
  const std::string lie = argv[1], argument = argv[2];
  Context context = take(Context::open({}, "task_liar"));
  const auto endpoint = take(am::Endpoint::create(context, {.both_ways = true}));
  Answers answers;
  endpoint->set_handler(kHandler, take_record, &answers);
  const std::string target = rpc::kAgentName + (lie == "self" ? '@' + argument : "");
  if (const Status mapped = endpoint->map(0, target); !mapped) {
    std::fprintf(stderr, "task_liar: %s\n", mapped.error().text.c_str());
    return 1;
  }
  const auto say = [&](rpc::RecordType type, uint32_t a, Bytes payload) {
    endpoint->request_medium(0, kHandler, payload, am::Words(kKey, static_cast<uint32_t>(type), a, uint32_t{0}));
  };
  rpc::JobSpec spec{.hosts = {{"caller"}, {argument}}, .arity = 1, .program = {"id", "-u"}, .secret = std::string(32, '0')};
  if (lie != "self") spec.hosts = {{"caller"}};
  const auto bytes = take(rpc::encode_job(spec));
  const be32 size(static_cast<uint32_t>(bytes.size()));
  say(rpc::RecordType::start, rpc::kTaskVersion, as_bytes(&size, sizeof size));
  say(rpc::RecordType::spec, 0, bytes);
  for (const Nanoseconds start = monotonic_now(); !answers.over && monotonic_now() - start < kPatience;) endpoint->wait(kMillisecond);
  std::printf("%u records\n", answers.records);
  if (lie == "secret") std::puts(answers.tag == take(apps::read_task_secret(argument)) ? "it tells the secret" : "it tells no secret");
  return 0;
}
