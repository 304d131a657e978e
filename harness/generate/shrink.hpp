// From a sketch that fails to the smallest that still does.
#pragma once

#include <functional>
#include <vector>

#include "harness/generate/sketch.hpp"

namespace fsdp_cts::generate {

// Every legal sketch that lacks one thing of this one, what lacks most first.
std::vector<Sketch> smaller_sketches(const Sketch& sketch);

// Takes the first smaller one that still fails, again and again, until none does or `most` were tried.
// `still_fails` may change the data's seed: smaller ones get data in which nothing rounds of their own.
Sketch shrink(Sketch failing, const std::function<bool(Sketch&)>& still_fails, int most);

}  // namespace fsdp_cts::generate
