// options.cc - parses the command line.
#include "apps/unetcat/options.h"

#include <cstdio>

#include <CLI/CLI.hpp>

#include "apps/version_option.h"
#include "unet/control.h"

namespace unet::unetcat {
namespace {

constexpr int kUsage = 2;
constexpr double kWaitMax = 1e6, kConnectWait = 10;  // seconds
constexpr const char* kSeeHelp = " (unetcat --help lists the options)";

ParsedOptions refuse(const std::string& text) {
  std::fprintf(stderr, "unetcat: %s%s\n", text.c_str(), kSeeHelp);
  return {std::nullopt, kUsage};
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  Options options;
  double wait = kConnectWait;
  CLI::App app{
      "unetcat - sends standard input to a program elsewhere, and prints what comes from there\n\n"
      "  unetcat -l inbox > copy            in one shell\n"
      "  unetcat inbox < file               in another one on this host\n"
      "  tar c . | unetcat inbox@beta       or on a host with a wire to beta\n\n"
      "One side listens at a name, the other one connects to it. Bytes go both ways at once; the end of one direction leaves the other "
      "open. The exit status is 0 only if all bytes have been written on the other side."};
  app.add_option("name", options.name, "the name to listen at, or NAME[@HOST] to connect to")->required();
  app.add_flag("-l,--listen", options.listen, "listen at the name, and end after one peer");
  app.add_flag("-k,--keep", options.keep, "with -l: then wait for the next peer")->needs("--listen");
  CLI::Option* const sends = app.add_flag("--send-only", options.send_only, "take nothing from the peer");
  app.add_flag("--recv-only", options.receive_only, "leave standard input alone")->excludes(sends);
  CLI::Option* const waits = app.add_option("-w,--wait", wait,
                                            "seconds to wait for a peer (default: 10 until the name is there; with -l no limit)");
  waits->check(CLI::Range(0.0, kWaitMax));
  app.add_option("-n,--bytes", options.bytes, "end after this many bytes of standard input: 100, 64k, 4GiB")
      ->transform(CLI::AsSizeValue(false));
  app.add_flag("-v,--verbose", options.verbose, "print peers, progress each second, and the totals on standard error");
  app.add_flag("--hash", options.hash, "compare a digest (crc32c) of the bytes on both sides, and print it on standard error");
  app.add_option("--ni", options.ni,
                 "the network interface: unix:PATH, or embedded:SPECIFICATION (default: $UNET_NI, or this host's unetd)");
  apps::add_version(app, "unetcat");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return {std::nullopt, app.exit(help)};
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  }
  if (options.listen && !control::valid_name(options.name)) {
    return refuse("'" + options.name + "' is no name to listen at: write letters, digits and . _ - /, first a letter or a digit");
  }
  if (waits->count() != 0 || !options.listen) options.wait = static_cast<Nanoseconds>(wait * 1e9);
  return {options, 0};
}

}  // namespace unet::unetcat
