// unit_test.h - what nearly every unit test includes, compiled once for each program of them. A test names what it needs all the same.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <catch2/catch.hpp>
#include <tl/expected.hpp>
