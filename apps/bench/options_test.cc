// options_test.cc - the command line: what is understood, and one clear line for everything else.
#include "apps/bench/options.h"

#include <catch2/catch.hpp>

namespace unet::bench::options_test {

namespace {

Result<Options> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "/somewhere/unet-bench");
  return parse_options(static_cast<int>(arguments.size()), arguments.data(), {"local", "limit-pingpong", "kernel-udp"});
}

}  // namespace

TEST_CASE("options: a full run") {
  const auto options = parse({"run", "rtt", "rate", "--path", "local,kernel-*", "--size", "8,4K", "--seconds", "1.5", "--repeat",
                              "7", "--json", "-", "--table", "markdown"});
  REQUIRE(options);
  CHECK(options->action == Action::run);
  CHECK(options->names == std::vector<std::string>{"rtt", "rate"});
  CHECK(options->paths == std::vector<std::string>{"local", "kernel-*"});
  CHECK(options->sizes == std::vector<uint32_t>{8, 4096});
  CHECK(options->seconds == 1.5);
  CHECK(options->repeat == 7);
  CHECK(parse({"run", "tcp-loss", "--condition", "late_*,1%"})->conditions == std::vector<std::string>{"late_*", "1%"});
  CHECK(options->json == "-");
  CHECK(options->table == TableStyle::markdown);
  CHECK(options->command.rfind("unet-bench run rtt rate --path local,kernel-* ", 0) == 0);
}

TEST_CASE("options: the other actions") {
  CHECK(parse({"list"})->action == Action::list);
  CHECK(parse({"demo"})->action == Action::demo);
  CHECK(parse({"demo"})->seconds < parse({"run", "rtt"})->seconds);
  CHECK(parse({"demo", "--seconds", "2"})->seconds == 2);
  CHECK_FALSE(parse({"demo"})->full);
  CHECK(parse({"demo", "--full"})->full);
  CHECK(parse({"info", "rtt", "local"})->action == Action::info);
  CHECK(parse({"run", "am-store", "--size", "1M"})->sizes == std::vector<uint32_t>{1 << 20});
  const auto help = parse({"--help"});
  REQUIRE(help);
  CHECK(help->action == Action::help);
  CHECK(help->help.find("unet-bench run rtt") != std::string::npos);
}

TEST_CASE("options: what is measured across hosts") {
  CHECK(parse({"across", "a@h"})->across.benches == std::vector<std::string>{"rtt", "bandwidth"});
  CHECK(parse({"across", "a@h", "--only", "out,rtt"})->across.benches == std::vector<std::string>{"out", "rtt"});
  CHECK_FALSE(parse({"across", "a@h", "--only", "rtt,in"}));
}

TEST_CASE("options: a page is made by another program, which reads the options of its own") {
  const auto report = parse({"report", "--quick", "--directory", "x", "--help"});
  REQUIRE(report);
  CHECK(report->action == Action::page);
  CHECK(report->page == std::vector<std::string>{"report", "--quick", "--directory", "x", "--help"});
  const auto compared = parse({"compare", "a", "b", "--noise", "2"});
  REQUIRE(compared);
  CHECK(compared->action == Action::page);
  CHECK(compared->page == std::vector<std::string>{"compare", "--noise", "2", "--directory", "comparison", "--", "a", "b"});
  CHECK(parse({"compare", "--old", "a", "--new", "b", "--json", "-"})->action == Action::compare);
  CHECK_FALSE(parse({"compare", "a", "--old", "b", "--new", "c"}));
  CHECK_FALSE(parse({"compare", "--new", "c"}));
}

TEST_CASE("options: jobs of kernels take what all measurements take") {
  const auto options =
      parse({"kernels", "--kernel", "cg,fft", "--path", "direct", "--ranks", "1,4", "--repeat", "7", "--json", "-", "--table", "markdown"});
  REQUIRE(options);
  CHECK(options->action == Action::kernels);
  const KernelsOptions& kernels = options->kernels;
  CHECK(kernels.kernels == std::vector<std::string>{"cg", "fft"});
  CHECK(kernels.paths == std::vector<std::string>{"direct"});
  CHECK(kernels.ranks == std::vector<uint32_t>{1, 4});
  CHECK(kernels.repeat == 7);
  CHECK_FALSE(kernels.cores);
  CHECK(kernels.json == "-");
  CHECK(kernels.table == TableStyle::markdown);
  CHECK(kernels.command == "unet-bench kernels --kernel cg,fft --path direct --ranks 1,4 --repeat 7 --json - --table markdown");
  CHECK(parse({"kernels"})->kernels.repeat == 5);
}

TEST_CASE("options: a comparison takes files of both builds") {
  const auto options = parse({"compare", "--old", "a", "b", "--new", "c", "--noise", "2.5", "--table", "markdown", "--all"});
  REQUIRE(options);
  CHECK(options->action == Action::compare);
  const CompareOptions& compare = options->compare;
  CHECK(compare.old_files == std::vector<std::string>{"a", "b"});
  CHECK(compare.new_files == std::vector<std::string>{"c"});
  CHECK(compare.noise == 0.025);
  CHECK(compare.table == TableStyle::markdown);
  CHECK(compare.all);
  CHECK(parse({"compare", "--new", "c", "--old", "a"})->compare.noise == 0.01);
}

TEST_CASE("options: malformed ones get one line that names them") {
  struct Bad {
    std::vector<const char*> arguments;
    const char* named;
  };
  const std::vector<Bad> cases = {
      {{}, "subcommand"},
      {{"walk"}, "walk"},
      {{"run"}, "NAME"},
      {{"run", "speed"}, "'speed'"},
      {{"info", "nothing"}, "'nothing'"},
      {{"run", "rtt", "--path", "tcp"}, "'tcp'"},
      {{"run", "rtt", "--path", "local,"}, "'local,'"},
      {{"run", "rtt", "--path", ""}, "--path"},
      {{"run", "rtt", "--path"}, "--path"},
      {{"run", "rtt", "--size", "8,x"}, "'x'"},
      {{"run", "rtt", "--size", "2M"}, "'2M'"},
      {{"run", "rtt", "--size", "128K"}, "'rtt' has sizes up to 64 KiB"},
      {{"run", "am-store", "rate", "--size", "128K"}, "'rate' has sizes up to 64 KiB"},
      {{"run", "am-traffic", "--size", "1"}, "'am-traffic' needs at least 2: --size says how many nodes"},
      {{"run", "connect", "--size", "8"}, "'connect'"},
      {{"run", "tcp-loss", "--condition", "late_*,2%"}, "'2%'"},
      {{"run", "tcp-loss", "rtt", "--condition", "late_*"}, "'rtt'"},
      {{"run", "tcp-loss", "--condition", "loss_0"}, "'loss_0'"},
      {{"run", "rtt", "connect", "--size", "8"}, "'connect'"},
      {{"run", "rtt", "--seconds", "0"}, "'0'"},
      {{"run", "rtt", "--seconds", ""}, "--seconds"},
      {{"run", "rtt", "--seconds", "-1"}, "'-1'"},
      {{"run", "rtt", "--seconds", "nan"}, "'nan'"},
      {{"run", "rtt", "--seconds", "inf"}, "'inf'"},
      {{"run", "rtt", "--seconds", "2s"}, "'2s'"},
      {{"run", "rtt", "--repeat", "0"}, "'0'"},
      {{"run", "rtt", "--repeat", "1.5"}, "'1.5'"},
      {{"run", "rtt", "--cores", "0"}, "'0'"},
      {{"run", "rtt", "--cores", "0,0"}, "'0,0'"},
      {{"run", "rtt", "--cores", "a,b"}, "'a,b'"},
      {{"run", "rtt", "--cores", "0,99999"}, "99999"},
      {{"run", "rtt", "--table", "html"}, "'html'"},
      {{"run", "rtt", "--speed", "9"}, "--speed"},
      {{"list", "--json", "x"}, "--json"},
      {{"compare", "--old", "a"}, "--new"},
      {{"compare", "a", "b", "--old", "c"}, "--old"},
      {{"compare", "--old", "a", "--new", "b", "--noise", "-1"}, "'-1'"},
      {{"compare", "--old", "a", "--new", "b", "--table", "html"}, "'html'"},
      {{"kernels", "--kernel", "mm"}, "'mm'"},
      {{"kernels", "--ranks", "0"}, "'0'"},
      {{"kernels", "--repeat", "0"}, "'0'"},
      {{"kernels", "--cores", "0,0"}, "'0,0'"},
      {{"kernels", "--table", "html"}, "'html'"},
  };
  for (const Bad& bad : cases) {
    const auto options = parse(bad.arguments);
    CAPTURE(bad.named);
    REQUIRE_FALSE(options);
    CHECK(options.error().code == Errc::invalid_argument);
    CHECK(options.error().text.find('\n') == std::string::npos);
    CHECK(options.error().text.find(bad.named) != std::string::npos);
  }
}

}  // namespace unet::bench::options_test
