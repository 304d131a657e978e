// Drives a fuzz target where libFuzzer is not: changes inputs of a corpus at random, without looking at
// coverage. Takes libFuzzer's options as far as it has them, so that command lines fit both:
//
//   fuzz_frames [-max_total_time=SECONDS] [-runs=N] [-seed=N] [-max_len=BYTES] [-artifact_prefix=PATH]
//               FOLDER_OR_FILE…
//
// Every input is tried as it is; then, if a folder was among them, changed ones are until the time is over or
// N are done. An input that ends the process, or takes more than ten seconds, is left as <prefix>crash-input
// or <prefix>timeout-input.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "harness/fuzz/targets.hpp"

namespace {

using Bytes = std::string;

struct Options {
  double seconds = 0;
  long runs = 0;
  unsigned seed = 1;
  std::size_t longest = 4096;
  std::string prefix;
  std::vector<std::filesystem::path> inputs;
};

// For the signal handler: what is being tried.
const char* tried_data = nullptr;
std::size_t tried_size = 0;
std::string crash_file, timeout_file;

void leave_input(int signal) {
  const int file =
      ::open((signal == SIGALRM ? timeout_file : crash_file).c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file >= 0) [[maybe_unused]]
    const ssize_t written = ::write(file, tried_data, tried_size);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void try_input(const Bytes& input) {
  tried_data = input.data();
  tried_size = input.size();
  // A copy of exactly this size, so that a sanitizer sees every step beyond the end.
  std::vector<std::uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, const Options& options)
      : corpus_(corpus), longest_(options.longest), random_(options.seed) {}

  Bytes next() {
    Bytes input = one_of_corpus();
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(input);
    if (input.size() > longest_) input.resize(longest_);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const Bytes& one_of_corpus() { return corpus_[below(corpus_.size())]; }

  void change(Bytes& input) {
    static const std::vector<Bytes> words = {"0",
                                             "-1",
                                             "1e999",
                                             "9223372036854775807",
                                             "18446744073709551616",
                                             "null",
                                             "true",
                                             "\"\"",
                                             "[]",
                                             "{}",
                                             "\\u0000",
                                             "${",
                                             "}",
                                             "*",
                                             "\n",
                                             "\xff",
                                             "\xc3\xa4"};
    const std::size_t at = below(input.size() + 1);
    const std::size_t length = std::min(below(16) + 1, input.size() - std::min(at, input.size()));
    switch (below(8)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(below(256));
        return;
      case 2:
        input.insert(at, 1, static_cast<char>(below(256)));
        return;
      case 3:
        input.erase(at, length);
        return;
      case 4: {
        const Bytes part = input.substr(at, length);
        for (std::size_t times = 1 + below(8); times > 0; --times) input.insert(at, part);
        return;
      }
      case 5:
        input.replace(at, length, words[below(words.size())]);
        return;
      case 6: {  // the rest of another input
        const Bytes& other = one_of_corpus();
        input.replace(at, Bytes::npos, other, below(other.size() + 1), Bytes::npos);
        return;
      }
      default: {  // a part of another input
        const Bytes& other = one_of_corpus();
        input.insert(at, other, below(other.size() + 1), 1 + below(64));
        return;
      }
    }
  }

  const std::vector<Bytes>& corpus_;
  std::size_t longest_;
  std::minstd_rand random_;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&](const char* name) {
      const std::string start = std::string("-") + name + "=";
      return argument.starts_with(start) ? argument.c_str() + start.size() : nullptr;
    };
    if (const char* text = value("max_total_time")) {
      options.seconds = std::atof(text);
    } else if (const char* number = value("runs")) {
      options.runs = std::atol(number);
    } else if (const char* seed = value("seed")) {
      options.seed = static_cast<unsigned>(std::atol(seed));
    } else if (const char* longest = value("max_len")) {
      options.longest = static_cast<std::size_t>(std::atol(longest));
    } else if (const char* prefix = value("artifact_prefix")) {
      options.prefix = prefix;
    } else if (!argument.starts_with('-')) {
      options.inputs.emplace_back(argument);
    }
  }
  return options;
}

Bytes contents(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  crash_file = options.prefix + "crash-input";
  timeout_file = options.prefix + "timeout-input";
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS, SIGALRM}) ::signal(signal, leave_input);

  std::vector<Bytes> corpus;
  bool mutate = false;
  for (const std::filesystem::path& input : options.inputs) {
    if (!std::filesystem::is_directory(input)) {
      corpus.push_back(contents(input));
      continue;
    }
    mutate = true;
    std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(input), {});
    std::sort(files.begin(), files.end());
    for (const std::filesystem::path& file : files) corpus.push_back(contents(file));
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no inputs; give a corpus folder or files\n", argv[0]);
    return 2;
  }
  long done = 0;
  for (const Bytes& input : corpus) {
    ::alarm(10);
    try_input(input);
    ++done;
  }
  Mutator mutator(corpus, options);
  const auto began = std::chrono::steady_clock::now();
  std::chrono::duration<double> passed{};
  while (mutate && (options.runs == 0 || done < options.runs) &&
         (options.seconds == 0 || passed.count() < options.seconds)) {
    if (done % 16 == 0) {  // system calls would be most of the time
      ::alarm(10);
      passed = std::chrono::steady_clock::now() - began;
    }
    try_input(mutator.next());
    ++done;
  }
  std::printf("%ld inputs in %.1f s, %zu of them the corpus as it is\n", done, passed.count(), corpus.size());
  return 0;
}
