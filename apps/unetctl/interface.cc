// interface.cc - sends requests to an NI and reads the answers.
#include "apps/unetctl/interface.h"

#include <filesystem>

#include "unet/connection.h"

namespace unet::unetctl {

Result<Interface> Interface::open(const std::string& socket) {
  Result<Context> context = Context::open("unix:" + socket, "unetctl");
  if (!context) return tl::unexpected(context.error());
  return Interface(std::move(*context));
}

Result<nlohmann::json> Interface::report() {
  const Result<std::string> text = context_.report();
  if (!text) return tl::unexpected(text.error());
  nlohmann::json report = nlohmann::json::parse(*text, nullptr, false);
  if (report.is_discarded()) return fail(Errc::protocol, "the network interface sent a report that is not JSON");
  return report;
}

namespace {

constexpr Nanoseconds kUpgradeTime = 24 * 3600 * kSecond;  // longer than the supervisor's own limit, which --takeover sets

template <typename Request>
Status ask(const std::string& socket, Request request, Nanoseconds timeout = 10 * kSecond) {
  const auto connection = Connection::open("unix:" + socket, "unetctl");
  if (!connection) return tl::unexpected(connection.error());
  const Result<Answer> answer = (*connection)->call(request, timeout);
  if (!answer) return tl::unexpected(answer.error());
  return {};
}

}  // namespace

Status reload_policy(const std::string& socket) {
  control::PolicyReload request{};
  request.header.op = control::Op::policy_reload;
  return ask(socket, request);
}

Status drain(const std::string& socket, bool on) {
  control::Drain request{};
  request.header.op = control::Op::drain;
  request.on = on ? 1 : 0;
  return ask(socket, request);
}

Status upgrade(const std::string& socket, const std::string& program) {
  control::Upgrade request{};
  request.header.op = control::Op::upgrade;
  std::error_code error;
  const std::string path = program.empty() ? "" : std::filesystem::absolute(program, error).string();
  if (error || path.size() > sizeof request.program.bytes) return fail(Errc::invalid_argument, "the path of the program is too long");
  request.program.set(path);
  return ask(socket, request, kUpgradeTime);
}

}  // namespace unet::unetctl
